//! Windows of a PgBouncer that are made up: what it does not tell is told otherwise, or left open.

use std::time::Duration;

use doctor::{Diagnosis, Observation, Symptom, Window, examine};
use watch::{Client, Listener, Look, Pool, PoolServers, Pooler, Times};

const EVERY_MS: u64 = 500;

/// What its console shows of one pool of four servers.
#[derive(Clone, Copy)]
struct Moment {
    in_use: u64,
    waiters: u64,
    transactions: u64,
    /// Of each of them, and of its statements.
    hold_ms: f64,
    work_ms: f64,
    /// For how long nothing new has been asked of the servers.
    since_ms: f64,
    came: u64,
    brief: u64,
}

const BUSY: Moment =
    Moment { in_use: 4, waiters: 6, transactions: 40, hold_ms: 50.0, work_ms: 50.0, since_ms: 20.0, came: 0, brief: 0 };

fn window(moments: &[Moment], change: impl Fn(&mut Pool)) -> Window {
    let mut window = Window::default();
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
            |id| Client { id, state: "held".into(), state_ms: moment.since_ms, pool: Some(1), ..Client::default() };
        let holders = (0..moment.in_use).map(holder).collect();
        assert!(window.add(Observation { at: Duration::from_millis(n * EVERY_MS), look, holders }));
    }
    window
}

fn same(_: &mut Pool) {}

fn symptoms(diagnosis: &Diagnosis) -> Vec<Symptom> {
    diagnosis.findings.iter().map(|finding| finding.symptom).collect()
}

fn found(window: &Window) -> Vec<Symptom> {
    let diagnosis = examine(window);
    assert!(diagnosis.findings.iter().all(|finding| finding.evidence.len() >= 2), "{diagnosis:?}");
    assert!(diagnosis.undecided.is_empty(), "{:?}", diagnosis.undecided);
    symptoms(&diagnosis)
}

#[test]
fn a_small_pool_is_told_by_its_transactions_and_the_setting_has_pgbouncers_name() {
    let quiet = Moment { in_use: 1, waiters: 0, ..BUSY };
    let diagnosis = examine(&window(&[vec![quiet; 10], vec![BUSY; 30]].concat(), same));
    assert_eq!(symptoms(&diagnosis), [Symptom::PoolTooSmall]);
    let setting = diagnosis.findings[0].setting.as_ref().unwrap();
    assert_eq!((setting.key, setting.to.as_str()), ("pool_size", "8"));
    assert!(diagnosis.text(str::to_owned).contains("Looked at 1 pool of PgBouncer 1.18.0"));
}

#[test]
fn pauses_within_transactions_are_told_by_what_their_statements_took() {
    let paused = Moment { transactions: 4, hold_ms: 500.0, work_ms: 2.0, ..BUSY };
    assert_eq!(found(&window(&[paused; 30], same)), [Symptom::TransactionsLeftOpen]);
    let brief = Moment { hold_ms: 50.0, work_ms: 2.0, ..BUSY };
    assert!(!symptoms(&examine(&window(&[brief; 30], same))).contains(&Symptom::TransactionsLeftOpen));
}

#[test]
fn what_a_server_does_that_stays_with_its_client_only_the_database_can_tell() {
    let stuck: Vec<_> =
        (0..30).map(|n| Moment { transactions: 0, since_ms: 60_000.0 + (n * EVERY_MS) as f64, ..BUSY }).collect();
    let diagnosis = examine(&window(&stuck, same));
    assert_eq!((symptoms(&diagnosis), diagnosis.undecided.len()), (vec![], 1));
    assert_eq!(diagnosis.undecided[0].between, [Symptom::Leak, Symptom::ServerSaturated]);
    assert!(diagnosis.undecided[0].needs.contains("--database"));
    assert!(diagnosis.unseen.iter().any(|unseen| unseen.contains("--database")));
    let session = examine(&window(&stuck, |pool| pool.keeps_servers = Some(true)));
    assert!(session.undecided[0].between.contains(&Symptom::HeldByIdleClients));
}

#[test]
fn clients_that_are_seen_once_are_short_lived_if_they_keep_coming() {
    let calm = Moment { in_use: 1, waiters: 0, ..BUSY };
    let coming = Moment { came: 3, brief: 3, ..calm };
    assert_eq!(found(&window(&[coming; 30], same)), [Symptom::EphemeralClients]);
    assert_eq!(found(&window(&[Moment { brief: 0, ..coming }; 30], same)), [], "a deployment's stay");
    // Two who come and go, looked at by somebody who is slow, and a monitoring that comes every now and then.
    let one = Moment { came: 1, brief: 1, ..calm };
    assert_eq!(found(&window(&[one; 20], same)), [Symptom::EphemeralClients]);
    assert_eq!(found(&window(&[one; 10], same)), [], "so few may be somebody's monitoring");
    let now_and_then: Vec<_> = (0..60).map(|n| if n % 3 == 0 { one } else { calm }).collect();
    assert_eq!(found(&window(&now_and_then, same)), []);
    let burst = [vec![calm; 15], vec![Moment { came: 60, brief: 60, ..calm }], vec![calm; 15]].concat();
    assert_eq!(found(&window(&burst, same)), [], "a burst passes");
}

#[test]
fn a_pause_and_a_database_that_is_away_are_told_apart() {
    let nothing = Moment { in_use: 0, transactions: 0, ..BUSY };
    assert_eq!(found(&window(&[nothing; 20], |pool| pool.paused = true)), [Symptom::Paused]);
    assert_eq!(found(&window(&[nothing; 20], |pool| pool.unavailable_ms = Some(9_000.0))), [Symptom::OutOfReach]);
}

#[test]
fn a_pool_whose_size_is_not_told_is_no_pool_of_none() {
    let diagnosis = examine(&window(&[BUSY; 30], |pool| pool.max_size = 0));
    assert_eq!(diagnosis.undecided[0].between, [Symptom::PoolTooSmall, Symptom::ServerSaturated], "{diagnosis:?}");
    let text = diagnosis.text(str::to_owned);
    assert!(!text.contains(" 0 servers") && text.contains("which is not told"), "{text}");
}
