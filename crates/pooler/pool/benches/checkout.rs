//! What a check-out and the check-in after it cost: alone, between two threads, and with a queue of waiters. Prints
//! nanoseconds per pair, the median of several rounds. Everything is behind a mutex, as it is in the driver.

use std::{
    hint::black_box,
    sync::{
        Barrier, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use pool::{Action, CheckIn, CheckOut, Home, Pool, PoolConfig, ServerId, Time, WaiterId};

const ROUNDS: usize = 15;
const PAIRS: u64 = 500_000;
const SERVERS: u32 = 20;
const WAITERS: u64 = 1000;

fn main() {
    println!("check-out + check-in, {SERVERS} servers, median (least to most) of {ROUNDS} rounds of {PAIRS} pairs");
    report("one thread, an idle server each time", || alone(Home(0)));
    report("one thread, the server of another home", || alone(Home(1)));
    report("one thread, 1000 waiters in the queue", queued);
    report("two threads, one pool", contended);
    report("an uncontended mutex alone, for comparison", mutex_alone);
}

fn report(name: &str, mut round: impl FnMut() -> Duration) {
    round();
    let mut nanos: Vec<f64> = (0..ROUNDS).map(|_| round().as_secs_f64() * 1e9 / PAIRS as f64).collect();
    nanos.sort_by(f64::total_cmp);
    println!("{name:<45} {:7.1} ns per pair ({:.1} to {:.1})", nanos[ROUNDS / 2], nanos[0], nanos[ROUNDS - 1]);
}

/// A pool with all its servers made, and these in use.
fn filled() -> (Pool, Vec<ServerId>) {
    let config = PoolConfig { max_size: SERVERS, max_wait_time: None, ..PoolConfig::default() };
    let mut pool = Pool::new(config, 1, Time(0));
    pool.ready(Time(0));
    let mut servers = vec![];
    for waiter in 0..u64::from(SERVERS) {
        assert!(matches!(pool.check_out(WaiterId(waiter), Home(0), Time(0)), CheckOut::Queued(_)));
        while let Some(action) = pool.poll_action() {
            match action {
                Action::AskPermit => assert!(pool.handle_permit(Time(0))),
                Action::Connect { server, .. } => {
                    servers.push(server);
                    assert!(pool.handle_connected(server, Home(0), Time(0)).is_some());
                }
                other => panic!("{other:?}"),
            }
        }
    }
    (pool, servers)
}

fn idle() -> Mutex<Pool> {
    let (mut pool, servers) = filled();
    for server in servers {
        assert!(pool.check_in(server, Home(0), CheckIn::Clean, Time(0)).is_none());
    }
    Mutex::new(pool)
}

/// One check-out and one check-in, each as the driver does it: lock, call, poll for actions, unlock.
fn pair(pool: &Mutex<Pool>, waiter: u64, home: Home) {
    let server = {
        let mut pool = pool.lock().expect("no panic elsewhere");
        let CheckOut::Granted(grant) = pool.check_out(WaiterId(waiter), home, Time(waiter)) else {
            panic!("an idle server is there")
        };
        assert!(pool.poll_action().is_none());
        grant.server
    };
    let mut pool = pool.lock().expect("no panic elsewhere");
    black_box(pool.check_in(server, Home(0), CheckIn::Clean, Time(waiter)));
    assert!(pool.poll_action().is_none());
}

fn alone(home: Home) -> Duration {
    let pool = idle();
    let start = Instant::now();
    for waiter in 0..PAIRS {
        pair(&pool, waiter, home);
    }
    start.elapsed()
}

/// Each check-in serves the next of many waiters, which then queues again.
fn queued() -> Duration {
    let (mut pool, servers) = filled();
    for waiter in 0..WAITERS {
        let home = Home((waiter % 2) as u8);
        assert!(matches!(pool.check_out(WaiterId(waiter), home, Time(0)), CheckOut::Queued(_)));
    }
    let pool = Mutex::new(pool);
    let start = Instant::now();
    for n in 0..PAIRS {
        let server = servers[(n % u64::from(SERVERS)) as usize];
        let grant = {
            let mut pool = pool.lock().expect("no panic elsewhere");
            let grant = pool.check_in(server, Home((n % 2) as u8), CheckIn::Clean, Time(n));
            assert!(pool.poll_action().is_none());
            grant.expect("a grant, since clients wait")
        };
        let mut pool = pool.lock().expect("no panic elsewhere");
        black_box(pool.check_out(grant.waiter, grant.waiter_home, Time(n)));
        assert!(pool.poll_action().is_none());
    }
    start.elapsed()
}

/// Two threads do half of the pairs each; counted is the time until both are done.
fn contended() -> Duration {
    let pool = idle();
    let barrier = Barrier::new(3);
    let go = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2u8 {
            let (pool, barrier, go) = (&pool, &barrier, &go);
            scope.spawn(move || {
                barrier.wait();
                while !go.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
                for waiter in 0..PAIRS / 2 {
                    pair(pool, waiter, Home(thread));
                }
                barrier.wait();
            });
        }
        barrier.wait();
        let start = Instant::now();
        go.store(true, Ordering::Release);
        barrier.wait();
        start.elapsed()
    })
}

fn mutex_alone() -> Duration {
    let mutex = Mutex::new(0u64);
    let start = Instant::now();
    for n in 0..PAIRS {
        *mutex.lock().expect("no panic elsewhere") += n;
        *black_box(&mutex).lock().expect("no panic elsewhere") += n;
    }
    start.elapsed()
}
