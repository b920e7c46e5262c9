//! Windows of a PgBouncer: what it does not tell is seen otherwise, or left open.

use std::time::Duration;

use admin_api::{Client, Listener, Look, Observation, Pool, PoolServers, Pooler, Times};
use doctor::{PoolerWindow, Symptom, examine};

use crate::support::{found, pooler_window, setting, symptoms};

const INTERVAL_MS: u64 = 500;

/// What its console shows of one pool of four servers.
#[derive(Clone, Copy)]
struct Moment {
    in_use: u64,
    waiters: u64,
    transactions: u64,
    /// The time of each transaction.
    hold_ms: f64,
    /// The time of its statements.
    work_ms: f64,
    /// How long nothing new has been asked of the servers.
    since_ms: f64,
    /// New clients, and those that were gone at the look after.
    came: u64,
    brief: u64,
}

const BUSY: Moment =
    Moment { in_use: 4, waiters: 6, transactions: 40, hold_ms: 50.0, work_ms: 50.0, since_ms: 20.0, came: 0, brief: 0 };
const CALM: Moment = Moment { in_use: 1, waiters: 0, ..BUSY };

/// A calm time before a busy one.
fn after_calm(busy: &[Moment]) -> Vec<Moment> {
    [&[CALM; 10], busy].concat()
}

/// Nothing new is asked of the servers.
fn stuck() -> Vec<Moment> {
    let stuck = |n| Moment { transactions: 0, since_ms: (60_000 + n * INTERVAL_MS) as f64, ..BUSY };
    (0..30).map(stuck).collect()
}

fn window(moments: &[Moment], change: impl Fn(&mut Pool)) -> PoolerWindow {
    window_in_state("held", moments, change)
}

/// `state`: of the clients that have a server.
fn window_in_state(state: &str, moments: &[Moment], change: impl Fn(&mut Pool)) -> PoolerWindow {
    let mut window = PoolerWindow::default();
    let (mut transactions, mut held, mut worked, mut came, mut brief) = (0, 0.0, 0.0, 0, 0);
    for (n, moment) in moments.iter().enumerate() {
        let n = n as u64;
        transactions += moment.transactions;
        held += moment.hold_ms * moment.transactions as f64;
        worked += moment.work_ms * moment.transactions as f64;
        (came, brief) = (came + moment.came, brief + moment.brief);
        let mut pool = Pool {
            id: 1,
            database: "shop".into(),
            user: "app".into(),
            waiters: moment.waiters,
            oldest_wait_ms: (moment.waiters > 0).then_some(700.0),
            servers: PoolServers { in_use: moment.in_use, total: moment.in_use, ..PoolServers::default() },
            max_size: 4,
            transactions,
            hold: Times { buckets: vec![transactions], sum_ms: held },
            busy_ms: Some(worked),
            keeps_servers: Some(false),
            ..Pool::default()
        };
        change(&mut pool);
        let listener = Listener { logins: came, accepted: came, brief: Some(brief), ..Listener::default() };
        let look = Look {
            pooler: Pooler::PgBouncer,
            version: "1.18.0".into(),
            listeners: vec![listener],
            pools: vec![pool],
            ..Look::default()
        };
        let holder =
            |id| Client { id, state: state.into(), state_ms: moment.since_ms, pool: Some(1), ..Client::default() };
        let holders = (0..moment.in_use).map(holder).collect();
        assert!(window.add(Observation { at: Duration::from_millis(n * INTERVAL_MS), look, holders }));
    }
    window
}

fn same(_: &mut Pool) {}

#[test]
fn a_small_pool_is_told_by_its_transactions_and_the_setting_has_pgbouncers_name() {
    let diagnosis = examine(&window(&after_calm(&[BUSY; 30]), same));
    assert_eq!(symptoms(&diagnosis), [Symptom::PoolTooSmall]);
    assert_eq!(setting(&diagnosis).map(|(key, _, to)| (key, to)), Some(("pool_size", "8")));
    assert!(diagnosis.text(str::to_owned).contains("Looked at 1 pool of PgBouncer 1.18.0"));
    // 50 ms each, of which at one look more and at the next less is counted than has ended.
    let uneven: Vec<_> = (0..30).map(|n| Moment { hold_ms: if n % 2 == 0 { 200.0 } else { -100.0 }, ..BUSY }).collect();
    assert_eq!(found(&window(&after_calm(&uneven), same)), [Symptom::PoolTooSmall]);
}

#[test]
fn pauses_within_transactions_are_told_by_what_their_statements_took() {
    let paused = Moment { transactions: 4, hold_ms: 500.0, work_ms: 2.0, ..BUSY };
    assert_eq!(found(&window(&[paused; 30], same)), [Symptom::TransactionsLeftOpen]);
    let brief = Moment { work_ms: 2.0, ..BUSY };
    assert!(!symptoms(&examine(&window(&[brief; 30], same))).contains(&Symptom::TransactionsLeftOpen));
}

#[test]
fn what_a_server_does_that_stays_with_its_client_only_the_database_can_tell() {
    let diagnosis = examine(&window(&stuck(), same));
    assert_eq!((symptoms(&diagnosis), diagnosis.undecided.len()), (vec![], 1));
    assert_eq!(diagnosis.undecided[0].between, [Symptom::Leak, Symptom::ServerSaturated]);
    assert!(diagnosis.undecided[0].needs.contains("--database"));
    assert!(diagnosis.unseen.iter().any(|unseen| unseen.contains("--database")));
    let session = examine(&window(&stuck(), |pool| pool.keeps_servers = Some(true)));
    assert!(session.undecided[0].between.contains(&Symptom::HeldByIdleClients));
}

#[test]
fn clients_that_are_seen_once_are_short_lived_if_they_keep_coming() {
    let coming = Moment { came: 3, brief: 3, ..CALM };
    let one = Moment { came: 1, brief: 1, ..CALM };
    let burst = [vec![CALM; 15], vec![Moment { came: 60, brief: 60, ..CALM }], vec![CALM; 15]].concat();
    let now_and_then = (0..60).map(|n| if n % 3 == 0 { one } else { CALM }).collect();
    for (what, moments, expected) in [
        ("clients for each transaction", vec![coming; 30], &[Symptom::EphemeralClients][..]),
        ("a deployment, whose clients stay", vec![Moment { brief: 0, ..coming }; 30], &[]),
        ("two clients that come and go, at slow looks", vec![one; 20], &[Symptom::EphemeralClients]),
        ("so few that it may be a monitoring", vec![one; 10], &[]),
        ("a monitoring", now_and_then, &[]),
        ("a burst, which passes", burst, &[]),
    ] {
        assert_eq!(found(&window(&moments, same)), expected, "{what}");
    }
}

#[test]
fn a_pause_and_a_database_that_is_away_are_told_apart() {
    let nothing = Moment { in_use: 0, transactions: 0, ..BUSY };
    assert_eq!(found(&window(&[nothing; 20], |pool| pool.paused = true)), [Symptom::Paused]);
    assert_eq!(found(&window(&[nothing; 20], |pool| pool.unavailable_ms = Some(9_000.0))), [Symptom::OutOfReach]);
}

#[test]
fn a_server_that_is_idle_between_two_transactions_stays_with_no_client() {
    let idle = window_in_state("idle", &[BUSY; 30], |pool| pool.keeps_servers = Some(true));
    assert_eq!(found(&idle), [Symptom::HeldByIdleClients]);
    // In transaction mode it was looked at between two of them: the way to the database is longer than they are.
    assert_eq!(found(&window_in_state("idle", &after_calm(&[BUSY; 30]), same)), [Symptom::PoolTooSmall]);
}

#[test]
fn waits_that_are_not_counted_may_have_ended() {
    let text = examine(&window(&[BUSY; 30], same)).text(str::to_owned);
    let ended = "at the end the first of them had waited for 700 ms";
    assert!(text.contains(ended) && !text.contains("none has come"), "{text}");
}

#[test]
fn a_pool_whose_size_is_not_told_has_as_many_servers_as_were_seen() {
    let diagnosis = examine(&window(&[BUSY; 30], |pool| pool.max_size = 0));
    assert_eq!(diagnosis.undecided[0].between, [Symptom::PoolTooSmall, Symptom::ServerSaturated], "{diagnosis:?}");
    let text = diagnosis.text(str::to_owned);
    assert!(!text.contains(" 0 servers") && text.contains("which is not told"), "{text}");
    let diagnosis = examine(&window(&stuck(), |pool| pool.max_size = 0));
    assert!(diagnosis.undecided[0].seen[0].starts_with("4 of at most 4 servers stayed"), "{diagnosis:?}");
    let one_of_four_stays = |n: u64| {
        let holder = |id| {
            let (id, state_ms) = if id == 0 { (0, (60_000 + n * INTERVAL_MS) as f64) } else { (100 * n + id, 20.0) };
            Client { id, state: "held".into(), state_ms, pool: Some(1), ..Client::default() }
        };
        let servers = PoolServers { in_use: 4, total: 4, ..PoolServers::default() };
        let pool = Pool { id: 1, waiters: 6, servers, transactions: 40 * n, ..Pool::default() };
        let look = Look { pooler: Pooler::PgBouncer, pools: vec![pool], ..Look::default() };
        (look, (0..4).map(holder).collect())
    };
    let diagnosis = examine(&pooler_window(30, INTERVAL_MS, one_of_four_stays));
    assert!(!diagnosis.undecided.iter().any(|one| one.between.contains(&Symptom::Leak)), "{diagnosis:?}");
}

#[test]
fn clients_that_came_one_after_the_other_are_no_batches_because_their_age_is_told_in_seconds() {
    for (apart_s, undecided, why) in
        [(1, 0, "ten in each second are a pool that grows"), (3, 1, "ten at a time, and then none for three seconds")]
    {
        let mut window = window(&[CALM; 10], same);
        let client = |n: u64| Client {
            id: n,
            address: format!("10.0.0.7:{}", 40_000 + n),
            state: "idle".into(),
            connected_ms: ((n / 10) * apart_s) as f64 * 1e3,
            ..Client::default()
        };
        window.clients = (0..100).map(client).collect();
        assert_eq!(examine(&window).undecided.len(), undecided, "{why}");
    }
}
