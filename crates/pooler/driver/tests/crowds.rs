//! Clients that do not log in, from several addresses: they lose their places if there is no room. A client here sends
//! words: `in` logs it in, `look` makes it a monitor, `wait` has it wait for a server that never comes. Each word is
//! echoed.

mod harness;

use std::{
    io::{BufReader, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use driver::Timeouts;
use harness::{Client, Harness, POOL, eventually};
use pool::{GateConfig, PoolConfig};
use seam::{
    ClientTag, CloseReason, Effect, Input, LeaseFailure, LeaseKind, Origin, Outbox, Peer, PoolId, Protocol, Refusal,
    ServerTag, Sessions, Standing,
};
use socket2::{Domain, Socket, Type};

/// No server is ever ready.
struct Words;

impl Protocol for Words {
    type Client = ();
    type Server = ();

    fn client_start(&self, _: ClientTag, _: Origin, _: &mut Outbox) {}

    fn server_start(&self, _: ServerTag, _: PoolId, _: &mut Outbox) {}

    fn client_input(
        &self,
        me: ClientTag,
        (): &mut (),
        _: &mut dyn Sessions<ServerTag, ()>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        let Some(end) = input.bytes.iter().position(|byte| *byte == b'\n') else { return 0 };
        match &input.bytes[..end] {
            b"in" => {
                out.push(Effect::LoggedIn { client: me, pool: POOL, user: "".into() });
                out.push(Effect::Standing { client: me, standing: Standing::Idle });
            }
            b"wait" => out.push(Effect::Lease { client: me, pool: POOL, kind: LeaseKind::Exclusive }),
            b"look" => out.push(Effect::Standing { client: me, standing: Standing::Subscribed }),
            _ => {}
        }
        out.span(Peer::Client(me), 0..end + 1);
        end + 1
    }

    fn server_input(
        &self,
        _: ServerTag,
        (): &mut (),
        _: &mut dyn Sessions<ClientTag, ()>,
        input: Input<'_>,
        _: &mut Outbox,
    ) -> usize {
        input.bytes.len()
    }

    fn granted(&self, _: ClientTag, (): &mut (), _: ServerTag, (): &mut (), _: &mut Outbox) {}

    fn lease_failed(&self, _: ClientTag, (): &mut (), _: LeaseFailure, _: usize, _: &mut Outbox) {}

    fn client_gone(&self, _: ClientTag, (): &mut (), _: &mut dyn Sessions<ServerTag, ()>, _: &mut Outbox) {}

    fn server_gone(&self, _: ServerTag, (): &mut (), _: &mut dyn Sessions<ClientTag, ()>, _: &mut Outbox) {}

    fn refuse(&self, me: ClientTag, (): &mut (), why: Refusal, out: &mut Outbox) {
        out.insert(Peer::Client(me), |bytes| bytes.extend(format!("refused {why:?}\n").as_bytes()));
        out.push(Effect::Close { peer: Peer::Client(me), reason: CloseReason::Done });
    }

    fn reset(&self, me: ServerTag, (): &mut (), out: &mut Outbox) {
        out.push(Effect::Ready { server: me });
    }

    fn check(&self, me: ServerTag, (): &mut (), out: &mut Outbox) {
        out.push(Effect::Ready { server: me });
    }
}

/// A driver with this many places. Above `soft_limit` idle clients are evicted.
fn harness(soft_limit: u32, hard_limit: u32, login: Duration) -> Harness {
    let gate = GateConfig { soft_limit, hard_limit, evict_min_idle: Duration::ZERO };
    let timeouts = Timeouts { login: Some(login), ..Timeouts::default() };
    Harness::of(Words, |_, _| (), (2, PoolConfig::default(), gate, timeouts))
}

const LONG: Duration = Duration::from_secs(60);

/// A client that comes from this address of the machine.
fn from(harness: &Harness, last: u8) -> Client {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, last], 0)).into()).unwrap();
    socket.connect(&harness.address.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    Client(BufReader::new(stream))
}

/// `count` clients that come from this address, one after the other, and send nothing.
fn silent(harness: &Harness, last: u8, count: usize) -> Vec<Client> {
    let before = logging_in(harness);
    let come = |number: usize| {
        let client = from(harness, last);
        eventually("it is there", || logging_in(harness) == before + number as u64 + 1);
        client
    };
    (0..count).map(come).collect()
}

fn logging_in(harness: &Harness) -> u64 {
    harness.handle.snapshot().listeners[0].login
}

fn displaced_left(harness: &Harness) -> u64 {
    let snapshot = harness.handle.snapshot();
    let counts = &snapshot.listeners[0].evictions;
    counts.iter().find(|(reason, _)| *reason == "not_logged_in").unwrap().1
}

#[test]
fn a_stranger_who_takes_all_places_and_says_nothing_locks_nobody_out_of_another_address() {
    let harness = harness(6, 6, LONG);
    for round in 1..=2 {
        let mut silent_clients = silent(&harness, 2, 6);
        let mut clients = Vec::new();
        for silent_client in &mut silent_clients[..5] {
            let mut client = from(&harness, 1);
            assert_eq!(client.ask("in"), "in");
            assert_eq!(silent_client.last_words(), "refused Displaced\n", "the one that came first goes");
            clients.push(client);
        }
        assert_eq!(displaced_left(&harness), 5 * round);
        // Clients that have logged in stay, and so does the last silent one for a while: another address with a client
        // that logs in has as many.
        assert_eq!(from(&harness, 3).hear(), "refused TooManyClients { limit: 6 }");
        assert!(clients.iter_mut().all(|client| client.ask("again") == "again"));
        drop((clients, silent_clients));
        let is_empty = || harness.handle.snapshot().workers.iter().all(|worker| worker.clients == 0);
        eventually("all places are free", is_empty);
    }
}

#[test]
fn who_gives_way_and_does_not_read_is_gone_at_once() {
    let harness = harness(2, 2, LONG);
    let mut silent_clients = silent(&harness, 2, 2);
    let stream = silent_clients[0].0.get_mut();
    stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let line = [&[b'x'; 8_000][..], b"\n"].concat();
    while stream.write_all(&line).is_ok() {}
    let began = Instant::now();
    assert_eq!(from(&harness, 1).ask("in"), "in");
    let here = || harness.handle.snapshot().workers.iter().map(|worker| worker.clients).sum::<u64>();
    eventually("only the other silent_client is there", || here() == 1);
    assert!(began.elapsed() < Duration::from_secs(3));
}

#[test]
fn addresses_share_the_places_of_those_who_log_in_and_take_none_to_and_fro() {
    let harness = harness(6, 6, LONG);
    let _strangers = silent(&harness, 2, 6);
    let others: Vec<Client> = (0..3).map(|_| from(&harness, 1)).collect();
    eventually("three have given way", || displaced_left(&harness) == 3);
    assert_eq!(from(&harness, 1).hear(), "refused TooManyClients { limit: 6 }");
    assert_eq!(from(&harness, 2).hear(), "refused TooManyClients { limit: 6 }");
    eventually("six are left", || logging_in(&harness) == 6);
    assert_eq!((displaced_left(&harness), others.len()), (3, 3));
}

#[test]
fn who_takes_long_to_log_in_gives_way_to_its_own_address_and_before_anybody_idle() {
    let full = harness(3, 3, LONG);
    let mut silent_ones = silent(&full, 1, 3);
    assert_eq!(from(&full, 1).hear(), "refused TooManyClients { limit: 3 }");
    let above_soft = harness(2, 9, LONG);
    let mut idle = from(&above_soft, 1);
    assert_eq!(idle.ask("in"), "in");
    eventually("it has logged in", || logging_in(&above_soft) == 0);
    let mut silent_one = silent(&above_soft, 2, 1).remove(0);
    thread::sleep(Duration::from_millis(2_100));
    let mut client = from(&full, 1);
    assert_eq!(client.ask("in"), "in");
    assert_eq!(silent_ones[0].last_words(), "refused Displaced\n");
    assert_eq!(client.ask("again"), "again");
    let mut client = from(&above_soft, 3);
    assert_eq!(client.ask("in"), "in");
    assert_eq!(silent_one.last_words(), "refused Displaced\n");
    assert_eq!(idle.ask("again"), "again");
    // Its place has become free: below the soft limit only a client that is there too long goes for the next one.
    drop(client);
    let here = || above_soft.handle.snapshot().workers.iter().map(|worker| worker.clients).sum::<u64>();
    eventually("it is gone", || here() == 1);
    assert_eq!(from(&above_soft, 3).ask("in"), "in");
    assert_eq!(idle.ask("again"), "again");
}

#[test]
fn whoever_waits_for_a_server_to_finish_its_login_keeps_its_place() {
    let silent_upstream = |stream: TcpStream, _| {
        thread::sleep(LONG);
        drop(stream);
    };
    let gate = GateConfig { soft_limit: 2, hard_limit: 2, evict_min_idle: Duration::ZERO };
    let config = PoolConfig { connect_timeout: LONG, ..PoolConfig::default() };
    let harness = Harness::of(Words, silent_upstream, (2, config, gate, Timeouts::default()));
    let mut waiting = from(&harness, 1);
    assert_eq!(waiting.ask("wait"), "wait");
    let mut silent_one = silent(&harness, 1, 1).remove(0);
    thread::sleep(Duration::from_millis(2_100));
    let mut client = from(&harness, 2);
    assert_eq!(client.ask("in"), "in");
    assert_eq!(silent_one.last_words(), "refused Displaced\n", "the one that waits came before");
    assert_eq!(from(&harness, 3).hear(), "refused TooManyClients { limit: 2 }");
    assert_eq!(displaced_left(&harness), 1);
}

#[test]
fn of_those_who_only_look_on_each_address_has_a_share() {
    let harness = harness(8, 8, Duration::from_millis(500));
    let mut silent_clients: Vec<Client> = (0..4).map(|_| from(&harness, 2)).collect();
    assert!(silent_clients.iter_mut().all(|silent_client| silent_client.ask("look") == "look"));
    let mut one_more = from(&harness, 2);
    assert_eq!(one_more.ask("look"), "look");
    assert_eq!(one_more.last_words(), "refused LoginTimeout\n", "half of the places are for those who log in");
    let mut client = from(&harness, 1);
    assert_eq!(client.ask("look"), "look");
    assert_eq!(silent_clients[0].last_words(), "refused LoginTimeout\n");
    thread::sleep(Duration::from_millis(900));
    assert_eq!(client.ask("look"), "look");
    assert!(silent_clients[1..].iter_mut().all(|silent_client| silent_client.ask("look") == "look"));
    assert_eq!(displaced_left(&harness), 0, "there was room");
}
