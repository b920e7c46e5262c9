//! Windows that are made up, one for each symptom, and healthy ones that resemble them.

use std::{collections::BTreeMap, time::Duration};

use admin_api::{Client, Listener, ListenerClients, Look, Observation, Pool, PoolServers, Times, Tuning, Work};
use doctor::{Diagnosis, Symptom, Window, examine};

/// Bounds of the buckets, in milliseconds.
const BOUNDS: [f64; 4] = [1.0, 10.0, 100.0, 1_000.0];
const EVERY_MS: u64 = 500;

/// What happens between two looks.
#[derive(Clone, Copy)]
struct Moment {
    in_use: u64,
    waiters: u64,
    transactions: u64,
    hold_ms: f64,
    /// Of those in use, how many clients are elsewhere, and for how long they have been.
    elsewhere: u64,
    elsewhere_ms: f64,
    accepted: u64,
}

/// One in which nothing is asked.
const IDLE: Moment = Moment { in_use: 0, waiters: 0, transactions: 0, ..QUIET };

const QUIET: Moment =
    Moment { in_use: 2, waiters: 0, transactions: 50, hold_ms: 5.0, elsewhere: 0, elsewhere_ms: 0.0, accepted: 0 };

fn bucket(ms: f64, count: u64) -> Times {
    let mut buckets = vec![0; BOUNDS.len() + 1];
    buckets[BOUNDS.iter().position(|bound| ms <= *bound).unwrap_or(BOUNDS.len())] = count;
    Times { buckets, sum_ms: ms * count as f64 }
}

fn add(sum: &mut Times, more: &Times) {
    sum.buckets.resize(more.buckets.len(), 0);
    sum.buckets.iter_mut().zip(&more.buckets).for_each(|(sum, more)| *sum += more);
    sum.sum_ms += more.sum_ms;
}

/// A window of a pool of 10 servers. `elsewhere` clients are the same at all looks.
fn window(moments: &[Moment], change: impl Fn(&mut Look)) -> Window {
    let mut window = Window::default();
    let (mut hold, mut queued) = (Times::default(), Times::default());
    let (mut transactions, mut accepted) = (1_000, 100);
    for (n, moment) in [&[moments[0]], moments].concat().iter().enumerate() {
        let at = Duration::from_millis(n as u64 * EVERY_MS);
        transactions += moment.transactions;
        accepted += moment.accepted;
        add(&mut hold, &bucket(moment.hold_ms, moment.transactions));
        add(&mut queued, &bucket(50.0, moment.waiters));
        let servers = PoolServers { in_use: moment.in_use, total: moment.in_use, ..PoolServers::default() };
        let pool = Pool {
            database: "shop".into(),
            user: "app".into(),
            protocol: "postgres".into(),
            waiters: moment.waiters,
            servers,
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
            listeners: vec![Listener { logins: accepted, clients, ..Listener::default() }],
            uptime_ms: 600_000.0,
            pools: vec![pool],
            ..Look::default()
        };
        change(&mut look);
        let client = |id: u64, state: &str, state_ms| Client {
            id,
            state: state.into(),
            state_ms,
            database: "shop".into(),
            user: "app".into(),
            pool: Some(0),
            ..Client::default()
        };
        let working = moment.in_use - moment.elsewhere;
        let holders = (0..moment.elsewhere)
            .map(|id| client(id, "transaction", moment.elsewhere_ms))
            .chain((0..working).map(|id| client(1_000 + id + n as u64, "active", 3.0)));
        assert!(window.add(Observation { at, look, holders: holders.collect() }));
    }
    window
}

fn same(_: &mut Look) {}

fn symptoms(diagnosis: &Diagnosis) -> Vec<Symptom> {
    diagnosis.findings.iter().map(|finding| finding.symptom).collect()
}

/// What a finding must have, whatever it is.
fn found(window: &Window) -> Vec<Symptom> {
    let diagnosis = examine(window);
    for finding in &diagnosis.findings {
        assert!(
            finding.evidence.len() >= 2 && !finding.rules_out.is_empty() && !finding.advice.is_empty(),
            "{finding:?}"
        );
    }
    assert!(diagnosis.undecided.is_empty(), "{:?}", diagnosis.undecided);
    symptoms(&diagnosis)
}

#[test]
fn a_quiet_pool_is_healthy() {
    assert_eq!(found(&window(&[QUIET; 40], same)), []);
}

#[test]
fn waits_beyond_the_last_bound_have_come_to_an_end() {
    let full = Moment { in_use: 10, waiters: 30, transactions: 800, ..QUIET };
    let slow = |look: &mut Look| {
        let queued = look.pools[0].checkout.get_mut("queued").unwrap();
        let all = queued.count();
        (queued.buckets[2], queued.buckets[BOUNDS.len()]) = (0, all);
    };
    let text = examine(&window(&[full; 20], slow)).text(str::to_owned);
    assert!(text.contains("one wait in twenty lasted over 1.0 s") && !text.contains("none has come"), "{text}");
}

#[test]
fn a_burst_that_passes_is_healthy() {
    let burst = Moment { in_use: 10, waiters: 30, transactions: 800, ..QUIET };
    let moments = [vec![QUIET; 15], vec![burst; 8], vec![QUIET; 15]].concat();
    assert_eq!(found(&window(&moments, same)), []);
}

#[test]
fn work_that_takes_as_long_under_the_full_load_wants_a_larger_pool() {
    let full = Moment { in_use: 10, waiters: 8, transactions: 900, hold_ms: 5.5, ..QUIET };
    let moments = [vec![QUIET; 10], vec![full; 30]].concat();
    let diagnosis = examine(&window(&moments, same));
    assert_eq!(symptoms(&diagnosis), [Symptom::PoolTooSmall]);
    let setting = diagnosis.findings[0].setting.as_ref().unwrap();
    // Those in use and those who wait, and never more than twice as many.
    assert_eq!((setting.key, setting.from.as_deref(), setting.to.as_str()), ("max_size", Some("10"), "18"));
    let many: Vec<_> = moments.iter().map(|moment| Moment { waiters: moment.waiters * 50, ..*moment }).collect();
    assert_eq!(examine(&window(&many, same)).findings[0].setting.as_ref().unwrap().to, "20");
}

#[test]
fn work_that_takes_longer_with_each_server_in_use_is_of_a_saturated_database() {
    let level =
        |in_use: u64, waiters: u64| Moment { in_use, waiters, transactions: 60, hold_ms: 4.0 * in_use as f64, ..QUIET };
    let rising = [vec![level(2, 0); 6], vec![level(5, 0); 6], vec![level(8, 0); 6], vec![level(10, 8); 20]].concat();
    assert_eq!(found(&window(&rising, same)), [Symptom::ServerSaturated]);
    // From a light load to the full one at once, the work may be of another kind.
    let jump = [vec![level(2, 0); 10], vec![level(10, 8); 20]].concat();
    let diagnosis = examine(&window(&jump, same));
    assert_eq!((symptoms(&diagnosis), diagnosis.undecided.len()), (vec![], 1));
}

#[test]
fn servers_that_stay_with_idle_clients_are_no_leak() {
    let mut window = Window::default();
    for n in 0..20u64 {
        let servers = PoolServers { in_use: 10, total: 10, ..PoolServers::default() };
        let pool = Pool { waiters: 5, max_size: 10, servers, ..Pool::default() };
        let look = Look { pools: vec![pool], bucket_bounds_ms: BOUNDS.to_vec(), ..Look::default() };
        let client = |id| Client { id, state: "idle".into(), state_ms: 60_000.0, pool: Some(0), ..Client::default() };
        window.add(Observation {
            at: Duration::from_millis(n * EVERY_MS),
            look,
            holders: (0..10).map(client).collect(),
        });
    }
    assert_eq!(found(&window), [Symptom::HeldByIdleClients]);
}

#[test]
fn who_waits_below_the_pools_size_waits_for_another_limit() {
    let capped = Moment { in_use: 2, waiters: 5, ..QUIET };
    assert_eq!(found(&window(&[capped; 20], same)), [Symptom::AnotherLimit]);
    let making = |look: &mut Look| {
        let servers = &mut look.pools[0].servers;
        (servers.connecting, servers.total) = (8, 10);
    };
    let made = window(&[capped; 20], making);
    assert_eq!(found(&made), [Symptom::AnotherLimit]);
    let rules_out = &examine(&made).findings[0].rules_out;
    assert!(rules_out.contains("still being made") && !rules_out.contains("not reached"), "{rules_out}");
}

#[test]
fn who_waits_for_servers_that_are_cleaned_waits_for_no_other_limit() {
    let cleaned = |look: &mut Look| {
        let servers = &mut look.pools[0].servers;
        (servers.checking, servers.total) = (servers.in_use, 2 * servers.in_use);
    };
    let half = Moment { in_use: 5, waiters: 8, ..QUIET };
    let diagnosis = examine(&window(&[half; 20], cleaned));
    assert_eq!((symptoms(&diagnosis), diagnosis.undecided.len()), (vec![], 1), "{diagnosis:?}");
    assert!(diagnosis.undecided[0].seen[1].contains("in use, or being cleaned after it,"), "{diagnosis:?}");
    // A light load to compare with is one of few that are cleaned, too.
    let moments = [vec![Moment { in_use: 2, ..QUIET }; 10], vec![half; 30]].concat();
    assert_eq!(found(&window(&moments, cleaned)), [Symptom::PoolTooSmall]);
}

#[test]
fn a_paused_pool_is_named_as_that() {
    let paused = |look: &mut Look| look.pools[0].paused = true;
    let nothing = Moment { in_use: 0, transactions: 0, ..QUIET };
    assert_eq!(found(&window(&[Moment { waiters: 5, ..nothing }; 20], paused)), [Symptom::Paused]);
    assert_eq!(found(&window(&[nothing; 20], paused)), [], "nobody waits");
}

#[test]
fn a_name_that_a_client_made_up_is_no_database_out_of_reach() {
    let down = |look: &mut Look| (look.pools[0].created, look.pools[0].unavailable_ms) = (0, Some(90_000.0));
    assert_eq!(found(&window(&[Moment { in_use: 0, transactions: 0, ..QUIET }; 20], down)), []);
}

#[test]
fn a_database_that_is_known_to_be_out_of_reach_is_named_although_no_client_comes() {
    let nothing = Moment { in_use: 0, transactions: 0, ..QUIET };
    let down = |look: &mut Look| {
        let pool = &mut look.pools[0];
        (pool.created, pool.unavailable_ms, pool.last_error) = (0, Some(90_000.0), Some("password".into()));
        pool.checkout_failed = BTreeMap::from([("timeout".into(), look.bucket_bounds_ms.len() as u64)]);
    };
    let diagnosis = examine(&window(&[nothing; 20], down));
    assert_eq!(symptoms(&diagnosis), [Symptom::OutOfReach]);
    assert!(diagnosis.findings[0].evidence[1].ends_with("ended with: password"), "{diagnosis:?}");
}

#[test]
fn a_drained_database_is_named_until_that_ends() {
    let nothing = Moment { in_use: 0, transactions: 0, ..QUIET };
    assert_eq!(found(&window(&[nothing; 20], |look| look.pools[0].drained = true)), [Symptom::Drained]);
}

#[test]
fn sessions_that_get_no_server_of_their_own_are_told_of_and_not_blamed_for_coming_again() {
    let coming = Moment { transactions: 10, accepted: 10, ..QUIET };
    assert_eq!(found(&window(&[coming; 20], |_| ())), [Symptom::EphemeralClients]);
    let refused = |look: &mut Look| {
        let logins = look.listeners[0].logins;
        look.pools[0].pins_refused = BTreeMap::from([("advisory_lock".into(), logins)]);
    };
    assert_eq!(found(&window(&[coming; 20], refused)), [Symptom::PinsRefused]);
}

#[test]
fn clients_that_the_system_does_not_let_in_are_told_of() {
    let refused = |look: &mut Look| look.listeners[0].accepts_failed = look.listeners[0].logins;
    assert_eq!(found(&window(&[Moment { accepted: 1, ..QUIET }; 20], refused)), [Symptom::NotAccepted]);
}

#[test]
fn the_limit_that_keeps_a_pool_small_is_named() {
    let waits = Moment { in_use: 3, waiters: 8, ..QUIET };
    let limited = |look: &mut Look| look.pools[0].limited_by = Some("max_server_connections".into());
    let diagnosis = examine(&window(&[waits; 20], limited));
    assert_eq!(symptoms(&diagnosis), [Symptom::AnotherLimit]);
    assert!(diagnosis.findings[0].advice.starts_with("Raise max_server_connections"), "{diagnosis:?}");
}

#[test]
fn names_cannot_steer_a_terminal() {
    let named = |look: &mut Look| {
        look.pools[0].database = "a\u{1b}[2Jb".into();
        look.pools[0].paused = true;
    };
    let text = examine(&window(&[Moment { waiters: 1, ..QUIET }; 10], named)).text(str::to_owned);
    assert!(text.contains("a\u{fffd}[2Jb") && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn without_a_light_load_to_compare_with_it_says_what_would_decide() {
    let full = Moment { in_use: 10, waiters: 8, transactions: 900, ..QUIET };
    let diagnosis = examine(&window(&[full; 40], same));
    assert_eq!(symptoms(&diagnosis), []);
    assert_eq!(diagnosis.undecided[0].between, [Symptom::PoolTooSmall, Symptom::ServerSaturated]);
}

/// A steady load at a full pool, whose servers' sessions do this.
fn steady(work: Work) -> Diagnosis {
    let full = Moment { in_use: 10, waiters: 8, transactions: 900, ..QUIET };
    examine(&window(&[full; 40], |look| look.pools[0].work = Some(work)))
}

#[test]
fn what_sessions_wait_for_decides_where_the_load_is_always_the_same() {
    let work = Work { sessions: 10, all_ready: 3, processors: Some(8), ..Work::default() };
    let of = |diagnosis: Diagnosis| {
        let found = symptoms(&diagnosis);
        assert!(
            diagnosis.findings.iter().all(|finding| finding.evidence.iter().any(|seen| seen.contains("for locks")))
        );
        (found, diagnosis.undecided.len())
    };
    let (small, saturated) = (vec![Symptom::PoolTooSmall], vec![Symptom::ServerSaturated]);
    assert_eq!(of(steady(Work { others: 10, ..work })), (small.clone(), 0), "they sleep in the database");
    assert_eq!(of(steady(Work { locked: 8, ready: 2, ..work })), (saturated.clone(), 0));
    assert_eq!(of(steady(Work { ready: 10, all_ready: 10, ..work })), (saturated.clone(), 0));
    assert_eq!(of(steady(Work { ready: 10, all_ready: 12, processors: Some(32), ..work })), (small, 0));
    // Between half of the processors and all of them, and where it is not known how many there are.
    assert_eq!(of(steady(Work { ready: 6, all_ready: 6, ..work })), (vec![], 1));
    let unknown = steady(Work { ready: 10, all_ready: 10, processors: None, ..work });
    assert!(unknown.undecided[0].needs.contains("--processors"), "{unknown:?}");
    let disks = steady(Work { disks: 9, ready: 1, ..work });
    assert!(disks.undecided[0].needs.contains("disks"), "{disks:?}");
    // A database that has none of these sessions is another one.
    let another = steady(Work { sessions: 0, ..work });
    assert!(another.undecided[0].needs.contains("has none of its sessions"), "{another:?}");
}

/// A load at which no client waits, at a pool whose servers' sessions do this at each look.
fn without_waits(work: Work) -> Diagnosis {
    let busy = Moment { in_use: 9, transactions: 200, hold_ms: 40.0, ..QUIET };
    examine(&window(&[busy; 40], |look| look.pools[0].work = Some(work)))
}

#[test]
fn a_pool_that_lets_more_in_than_the_database_can_do_is_found_although_no_client_waits() {
    let work = Work { sessions: 10, all_ready: 2, processors: Some(4), ..Work::default() };
    let locks = without_waits(Work { locked: 7, ready: 2, ..work });
    assert_eq!(symptoms(&locks), [Symptom::ServerSaturated], "{locks:?}");
    let text = locks.text(str::to_owned);
    for part in [
        "shop as app: the database is saturated\n",
        "seen      7.0 of its 9.0 sessions with a statement waited for locks of others, two or more of them at 100% of the looks\n",
        "not       it is not short of processors: 2.0 sessions of the whole database were ready to run on average; no client waits",
        "max_size may be that (look first between 2 and 4).",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let processors = without_waits(Work { ready: 8, all_ready: 9, ..work });
    assert_eq!(symptoms(&processors), [Symptom::ServerSaturated], "{processors:?}");
    assert!(processors.findings[0].advice.contains("look first between 4 and 8"), "{processors:?}");
    // Ordinary work; one that waits for a lock now and then; processors that others take; and those of which the number
    // is not known.
    for healthy in [
        Work { ready: 3, all_ready: 4, ..work },
        Work { locked: 1, ready: 1, ..work },
        Work { locked: 3, ready: 5, all_ready: 5, ..work },
        Work { ready: 1, all_ready: 9, ..work },
        Work { ready: 8, all_ready: 9, processors: None, ..work },
        Work { others: 9, ..work },
        Work { sessions: 0, all_ready: 0, ..work },
    ] {
        assert_eq!(symptoms(&without_waits(healthy)), [], "{healthy:?}");
    }
    // A transaction that was forgotten may hold the locks: that is told alone.
    let forgotten =
        Moment { in_use: 9, elsewhere: 1, elsewhere_ms: 60_000.0, transactions: 200, hold_ms: 40.0, ..QUIET };
    let held =
        examine(&window(&[forgotten; 40], |look| look.pools[0].work = Some(Work { locked: 7, ready: 1, ..work })));
    assert_eq!(symptoms(&held), [Symptom::TransactionsLeftOpen], "{held:?}");
}

#[test]
fn transactions_left_open_are_not_a_small_pool() {
    let open = Moment {
        in_use: 10,
        waiters: 5,
        transactions: 20,
        hold_ms: 900.0,
        elsewhere: 8,
        elsewhere_ms: 800.0,
        accepted: 0,
    };
    let moments: Vec<_> = (0..40).map(|n| Moment { elsewhere: 7 + n % 2, ..open }).collect();
    assert_eq!(found(&window(&[vec![QUIET; 10], moments].concat(), same)), [Symptom::TransactionsLeftOpen]);
}

#[test]
fn pauses_that_are_no_round_trips_come_before_the_size_of_the_pool() {
    let of = |elsewhere: u64, elsewhere_ms: f64| {
        let light = Moment { elsewhere: u64::from(elsewhere > 0), elsewhere_ms, ..QUIET };
        let full =
            Moment { in_use: 10, waiters: 8, transactions: 900, hold_ms: 5.5, elsewhere, elsewhere_ms, accepted: 0 };
        // Each look meets other clients.
        let moments: Vec<_> = (0..30).map(|n| Moment { elsewhere: elsewhere + n % 2, ..full }).collect();
        examine(&window(&[vec![light; 10], moments].concat(), same))
    };
    assert_eq!(symptoms(&of(7, 40.0)), [Symptom::TransactionsLeftOpen]);
    let both = of(3, 40.0);
    assert_eq!(symptoms(&both), [Symptom::TransactionsLeftOpen, Symptom::PoolTooSmall]);
    assert!(both.findings[0].rules_out.contains("not the size alone"), "{both:?}");
    assert!(both.findings[1].advice.starts_with("End the pauses"), "{both:?}");
    assert_eq!(symptoms(&of(7, 4.0)), [Symptom::PoolTooSmall], "a round trip");
}

#[test]
fn sessions_that_wait_for_their_clients_are_no_small_pool() {
    let work = Work { sessions: 10, all_ready: 1, processors: Some(8), ..Work::default() };
    let found = steady(Work { clients: 8, ready: 1, ..work });
    assert_eq!(symptoms(&found), [Symptom::TransactionsLeftOpen], "{found:?}");
    assert!(found.findings[0].rules_out.contains("1.0 of its sessions had something to do"), "{found:?}");
    assert_eq!(symptoms(&steady(Work { clients: 2, others: 8, ..work })), [Symptom::PoolTooSmall]);
}

#[test]
fn a_full_pool_of_open_transactions_is_found_although_none_waits() {
    let open = Moment { in_use: 10, elsewhere: 10, elsewhere_ms: 2_500.0, transactions: 3, hold_ms: 900.0, ..QUIET };
    let changing: Vec<_> = (0..40).map(|n| Moment { elsewhere: 9 + n % 2, ..open }).collect();
    let diagnosis = examine(&window(&[vec![QUIET; 10], changing].concat(), same));
    assert_eq!(symptoms(&diagnosis), [Symptom::TransactionsLeftOpen]);
    assert!(diagnosis.findings[0].evidence.iter().any(|seen| seen.contains("who comes then waits")), "{diagnosis:?}");
    assert_eq!(found(&window(&[Moment { elsewhere_ms: 60_000.0, ..open }; 40], same)), [Symptom::Leak]);
    // Short pauses that no client waits for, and servers that are left for the next.
    assert_eq!(found(&window(&[Moment { elsewhere_ms: 300.0, ..open }; 40], same)), []);
    assert_eq!(found(&window(&[Moment { in_use: 9, elsewhere: 9, ..open }; 40], same)), []);
}

#[test]
fn a_transaction_that_was_forgotten_in_a_calm_pool_is_found() {
    let calm = Moment { in_use: 1, elsewhere: 1, elsewhere_ms: 39_000.0, transactions: 1, ..QUIET };
    let diagnosis = examine(&window(&[calm; 40], same));
    assert_eq!(found(&window(&[calm; 40], same)), [Symptom::TransactionsLeftOpen]);
    assert!(diagnosis.findings[0].evidence.iter().any(|seen| seen.contains("39.0 s")), "{diagnosis:?}");
    assert_eq!(found(&window(&[Moment { elsewhere_ms: 20_000.0, ..calm }; 40], same)), []);
    // What else is wrong is told as well.
    let also_small = Moment { in_use: 10, waiters: 8, transactions: 900, hold_ms: 5.5, ..calm };
    let moments = [vec![Moment { in_use: 2, transactions: 50, ..calm }; 10], vec![also_small; 30]].concat();
    assert_eq!(found(&window(&moments, same)), [Symptom::PoolTooSmall, Symptom::TransactionsLeftOpen]);
}

#[test]
fn those_who_have_stood_longest_are_not_all_where_no_more_are_listed() {
    let mut window = Window::default();
    for n in 0..20u64 {
        let servers = PoolServers { in_use: 100, total: 100, ..PoolServers::default() };
        let pool = Pool { waiters: 5, max_size: 100, servers, transactions: n * 2_000, ..Pool::default() };
        let look = Look { pools: vec![pool], bucket_bounds_ms: BOUNDS.to_vec(), ..Look::default() };
        let open = |id| Client { id, state: "transaction".into(), state_ms: 400.0, pool: Some(0), ..Client::default() };
        let holders = (0..20).map(|id| open(20 * n + id)).collect();
        window.add(Observation { at: Duration::from_millis(n * EVERY_MS), look, holders });
    }
    assert_eq!(symptoms(&examine(&window)), [], "80 that are not listed may work");
}

#[test]
fn a_limit_on_pauses_is_proposed_only_where_few_are_longer() {
    let open = Moment { in_use: 10, waiters: 5, transactions: 20, elsewhere: 7, elsewhere_ms: 800.0, ..QUIET };
    let proposed = |overlong: usize| {
        let moments: Vec<_> = (0..40)
            .map(|n| Moment {
                elsewhere: 7 + n as u64 % 2,
                elsewhere_ms: if n < overlong { 5_500.0 } else { 800.0 },
                ..open
            })
            .collect();
        let diagnosis = examine(&window(&moments, same));
        assert_eq!(symptoms(&diagnosis), [Symptom::TransactionsLeftOpen], "{diagnosis:?}");
        diagnosis.findings[0].setting.as_ref().map(|setting| setting.to.clone())
    };
    assert_eq!(proposed(0), None, "it would change nothing");
    assert_eq!(proposed(3), Some("5s".to_owned()));
    assert_eq!(proposed(40), None, "it would end them all");
}

#[test]
fn who_has_held_a_server_for_all_the_time_does_not_give_it_back() {
    let held: Vec<_> = (0..40)
        .map(|n| Moment {
            in_use: 10,
            waiters: 5,
            transactions: 3,
            elsewhere: 9,
            elsewhere_ms: 60_000.0 + (n * EVERY_MS) as f64,
            ..QUIET
        })
        .collect();
    assert_eq!(found(&window(&held, same)), [Symptom::Leak]);
}

#[test]
fn servers_closed_for_idleness_and_made_again_are_churn() {
    let churn = |look: &mut Look| {
        let pool = &mut look.pools[0];
        (pool.created, pool.transactions) = (240 + pool.transactions / 50, pool.transactions + 10_000);
        pool.closed = BTreeMap::from([("idle".into(), 190 + pool.created - 240), ("life".into(), 10)]);
        pool.checkout.insert("created".into(), bucket(80.0, 200));
        (pool.servers.in_use, pool.servers.total, pool.settings.max_idle_time) = (0, 8, Some(4_000.0));
    };
    let diagnosis = examine(&window(&[QUIET; 10], churn));
    assert_eq!(symptoms(&diagnosis), [Symptom::IdleChurn]);
    let setting = diagnosis.findings[0].setting.as_ref().unwrap();
    assert_eq!(
        (setting.key, &setting.to[..]),
        ("min_size", "8"),
        "what a burst left open, though no look fell into it"
    );
    let told = &diagnosis.findings[0].evidence;
    assert!(
        told.iter().any(|text| text.contains("up to 8 servers") && text.contains("max_idle_time is 4.0 s")),
        "{told:?}"
    );
    // One rotation after another is none.
    let rotation = |look: &mut Look| {
        churn(look);
        look.pools[0].closed = BTreeMap::from([("idle".into(), 10), ("life".into(), 210)]);
    };
    assert_eq!(found(&window(&[QUIET; 10], rotation)), []);
}

#[test]
fn clients_that_come_for_a_transaction_each_are_told_from_a_deployment() {
    let coming = Moment { accepted: 45, transactions: 50, ..QUIET };
    assert_eq!(found(&window(&[coming; 20], same)), [Symptom::EphemeralClients]);
    let burst = [vec![QUIET; 15], vec![Moment { accepted: 900, ..coming }], vec![QUIET; 15]].concat();
    assert_eq!(found(&window(&burst, same)), [], "they come once, and go");
    let deployment = |look: &mut Look| look.listeners[0].clients.idle = look.listeners[0].logins;
    assert_eq!(found(&window(&[coming; 20], deployment)), [], "they stay");
}

#[test]
fn what_was_done_in_pools_that_are_gone_was_done() {
    // Tenants that log in, ask for fifty transactions, and leave with their pool.
    let tenants = |look: &mut Look| {
        (look.pools[0].id, look.pools[0].transactions) = (look.pools[0].transactions, 50);
    };
    assert_eq!(found(&window(&[Moment { accepted: 5, ..QUIET }; 30], tenants)), []);
    assert_eq!(found(&window(&[Moment { accepted: 40, ..QUIET }; 30], tenants)), [Symptom::EphemeralClients]);
}

#[test]
fn many_small_batches_from_one_origin_are_a_pool_of_pools() {
    let client = |n: u32, connected_ms: f64, state: &str| Client {
        id: n.into(),
        address: format!("10.0.0.7:{}", 40_000 + n),
        state: state.into(),
        connected_ms,
        user: "mule".into(),
        database: "db".into(),
        ..Client::default()
    };
    let mut nested = window(&[QUIET; 10], same);
    nested.clients = (0..100).map(|n| client(n, f64::from(n / 5) * 3_000.0 + f64::from(n % 5), "idle")).collect();
    let diagnosis = examine(&nested);
    assert_eq!(
        diagnosis.undecided[0].between,
        [Symptom::PoolOfPools],
        "several processes behind one address look the same"
    );
    let mut single = window(&[QUIET; 10], same);
    single.clients = (0..100).map(|n| client(n, 60_000.0 + f64::from(n), "idle")).collect();
    assert_eq!(found(&single), [], "one pool comes in one batch");
}

#[test]
fn who_cannot_reach_the_database_has_no_other_trouble() {
    let down = |look: &mut Look| {
        look.pools[0].unavailable_ms = Some(12_000.0);
        look.pools[0].last_error = Some("connection refused".into());
    };
    let waiting = Moment { in_use: 0, waiters: 30, transactions: 0, ..QUIET };
    assert_eq!(found(&window(&[waiting; 20], down)), [Symptom::OutOfReach]);
}

#[test]
fn a_restart_begins_the_window_anew() {
    let mut window = window(&[QUIET; 10], same);
    let look = Look { instance: "another".into(), ..Look::default() };
    assert!(!window.add(Observation { at: Duration::from_secs(60), look, holders: Vec::new() }));
    assert_eq!((examine(&window).pools, window.looks()), (0, 1));
}

#[test]
fn the_text_names_evidence_rival_setting_and_what_to_do() {
    let full = Moment { in_use: 10, waiters: 8, transactions: 900, ..QUIET };
    let text = examine(&window(&[vec![QUIET; 10], vec![full; 30]].concat(), same)).text(str::to_owned);
    for part in
        ["shop as app: the pool is too small", "  seen ", "  not ", "  set       max_size = 18 (now 10)", "  do "]
    {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

#[test]
fn where_nothing_happens_nothing_is_called_healthy() {
    let told = |moments: &[Moment]| examine(&window(moments, |_| {})).text(str::to_owned);
    let (idle, quiet) = (told(&[IDLE; 10]), told(&[QUIET; 10]));
    assert!(idle.contains("Nothing happened in this time") && !idle.contains("Healthy"), "{idle}");
    assert!(quiet.contains("Healthy"), "{quiet}");
    let last = Moment { transactions: 1, ..IDLE };
    assert!(told(&[&[IDLE; 9][..], &[last]].concat()).contains("Healthy"), "one transaction is something");
}

#[test]
fn what_is_in_force_is_not_proposed() {
    let open = Moment { in_use: 10, waiters: 0, transactions: 0, elsewhere: 1, elsewhere_ms: 40_000.0, ..QUIET };
    let told = |limit: Option<f64>| {
        let window = window(&[open; 10], |look| look.pools[0].settings.transaction_idle_time = limit);
        examine(&window).text(str::to_owned)
    };
    let unset = told(None);
    assert!(unset.contains("60s would end those"), "{unset}");
    let longer = told(Some(300_000.0));
    assert!(longer.contains("transaction_idle_time is 300s: 60s would end those"), "{longer}");
    let shorter = told(Some(60_000.0));
    assert!(shorter.contains("transaction_idle_time = 60s is in force") && !shorter.contains("would end"), "{shorter}");

    let leaks = Moment { in_use: 10, waiters: 5, elsewhere: 10, ..open };
    let told = |limit: Option<f64>| {
        let diagnosis = examine(&window(&[leaks; 40], |look| look.pools[0].settings.transaction_idle_time = limit));
        let [finding] = &diagnosis.findings[..] else { panic!("{}", diagnosis.text(str::to_owned)) };
        (finding.setting.clone().map(|setting| (setting.from, setting.to)), finding.advice.clone())
    };
    assert_eq!(told(None).0, Some((None, "30s".to_owned())));
    assert_eq!(told(Some(60_000.0)).0, Some((Some("60s".to_owned()), "30s".to_owned())));
    let pausing = Moment { in_use: 10, waiters: 5, transactions: 20, elsewhere: 7, elsewhere_ms: 800.0, ..QUIET };
    let moments: Vec<_> = (0..40).map(|n| Moment { elsewhere: 7 + n % 2, ..pausing }).collect();
    let within = examine(&window(&moments, |look| look.pools[0].settings.transaction_idle_time = Some(30_000.0)));
    let advice = &within.findings[0].advice;
    assert!(advice.contains("transaction_idle_time is 30s already"), "{advice}");
    let (setting, advice) = told(Some(2_500.0));
    assert!(setting.is_none() && advice.contains("transaction_idle_time = 2500ms is in force"), "{advice}");
}

#[test]
fn a_size_that_is_tuned_is_not_set() {
    let busy = |tuning: Option<Tuning>| {
        let quiet = [QUIET; 20];
        let full = [Moment { in_use: 10, waiters: 8, transactions: 500, ..QUIET }; 20];
        let diagnosis = examine(&window(&[quiet, full].concat(), |look| look.pools[0].tuning = tuning.clone()));
        let [finding] = &diagnosis.findings[..] else { panic!("{}", diagnosis.text(str::to_owned)) };
        (finding.symptom, finding.setting.is_some(), finding.advice.contains("is in force"))
    };
    assert_eq!(busy(None), (Symptom::PoolTooSmall, true, false));
    assert_eq!(busy(Some(Tuning::default())), (Symptom::PoolTooSmall, false, true));
}
