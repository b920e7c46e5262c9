//! Windows of a Poolhouse that are made up: what happens after an outage, where the database refuses, where clients
//! vanish, and what is seen of all that where looks are not whole.

use std::{collections::BTreeMap, time::Duration};

use admin_api::{
    Activity, Backend, Client, Counts, Listener, ListenerClients, Look, Observation, Pool, PoolServers, PoolSettings,
    Times,
};
use doctor::{DatabaseWindow, Diagnosis, Symptom, Window, examine, examine_database};

const EVERY_MS: u64 = 200;

/// A window in which each look shows what `of` says of it.
fn window(looks: u64, of: impl Fn(u64) -> (Look, Vec<Client>)) -> Window {
    let mut window = Window::default();
    for n in 0..looks {
        let (look, holders) = of(n);
        assert!(window.add(Observation { at: Duration::from_millis(n * EVERY_MS), look, holders }));
    }
    window
}

fn symptoms(diagnosis: &Diagnosis) -> Vec<Symptom> {
    assert!(diagnosis.undecided.is_empty(), "{:?}", diagnosis.undecided);
    for finding in &diagnosis.findings {
        assert!(finding.evidence.len() >= 2 && !finding.rules_out.is_empty(), "{finding:?}");
    }
    diagnosis.findings.iter().map(|finding| finding.symptom).collect()
}

fn times(ms: f64, count: u64) -> Times {
    Times { buckets: vec![0, count, 0], sum_ms: ms * count as f64 }
}

fn look(pool: Pool) -> Look {
    Look { bucket_bounds_ms: vec![1.0, 1_000.0], uptime_ms: 600_000.0, pools: vec![pool], ..Look::default() }
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
    let stampede = |slow, at_once| examine(&window(60, |n| (look(outage(n, slow, at_once)), Vec::new())));
    let diagnosis = stampede(300.0, 6);
    assert_eq!(symptoms(&diagnosis), [Symptom::Stampede], "{}", diagnosis.text(str::to_owned));
    let setting = diagnosis.findings[0].setting.as_ref().unwrap();
    // Thirty times as slow with twelve at a time: one at a time does as much.
    assert_eq!((setting.key, setting.from.as_deref(), setting.to.as_str()), ("max_connecting", Some("12"), "1"));
    assert!(diagnosis.findings[0].evidence[1].contains("took 300 ms on average, and 10 ms otherwise"), "{diagnosis:?}");
    assert_eq!(symptoms(&stampede(300.0, 12)), [Symptom::Stampede], "before the next look");
    assert_eq!(symptoms(&stampede(20.0, 6)), [], "each is made quickly");
    let before =
        examine(&window(60, |n| (Look { ..look(Pool { unavailable_ms: None, ..outage(n, 300.0, 6) }) }, Vec::new())));
    assert!(!symptoms(&before).contains(&Symptom::Stampede), "there was no outage");
}

#[test]
fn connections_made_in_the_look_at_which_the_database_went_away_are_counted_with_their_time() {
    let busy = |n: u64| {
        let mut pool = outage(n, 30.0, 6);
        if n >= 10 {
            pool.created += 40;
            pool.connect.get_mut("auth").unwrap().add(&times(30.0, 40));
        }
        (look(pool), Vec::new())
    };
    assert_eq!(symptoms(&examine(&window(60, busy))), [], "none of them took longer than 30 ms");
}

#[test]
fn who_waits_for_a_database_that_was_away_does_not_wait_for_another_limit() {
    // Away for half of the window, and well again.
    let away = |n: u64| {
        let down = (10..40).contains(&n);
        let in_use = if down { 0 } else { 2 };
        let pool = Pool {
            waiters: if down { 5 } else { 0 },
            servers: PoolServers { in_use, total: in_use, ..PoolServers::default() },
            max_size: 10,
            created: 2,
            transactions: n,
            unavailable_ms: down.then_some(1_000.0),
            ..Pool::default()
        };
        (look(pool), Vec::new())
    };
    assert_eq!(symptoms(&examine(&window(60, away))), []);
}

/// Clients wait, and the database has no connection left for a third one.
fn refused(n: u64, error: &str, attempts: u64) -> Pool {
    Pool {
        database: "shop".into(),
        waiters: 6,
        servers: PoolServers { in_use: 2, total: 2, ..PoolServers::default() },
        max_size: 10,
        created: 2,
        transactions: n * 20,
        connect: BTreeMap::from([("tcp".into(), times(1.0, 2 + n * attempts))]),
        last_error: Some(error.into()),
        ..Pool::default()
    }
}

#[test]
fn a_database_that_has_no_connection_left_for_a_pool_is_told_from_a_limit_of_the_pooler() {
    const FULL: &str = "sorry, too many clients already (SQLSTATE 53300)";
    let of = |error, attempts| examine(&window(40, |n| (look(refused(n, error, attempts)), Vec::new())));
    let diagnosis = of(FULL, 1);
    assert_eq!(symptoms(&diagnosis), [Symptom::LimitsAddUp]);
    assert!(diagnosis.findings[0].evidence[2].starts_with("39 connections were begun and not made"), "{diagnosis:?}");
    assert_eq!(symptoms(&of(FULL, 0)), [Symptom::AnotherLimit], "that was long ago");
    assert_eq!(symptoms(&of("connection reset", 1)), [Symptom::AnotherLimit]);
    assert_eq!(symptoms(&of("10.0.0.5:53300 does not answer", 1)), [Symptom::AnotherLimit], "that is its port");
}

/// So many were sent away for their silence, of which so many did not answer.
fn silent(sent: u64, unanswered: u64) -> Listener {
    let counts = |many| Counts::from([("client_idle_time".to_owned(), many), ("drain".to_owned(), 7)]);
    Listener {
        accepted: 500,
        logins: 500,
        clients: ListenerClients { idle: 40, ..ListenerClients::default() },
        evictions: counts(sent),
        unanswered: counts(unanswered),
        ..Listener::default()
    }
}

#[test]
fn clients_that_do_not_end_their_side_are_told_from_idle_ones() {
    let of = |answer: fn(u64) -> u64| {
        examine(&window(40, |n| {
            (
                Look {
                    listeners: vec![silent(2 * n, answer(n))],
                    ..look(Pool { transactions: 50 * n, ..Pool::default() })
                },
                vec![],
            )
        }))
    };
    let diagnosis = of(|n| 2 * n);
    assert_eq!(symptoms(&diagnosis), [Symptom::Zombies]);
    let evidence = &diagnosis.findings[0].evidence;
    assert!(evidence[0].contains("78 clients") && evidence[0].contains("78 of 78 (100%)"), "{evidence:?}");
    assert!(
        evidence[1].contains("of 460 clients that have gone since the start, 78 did not leave by themselves"),
        "{evidence:?}"
    );
    assert_eq!(symptoms(&of(|_| 0)), [], "they end their side");
    assert_eq!(symptoms(&of(|n| n / 5)), [], "a few in a hundred");
    assert_eq!(symptoms(&of(|_| 60)), [], "that was before this was looked at");
}

/// Four of six servers in transactions that nobody goes on with, and clients that wait for the other two. `whole` says
/// which looks show all of that: a worker that does not answer in time is left out.
fn leak(n: u64, whole: bool) -> (Look, Vec<Client>) {
    let pool = Pool {
        database: "shop".into(),
        waiters: 5,
        servers: PoolServers { in_use: 6, total: 6, ..PoolServers::default() },
        max_size: 6,
        created: 6,
        transactions: 10 * n,
        ..Pool::default()
    };
    let client = |id: u64, state: &str, state_ms| Client {
        id,
        state: state.into(),
        state_ms,
        pool: Some(0),
        ..Client::default()
    };
    let since = 4_000.0 + (n * EVERY_MS) as f64;
    let mut holders: Vec<Client> = (0..4).map(|id| client(id, "transaction", since)).collect();
    holders.retain(|_| whole);
    holders.push(client(100 + n, "active", 5.0));
    (look(pool), holders)
}

#[test]
fn a_look_that_misses_a_worker_does_not_hide_a_leak() {
    for missed in [0, 7, 19] {
        let diagnosis = examine(&window(20, |n| leak(n, n != missed)));
        assert_eq!(symptoms(&diagnosis), [Symptom::Leak], "look {missed}: {}", diagnosis.text(str::to_owned));
    }
    // The same places at every look, and other transactions each time.
    let others = |n: u64| {
        let (look, mut holders) = leak(n, true);
        holders.iter_mut().for_each(|holder| holder.state_ms = 300.0);
        (look, holders)
    };
    assert_eq!(symptoms(&examine(&window(20, others))), [Symptom::TransactionsLeftOpen]);
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
    let (mut hold, mut looks) = (Times::default(), Vec::new());
    for n in 0..60 {
        let (in_use, ms) = levels(n);
        hold.add(&times(ms, 20));
        looks.push(Pool {
            database: "shop".into(),
            waiters: if in_use == 8 { 6 } else { 0 },
            servers: PoolServers { in_use, total: 8, ..PoolServers::default() },
            max_size: 8,
            created: 8,
            transactions: n * 20,
            hold: hold.clone(),
            ..Pool::default()
        });
    }
    let holders = |n: u64| {
        let client = |id| Client { id: 100 * n + id, state: "active".into(), pool: Some(0), ..Client::default() };
        (0..looks[n as usize].servers.in_use).map(client).collect()
    };
    let diagnosis = examine(&window(60, |n| (look(looks[n as usize].clone()), holders(n))));
    assert_eq!(symptoms(&diagnosis), [Symptom::ServerSaturated], "{}", diagnosis.text(str::to_owned));
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
    let mut window = DatabaseWindow::default();
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
    assert!(!examine_database(&window).text(str::to_owned).is_empty());
}
