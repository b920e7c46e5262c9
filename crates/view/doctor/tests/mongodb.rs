//! Windows of a MongoDB that are made up, one for each symptom that it tells, and healthy ones that resemble them.

use std::time::Duration;

use admin_api::{Mongo, Session, Transactions};
use doctor::{Diagnosis, MongoWindow, Symptom, examine_mongodb};

#[path = "databases/course.rs"]
mod course;

use course::{Random, course};

const EVERY_MS: u64 = 500;

/// A window in which each look shows what `of` says of it.
fn window(looks: u64, of: impl Fn(u64) -> Mongo) -> MongoWindow {
    let mut window = MongoWindow::default();
    for n in 0..looks {
        let base = Mongo { version: "7.0.14".into(), process: "mongod".into(), uptime_ms: 1e6 + n as f64, ..of(n) };
        assert!(window.add(Duration::from_millis(n * EVERY_MS), base), "look {n}");
    }
    window
}

fn symptoms(diagnosis: &Diagnosis) -> Vec<Symptom> {
    diagnosis.findings.iter().map(|finding| finding.symptom).collect()
}

fn found(window: &MongoWindow) -> Vec<Symptom> {
    let diagnosis = examine_mongodb(window);
    for finding in &diagnosis.findings {
        let whole = finding.evidence.len() >= 2 && !finding.rules_out.is_empty() && !finding.advice.is_empty();
        assert!(whole, "{finding:?}");
    }
    assert!(diagnosis.undecided.is_empty(), "{:?}", diagnosis.undecided);
    symptoms(&diagnosis)
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

fn session(id: u64, application: &str) -> Session {
    Session { id: Some(id), application: application.into(), host: "10.0.0.5".into(), ..Session::default() }
}

#[test]
fn ordinary_work_is_healthy_and_it_says_what_it_cannot_see() {
    let window = window(40, quiet);
    assert_eq!(found(&window), []);
    let short = examine_mongodb(&window).in_short();
    assert!(short[0].ends_with("whether clients wait cannot be seen from there"), "{short:?}");
    let text = examine_mongodb(&window).text(str::to_owned);
    assert!(text.starts_with("Looked at 30 connections of MongoDB 7.0.14 for 20 s.\n"), "{text}");
    assert!(text.contains("symptoms that can be seen from here") && text.contains("CMAP events"), "{text}");
    assert!(!text.contains("--processors"), "{text}");
}

#[test]
fn a_server_that_counts_hardly_anything_is_looked_at_and_that_is_said() {
    let bare = |_: u64| Mongo { current: 3, hides_sessions: Some("it has no $currentOp".into()), ..Mongo::default() };
    let diagnosis = examine_mongodb(&window(10, bare));
    assert!(diagnosis.findings.is_empty() && diagnosis.undecided.is_empty());
    let unseen = diagnosis.unseen.join("\n");
    for part in
        ["does not count those it has made", "more connections are kept", "transactions", "it has no $currentOp"]
    {
        assert!(unseen.contains(part), "{part}: {unseen}");
    }
}

#[test]
fn connections_that_serve_an_operation_each_are_named_and_whose_they_are() {
    // A hello, a login and one operation each.
    let coming = |n: u64| Mongo {
        created: Some(400 + n * 20),
        operations: 100_000 + n * 62,
        sessions: Some(vec![session(n, "lambda"), session(1_000, "web")]),
        ..quiet(0)
    };
    let coming = window(40, coming);
    assert_eq!(found(&coming), [Symptom::EphemeralClients]);
    assert_eq!(examine_mongodb(&coming).findings[0].of, "lambda from 10.0.0.5");
    let reused = |n: u64| Mongo { created: Some(400 + n * 20), operations: 100_000 + n * 400, ..quiet(0) };
    assert_eq!(found(&window(40, reused)), [], "most operations came over connections that were kept");
    let burst = |n: u64| {
        let made = if n < 20 { 0 } else { 200 };
        Mongo { created: Some(400 + made), operations: 100_000 + 3 * made, ..quiet(0) }
    };
    assert_eq!(found(&window(40, burst)), [], "a burst passes");
    let growing =
        |n: u64| Mongo { current: 30 + n * 3, created: Some(400 + n * 3), operations: 100_000 + n * 9, ..quiet(0) };
    assert_eq!(found(&window(40, growing)), [], "those of a deployment stay");
    let few = |n: u64| Mongo { created: Some(400 + n), operations: 100_000 + n * 3, ..quiet(0) };
    assert_eq!(found(&window(40, few)), [], "so few are somebody's monitoring");
}

#[test]
fn connections_that_are_kept_for_nothing_are_named_and_those_that_work_are_not() {
    let kept = |active: u64, rejected: u64| {
        move |n: u64| Mongo {
            current: 900,
            available: Some(100),
            active: Some(active),
            rejected: Some(n * rejected),
            sessions: Some((0..800).map(|id| session(id, "web")).collect()),
            ..quiet(n)
        }
    };
    let idle = window(40, kept(40, 1));
    assert_eq!(found(&idle), [Symptom::OverProvisioned]);
    let finding = &examine_mongodb(&idle).findings[0];
    let setting = finding.setting.as_ref().unwrap();
    assert_eq!((setting.key, setting.to.as_str()), ("maxPoolSize", "80"));
    let seen = finding.evidence.join("\n");
    assert!(
        seen.contains("900 of 1000") && seen.contains("800 of web") && seen.contains("39 connections were refused"),
        "{seen}"
    );
    assert_eq!(found(&window(40, kept(700, 0))), [], "they work");
    assert_eq!(found(&window(40, kept(700, 1))), [Symptom::ConnectionsRefused]);
    let roomy = |n: u64| Mongo { current: 900, available: Some(50_000), ..quiet(n) };
    assert_eq!(found(&window(40, roomy)), [], "there is room for more");
}

#[test]
fn without_a_count_of_those_that_work_it_is_undetermined() {
    let unknown = |n: u64| Mongo { current: 900, available: Some(100), active: None, running: None, ..quiet(n) };
    let diagnosis = examine_mongodb(&window(40, unknown));
    assert_eq!(diagnosis.undecided[0].between, [Symptom::OverProvisioned, Symptom::ConnectionsRefused]);
    assert!(diagnosis.findings.is_empty());
}

#[test]
fn a_queue_within_the_server_is_a_saturated_database_and_so_are_busy_processors() {
    let queue = |n: u64| Mongo { queued: Some(9 + n % 2), running: Some(12), ..quiet(n) };
    let queue = window(40, queue);
    assert_eq!(found(&queue), [Symptom::ServerSaturated]);
    assert!(examine_mongodb(&queue).findings[0].evidence[0].contains("its own queue"));
    let busy = |n: u64| Mongo { running: Some(8 + n % 2), ..quiet(n) };
    assert_eq!(found(&window(40, busy)), [Symptom::ServerSaturated]);
    let unknown = |n: u64| Mongo { processors: None, ..busy(n) };
    let unknown = window(40, unknown);
    assert_eq!(found(&unknown), []);
    assert!(examine_mongodb(&unknown).unseen.iter().any(|unseen| unseen.contains("--processors")));
    let at_times = |n: u64| if n.is_multiple_of(4) { busy(n) } else { quiet(n) };
    assert_eq!(found(&window(40, at_times)), []);
}

/// So many open transactions, of which so many have no command; each takes a look's time or two.
fn pausing(open: u64, inactive: u64, a_look: u64) -> impl Fn(u64) -> Mongo {
    move |n| {
        let ended = 70 + n * a_look;
        let transactions = Some(Transactions { started: ended + open, ended, open, inactive });
        Mongo { transactions, ..quiet(n) }
    }
}

#[test]
fn pauses_within_transactions_are_named_with_a_list_and_without() {
    // Six of eight pause, and five begin in half a second: 0.6 s each.
    assert_eq!(found(&window(40, pausing(8, 6, 5))), [Symptom::TransactionsLeftOpen]);
    assert_eq!(found(&window(40, pausing(8, 6, 400))), [], "7.5 ms each, as between two commands");
    assert_eq!(found(&window(40, pausing(8, 2, 5))), [], "most of them work");
    assert_eq!(found(&window(40, pausing(1, 1, 1))), [], "one alone is somebody who works by hand");
    let listed = |ms: f64| {
        move |n: u64| {
            let idle = Session { id: None, paused_ms: Some(ms), open_ms: Some(ms + 9.0), ..session(0, "shop") };
            Mongo { sessions: Some(vec![idle; 6]), ..pausing(8, 6, 5)(n) }
        }
    };
    let long = window(40, listed(900.0));
    assert_eq!(found(&long), [Symptom::TransactionsLeftOpen]);
    assert!(examine_mongodb(&long).findings[0].evidence[1].contains("the pauses of one came to 900 ms"));
    assert_eq!(examine_mongodb(&long).findings[0].of, "shop from 10.0.0.5");
    assert_eq!(found(&window(40, listed(9.0))), [], "the list says that none pauses for long");
}

#[test]
fn many_short_pauses_of_a_long_transaction_are_not_one_long_pause() {
    // 0.6 s each altogether; those of one come to 0.9 s, and so many of six were still the same pause a moment later.
    let twice = |lasting: usize| {
        move |n: u64| {
            let pause = |which: usize| Session {
                id: None,
                paused_ms: Some(900.0),
                pause_ms: Some(if which < lasting { 101.0 } else { 0.0 }),
                ..session(0, if which < lasting { "slow" } else { "busy" })
            };
            Mongo { sessions: Some((0..6).map(pause).collect()), ..pausing(8, 6, 5)(n) }
        }
    };
    assert_eq!(found(&window(40, twice(0))), [], "a command every few milliseconds");
    assert_eq!(found(&window(40, twice(1))), [], "one of them is no habit");
    let long = window(40, twice(2));
    assert_eq!(found(&long), [Symptom::TransactionsLeftOpen]);
    let finding = &examine_mongodb(&long).findings[0];
    assert_eq!(finding.of, "slow from 10.0.0.5");
    assert!(finding.evidence[1].contains("80 of 240 pauses that were seen had gone on for 0.1 s"), "{finding:?}");
}

#[test]
fn transactions_that_had_all_begun_since_the_list_before_tell_nothing_of_pauses() {
    // 0.6 s each altogether, in many pauses, of a server that takes a second to list them.
    let new = |seen_again: bool| {
        move |n: u64| {
            let idle =
                |application: &str, ms: f64| Session { id: None, paused_ms: Some(ms), ..session(0, application) };
            let sessions = Some((0..6).map(|_| idle("busy", 400.0)).collect());
            Mongo { sessions, seen_again, ..pausing(8, 6, 5)(n) }
        }
    };
    assert_eq!(found(&window(40, new(true))), []);
    assert_eq!(found(&window(40, new(false))), [Symptom::TransactionsLeftOpen], "listed once, there is nothing better");
    // And they are not who pauses for long.
    let both = |n: u64| {
        let slow = Session { id: None, paused_ms: Some(900.0), pause_ms: Some(101.0), ..session(0, "slow") };
        let mut look = new(true)(n);
        look.sessions.iter_mut().for_each(|sessions| sessions.extend([slow.clone(), slow.clone()]));
        look
    };
    assert_eq!(examine_mongodb(&window(40, both)).findings[0].of, "slow from 10.0.0.5");
}

#[test]
fn transactions_that_nobody_ends_are_a_leak_with_a_list_and_without() {
    let left = |n: u64| {
        let transactions = Some(Transactions { started: 74, ended: 70, open: 4, inactive: 4 });
        Mongo { transactions, queued: Some(9), running: Some(5), ..quiet(n) }
    };
    assert_eq!(found(&window(40, left)), [Symptom::Leak], "the queue for their locks is no other trouble");
    let listed = |n: u64| {
        let paused_ms = Some(30_000.0 + (n * EVERY_MS) as f64);
        let idle = Session { id: None, paused_ms, ..session(0, "leaky") };
        let transactions = Some(Transactions { started: 80 + n, ended: 76 + n, open: 5, inactive: 4 });
        Mongo { transactions, sessions: Some(vec![idle; 4]), ..quiet(n) }
    };
    let listed = window(40, listed);
    assert_eq!(found(&listed), [Symptom::Leak]);
    let finding = &examine_mongodb(&listed).findings[0];
    assert!(finding.of.contains("leaky") && finding.setting.as_ref().unwrap().key == "transactionLifetimeLimitSeconds");
    let in_force = |seconds: u64| {
        let diagnosis = examine_mongodb(&window(40, |n| Mongo { transaction_lifetime_s: Some(seconds), ..left(n) }));
        let finding = &diagnosis.findings[0];
        (finding.setting.clone().map(|setting| (setting.from, setting.to)), finding.advice.clone())
    };
    assert_eq!(in_force(60).0, Some((Some("60".to_owned()), "30".to_owned())));
    let (setting, advice) = in_force(20);
    assert!(setting.is_none() && advice.contains("transactionLifetimeLimitSeconds is 20 already"), "{advice}");
}

#[test]
fn long_transactions_with_commands_between_their_pauses_are_no_leak() {
    // A server tells the sum of all pauses, which is longer than the window; between them they work.
    let working = |n: u64| {
        let pauses = 1 + n % 2;
        let paused = Session {
            id: None,
            paused_ms: Some(30_000.0 + n as f64 * 300.0),
            worked_us: Some(20_000_000 + n * 200_000),
            ..session(0, "batch")
        };
        let transactions = Some(Transactions { started: 74, ended: 70, open: 4, inactive: pauses });
        Mongo { transactions, sessions: Some(vec![paused; pauses as usize]), ..quiet(n) }
    };
    assert_eq!(found(&window(40, working)), []);
}

#[test]
fn a_server_that_counts_no_operations_is_not_one_of_which_none_are_asked() {
    let uncounted = |n: u64| Mongo { created: Some(400 + n * 20), operations: 0, ..quiet(0) };
    let uncounted = window(40, uncounted);
    assert_eq!(found(&uncounted), []);
    assert!(examine_mongodb(&uncounted).unseen.iter().any(|unseen| unseen.contains("does not count operations")));
}

#[test]
fn what_a_mongos_does_not_tell_is_said() {
    let router = |n: u64| Mongo { process: "mongos".into(), running: None, queued: None, ..quiet(n) };
    let unseen = examine_mongodb(&window(40, router)).unseen.join("\n");
    assert!(unseen.contains("whether it is saturated"), "{unseen}");
}

#[test]
fn idle_connections_that_are_closed_before_each_burst_are_churn() {
    // Two seconds of work, two of quiet, and two without connections.
    let churning = |base: u64| {
        move |n: u64| {
            let (round, phase) = (n / 12, n % 12);
            let bursts = if phase < 4 { round * 4 + phase } else { round * 4 + 4 };
            Mongo {
                current: if phase < 8 { 12 } else { 2 },
                created: Some(400 + 10 * (round + 1)),
                operations: 100_000 + bursts * 300 + n * base,
                ..quiet(0)
            }
        }
    };
    let churn = window(60, churning(0));
    assert_eq!(found(&churn), [Symptom::IdleChurn]);
    assert_eq!(examine_mongodb(&churn).findings[0].setting.as_ref().unwrap().key, "minPoolSize");
    assert_eq!(found(&window(60, churning(50))), [], "others ask meanwhile: nobody can tell");
    // Jobs that come, work to the end and are gone.
    let jobs = |n: u64| Mongo {
        current: if n % 12 < 6 { 12 } else { 2 },
        created: Some(400 + 10 * (n / 12)),
        operations: 100_000 + n * 300,
        ..quiet(0)
    };
    assert_eq!(found(&window(60, jobs)), []);
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
            sessions: Some(vec![Session { id: Some(figure), paused_ms: Some(f64::INFINITY), ..Session::default() }]),
            ..Mongo::default()
        };
        let text = examine_mongodb(&window(9, hostile)).text(str::to_owned);
        assert!(text.contains("Looked at"), "{text}");
    }
}

#[test]
fn none_of_three_hundred_healthy_windows_is_taken_for_ill() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let course = course(&mut random, 60);
        let mut opened = 0;
        let looks: Vec<Mongo> = course
            .into_iter()
            .map(|(current, made, operations)| {
                let active = random.between(0.0, current as f64 / 3.0) as u64;
                let running = random.between(0.0, 5.0) as u64;
                let open = random.between(0.0, 4.0) as u64;
                opened += random.between(5.0, 50.0) as u64;
                Mongo {
                    current,
                    available: Some(100 - current),
                    created: Some(made),
                    rejected: Some(0),
                    active: Some(active),
                    operations,
                    running: Some(running),
                    queued: Some(running / 4),
                    timed: operations,
                    took_ms: operations as f64 * 2.0,
                    transactions: Some(Transactions {
                        started: opened,
                        ended: opened - open.min(opened),
                        open,
                        inactive: open / 2,
                    }),
                    processors: Some(4),
                    ..Mongo::default()
                }
            })
            .collect();
        let diagnosis = examine_mongodb(&window(60, |n| looks[n as usize].clone()));
        assert!(diagnosis.findings.is_empty() && diagnosis.undecided.is_empty(), "seed {seed}: {diagnosis:?}");
    }
}
