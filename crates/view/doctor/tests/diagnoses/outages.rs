//! Windows of a Poolhouse: what happens after an outage, where the database refuses, where clients vanish, and what is
//! seen of all that where looks are not whole.

use std::{collections::BTreeMap, time::Duration};

use admin_api::{
    Activity, Backend, Client, Counts, Listener, ListenerClients, Look, Pool, PoolServers, PoolSettings, Times,
};
use doctor::{PoolerWindow, PostgresWindow, Symptom, examine, examine_postgres};

use crate::support::{self, found, pooler_window, setting};

const INTERVAL_MS: u64 = 200;
const BOUNDS_MS: [f64; 2] = [1.0, 1_000.0];

fn window(looks: u64, look_at: impl Fn(u64) -> (Look, Vec<Client>)) -> PoolerWindow {
    pooler_window(looks, INTERVAL_MS, look_at)
}

fn times(ms: f64, count: u64) -> Times {
    support::times(&BOUNDS_MS, ms, count)
}

fn look(pool: Pool) -> Look {
    Look { bucket_bounds_ms: BOUNDS_MS.to_vec(), uptime_ms: 600_000.0, pools: vec![pool], ..Look::default() }
}

fn servers(in_use: u64) -> PoolServers {
    PoolServers { in_use, total: in_use, ..PoolServers::default() }
}

/// Looks of which no client is known.
fn of_pool(pool: impl Fn(u64) -> Pool) -> impl Fn(u64) -> (Look, Vec<Client>) {
    move |n| (look(pool(n)), Vec::new())
}

/// Ten clients that work, but not between the tenth look and the 25th: the database is away. Forty connections were
/// made before, in 10 ms each, and twelve after it.
fn outage(n: u64, slow_ms: f64, at_once: u64) -> Pool {
    let (down, back) = ((10..25).contains(&n), n >= 25);
    let again = if back { 12.min((n - 24) * at_once) } else { 0 };
    let connecting = if back { (12 - again).min(at_once) } else { 0 };
    let in_use = if down {
        0
    } else if back {
        again.min(10)
    } else {
        10
    };
    let mut auth = times(10.0, 40);
    auth.add(&times(slow_ms, again));
    Pool {
        database: "shop".into(),
        protocol: "postgres".into(),
        clients: 10,
        waiters: 10 - in_use,
        servers: PoolServers { connecting, in_use, total: in_use + connecting, ..PoolServers::default() },
        max_size: 20,
        created: 40 + again,
        transactions: 1_000 + if down { 0 } else { n * 40 },
        connect: BTreeMap::from([("auth".into(), auth)]),
        unavailable_ms: down.then_some(100.0),
        last_error: (n >= 10).then(|| "connection refused".into()),
        settings: PoolSettings { max_connecting: Some(12), ..PoolSettings::default() },
        ..Pool::default()
    }
}

#[test]
fn connections_that_are_all_made_at_once_after_an_outage_and_slowly_are_a_stampede() {
    let after = |slow_ms, at_once| window(60, of_pool(move |n| outage(n, slow_ms, at_once)));
    let stampede = after(300.0, 6);
    assert_eq!(found(&stampede), [Symptom::Stampede]);
    let diagnosis = examine(&stampede);
    // Thirty times as slow with twelve at a time: one at a time does as much.
    assert_eq!(setting(&diagnosis), Some(("max_connecting", Some("12"), "1")));
    assert!(diagnosis.findings[0].evidence[1].contains("took 300 ms on average, and 10 ms otherwise"), "{diagnosis:?}");
    assert_eq!(found(&after(300.0, 12)), [Symptom::Stampede], "before the next look");
    assert_eq!(found(&after(20.0, 6)), [], "each is made quickly");
    let without_outage = of_pool(|n| Pool { unavailable_ms: None, ..outage(n, 300.0, 6) });
    assert!(!found(&window(60, without_outage)).contains(&Symptom::Stampede));
    // Forty more were made in the look at which the database went away: none of them took longer than 30 ms.
    let before = of_pool(|n| {
        let mut pool = outage(n, 30.0, 6);
        if n >= 10 {
            pool.created += 40;
            pool.connect.get_mut("auth").unwrap().add(&times(30.0, 40));
        }
        pool
    });
    assert_eq!(found(&window(60, before)), []);
}

#[test]
fn clients_that_wait_for_a_database_that_was_away_wait_for_no_other_limit() {
    // Away for half of the window, and well again.
    let away = of_pool(|n| {
        let (waiters, in_use, unavailable_ms) =
            if (10..40).contains(&n) { (5, 0, Some(1_000.0)) } else { (0, 2, None) };
        let transactions = n;
        Pool {
            waiters,
            servers: servers(in_use),
            max_size: 10,
            created: 2,
            transactions,
            unavailable_ms,
            ..Pool::default()
        }
    });
    assert_eq!(found(&window(60, away)), []);
}

#[test]
fn a_database_that_has_no_connection_left_for_a_pool_is_told_from_a_limit_of_the_pooler() {
    const FULL: &str = "sorry, too many clients already (SQLSTATE 53300)";
    // Clients wait, and the database has no connection left for a third one.
    let of = |error: &'static str, attempts: u64| {
        window(
            40,
            of_pool(move |n| Pool {
                waiters: 6,
                servers: servers(2),
                max_size: 10,
                created: 2,
                transactions: n * 20,
                connect: BTreeMap::from([("tcp".into(), times(1.0, 2 + n * attempts))]),
                last_error: Some(error.into()),
                ..Pool::default()
            }),
        )
    };
    for (error, attempts, expected) in [
        (FULL, 1, Symptom::LimitsAddUp),
        // That was long ago.
        (FULL, 0, Symptom::AnotherLimit),
        ("connection reset", 1, Symptom::AnotherLimit),
        // That is its port.
        ("10.0.0.5:53300 does not answer", 1, Symptom::AnotherLimit),
    ] {
        assert_eq!(found(&of(error, attempts)), [expected], "{error} {attempts}");
    }
    let evidence = &examine(&of(FULL, 1)).findings[0].evidence;
    assert!(evidence[2].starts_with("39 connections were begun and not made"), "{evidence:?}");
}

#[test]
fn clients_that_do_not_end_their_side_are_told_from_idle_ones() {
    let evicting = |unanswered: fn(u64) -> u64| {
        window(40, move |n| {
            let counts = |count| Counts::from([("client_idle_time".to_owned(), count), ("drain".to_owned(), 7)]);
            let listener = Listener {
                accepted: 500,
                logins: 500,
                clients: ListenerClients { idle: 40, ..ListenerClients::default() },
                evictions: counts(2 * n),
                unanswered: counts(unanswered(n)),
                ..Listener::default()
            };
            let look = look(Pool { transactions: 50 * n, ..Pool::default() });
            (Look { listeners: vec![listener], ..look }, vec![])
        })
    };
    let vanished = evicting(|n| 2 * n);
    assert_eq!(found(&vanished), [Symptom::Zombies]);
    let evidence = examine(&vanished).findings[0].evidence.join("\n");
    let gone = "of 460 clients that have gone since the start, 78 did not leave by themselves";
    for part in ["78 clients", "78 of 78 (100%)", gone] {
        assert!(evidence.contains(part), "{part}: {evidence}");
    }
    assert_eq!(found(&evicting(|_| 0)), [], "they end their side");
    assert_eq!(found(&evicting(|n| n / 5)), [], "a few in a hundred");
    assert_eq!(found(&evicting(|_| 60)), [], "that was before the first look");
}

/// Four of six servers in endless transactions, and clients that wait for the other two. `is_whole`: a worker that does
/// not answer in time is left out.
fn leak(n: u64, is_whole: bool) -> (Look, Vec<Client>) {
    let pool =
        Pool { waiters: 5, servers: servers(6), max_size: 6, created: 6, transactions: 10 * n, ..Pool::default() };
    let client =
        |id, state: &str, state_ms| Client { id, state: state.into(), state_ms, pool: Some(0), ..Client::default() };
    let since_ms = 4_000.0 + (n * INTERVAL_MS) as f64;
    let paused = (0..if is_whole { 4 } else { 0 }).map(|id| client(id, "transaction", since_ms));
    (look(pool), paused.chain([client(100 + n, "active", 5.0)]).collect())
}

#[test]
fn a_look_that_misses_a_worker_does_not_hide_a_leak() {
    for missed in [0, 7, 19] {
        assert_eq!(found(&window(20, |n| leak(n, n != missed))), [Symptom::Leak], "look {missed}");
    }
    // The same clients at every look, and other transactions each time.
    let others = |n: u64| {
        let (look, mut holders) = leak(n, true);
        holders.iter_mut().for_each(|holder| holder.state_ms = 300.0);
        (look, holders)
    };
    assert_eq!(found(&window(20, others)), [Symptom::TransactionsLeftOpen]);
}

#[test]
fn one_level_of_which_little_is_known_does_not_hide_that_work_grows() {
    let levels = |n: u64| match n {
        0..10 => (1, 10.0),
        10..20 => (2, 20.0),
        // Two looks between two levels, of which the transactions began before.
        20..22 => (3, 12.0),
        22..32 => (4, 40.0),
        _ => (8, 80.0),
    };
    let look_at = |n: u64| {
        let in_use = levels(n).0;
        let mut hold = Times::default();
        (0..=n).for_each(|n| hold.add(&times(levels(n).1, 20)));
        let pool = Pool {
            waiters: if in_use == 8 { 6 } else { 0 },
            servers: PoolServers { in_use, total: 8, ..PoolServers::default() },
            max_size: 8,
            created: 8,
            transactions: n * 20,
            hold,
            ..Pool::default()
        };
        let client = |id| Client { id: 100 * n + id, state: "active".into(), pool: Some(0), ..Client::default() };
        (look(pool), (0..in_use).map(client).collect())
    };
    assert_eq!(found(&window(60, look_at)), [Symptom::ServerSaturated]);
}

#[test]
fn figures_as_large_as_they_can_be_do_no_harm() {
    let most = u64::MAX;
    let counts =
        || Counts::from([("idle".to_owned(), most), ("error".to_owned(), most), ("soft_limit".to_owned(), most)]);
    let full = || Times { buckets: vec![most; 3], sum_ms: f64::MAX };
    let paths = |names: [&str; 3]| names.iter().map(|name| ((*name).to_owned(), full())).collect::<BTreeMap<_, _>>();
    let hostile = |n: u64| {
        let of = |count| if n.is_multiple_of(2) { count } else { 0 };
        let servers =
            PoolServers { connecting: most, idle: most, in_use: most, checking: most, closing: most, total: most };
        let pool = Pool {
            clients: most,
            waiters: most,
            servers,
            max_size: most,
            min_size: of(most),
            created: of(most),
            closed: counts(),
            checkout_failed: counts(),
            pinned: counts(),
            transactions: of(most),
            checkout: paths(["idle", "created", "queued"]),
            connect: paths(["tcp", "auth", "ready"]),
            hold: full(),
            settings: PoolSettings {
                max_idle_time: Some(f64::MAX),
                max_connecting: Some(most),
                ..PoolSettings::default()
            },
            unavailable_ms: (n == 3).then_some(f64::MAX),
            ..Pool::default()
        };
        let clients = ListenerClients { login: most, idle: most, active: most, waiting: most, subscribed: most };
        let listener = Listener {
            clients,
            accepted: most,
            logins: of(most),
            rejections: counts(),
            evictions: counts(),
            unanswered: counts(),
            ..Listener::default()
        };
        let listeners = vec![listener.clone(), listener];
        let pools = vec![pool.clone(), Pool { id: 1, ..pool }];
        let bounds = vec![1.0, f64::MAX];
        let holder = Client { state: "transaction".into(), state_ms: f64::MAX, pool: Some(0), ..Client::default() };
        (Look { uptime_ms: f64::MAX, bucket_bounds_ms: bounds, listeners, pools, ..Look::default() }, vec![holder])
    };
    let diagnosis = examine(&window(12, hostile));
    assert!(serde_json::to_string(&diagnosis).is_ok() && !diagnosis.text(str::to_owned).is_empty());
    let mut window = PostgresWindow::default();
    for n in 0..8u64 {
        let of = if n.is_multiple_of(2) { most } else { 0 };
        let backend =
            |pid| Backend { pid, age_ms: f64::MAX, state: "idle".into(), state_ms: f64::MAX, ..Backend::default() };
        let look = Activity {
            max_connections: most,
            reserved: of,
            transactions: of,
            sessions: Some(of),
            processors: Some(most),
            hidden: most,
            left_out: most,
            backends: (0..9).map(backend).collect(),
            ..Activity::default()
        };
        window.add(Duration::from_millis(n * 500), look);
    }
    assert!(!examine_postgres(&window).text(str::to_owned).is_empty());
}
