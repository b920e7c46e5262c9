//! The driver under a protocol of lines, with a server that this test plays itself. What PostgreSQL's tests can show
//! only by chance (moves between workers, deaths at awkward moments) is provoked here.

mod harness;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use driver::{Changes, Driver, DriverConfig, LoggedConnections, PoolSpec, Timeouts, Upstreams};
use harness::{
    Harness, POOL, Spec, eventually,
    lines::{Lines, PUT_OUT},
    listener, roomy, upstream,
};
use pool::{GateConfig, PoolConfig};
use seam::{LeaseKind, PoolId};

/// An upstream that answers `number:line`; a line `die` makes it close, `slow MS ...` makes it think, `big N` answers N
/// bytes.
fn serve(mut stream: TcpStream, number: u32) {
    for line in BufReader::new(stream.try_clone().unwrap()).lines() {
        let Ok(line) = line else { return };
        let mut words = line.split(' ');
        match words.next() {
            Some("die") => return,
            Some("slow") => thread::sleep(Duration::from_millis(words.next().unwrap().parse().unwrap())),
            Some("big") => {
                let mut answer = vec![b'x'; words.next().unwrap().parse().unwrap()];
                answer.push(b'\n');
                let _ = stream.write_all(&answer);
                continue;
            }
            _ => {}
        }
        if stream.write_all(format!("{number}:{line}\n").as_bytes()).is_err() {
            return;
        }
    }
}

const LINES: Lines = Lines { kind: LeaseKind::Exclusive, starts: true };

impl Harness {
    fn open(workers: usize, config: PoolConfig, gate: GateConfig, timeouts: Timeouts) -> Self {
        Self::of(LINES, serve, (workers, config, gate, timeouts))
    }

    fn small(workers: usize, max_size: u32) -> Self {
        Self::open(workers, PoolConfig { max_size, ..PoolConfig::default() }, roomy(), Timeouts::default())
    }
}

#[test]
fn every_client_gets_its_own_answers_while_servers_move_between_workers() {
    let harness = Harness::small(2, 3);
    thread::scope(|scope| {
        for c in 0..24 {
            let mut client = harness.client();
            scope.spawn(move || {
                for i in 0..300 {
                    let line = format!("{c} {i}");
                    let answer = client.ask(&line);
                    assert_eq!(answer.split_once(':').unwrap().1, line);
                }
            });
        }
    });
    eventually("all transactions are counted", || harness.handle.snapshot().pools[0].totals.transactions == 24 * 300);
    let snapshot = harness.handle.snapshot();
    assert!(snapshot.workers.iter().all(|worker| worker.transactions > 0));
    assert!(snapshot.workers.iter().map(|worker| worker.moves).sum::<u64>() > 0, "no server ever moved");
    assert!(harness.upstream_connections.load(SeqCst) <= 3);
}

#[test]
fn clients_and_servers_that_die_at_random_disturb_no_other_client() {
    let harness = Harness::small(2, 4);
    thread::scope(|scope| {
        for c in 0..16 {
            let harness = &harness;
            scope.spawn(move || {
                let mut client = harness.client();
                for i in 0..150 {
                    match (c * 31 + i * 17) % 23 {
                        0 => assert_eq!(client.ask("die"), "server lost"),
                        // Leaves while its request runs, or waits.
                        1 => {
                            client.say("slow 3 x");
                            client = harness.client();
                        }
                        _ => {
                            let line = format!("{c} {i}");
                            assert_eq!(client.ask(&line).split_once(':').unwrap().1, line);
                        }
                    }
                }
            });
        }
    });
    eventually("nothing is in use any more", || {
        let counts = harness.handle.snapshot().pools[0].counts;
        counts.in_use == 0 && counts.waiters == 0 && counts.closing == 0
    });
}

#[test]
fn a_client_that_stays_though_its_request_took_too_long_is_not_counted_as_sent_away() {
    let timeouts = Timeouts { query: Some(Duration::from_millis(100)), ..Timeouts::default() };
    let harness = Harness::open(1, PoolConfig::default(), roomy(), timeouts);
    let mut client = harness.client();
    assert_eq!(client.ask("slow 3000 x"), "refused QueryTimeout");
    assert_eq!(client.ask("y"), "1:y");
    let sent_away = &harness.handle.snapshot().listeners[0].evictions;
    assert!(sent_away.iter().all(|(_, count)| *count == 0), "{sent_away:?}");
}

#[test]
fn a_client_that_does_not_read_holds_back_its_server_and_grows_nothing() {
    let harness = Harness::small(1, 2);
    let mut lazy = harness.client();
    let size = 64 << 20;
    lazy.say(&format!("big {size}"));
    let mut other = harness.client();
    for _ in 0..100 {
        assert_eq!(other.ask("x"), "1:x");
    }
    let mut answer = vec![0; size + 1];
    lazy.0.read_exact(&mut answer).unwrap();
    assert!(answer[..size].iter().all(|b| *b == b'x') && answer[size] == b'\n');
    assert_eq!(lazy.ask("y").split_once(':').unwrap().1, "y");
}

#[test]
fn a_session_is_told_once_all_has_left_and_not_before() {
    let harness = Harness::small(1, 1);
    let mut slow = harness.client();
    slow.say("flood 100");
    eventually("nothing more is put out", || {
        let before = PUT_OUT.load(SeqCst);
        thread::sleep(Duration::from_millis(200));
        PUT_OUT.load(SeqCst) == before && before > 0
    });
    let unread = PUT_OUT.load(SeqCst);
    assert!(unread < 50, "{unread} MB were put out, and no client has read any");
    assert_eq!(harness.client().ask("x"), "0:x", "others have their turns beside it");
    assert_eq!(slow.hear(), "flood");
    let mut all = Vec::new();
    slow.0.read_until(b'\n', &mut all).unwrap();
    assert_eq!((all.len(), PUT_OUT.load(SeqCst)), ((100 << 20) + 1, 100));
}

#[test]
fn a_worker_that_is_stuck_is_noticed() {
    let harness = Harness::small(2, 1);
    assert!(harness.handle.answers(Duration::from_secs(5)));
    let mut client = harness.client();
    client.ask("x");
    client.say("dawdle");
    thread::sleep(Duration::from_millis(100));
    assert!(!harness.handle.answers(Duration::from_millis(300)));
    assert!(client.hear().ends_with(":dawdle"));
    assert!(harness.handle.answers(Duration::from_secs(5)));
}

/// Rules that change while a pool asks for them.
struct Changing {
    upstream: SocketAddr,
    max_size: AtomicU32,
    asked: Mutex<Option<Sender<()>>>,
    go_on: Mutex<Receiver<()>>,
}

impl Upstreams for Changing {
    fn spec(&self, pool: PoolId) -> Option<PoolSpec> {
        let config = PoolConfig { max_size: self.max_size.load(SeqCst), ..PoolConfig::default() };
        if let Some(asked) = self.asked.lock().unwrap().take() {
            asked.send(()).unwrap();
            let _ = self.go_on.lock().unwrap().recv_timeout(Duration::from_secs(5));
        }
        Spec(self.upstream, config).spec(pool)
    }

    fn at_start(&self) -> Vec<PoolId> {
        Vec::new()
    }
}

#[test]
fn a_pool_that_is_made_during_a_reload_follows_the_new_rules() {
    let (asked, was_asked) = channel();
    let (may_go_on, go_on) = channel();
    let rules = Arc::new(Changing {
        upstream: upstream(serve).0,
        max_size: AtomicU32::new(3),
        asked: Mutex::new(Some(asked)),
        go_on: Mutex::new(go_on),
    });
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(socket.local_addr().unwrap()).unwrap();
    let listener = listener(socket, roomy(), Timeouts::default());
    let driver = Driver::start(DriverConfig::default(), Arc::new(LINES), rules.clone(), vec![listener]).unwrap();
    stream.write_all(b"x\n").unwrap();
    was_asked.recv().unwrap();
    rules.max_size.store(7, SeqCst);
    let handle = driver.handle();
    let reload = thread::spawn(move || {
        handle.reconfigure(&Changes {
            listeners: vec![(roomy(), Timeouts::default())],
            max_clients: 0,
            max_auth_failures: 10,
            name_failure_ttl: Duration::ZERO,
            logged: LoggedConnections::default(),
        })
    });
    thread::sleep(Duration::from_millis(100));
    may_go_on.send(()).unwrap();
    reload.join().unwrap();
    BufReader::new(stream).read_line(&mut String::new()).unwrap();
    assert_eq!(driver.handle().snapshot().pools[0].config.max_size, 7);
    driver.handle().stop();
    assert!(driver.join());
}

#[test]
fn a_pool_has_the_size_that_it_was_given_also_after_a_reload() {
    let harness = Harness::small(1, 20);
    let mut clients: Vec<_> = (0..6).map(|_| harness.client()).collect();
    clients[0].ask("x");
    let size = || harness.handle.snapshot().pools[0].config.max_size;
    assert_eq!(size(), 20);
    harness.handle.resize(POOL, 2);
    assert_eq!(size(), 2);
    clients.iter_mut().for_each(|client| client.say("slow 200 x"));
    eventually("the others wait", || {
        let load = &harness.handle.loads()[0];
        (load.max_size, load.counts.in_use, load.counts.waiters, load.fit) == (2, 2, 4, true)
    });
    let listeners = vec![(roomy(), Timeouts::default())];
    harness.handle.reconfigure(&Changes {
        listeners,
        max_clients: 0,
        max_auth_failures: 10,
        name_failure_ttl: Duration::ZERO,
        logged: LoggedConnections::default(),
    });
    assert_eq!(size(), 2);
    // More than the spec lets it have, and then fewer.
    harness.handle.resize(POOL, 99);
    assert_eq!(size(), 50);
    for client in &mut clients {
        client.hear();
    }
    eventually("each hold is counted with its time", || {
        let load = &harness.handle.loads()[0];
        load.completed == 7 && load.held >= Duration::from_millis(6 * 200) && load.errors == 0
    });
    harness.handle.pause(None);
    assert!(!harness.handle.loads()[0].fit && harness.handle.loads()[0].ordered);
    harness.handle.resume(None);
    assert!(harness.handle.loads()[0].fit);
    harness.handle.resize(PoolId(9), 3);
}

#[test]
fn an_order_to_kill_a_client_that_has_left_hits_no_client_that_came_after_it() {
    let harness = Harness::small(1, 1);
    let mut first = harness.client();
    first.ask("x");
    let id = harness.handle.clients(driver::ClientFilter::All, 9)[0].id;
    drop(first);
    eventually("the first has gone", || harness.handle.clients(driver::ClientFilter::All, 9).is_empty());
    let mut second = harness.client();
    second.ask("x");
    assert!(!harness.handle.kill(id));
    assert_eq!(second.ask("still here"), "0:still here");
    assert!(harness.handle.kill(harness.handle.clients(driver::ClientFilter::All, 9)[0].id));
    assert_eq!(second.hear(), "refused Killed");
}
