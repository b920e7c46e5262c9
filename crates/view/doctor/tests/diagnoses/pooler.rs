//! Windows of a Poolhouse, one for each symptom, and healthy ones that resemble them.

use std::{cell::Cell, collections::BTreeMap, time::Duration};

use admin_api::{Client, Listener, ListenerClients, Look, Observation, Pool, PoolServers, Times, Tuning, Work};
use doctor::{Diagnosis, PoolerWindow, Symptom, examine};

use crate::support::{found, pooler_window, setting, symptoms, times};

/// Bounds of the buckets, in milliseconds.
const BOUNDS: [f64; 4] = [1.0, 10.0, 100.0, 1_000.0];
const INTERVAL_MS: u64 = 500;

/// What happens between two looks.
#[derive(Clone, Copy)]
struct Moment {
    in_use: u64,
    waiters: u64,
    transactions: u64,
    hold_ms: f64,
    /// Servers in use whose client pauses in a transaction.
    pausing: u64,
    pause_ms: f64,
    logins: u64,
}

const QUIET: Moment =
    Moment { in_use: 2, waiters: 0, transactions: 50, hold_ms: 5.0, pausing: 0, pause_ms: 0.0, logins: 0 };
/// Nothing is asked.
const IDLE: Moment = Moment { in_use: 0, transactions: 0, ..QUIET };
/// All servers work, and clients wait.
const FULL: Moment = Moment { in_use: 10, waiters: 8, transactions: 900, ..QUIET };
/// Nearly all servers are in open transactions, and clients wait.
const OPEN: Moment = Moment { in_use: 10, waiters: 5, transactions: 20, pausing: 7, pause_ms: 800.0, ..QUIET };

/// A window of a pool of 10 servers. Clients that pause are the same at all looks.
fn window(moments: &[Moment], change: impl Fn(&mut Look)) -> PoolerWindow {
    let mut window = PoolerWindow::default();
    let (mut hold, mut queued) = (Times::default(), Times::default());
    let (mut transactions, mut logins) = (1_000, 100);
    for (n, moment) in [&[moments[0]], moments].concat().iter().enumerate() {
        transactions += moment.transactions;
        logins += moment.logins;
        hold.add(&times(&BOUNDS, moment.hold_ms, moment.transactions));
        queued.add(&times(&BOUNDS, 50.0, moment.waiters));
        let pool = Pool {
            database: "shop".into(),
            user: "app".into(),
            protocol: "postgres".into(),
            waiters: moment.waiters,
            servers: PoolServers { in_use: moment.in_use, total: moment.in_use, ..PoolServers::default() },
            max_size: 10,
            created: 10,
            transactions,
            checkout: BTreeMap::from([("queued".into(), queued.clone())]),
            hold: hold.clone(),
            ..Pool::default()
        };
        let clients = ListenerClients { idle: 20, ..ListenerClients::default() };
        let mut look = Look {
            bucket_bounds_ms: BOUNDS.to_vec(),
            listeners: vec![Listener { logins, clients, ..Listener::default() }],
            uptime_ms: 600_000.0,
            pools: vec![pool],
            ..Look::default()
        };
        change(&mut look);
        let pausing = (0..moment.pausing).map(|id| holder(id, "transaction", moment.pause_ms));
        let working = (0..moment.in_use - moment.pausing).map(|id| holder(1_000 + id + n as u64, "active", 3.0));
        let at = Duration::from_millis(n as u64 * INTERVAL_MS);
        assert!(window.add(Observation { at, look, holders: pausing.chain(working).collect() }));
    }
    window
}

fn holder(id: u64, state: &str, state_ms: f64) -> Client {
    Client { id, state: state.into(), state_ms, pool: Some(0), ..Client::default() }
}

fn diagnosis(moments: &[Moment], change: impl Fn(&mut Look)) -> Diagnosis {
    examine(&window(moments, change))
}

fn same(_: &mut Look) {}

/// A quiet time before a busy one.
fn after_quiet(busy: Moment) -> Vec<Moment> {
    [vec![QUIET; 10], vec![busy; 30]].concat()
}

/// Some clients pause, but not the same at all looks.
fn alternating(moment: Moment, looks: u64) -> Vec<Moment> {
    (0..looks).map(|n| Moment { pausing: moment.pausing + n % 2, ..moment }).collect()
}

const COMING: Moment = Moment { logins: 45, ..QUIET };
const PINNING: Moment = Moment { transactions: 10, logins: 10, ..QUIET };

fn burst(moment: Moment) -> Vec<Moment> {
    [vec![QUIET; 15], vec![moment; 8], vec![QUIET; 15]].concat()
}

fn pause(look: &mut Look) {
    look.pools[0].paused = true;
}

/// Tenants log in, ask for fifty transactions, and leave with their pool.
fn leave(look: &mut Look) {
    (look.pools[0].id, look.pools[0].transactions) = (look.pools[0].transactions, 50);
}

type Case = (&'static str, fn() -> Vec<Moment>, fn(&mut Look), &'static [Symptom]);

const CASES: &[Case] = &[
    ("a quiet pool", || vec![QUIET; 40], same, &[]),
    ("a burst that passes", || burst(Moment { waiters: 30, transactions: 800, ..FULL }), same, &[]),
    ("waits below the size", || vec![Moment { in_use: 2, waiters: 5, ..QUIET }; 20], same, &[Symptom::AnotherLimit]),
    ("a pause", || vec![Moment { waiters: 5, ..IDLE }; 20], pause, &[Symptom::Paused]),
    ("a pause for which no client waits", || vec![IDLE; 20], pause, &[]),
    ("a drain", || vec![IDLE; 20], |look| look.pools[0].drained = true, &[Symptom::Drained]),
    (
        "a name that a client made up",
        || vec![IDLE; 20],
        |look| (look.pools[0].created, look.pools[0].unavailable_ms) = (0, Some(90_000.0)),
        &[],
    ),
    (
        "an outage, which explains the waits",
        || vec![Moment { waiters: 30, ..IDLE }; 20],
        |look| {
            look.pools[0].unavailable_ms = Some(12_000.0);
            look.pools[0].last_error = Some("connection refused".into());
        },
        &[Symptom::OutOfReach],
    ),
    (
        "clients that the system does not let in",
        || vec![Moment { logins: 1, ..QUIET }; 20],
        |look| look.listeners[0].accepts_failed = look.listeners[0].logins,
        &[Symptom::NotAccepted],
    ),
    ("a client for each transaction", || vec![COMING; 20], same, &[Symptom::EphemeralClients]),
    ("clients that come once", || burst(Moment { logins: 900, ..COMING }), same, &[]),
    (
        "clients of a deployment, which stay",
        || vec![COMING; 20],
        |look| look.listeners[0].clients.idle = look.listeners[0].logins,
        &[],
    ),
    ("sessions that come again", || vec![PINNING; 20], same, &[Symptom::EphemeralClients]),
    (
        "sessions that come again because they get no server of their own",
        || vec![PINNING; 20],
        |look| {
            let logins = look.listeners[0].logins;
            look.pools[0].pins_refused = BTreeMap::from([("advisory_lock".into(), logins)]);
        },
        &[Symptom::PinsRefused],
    ),
    ("transactions of pools that are gone", || vec![Moment { logins: 5, ..QUIET }; 30], leave, &[]),
    (
        "few transactions of pools that are gone",
        || vec![Moment { logins: 40, ..QUIET }; 30],
        leave,
        &[Symptom::EphemeralClients],
    ),
    ("open transactions", || alternating(OPEN, 40), same, &[Symptom::TransactionsLeftOpen]),
    (
        "clients that never give servers back",
        || (0..40).map(|n| Moment { pausing: 9, pause_ms: (60_000 + n * INTERVAL_MS) as f64, ..OPEN }).collect(),
        same,
        &[Symptom::Leak],
    ),
    (
        "a full pool of endless transactions without waits",
        || vec![Moment { waiters: 0, pausing: 10, pause_ms: 60_000.0, transactions: 3, ..OPEN }; 40],
        same,
        &[Symptom::Leak],
    ),
    (
        "short pauses for which no client waits",
        || vec![Moment { waiters: 0, pausing: 10, pause_ms: 300.0, transactions: 3, ..OPEN }; 40],
        same,
        &[],
    ),
    (
        "pauses that leave a server for the next client",
        || vec![Moment { in_use: 9, waiters: 0, pausing: 9, pause_ms: 2_500.0, transactions: 3, ..OPEN }; 40],
        same,
        &[],
    ),
];

#[test]
fn each_symptom_is_told_from_what_resembles_it() {
    for (what, moments, change, expected) in CASES {
        assert_eq!(&found(&window(&moments(), change)), expected, "{what}");
    }
}

#[test]
fn waits_beyond_the_last_bound_have_come_to_an_end() {
    let slow = |look: &mut Look| {
        let queued = look.pools[0].checkout.get_mut("queued").unwrap();
        let all = queued.count();
        (queued.buckets[2], queued.buckets[BOUNDS.len()]) = (0, all);
    };
    let text = diagnosis(&[FULL; 20], slow).text(str::to_owned);
    assert!(text.contains("one wait in twenty lasted over 1.0 s") && !text.contains("none has come"), "{text}");
}

#[test]
fn work_that_takes_as_long_under_the_full_load_wants_a_larger_pool() {
    let small = diagnosis(&after_quiet(Moment { hold_ms: 5.5, ..FULL }), same);
    assert_eq!(symptoms(&small), [Symptom::PoolTooSmall]);
    // The servers in use and the waiting clients, and never more than twice as many.
    assert_eq!(setting(&small), Some(("max_size", Some("10"), "18")));
    let crowded = diagnosis(&after_quiet(Moment { hold_ms: 5.5, waiters: 400, ..FULL }), same);
    assert_eq!(setting(&crowded), Some(("max_size", Some("10"), "20")));
    let text = small.text(str::to_owned);
    let heading = "shop as app: the pool is too small";
    for part in [heading, "  seen ", "  not ", "  set       max_size = 18 (now 10)", "  do "] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let tuned = diagnosis(&after_quiet(FULL), |look| look.pools[0].tuning = Some(Tuning::default()));
    assert_eq!((symptoms(&tuned), setting(&tuned)), (vec![Symptom::PoolTooSmall], None));
    assert!(tuned.findings[0].advice.contains("is in force"), "{tuned:?}");
}

#[test]
fn work_that_takes_longer_with_each_server_in_use_is_of_a_saturated_database() {
    let level =
        |in_use: u64, waiters: u64| Moment { in_use, waiters, transactions: 60, hold_ms: 4.0 * in_use as f64, ..QUIET };
    let rising = [vec![level(2, 0); 6], vec![level(5, 0); 6], vec![level(8, 0); 6], vec![level(10, 8); 20]].concat();
    assert_eq!(found(&window(&rising, same)), [Symptom::ServerSaturated]);
    // From a light load to the full one at once, the work may be of another kind.
    let jump = diagnosis(&[vec![level(2, 0); 10], vec![level(10, 8); 20]].concat(), same);
    assert_eq!((symptoms(&jump), jump.undecided.len()), (vec![], 1));
    let no_light_load = diagnosis(&[FULL; 40], same);
    assert!(no_light_load.findings.is_empty());
    assert_eq!(no_light_load.undecided[0].between, [Symptom::PoolTooSmall, Symptom::ServerSaturated]);
    let heading = "shop as app: undetermined: the pool is too small, or the database is saturated\n";
    assert!(no_light_load.text(str::to_owned).contains(heading));
}

#[test]
fn servers_that_stay_with_idle_clients_are_no_leak() {
    let look = |_| {
        let servers = PoolServers { in_use: 10, total: 10, ..PoolServers::default() };
        let pool = Pool { waiters: 5, max_size: 10, servers, ..Pool::default() };
        let look = Look { pools: vec![pool], bucket_bounds_ms: BOUNDS.to_vec(), ..Look::default() };
        (look, (0..10).map(|id| holder(id, "idle", 60_000.0)).collect())
    };
    assert_eq!(found(&pooler_window(20, INTERVAL_MS, look)), [Symptom::HeldByIdleClients]);
}

#[test]
fn the_limit_that_keeps_a_pool_small_is_named() {
    let capped = Moment { in_use: 2, waiters: 5, ..QUIET };
    let making = diagnosis(&[capped; 20], |look| {
        let servers = &mut look.pools[0].servers;
        (servers.connecting, servers.total) = (8, 10);
    });
    assert_eq!(symptoms(&making), [Symptom::AnotherLimit]);
    let rules_out = &making.findings[0].rules_out;
    assert!(rules_out.contains("still being made") && !rules_out.contains("not reached"), "{rules_out}");
    let limited = |look: &mut Look| look.pools[0].limited_by = Some("max_server_connections".into());
    let limited = diagnosis(&[capped; 20], limited);
    assert_eq!(symptoms(&limited), [Symptom::AnotherLimit]);
    assert!(limited.findings[0].advice.starts_with("Raise max_server_connections"), "{limited:?}");
}

#[test]
fn servers_that_are_cleaned_are_taken() {
    let cleaned = |look: &mut Look| {
        let servers = &mut look.pools[0].servers;
        (servers.checking, servers.total) = (servers.in_use, 2 * servers.in_use);
    };
    let half = Moment { in_use: 5, waiters: 8, ..QUIET };
    let undecided = diagnosis(&[half; 20], cleaned);
    assert_eq!((symptoms(&undecided), undecided.undecided.len()), (vec![], 1), "{undecided:?}");
    assert!(undecided.undecided[0].seen[1].contains("in use, or being cleaned after it,"), "{undecided:?}");
    // Servers are cleaned under a light load, too.
    assert_eq!(found(&window(&after_quiet(half), cleaned)), [Symptom::PoolTooSmall]);
}

#[test]
fn a_database_that_is_known_to_be_out_of_reach_is_named_although_no_client_comes() {
    let down = diagnosis(&[IDLE; 20], |look| {
        let pool = &mut look.pools[0];
        (pool.created, pool.unavailable_ms, pool.last_error) = (0, Some(90_000.0), Some("password".into()));
        pool.checkout_failed = BTreeMap::from([("timeout".into(), look.bucket_bounds_ms.len() as u64)]);
    });
    assert_eq!(symptoms(&down), [Symptom::OutOfReach]);
    assert!(down.findings[0].evidence[1].ends_with("ended with: password"), "{down:?}");
}

/// A steady load at a full pool, whose servers' sessions do this.
fn steady(work: Work) -> Diagnosis {
    diagnosis(&[FULL; 40], |look| look.pools[0].work = Some(work))
}

#[test]
fn what_sessions_wait_for_decides_where_the_load_is_always_the_same() {
    let work = Work { sessions: 10, all_ready: 3, processors: Some(8), ..Work::default() };
    for (work, expected) in [
        (Work { others: 10, ..work }, &[Symptom::PoolTooSmall][..]),
        (Work { locked: 8, ready: 2, ..work }, &[Symptom::ServerSaturated]),
        (Work { latched: 8, ready: 2, ..work }, &[Symptom::ServerSaturated]),
        (Work { ready: 10, all_ready: 10, ..work }, &[Symptom::ServerSaturated]),
        (Work { ready: 10, all_ready: 12, processors: Some(32), ..work }, &[Symptom::PoolTooSmall]),
        // Between half of the processors and all of them.
        (Work { ready: 6, all_ready: 6, ..work }, &[]),
    ] {
        let diagnosis = steady(work);
        assert_eq!((symptoms(&diagnosis), diagnosis.undecided.is_empty()), (expected.to_vec(), !expected.is_empty()));
        let tells_of_locks = |evidence: &[String]| evidence.iter().any(|seen| seen.contains("for locks"));
        assert!(diagnosis.findings.iter().all(|finding| tells_of_locks(&finding.evidence)), "{work:?}");
    }
    // PostgreSQL names who holds a lock, and not who holds a latch.
    for (work, names_blockers) in [
        (Work { locked: 5, latched: 3, ready: 2, ..work }, true),
        (Work { locked: 3, latched: 5, ready: 2, ..work }, false),
    ] {
        assert_eq!(steady(work).findings[0].advice.contains("pg_blocking_pids"), names_blockers, "{work:?}");
    }
    for (work, needs) in [
        (Work { ready: 10, all_ready: 10, processors: None, ..work }, "--processors"),
        (Work { disks: 9, ready: 1, ..work }, "disks"),
        // A database that has none of these sessions is another one.
        (Work { sessions: 0, ..work }, "has none of its sessions"),
    ] {
        assert!(steady(work).undecided[0].needs.contains(needs), "{work:?}");
    }
}

#[test]
fn sessions_that_wait_for_their_clients_are_no_small_pool() {
    let work = Work { sessions: 10, all_ready: 1, processors: Some(8), ..Work::default() };
    let found = steady(Work { clients: 8, ready: 1, ..work });
    assert_eq!(symptoms(&found), [Symptom::TransactionsLeftOpen], "{found:?}");
    assert!(found.findings[0].rules_out.contains("1.0 of its sessions had something to do"), "{found:?}");
    assert_eq!(symptoms(&steady(Work { clients: 2, others: 8, ..work })), [Symptom::PoolTooSmall]);
}

/// The database was looked at with every fourth look at the pool.
fn diagnosis_at_some_looks(moments: &[Moment], work: Work) -> Diagnosis {
    let looks = Cell::new(0);
    diagnosis(moments, |look| {
        looks.set(looks.get() + 1);
        look.pools[0].work = Some(work).filter(|_| looks.get() % 4 == 0);
    })
}

#[test]
fn a_pool_that_lets_more_in_than_the_database_can_do_is_found_although_no_client_waits() {
    let busy = Moment { in_use: 9, transactions: 200, hold_ms: 40.0, ..QUIET };
    let of = |moment: Moment, work: Work| diagnosis(&[moment; 40], |look| look.pools[0].work = Some(work));
    let work = Work { sessions: 10, all_ready: 2, processors: Some(4), ..Work::default() };
    let locks = of(busy, Work { locked: 7, ready: 2, ..work });
    assert_eq!(symptoms(&locks), [Symptom::ServerSaturated], "{locks:?}");
    let text = locks.text(str::to_owned);
    for part in [
        "shop as app: the database is saturated\n",
        "seen      7.0 of its 9.0 sessions with a statement waited for locks of others, two or more of them at 100% of",
        "not       it is not short of processors: 2.0 sessions of the whole database were ready to run on average; no",
        "max_size may be that (look first between 2 and 4).",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let processors = of(busy, Work { ready: 8, all_ready: 9, ..work });
    assert_eq!(symptoms(&processors), [Symptom::ServerSaturated], "{processors:?}");
    assert!(processors.findings[0].advice.contains("look first between 4 and 8"), "{processors:?}");
    // Ordinary work; a lock now and then; processors that others use, or whose number is not known.
    for healthy in [
        Work { ready: 3, all_ready: 4, ..work },
        Work { locked: 1, ready: 1, ..work },
        Work { latched: 7, ready: 2, ..work },
        Work { locked: 3, ready: 5, all_ready: 5, ..work },
        Work { ready: 1, all_ready: 9, ..work },
        Work { ready: 8, all_ready: 9, processors: None, ..work },
        Work { others: 9, ..work },
        Work { sessions: 0, all_ready: 0, ..work },
    ] {
        assert_eq!(symptoms(&of(busy, healthy)), [], "{healthy:?}");
    }
    // Looks that lack the database's figures say nothing of it.
    let at_some_looks = diagnosis_at_some_looks(&[busy; 40], Work { locked: 7, ready: 2, ..work });
    assert_eq!(symptoms(&at_some_looks), [Symptom::ServerSaturated], "{at_some_looks:?}");
    assert!(at_some_looks.findings[0].evidence[0].starts_with("7.0 of its 9.0 sessions"), "{at_some_looks:?}");
    // A transaction that was forgotten may hold the locks: that is told alone.
    let forgotten = Moment { pausing: 1, pause_ms: 60_000.0, ..busy };
    assert_eq!(symptoms(&of(forgotten, Work { locked: 7, ready: 1, ..work })), [Symptom::TransactionsLeftOpen]);
}

#[test]
fn pauses_that_are_no_round_trips_come_before_the_size_of_the_pool() {
    let of = |pausing: u64, pause_ms: f64| {
        let light = Moment { pausing: 1, pause_ms, ..QUIET };
        let full = alternating(Moment { hold_ms: 5.5, pausing, pause_ms, ..FULL }, 30);
        diagnosis(&[vec![light; 10], full].concat(), same)
    };
    assert_eq!(symptoms(&of(7, 40.0)), [Symptom::TransactionsLeftOpen]);
    let both = of(3, 40.0);
    assert_eq!(symptoms(&both), [Symptom::TransactionsLeftOpen, Symptom::PoolTooSmall]);
    assert!(both.findings[0].rules_out.contains("not the size alone"), "{both:?}");
    assert!(both.findings[1].advice.starts_with("End the pauses"), "{both:?}");
    assert_eq!(symptoms(&of(7, 4.0)), [Symptom::PoolTooSmall], "a round trip");
}

#[test]
fn a_full_pool_of_open_transactions_is_found_although_none_waits() {
    let open = Moment { waiters: 0, pausing: 9, pause_ms: 2_500.0, transactions: 3, ..OPEN };
    let full = diagnosis(&[vec![QUIET; 10], alternating(open, 40)].concat(), same);
    assert_eq!(symptoms(&full), [Symptom::TransactionsLeftOpen]);
    assert!(full.findings[0].evidence[2].contains("all 10 servers were held"), "{full:?}");
}

#[test]
fn a_transaction_that_was_forgotten_in_a_calm_pool_is_found() {
    let calm = Moment { in_use: 1, pausing: 1, pause_ms: 39_000.0, transactions: 1, ..QUIET };
    let forgotten = window(&[calm; 40], same);
    assert_eq!(found(&forgotten), [Symptom::TransactionsLeftOpen]);
    assert!(examine(&forgotten).findings[0].evidence[1].contains("39.0 s"));
    assert_eq!(found(&window(&[Moment { pause_ms: 20_000.0, ..calm }; 40], same)), []);
    // What else is wrong is told as well.
    let also_small = Moment { hold_ms: 5.5, pausing: 1, pause_ms: 39_000.0, ..FULL };
    let moments = [vec![Moment { in_use: 2, transactions: 50, ..calm }; 10], vec![also_small; 30]].concat();
    assert_eq!(found(&window(&moments, same)), [Symptom::PoolTooSmall, Symptom::TransactionsLeftOpen]);
}

#[test]
fn servers_that_are_not_listed_may_work() {
    let look = |n: u64| {
        let servers = PoolServers { in_use: 100, total: 100, ..PoolServers::default() };
        let pool = Pool { waiters: 5, max_size: 100, servers, transactions: n * 2_000, ..Pool::default() };
        let look = Look { pools: vec![pool], bucket_bounds_ms: BOUNDS.to_vec(), ..Look::default() };
        (look, (0..20).map(|id| holder(20 * n + id, "transaction", 400.0)).collect())
    };
    assert_eq!(symptoms(&examine(&pooler_window(20, INTERVAL_MS, look))), []);
}

#[test]
fn a_limit_on_pauses_is_proposed_only_where_few_are_longer() {
    for (overlong, proposed) in [(0, None), (3, Some("5s")), (40, None)] {
        let mut moments = alternating(OPEN, 40);
        moments[..overlong].iter_mut().for_each(|moment| moment.pause_ms = 5_500.0);
        let diagnosis = diagnosis(&moments, same);
        assert_eq!(symptoms(&diagnosis), [Symptom::TransactionsLeftOpen], "{diagnosis:?}");
        assert_eq!(setting(&diagnosis).map(|(.., to)| to), proposed, "{overlong}");
    }
}

#[test]
fn servers_closed_for_idleness_and_made_again_are_churn() {
    let churn = |look: &mut Look| {
        let pool = &mut look.pools[0];
        (pool.created, pool.transactions) = (240 + pool.transactions / 50, pool.transactions + 10_000);
        pool.closed = BTreeMap::from([("idle".into(), 190 + pool.created - 240), ("life".into(), 10)]);
        pool.checkout.insert("created".into(), times(&BOUNDS, 80.0, 200));
        (pool.servers.in_use, pool.servers.total, pool.settings.max_idle_time) = (0, 8, Some(4_000.0));
    };
    let churning = diagnosis(&[QUIET; 10], churn);
    assert_eq!(symptoms(&churning), [Symptom::IdleChurn]);
    // What a burst left open, though no look fell into it.
    assert_eq!(setting(&churning), Some(("min_size", Some("0"), "8")));
    let bursts = &churning.findings[0].evidence[2];
    assert!(bursts.contains("up to 8 servers") && bursts.contains("max_idle_time is 4.0 s"), "{bursts}");
    let rotation = |look: &mut Look| {
        churn(look);
        look.pools[0].closed = BTreeMap::from([("idle".into(), 10), ("life".into(), 210)]);
    };
    assert_eq!(found(&window(&[QUIET; 10], rotation)), []);
}

#[test]
fn many_small_batches_from_one_origin_are_a_pool_of_pools() {
    let client = |n: u32, connected_ms: f64| Client {
        id: n.into(),
        address: format!("10.0.0.7:{}", 40_000 + n),
        state: "idle".into(),
        connected_ms,
        ..Client::default()
    };
    let mut nested = window(&[QUIET; 10], same);
    nested.clients = (0..100).map(|n| client(n, f64::from(n / 5) * 3_000.0 + f64::from(n % 5))).collect();
    // Several processes behind one address look the same.
    assert_eq!(examine(&nested).undecided[0].between, [Symptom::PoolOfPools]);
    nested.clients = (0..100).map(|n| client(n, 60_000.0 + f64::from(n))).collect();
    assert_eq!(found(&nested), [], "one pool comes in one batch");
}

#[test]
fn a_restart_begins_the_window_anew() {
    let mut window = window(&[QUIET; 10], same);
    let look = Look { instance: "another".into(), ..Look::default() };
    assert!(!window.add(Observation { at: Duration::from_secs(60), look, holders: Vec::new() }));
    assert_eq!((examine(&window).pools, window.looks()), (0, 1));
}

#[test]
fn where_nothing_happens_nothing_is_called_healthy() {
    let text = |moments: &[Moment]| diagnosis(moments, same).text(str::to_owned);
    let idle = text(&[IDLE; 10]);
    assert!(idle.contains("Nothing happened in this time") && !idle.contains("Healthy"), "{idle}");
    let last = Moment { transactions: 1, ..IDLE };
    for (moments, why) in [(vec![QUIET; 10], "quiet"), ([vec![IDLE; 9], vec![last]].concat(), "one transaction")] {
        assert!(text(&moments).contains("Healthy"), "{why}");
    }
}

#[test]
fn what_is_in_force_is_not_proposed() {
    let with_limit = |moments: &[Moment], limit: Option<f64>| {
        diagnosis(moments, |look| look.pools[0].settings.transaction_idle_time = limit)
    };
    let forgotten = [Moment { waiters: 0, transactions: 0, pausing: 1, pause_ms: 40_000.0, ..OPEN }; 10];
    for (limit, part, is_proposed) in [
        (None, "60s would end those", true),
        (Some(300_000.0), "transaction_idle_time is 300s: 60s would end those", true),
        (Some(60_000.0), "transaction_idle_time = 60s is in force", false),
    ] {
        let text = with_limit(&forgotten, limit).text(str::to_owned);
        assert!(text.contains(part) && text.contains("would end") == is_proposed, "{text}");
    }
    let leaks = [Moment { transactions: 0, pausing: 10, pause_ms: 40_000.0, ..OPEN }; 40];
    for (limit, proposed) in [
        (None, Some(("transaction_idle_time", None, "30s"))),
        (Some(60_000.0), Some(("transaction_idle_time", Some("60s"), "30s"))),
        (Some(2_500.0), None),
    ] {
        let leak = with_limit(&leaks, limit);
        assert_eq!((leak.findings.len(), setting(&leak)), (1, proposed));
        let is_in_force = leak.findings[0].advice.contains("transaction_idle_time = 2500ms is in force");
        assert_eq!(is_in_force, proposed.is_none(), "{leak:?}");
    }
    let within = with_limit(&alternating(OPEN, 40), Some(30_000.0));
    let advice = &within.findings[0].advice;
    assert!(advice.contains("transaction_idle_time is 30s already"), "{advice}");
}
