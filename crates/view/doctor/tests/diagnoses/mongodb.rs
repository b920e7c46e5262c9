//! Windows of a MongoDB, one for each symptom that it shows, and healthy ones that resemble them.

use std::time::Duration;

use admin_api::{Mongo, SessionRow, Transactions};
use doctor::{MongoWindow, Symptom, examine_mongodb};

use crate::{
    random_load::random_load,
    support::{Random, found, setting},
};

const INTERVAL_MS: u64 = 500;

/// A window in which each look shows what `look_at` returns.
fn window(looks: u64, look_at: impl Fn(u64) -> Mongo) -> MongoWindow {
    let mut window = MongoWindow::default();
    for n in 0..looks {
        let look =
            Mongo { version: "7.0.14".into(), process: "mongod".into(), uptime_ms: 1e6 + n as f64, ..look_at(n) };
        assert!(window.add(Duration::from_millis(n * INTERVAL_MS), look), "look {n}");
    }
    window
}

/// Thirty connections that are kept, of which a few work; two hundred commands between two looks.
fn quiet(n: u64) -> Mongo {
    Mongo {
        current: 30,
        available: Some(970),
        created: Some(400),
        rejected: Some(0),
        active: Some(2 + n % 3),
        watching: 6,
        operations: 100_000 + n * 200,
        running: Some(n % 3),
        queued: Some(0),
        took_ms: 9_000.0 + n as f64 * 400.0,
        timed: 90_000 + n * 190,
        transactions: Some(Transactions { started: 70 + n, ended: 70 + n, open: n % 2, inactive: 0 }),
        processors: Some(4),
        ..Mongo::default()
    }
}

fn session(id: u64, application: &str) -> SessionRow {
    SessionRow { id: Some(id), application: application.into(), host: "10.0.0.5".into(), ..SessionRow::default() }
}

/// A quiet server with these numbers of connections and operations since the start.
fn counted(made: u64, operations: u64) -> Mongo {
    Mongo { created: Some(400 + made), operations: 100_000 + operations, ..quiet(0) }
}

/// Nearly all allowed connections are open.
fn kept(n: u64, active: u64, rejected: u64) -> Mongo {
    Mongo {
        current: 900,
        available: Some(100),
        active: Some(active),
        rejected: Some(n * rejected),
        sessions: Some((0..800).map(|id| session(id, "web")).collect()),
        ..quiet(n)
    }
}

/// Open transactions, of which some have no command. `per_look`: how many begin and end between two looks.
fn pausing(n: u64, open: u64, inactive: u64, per_look: u64) -> Mongo {
    let ended = 70 + n * per_look;
    let transactions = Some(Transactions { started: ended + open, ended, open, inactive });
    Mongo { transactions, ..quiet(n) }
}

/// A transaction without a connection that has paused for so long, all its pauses together.
fn paused(application: &str, paused_ms: f64) -> SessionRow {
    SessionRow { id: None, paused_ms: Some(paused_ms), ..session(0, application) }
}

/// Six of eight transactions pause for 0.6 s each altogether; of each the list says this.
fn listed(n: u64, paused: impl Fn(usize) -> SessionRow) -> Mongo {
    Mongo { sessions: Some((0..6).map(paused).collect()), ..pausing(n, 8, 6, 5) }
}

/// Four transactions that are never ended.
fn endless(n: u64) -> Mongo {
    let transactions = Some(Transactions { started: 74, ended: 70, open: 4, inactive: 4 });
    Mongo { transactions, queued: Some(9), running: Some(5), ..quiet(n) }
}

/// Two seconds of work, two of quiet, and two without connections. `base`: operations of others between two looks.
fn churning(n: u64, base: u64) -> Mongo {
    let (round, phase) = (n / 12, n % 12);
    let bursts = if phase < 4 { round * 4 + phase } else { round * 4 + 4 };
    Mongo { current: if phase < 8 { 12 } else { 2 }, ..counted(10 * (round + 1), bursts * 300 + n * base) }
}

fn busy(n: u64) -> Mongo {
    Mongo { running: Some(8 + n % 2), ..quiet(n) }
}

type Case = (&'static str, fn(u64) -> Mongo, &'static [Symptom]);

const CASES: &[Case] = &[
    ("ordinary work", quiet, &[]),
    // A hello, a login and one operation each.
    ("a connection for each operation", |n| counted(n * 20, n * 62), &[Symptom::EphemeralClients]),
    ("operations over connections that are kept", |n| counted(n * 20, n * 400), &[]),
    ("a burst, which passes", |n| if n < 20 { counted(0, 0) } else { counted(200, 600) }, &[]),
    ("a deployment, which stays", |n| Mongo { current: 30 + n * 3, ..counted(n * 3, n * 9) }, &[]),
    ("a few connections, as of a monitoring", |n| counted(n, n * 3), &[]),
    ("a server that counts no operations", |n| Mongo { operations: 0, ..counted(n * 20, 0) }, &[]),
    ("connections that are kept for nothing", |n| kept(n, 40, 1), &[Symptom::OverProvisioned]),
    ("a full server whose connections work", |n| kept(n, 700, 0), &[]),
    ("a server that refuses connections", |n| kept(n, 700, 1), &[Symptom::ConnectionsRefused]),
    ("room for more", |n| Mongo { current: 900, available: Some(50_000), ..quiet(n) }, &[]),
    (
        "a queue within the server",
        |n| Mongo { queued: Some(9 + n % 2), running: Some(12), ..quiet(n) },
        &[Symptom::ServerSaturated],
    ),
    ("busy processors", busy, &[Symptom::ServerSaturated]),
    ("busy processors now and then", |n| if n.is_multiple_of(4) { busy(n) } else { quiet(n) }, &[]),
    ("an unknown number of processors", |n| Mongo { running: Some(8), processors: None, ..quiet(n) }, &[]),
    // Six of eight pause, and five begin in half a second: 0.6 s each.
    ("long pauses", |n| pausing(n, 8, 6, 5), &[Symptom::TransactionsLeftOpen]),
    ("pauses of 7.5 ms, as between two commands", |n| pausing(n, 8, 6, 400), &[]),
    ("transactions that mostly work", |n| pausing(n, 8, 2, 5), &[]),
    ("a person who works by hand", |n| pausing(n, 1, 1, 1), &[]),
    ("a list of long pauses", |n| listed(n, |_| paused("shop", 900.0)), &[Symptom::TransactionsLeftOpen]),
    ("a list of short pauses", |n| listed(n, |_| paused("shop", 9.0)), &[]),
    // Their locks are what the queue waits for.
    ("endless transactions, which explain the queue", endless, &[Symptom::Leak]),
    (
        "a list of endless transactions",
        |n| {
            let transactions = Some(Transactions { started: 80 + n, ended: 76 + n, open: 5, inactive: 4 });
            let sessions = Some(vec![paused("leaky", 30_000.0 + (n * INTERVAL_MS) as f64); 4]);
            Mongo { transactions, sessions, ..quiet(n) }
        },
        &[Symptom::Leak],
    ),
    // A server tells the sum of all pauses, which is longer than the window; between them they work.
    (
        "long transactions with commands between their pauses",
        |n| {
            let pauses = 1 + n % 2;
            let worked_us = Some(20_000_000 + n * 200_000);
            let session = SessionRow { worked_us, ..paused("batch", 30_000.0 + n as f64 * 300.0) };
            let transactions = Some(Transactions { started: 74, ended: 70, open: 4, inactive: pauses });
            Mongo { transactions, sessions: Some(vec![session; pauses as usize]), ..quiet(n) }
        },
        &[],
    ),
];

const BURST_CASES: &[Case] = &[
    ("connections that are made again for each burst", |n| churning(n, 0), &[Symptom::IdleChurn]),
    ("operations of others in quiet times", |n| churning(n, 50), &[]),
    (
        "jobs that come, work to the end and are gone",
        |n| Mongo { current: if n % 12 < 6 { 12 } else { 2 }, ..counted(10 * (n / 12), n * 300) },
        &[],
    ),
];

#[test]
fn each_symptom_is_told_from_what_resembles_it() {
    for (looks, cases) in [(40, CASES), (60, BURST_CASES)] {
        for (what, look_at, expected) in cases {
            assert_eq!(&found(&window(looks, look_at)), expected, "{what}");
        }
    }
}

#[test]
fn what_cannot_be_seen_is_said() {
    let diagnosis = examine_mongodb(&window(40, quiet));
    assert!(diagnosis.in_short()[0].ends_with("whether clients wait cannot be seen from there"), "{diagnosis:?}");
    let text = diagnosis.text(str::to_owned);
    assert!(text.starts_with("Looked at 30 connections of MongoDB 7.0.14 for 20 s.\n"), "{text}");
    assert!(text.contains("symptoms that can be seen from here") && text.contains("CMAP events"), "{text}");
    assert!(!text.contains("--processors"), "{text}");
    type Case = (fn(u64) -> Mongo, &'static [&'static str]);
    let cases: [Case; 4] = [
        (
            |_| Mongo { current: 3, hides_sessions: Some("it has no $currentOp".into()), ..Mongo::default() },
            &["does not count those it has made", "more connections are kept", "transactions", "it has no $currentOp"],
        ),
        (|n| Mongo { operations: 0, ..counted(n * 20, 0) }, &["does not count operations"]),
        (|n| Mongo { process: "mongos".into(), running: None, queued: None, ..quiet(n) }, &["whether it is saturated"]),
        (|n| Mongo { running: Some(8), processors: None, ..quiet(n) }, &["--processors"]),
    ];
    for (look_at, parts) in cases {
        let unseen = examine_mongodb(&window(40, look_at)).unseen.join("\n");
        assert!(parts.iter().all(|part| unseen.contains(part)), "{parts:?}: {unseen}");
    }
}

#[test]
fn findings_tell_whose_connections_these_are_and_what_was_seen() {
    type Case = (fn(u64) -> Mongo, &'static str, &'static [&'static str]);
    let cases: [Case; 6] = [
        (
            |n| Mongo { sessions: Some(vec![session(n, "lambda"), session(1_000, "web")]), ..counted(n * 20, n * 62) },
            "lambda from 10.0.0.5",
            &[],
        ),
        (|n| kept(n, 40, 1), "the whole server", &["900 of 1000", "800 of web", "39 connections were refused"]),
        (|n| Mongo { queued: Some(9), running: Some(12), ..quiet(n) }, "the whole server", &["its own queue"]),
        (|n| listed(n, |_| paused("shop", 900.0)), "shop from 10.0.0.5", &["the pauses of one came to 900 ms"]),
        // Pauses of one that come to 0.9 s; two of six were still the same pause a moment later.
        (
            |n| listed(n, |which| lasting(which, 2)),
            "slow from 10.0.0.5",
            &["80 of 240 pauses that were seen had gone on for 0.1 s"],
        ),
        // Transactions that had just begun are not those that pause for long.
        (
            |n| {
                let mut look = Mongo { are_listed_twice: true, ..listed(n, |_| paused("busy", 400.0)) };
                look.sessions.iter_mut().for_each(|sessions| sessions.extend([lasting(0, 1), lasting(0, 1)]));
                look
            },
            "slow from 10.0.0.5",
            &[],
        ),
    ];
    for (look_at, of, parts) in cases {
        let finding = &examine_mongodb(&window(40, look_at)).findings[0];
        let seen = finding.evidence.join("\n");
        assert_eq!(finding.of, of);
        assert!(parts.iter().all(|part| seen.contains(part)), "{parts:?}: {seen}");
    }
    assert_eq!(setting(&examine_mongodb(&window(40, |n| kept(n, 40, 1)))), Some(("maxPoolSize", None, "80")));
    assert_eq!(setting(&examine_mongodb(&window(60, |n| churning(n, 0)))).unwrap().0, "minPoolSize");
}

/// A transaction whose pauses were listed twice. The first `lasting` of all go on.
fn lasting(which: usize, lasting: usize) -> SessionRow {
    let (pause_ms, application) = if which < lasting { (101.0, "slow") } else { (0.0, "busy") };
    SessionRow { pause_ms: Some(pause_ms), ..paused(application, 900.0) }
}

#[test]
fn many_short_pauses_of_a_long_transaction_are_not_one_long_pause() {
    for (which_last, expected) in [(0, &[][..]), (1, &[]), (2, &[Symptom::TransactionsLeftOpen])] {
        let twice = |n| listed(n, |which| lasting(which, which_last));
        assert_eq!(found(&window(40, twice)), expected, "{which_last} of six are no habit, or are one");
    }
    // Of transactions that had all begun since the list before nothing is known; listed once, there is nothing better.
    for (are_listed_twice, expected) in [(true, &[][..]), (false, &[Symptom::TransactionsLeftOpen])] {
        let new = |n| Mongo { are_listed_twice, ..listed(n, |_| paused("busy", 400.0)) };
        assert_eq!(found(&window(40, new)), expected, "{are_listed_twice}");
    }
}

#[test]
fn without_a_count_of_those_that_work_it_is_undetermined() {
    let unknown = |n: u64| Mongo { active: None, running: None, ..kept(n, 0, 0) };
    let diagnosis = examine_mongodb(&window(40, unknown));
    assert_eq!(diagnosis.undecided[0].between, [Symptom::OverProvisioned, Symptom::ConnectionsRefused]);
    assert!(diagnosis.findings.is_empty());
}

#[test]
fn a_limit_on_transactions_is_proposed_unless_a_shorter_one_is_in_force() {
    let with_limit =
        |seconds: u64| examine_mongodb(&window(40, |n| Mongo { transaction_lifetime_s: Some(seconds), ..endless(n) }));
    assert_eq!(setting(&with_limit(60)), Some(("transactionLifetimeLimitSeconds", Some("60"), "30")));
    let shorter = with_limit(20);
    assert_eq!(setting(&shorter), None);
    let advice = &shorter.findings[0].advice;
    assert!(advice.contains("transactionLifetimeLimitSeconds is 20 already"), "{advice}");
}

#[test]
fn figures_at_the_end_of_their_range_are_examined() {
    for figure in [0, 1, u64::MAX / 2, u64::MAX] {
        let hostile = |n: u64| Mongo {
            current: figure,
            available: Some(figure),
            created: Some(if n == 0 { 0 } else { figure }),
            rejected: Some(figure),
            active: Some(figure),
            watching: figure,
            operations: if n == 0 { 0 } else { figure },
            running: Some(figure),
            queued: Some(figure),
            took_ms: f64::MAX,
            timed: figure,
            transactions: Some(Transactions { started: figure, ended: figure, open: figure, inactive: figure }),
            processors: Some(figure),
            sessions: Some(vec![SessionRow {
                id: Some(figure),
                paused_ms: Some(f64::INFINITY),
                ..SessionRow::default()
            }]),
            ..Mongo::default()
        };
        let text = examine_mongodb(&window(9, hostile)).text(str::to_owned);
        assert!(text.contains("Looked at"), "{text}");
    }
}

#[test]
fn healthy_windows_are_found_healthy() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let load = random_load(&mut random, 60);
        let mut started = 0;
        let mut look = |(current, made, operations): (u64, u64, u64)| {
            let active = random.between(0.0, current as f64 / 3.0) as u64;
            let running = random.between(0.0, 5.0) as u64;
            let open = random.between(0.0, 4.0) as u64;
            started += random.between(5.0, 50.0) as u64;
            let ended = started - open.min(started);
            Mongo {
                current,
                available: Some(100 - current),
                created: Some(made),
                active: Some(active),
                operations,
                running: Some(running),
                queued: Some(running / 4),
                timed: operations,
                took_ms: operations as f64 * 2.0,
                transactions: Some(Transactions { started, ended, open, inactive: open / 2 }),
                ..quiet(0)
            }
        };
        let looks: Vec<Mongo> = load.into_iter().map(&mut look).collect();
        assert_eq!(found(&window(60, |n| looks[n as usize].clone())), [], "seed {seed}");
    }
}
