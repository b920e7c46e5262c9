//! Windows of a database that are made up, one for each symptom that it tells, and healthy ones that resemble them.

use std::time::Duration;

use admin_api::{Activity, Backend};
use doctor::{DatabaseWindow, Diagnosis, Symptom, examine_database};

const EVERY_MS: u64 = 500;

fn backend(pid: u32, state: &str, state_ms: f64) -> Backend {
    Backend {
        pid,
        started_us: u64::from(pid),
        age_ms: 600_000.0,
        database: "shop".into(),
        user: "app".into(),
        application: "web".into(),
        address: "10.0.0.7".into(),
        state: state.into(),
        state_ms,
        transaction_ms: state.contains("transaction").then_some(state_ms + 5.0),
        wait: Some("Client".into()).filter(|_| state != "active"),
        ..Backend::default()
    }
}

/// A window in which each look shows what `of` says of it.
fn window(looks: u64, of: impl Fn(u64) -> Activity) -> DatabaseWindow {
    let mut window = DatabaseWindow::default();
    for n in 0..looks {
        let base = Activity { version: "15.3".into(), started_us: 7, max_connections: 100, reserved: 3, ..of(n) };
        assert!(window.add(Duration::from_millis(n * EVERY_MS), base));
    }
    window
}

fn symptoms(diagnosis: &Diagnosis) -> Vec<Symptom> {
    diagnosis.findings.iter().map(|finding| finding.symptom).collect()
}

fn found(window: &DatabaseWindow) -> Vec<Symptom> {
    let diagnosis = examine_database(window);
    for finding in &diagnosis.findings {
        let whole = finding.evidence.len() >= 2 && !finding.rules_out.is_empty() && !finding.advice.is_empty();
        assert!(whole, "{finding:?}");
    }
    assert!(diagnosis.undecided.is_empty(), "{:?}", diagnosis.undecided);
    symptoms(&diagnosis)
}

/// Ten that are kept, of which a few work; forty transactions between two looks.
fn quiet(n: u64) -> Activity {
    let backends = (0..10).map(|pid| match (u64::from(pid) + n) % 5 {
        0 => backend(pid, "active", 3.0),
        _ => backend(pid, "idle", 800.0),
    });
    Activity { transactions: 1_000 + n * 40, sessions: Some(50), backends: backends.collect(), ..Activity::default() }
}

#[test]
fn ordinary_work_is_healthy_and_it_says_what_it_cannot_see() {
    let window = window(40, quiet);
    assert_eq!(found(&window), []);
    let short = examine_database(&window).in_short();
    assert!(short[0].ends_with("whether clients wait cannot be seen from there"), "{short:?}");
    let text = examine_database(&window).text(str::to_owned);
    assert!(text.starts_with("Looked at 10 connections of PostgreSQL 15.3 for 20 s.\n"), "{text}");
    assert!(
        text.contains("symptoms that can be seen from here") && text.contains("a pool that is too small"),
        "{text}"
    );
    assert!(text.contains("--processors"), "{text}");
}

#[test]
fn connections_that_serve_a_transaction_each_are_named_even_where_no_look_sees_them() {
    // Each has one transaction of its own, and one that somebody asked for.
    let coming = |n: u64| Activity { transactions: 1_000 + n * 40, sessions: Some(50 + n * 19), ..quiet(0) };
    assert_eq!(found(&window(40, coming)), [Symptom::EphemeralClients]);
    let reused = |n: u64| Activity { transactions: 1_000 + n * 400, sessions: Some(50 + n * 19), ..quiet(0) };
    assert_eq!(found(&window(40, reused)), [], "most transactions came over connections that were kept");
    let burst = |n: u64| Activity {
        transactions: 1_000 + if n < 20 { 0 } else { 400 },
        sessions: Some(50 + if n < 20 { 0 } else { 200 }),
        ..quiet(0)
    };
    assert_eq!(found(&window(40, burst)), [], "a burst passes");
    let few = |n: u64| Activity { transactions: 1_000 + n * 2, sessions: Some(50 + n), ..quiet(0) };
    assert_eq!(found(&window(40, few)), [], "so few are somebody's monitoring");
}

#[test]
fn a_deployment_whose_connections_stay_is_healthy() {
    let coming = |n: u64| {
        let backends = (0..10 + n as u32).map(|pid| backend(pid, "idle", 10.0)).collect();
        Activity { transactions: 1_000 + n * 2, sessions: Some(50 + n), backends, ..Activity::default() }
    };
    assert_eq!(found(&window(70, coming)), []);
}

#[test]
fn sessions_that_pause_within_transactions_are_named_and_those_that_pause_briefly_are_not() {
    let pausing = |ms: f64| {
        move |n: u64| {
            let backends = (0..10).map(|pid| match pid {
                0..6 => backend(pid, "idle in transaction", ms + f64::from(pid)),
                6 => backend(pid, "active", 2.0),
                _ => backend(pid, "idle", 90.0),
            });
            Activity { backends: backends.collect(), ..quiet(n) }
        }
    };
    assert_eq!(found(&window(40, pausing(400.0))), [Symptom::TransactionsLeftOpen]);
    // An application on another machine, between two statements of a transaction.
    assert_eq!(found(&window(40, pausing(4.0))), []);
    // A limit would end them all.
    let diagnosis = examine_database(&window(40, pausing(9_000.0)));
    assert_eq!((symptoms(&diagnosis), &diagnosis.findings[0].setting), (vec![Symptom::TransactionsLeftOpen], &None));
    let few = |n: u64| {
        let look = pausing(400.0)(n);
        let ms = |pid| if pid == 0 && n.is_multiple_of(4) { 9_000.0 } else { 400.0 };
        let of = |backend: Backend| Backend {
            state_ms: if backend.pauses() { ms(backend.pid) } else { backend.state_ms },
            ..backend
        };
        Activity { backends: look.backends.into_iter().map(of).collect(), ..quiet(n) }
    };
    let diagnosis = examine_database(&window(40, few));
    let setting = diagnosis.findings[0].setting.as_ref().unwrap();
    assert_eq!((setting.key, setting.to.as_str()), ("idle_in_transaction_session_timeout", "5s"));
}

#[test]
fn somebody_who_works_by_hand_is_healthy() {
    let by_hand = |n: u64| {
        let backends = vec![backend(1, "idle in transaction", 1_000.0 * (n % 30) as f64)];
        Activity { backends, ..quiet(n) }
    };
    assert_eq!(found(&window(40, by_hand)), []);
}

#[test]
fn transactions_that_nobody_ends_are_a_leak_and_explain_the_locks() {
    let left = |n: u64| {
        let mut backends: Vec<_> =
            (0..4).map(|pid| backend(pid, "idle in transaction", 60_000.0 + (n * EVERY_MS) as f64)).collect();
        backends.push(backend(4, "idle", 10.0));
        backends.extend((10..14).map(|pid| Backend {
            application: "other".into(),
            wait: Some("Lock".into()),
            ..backend(pid, "active", 5_000.0)
        }));
        Activity { backends, ..quiet(n) }
    };
    let diagnosis = examine_database(&window(40, left));
    assert_eq!(symptoms(&diagnosis), [Symptom::Leak], "{diagnosis:?}");
    assert!(diagnosis.findings[0].evidence.iter().any(|seen| seen.contains("waited for locks at 100%")));
}

#[test]
fn sessions_that_wait_for_each_others_locks_are_a_saturated_database() {
    let locked = |n: u64| {
        let backends = (0..6).map(|pid| match pid {
            0 => Backend { wait: None, ..backend(pid, "active", 3.0) },
            _ => Backend { wait: Some("Lock".into()), ..backend(pid, "active", 20.0) },
        });
        Activity { backends: backends.collect(), ..quiet(n) }
    };
    assert_eq!(found(&window(40, locked)), [Symptom::ServerSaturated]);
    let once = |n: u64| if n.is_multiple_of(10) { locked(n) } else { quiet(n) };
    assert_eq!(found(&window(40, once)), [], "now and then everybody waits");
}

#[test]
fn more_sessions_than_processors_are_saturation_only_where_the_processors_are_known() {
    let ready = |processors| {
        move |n: u64| Activity {
            backends: (0..9).map(|pid| backend(pid, "active", 30.0)).collect(),
            processors,
            ..quiet(n)
        }
    };
    assert_eq!(found(&window(40, ready(Some(4)))), [Symptom::ServerSaturated]);
    assert_eq!(found(&window(40, ready(Some(8)))), []);
    assert_eq!(found(&window(40, ready(None))), []);
    // Statements that wait for a disk, or for time to pass, do not want a processor.
    let waiting = |n: u64| {
        let one = |pid| Backend { wait: Some("Timeout".into()), ..backend(pid, "active", 30.0) };
        Activity { backends: (0..9).map(one).collect(), processors: Some(2), ..quiet(n) }
    };
    assert_eq!(found(&window(40, waiting)), []);
}

#[test]
fn connections_that_nobody_uses_are_named_where_they_take_up_what_is_allowed() {
    let kept = |many: u32, busy: u32| {
        move |n: u64| {
            let backends = (0..many).map(|pid| match pid {
                pid if pid < busy => backend(pid, "active", 1.0),
                _ => backend(pid, "idle", 4_000_000.0),
            });
            let old = backends.map(|backend| Backend { age_ms: 9_000_000.0, ..backend });
            Activity { backends: old.collect(), ..quiet(n) }
        }
    };
    let diagnosis = examine_database(&window(40, kept(90, 5)));
    assert_eq!(symptoms(&diagnosis), [Symptom::OverProvisioned]);
    let finding = &diagnosis.findings[0];
    assert_eq!(finding.setting.as_ref().map(|setting| (setting.key, setting.to.as_str())), Some(("max_size", "10")));
    assert!(finding.evidence.iter().any(|seen| seen.contains("85 have been idle for over an hour")), "{finding:?}");
    assert_eq!(found(&window(40, kept(60, 5))), [], "there is room left");
    assert_eq!(found(&window(40, kept(90, 40))), [], "they are used");
}

#[test]
fn what_may_not_be_seen_is_not_taken_for_idle() {
    let hidden = |n: u64| {
        let backends = (0..10).map(|pid| backend(pid, "idle", 100.0)).collect();
        Activity { backends, hidden: 80, ..quiet(n) }
    };
    let window = window(40, hidden);
    assert_eq!(found(&window), []);
    assert!(examine_database(&window).unseen.iter().any(|unseen| unseen.contains("80 connections of other users")));
}

/// Bursts of eight, every six looks, for which connections are made; after them they go.
fn bursts(idle_ms: f64, at_once: bool) -> impl Fn(u64) -> Activity {
    move |n: u64| {
        let (burst, at) = (n / 6, n % 6);
        let stays = |k: u32| if at_once { at < 3 } else { at < 3 || k % 4 != burst as u32 % 4 };
        let backends = (0..8).filter(|k| stays(*k)).map(|k| {
            let pid = if at_once { burst as u32 * 8 + k } else { k + 100 * (burst as u32 / 4) };
            if at == 0 { backend(pid, "active", 2.0) } else { backend(pid, "idle", idle_ms) }
        });
        Activity {
            transactions: 1_000 + n * 400,
            sessions: Some(50 + burst * 8),
            backends: backends.collect(),
            ..Activity::default()
        }
    }
}

#[test]
fn connections_that_go_after_idleness_and_come_for_each_burst_are_churn() {
    let diagnosis = examine_database(&window(48, bursts(1_500.0, true)));
    assert_eq!(symptoms(&diagnosis), [Symptom::IdleChurn]);
    assert_eq!(diagnosis.findings[0].setting.as_ref().map(|setting| setting.to.as_str()), Some("8"));
    assert_eq!(found(&window(48, bursts(3.0, true))), [], "a job's connections go with it");
    assert_eq!(found(&window(48, bursts(1_500.0, false))), [], "one after the other, as in a deployment");
}

#[test]
fn many_small_batches_from_one_origin_are_a_pool_of_pools() {
    let nested = |n: u64| {
        let one =
            |k: u32| Backend { age_ms: f64::from(k / 5) * 3_000.0 + f64::from(k % 5), ..backend(k, "idle", 100.0) };
        Activity { backends: (0..70).map(one).collect(), ..quiet(n) }
    };
    let diagnosis = examine_database(&window(40, nested));
    assert_eq!((symptoms(&diagnosis), diagnosis.undecided.len()), (vec![], 1));
    assert_eq!(diagnosis.undecided[0].between, [Symptom::PoolOfPools]);
}

#[test]
fn two_faults_are_both_named() {
    let both = |n: u64| {
        let backends = (0..4).map(|pid| backend(pid, "idle in transaction", 60_000.0 + (n * EVERY_MS) as f64));
        Activity {
            transactions: 1_000 + n * 40,
            sessions: Some(50 + n * 19),
            backends: backends.collect(),
            ..Activity::default()
        }
    };
    assert_eq!(found(&window(40, both)), [Symptom::EphemeralClients, Symptom::Leak]);
}

#[test]
fn pools_that_are_each_within_their_limit_and_together_beyond_it_are_told_from_one_that_takes_all() {
    // So many sessions, of applications of equal size, of which so many work.
    let of = |many: u32, applications: u32, busy: u32| {
        move |n: u64| {
            let one = |pid: u32| Backend {
                application: format!("web-{}", pid % applications),
                wait: Some("Timeout".into()),
                ..backend(pid, if pid < busy { "active" } else { "idle" }, 50.0)
            };
            Activity { backends: (0..many).map(one).collect(), ..quiet(n) }
        }
    };
    let diagnosis = examine_database(&window(40, of(95, 4, 60)));
    assert_eq!(symptoms(&diagnosis), [Symptom::LimitsAddUp]);
    let finding = &diagnosis.findings[0];
    // Nine tenths of the 97, shared by four.
    assert_eq!(finding.setting.as_ref().map(|setting| (setting.key, setting.to.as_str())), Some(("max_size", "21")));
    assert!(finding.advice.contains("--server-limit 100 --reserved 3"), "{finding:?}");
    // Two large ones, and 25 that are small: these keep what they have.
    let mixed = |n: u64| {
        let name = |pid: u32| if pid < 70 { format!("web-{}", pid % 2) } else { format!("small-{pid}") };
        let Activity { backends, .. } = of(95, 4, 60)(n);
        let named = |one: Backend| Backend { application: name(one.pid), ..one };
        Activity { backends: backends.into_iter().map(named).collect(), ..quiet(n) }
    };
    let diagnosis = examine_database(&window(40, mixed));
    assert_eq!(symptoms(&diagnosis), [Symptom::LimitsAddUp]);
    let each = diagnosis.findings[0].setting.as_ref().map(|setting| setting.to.as_str());
    assert_eq!(each, Some("31"), "35 each is too much already: {diagnosis:?}");
    assert_eq!(found(&window(40, of(95, 1, 60))), [], "one application takes them all: its own limit is wrong");
    assert_eq!(found(&window(40, of(85, 4, 60))), [], "there is room left");
    assert_eq!(found(&window(40, of(95, 4, 10))), [Symptom::OverProvisioned], "hardly any of them works");
}

#[test]
fn sessions_whose_client_takes_no_answer_may_have_lost_it() {
    let stuck = |many: u32, every: u64| {
        move |n: u64| {
            let one = |pid: u32| {
                let event = if n.is_multiple_of(every) { "ClientWrite" } else { "ClientRead" };
                Backend { event: Some(event.into()), ..backend(pid, "active", 12_000.0 + (n * EVERY_MS) as f64) }
            };
            let others = quiet(n).backends.into_iter().map(|backend| Backend { pid: backend.pid + 50, ..backend });
            Activity { backends: (0..many).map(one).chain(others).collect(), ..quiet(n) }
        }
    };
    let diagnosis = examine_database(&window(40, stuck(3, 1)));
    assert_eq!(symptoms(&diagnosis), []);
    assert_eq!(diagnosis.undecided[0].between, [Symptom::Zombies], "one that reads slowly looks the same");
    assert!(diagnosis.undecided[0].seen[0].starts_with("3 sessions waited at every look"), "{diagnosis:?}");
    assert_eq!(found(&window(40, stuck(1, 1))), [], "one is somebody's terminal");
    assert_eq!(found(&window(40, stuck(3, 2))), [], "they go on, slowly");
}

#[test]
fn sessions_that_an_application_left_behind_when_it_began_anew_may_be_zombies() {
    let hour = 3_600_000.0;
    let left = |young_ms: f64| {
        move |n: u64| {
            let old = (0..3).map(|pid| Backend { age_ms: 9.0 * hour, ..backend(pid, "idle", 2.0 * hour) });
            let young = (10..14).map(|pid| Backend { age_ms: young_ms, ..backend(pid, "idle", 800.0) });
            Activity { backends: old.chain(young).collect(), ..quiet(n) }
        }
    };
    let diagnosis = examine_database(&window(40, left(1.5 * hour)));
    assert_eq!((symptoms(&diagnosis), diagnosis.undecided.len()), (vec![], 1));
    assert_eq!(diagnosis.undecided[0].between, [Symptom::Zombies]);
    assert!(diagnosis.undecided[0].needs.contains("tcp_keepalives_idle"));
    assert_eq!(
        found(&window(40, left(5.0 * hour))),
        [],
        "the others are as old: a pool that uses some of its connections"
    );
    // A time that is told compressed, of sessions that are all as old.
    let compressed = |n: u64| {
        let old = (0..3).map(|pid| Backend { age_ms: 90_000.0, ..backend(pid, "idle", 2.0 * hour) });
        let young = (10..14).map(|pid| Backend { age_ms: 90_000.0, ..backend(pid, "active", 3.0) });
        Activity { backends: old.chain(young).collect(), ..quiet(n) }
    };
    assert_eq!(found(&window(40, compressed)), [], "nobody is idle for longer than he is there");
}

#[test]
fn statistics_that_are_reset_are_no_sign_that_nothing_was_done() {
    // A database is dropped with its counters, while two sessions come and go at each look and others work.
    let dropped = |n: u64| {
        let since = if n < 20 { n + 900 } else { n - 20 };
        let visitors = (0..2).map(|k| backend(1_000 + n as u32 * 2 + k, "idle", 3.0));
        let backends = quiet(n).backends.into_iter().chain(visitors).collect();
        Activity { transactions: since * 40, sessions: Some(since * 2), backends, ..Activity::default() }
    };
    assert_eq!(found(&window(40, dropped)), []);
    let locked = |n: u64| {
        let waits = |pid| Backend { wait: Some("Lock".into()), ..backend(pid, "active", 20.0) };
        Activity { backends: (0..6).map(waits).collect(), ..dropped(n) }
    };
    let diagnosis = examine_database(&window(40, locked));
    assert!(diagnosis.findings[0].evidence[1].starts_with("78 transactions ended a second"), "{diagnosis:?}");
}

#[test]
fn sessions_that_a_list_lacks_have_not_gone() {
    // Of 1,100 sessions 100 are listed, and which of the idle ones these are changes.
    let cut = |n: u64| {
        let listed = (0..100).map(|k| backend(k + 60 * (n as u32 % 2), "idle", 9_000.0));
        Activity { backends: listed.collect(), left_out: 1_000, ..quiet(n) }
    };
    let cut = window(40, cut);
    assert_eq!(found(&cut), []);
    assert!(examine_database(&cut).unseen.iter().any(|unseen| unseen.starts_with("1000 connections beyond")));
}

#[test]
fn a_clock_that_jumps_ahead_makes_no_leak() {
    let jumping = |n: u64| {
        let ms = if n == 39 { 3_600_000.0 } else { 4.0 };
        let one = |pid: u32| match (u64::from(pid) + n) % 2 {
            0 => backend(pid, "idle in transaction", ms),
            _ => backend(pid, "active", 3.0),
        };
        Activity { backends: (0..10).map(one).collect(), ..quiet(n) }
    };
    assert_eq!(found(&window(40, jumping)), []);
}

#[test]
fn a_server_that_does_not_track_what_sessions_do_is_not_taken_for_idle() {
    let row = |columns: &[(&str, &str)]| -> admin_api::Row {
        columns.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let server = row(&[("started_us", "7"), ("max_connections", "100"), ("transactions", "900")]);
    let sessions = vec![row(&[("pid", "5"), ("state", "disabled"), ("hidden", "f")]); 90];
    let untracked = window(40, |_| Activity::read(&server, &sessions, 0).unwrap());
    assert_eq!(found(&untracked), []);
    assert!(examine_database(&untracked).unseen.iter().any(|unseen| unseen.contains("track_activities")));
}

#[test]
fn names_cannot_steer_a_terminal() {
    let named = |n: u64| {
        let left = |pid| Backend { application: "a\u{1b}[2Jb".into(), ..backend(pid, "idle in transaction", 90_000.0) };
        Activity { backends: (0..4).map(left).collect(), ..quiet(n) }
    };
    let text = examine_database(&window(10, named)).text(str::to_owned);
    assert!(text.contains("a\u{fffd}[2Jb") && !text.contains('\u{1b}'), "{text}");
}
