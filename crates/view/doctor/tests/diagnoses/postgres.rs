//! Windows of a PostgreSQL, one for each symptom that it shows, and healthy ones that resemble them.

use std::time::Duration;

use admin_api::{Activity, Backend};
use doctor::{PostgresWindow, Symptom, examine_postgres};

use crate::support::{found, setting, symptoms};

const INTERVAL_MS: u64 = 500;
const HOUR_MS: f64 = 3_600_000.0;

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

/// A working session that waits for this.
fn waiting(pid: u32, wait: &str) -> Backend {
    Backend { wait: Some(wait.into()), ..backend(pid, "active", 30.0) }
}

/// A window in which each look shows what `look_at` returns.
fn window(looks: u64, look_at: impl Fn(u64) -> Activity) -> PostgresWindow {
    let mut window = PostgresWindow::default();
    for n in 0..looks {
        let look = Activity { version: "15.3".into(), started_us: 7, max_connections: 100, reserved: 3, ..look_at(n) };
        assert!(window.add(Duration::from_millis(n * INTERVAL_MS), look));
    }
    window
}

/// Ten kept sessions, of which a few work; forty transactions between two looks.
fn quiet(n: u64) -> Activity {
    let backends = (0..10).map(|pid| match (u64::from(pid) + n) % 5 {
        0 => backend(pid, "active", 3.0),
        _ => backend(pid, "idle", 800.0),
    });
    Activity { transactions: 1_000 + n * 40, sessions: Some(50), backends: backends.collect(), ..Activity::default() }
}

/// A quiet server with these sessions.
fn with(n: u64, backends: impl IntoIterator<Item = Backend>) -> Activity {
    Activity { backends: backends.into_iter().collect(), ..quiet(n) }
}

/// The time of a state that has lasted throughout the window.
fn throughout_ms(n: u64) -> f64 {
    60_000.0 + (n * INTERVAL_MS) as f64
}

type Case = (&'static str, fn(u64) -> Activity, &'static [Symptom]);

const CASES: &[Case] = &[
    ("ordinary work", quiet, &[]),
    // Each connection has one transaction of its own, and one of its client.
    (
        "connections for a transaction each, which no look sees",
        |n| Activity { transactions: 1_000 + n * 40, sessions: Some(50 + n * 19), ..quiet(0) },
        &[Symptom::EphemeralClients],
    ),
    (
        "transactions over connections that are kept",
        |n| Activity { transactions: 1_000 + n * 400, sessions: Some(50 + n * 19), ..quiet(0) },
        &[],
    ),
    (
        "a burst of connections, which passes",
        |n| Activity {
            transactions: 1_000 + if n < 20 { 0 } else { 400 },
            sessions: Some(50 + if n < 20 { 0 } else { 200 }),
            ..quiet(0)
        },
        &[],
    ),
    (
        "a few connections, as of a monitoring",
        |n| Activity { transactions: 1_000 + n * 2, sessions: Some(50 + n), ..quiet(0) },
        &[],
    ),
    (
        "a deployment, whose connections stay",
        |n| {
            let backends = (0..10 + n as u32).map(|pid| backend(pid, "idle", 10.0));
            Activity { transactions: 1_000 + n * 2, sessions: Some(50 + n), ..with(n, backends) }
        },
        &[],
    ),
    ("a person who works by hand", |n| with(n, [backend(1, "idle in transaction", 1_000.0 * (n % 30) as f64)]), &[]),
    (
        "sessions that wait for each other's locks",
        |n| with(n, (0..6).map(|pid| if pid == 0 { backend(pid, "active", 3.0) } else { waiting(pid, "Lock") })),
        &[Symptom::ServerSaturated],
    ),
    (
        "locks now and then",
        |n| if n.is_multiple_of(10) { with(n, (0..6).map(|pid| waiting(pid, "Lock"))) } else { quiet(n) },
        &[],
    ),
    (
        "statements that wait for no processor",
        |n| Activity { processors: Some(2), ..with(n, (0..9).map(|pid| waiting(pid, "Timeout"))) },
        &[],
    ),
    (
        "short-lived connections and endless transactions",
        |n| Activity {
            sessions: Some(50 + n * 19),
            ..with(n, (0..4).map(|pid| backend(pid, "idle in transaction", throughout_ms(n))))
        },
        &[Symptom::EphemeralClients, Symptom::Leak],
    ),
    // A database is dropped with its counters, while two sessions come and go at each look and others work.
    (
        "counters that are reset",
        |n| {
            let since = if n < 20 { n + 900 } else { n - 20 };
            let visitors = (0..2).map(|k| backend(1_000 + n as u32 * 2 + k, "idle", 3.0));
            let backends = quiet(n).backends.into_iter().chain(visitors);
            Activity { transactions: since * 40, sessions: Some(since * 2), ..with(n, backends) }
        },
        &[],
    ),
    (
        "a clock that jumps ahead",
        |n| {
            let ms = if n == 39 { HOUR_MS } else { 4.0 };
            with(
                n,
                (0..10).map(|pid| match (u64::from(pid) + n) % 2 {
                    0 => backend(pid, "idle in transaction", ms),
                    _ => backend(pid, "active", 3.0),
                }),
            )
        },
        &[],
    ),
];

#[test]
fn each_symptom_is_told_from_what_resembles_it() {
    for (what, look_at, expected) in CASES {
        assert_eq!(&found(&window(40, look_at)), expected, "{what}");
    }
}

#[test]
fn what_cannot_be_seen_is_said() {
    let diagnosis = examine_postgres(&window(40, quiet));
    assert!(diagnosis.in_short()[0].ends_with("whether clients wait cannot be seen from there"), "{diagnosis:?}");
    let text = diagnosis.text(str::to_owned);
    assert!(text.starts_with("Looked at 10 connections of PostgreSQL 15.3 for 20 s.\n"), "{text}");
    for part in ["symptoms that can be seen from here", "a pool that is too small", "--processors"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let unseen_of = |look_at: &dyn Fn(u64) -> Activity| {
        let window = window(40, look_at);
        assert_eq!(found(&window), []);
        examine_postgres(&window).unseen.join("\n")
    };
    let idle = || (0..10).map(|pid| backend(pid, "idle", 100.0));
    let hidden = unseen_of(&|n| Activity { hidden: 80, ..with(n, idle()) });
    assert!(hidden.contains("80 connections of other users"), "{hidden}");
    // Of 1,100 sessions 100 are listed, and which of the idle ones these are changes: the others have not gone.
    let cut = unseen_of(&|n| {
        let listed = (0..100).map(|k| backend(k + 60 * (n as u32 % 2), "idle", 9_000.0));
        Activity { left_out: 1_000, ..with(n, listed) }
    });
    assert!(cut.contains("1000 connections beyond"), "{cut}");
    let row = |columns: &[(&str, &str)]| -> admin_api::Row {
        columns.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let server = row(&[("started_us", "7"), ("max_connections", "100"), ("transactions", "900")]);
    let sessions = vec![row(&[("pid", "5"), ("state", "disabled"), ("hidden", "f")]); 90];
    let untracked = unseen_of(&|_| Activity::read(&server, &sessions, 0).unwrap());
    assert!(untracked.contains("track_activities"), "{untracked}");
}

#[test]
fn sessions_that_pause_within_transactions_are_named_and_those_that_pause_briefly_are_not() {
    // `overlong_every`: at every look with such a number one session pauses for 9 s.
    let pausing = |ms: f64, overlong_every: u64| {
        window(40, move |n| {
            with(
                n,
                (0..10).map(|pid| match pid {
                    0 if n.is_multiple_of(overlong_every) => backend(pid, "idle in transaction", 9_000.0),
                    0..6 => backend(pid, "idle in transaction", ms + f64::from(pid)),
                    6 => backend(pid, "active", 2.0),
                    _ => backend(pid, "idle", 90.0),
                }),
            )
        })
    };
    assert_eq!(found(&pausing(400.0, 99)), [Symptom::TransactionsLeftOpen]);
    assert_eq!(found(&pausing(4.0, 99)), [], "between two statements of an application on another machine");
    let all_overlong = examine_postgres(&pausing(9_000.0, 99));
    assert_eq!(symptoms(&all_overlong), [Symptom::TransactionsLeftOpen]);
    assert_eq!(setting(&all_overlong), None, "a limit would end them all");
    let few_overlong = examine_postgres(&pausing(400.0, 4));
    assert_eq!(setting(&few_overlong), Some(("idle_in_transaction_session_timeout", None, "5s")));
}

#[test]
fn transactions_that_are_never_ended_are_a_leak_and_explain_the_locks() {
    let left = |n: u64| {
        let endless = (0..4).map(|pid| backend(pid, "idle in transaction", throughout_ms(n)));
        let victims = (10..14).map(|pid| Backend { application: "other".into(), ..waiting(pid, "Lock") });
        with(n, endless.chain([backend(4, "idle", 10.0)]).chain(victims))
    };
    let diagnosis = examine_postgres(&window(40, left));
    assert_eq!(symptoms(&diagnosis), [Symptom::Leak], "{diagnosis:?}");
    assert!(diagnosis.findings[0].evidence[2].contains("waited for locks at 100%"), "{diagnosis:?}");
}

#[test]
fn a_share_of_the_looks_is_of_all_looks_at_the_server() {
    let late = |from: u64| {
        window(40, move |n| {
            let pausing = (0..6).filter(|_| n >= from).map(|pid| backend(pid, "idle in transaction", 400.0));
            with(n, pausing.chain([Backend { application: "other".into(), ..backend(9, "idle", 90.0) }]))
        })
    };
    assert_eq!(found(&late(38)), [], "two looks of forty");
    let diagnosis = examine_postgres(&late(20));
    assert_eq!(symptoms(&diagnosis), [Symptom::TransactionsLeftOpen], "{diagnosis:?}");
    assert!(diagnosis.findings[0].evidence[1].starts_with("at 50% of the looks"), "{diagnosis:?}");
}

#[test]
fn connections_that_are_not_listed_count_among_all() {
    let left = |n: u64| {
        let endless = (0..4).map(|pid| backend(pid, "idle in transaction", throughout_ms(n)));
        Activity { hidden: 6, left_out: 90, ..with(n, endless) }
    };
    let diagnosis = examine_postgres(&window(40, left));
    assert!(diagnosis.findings[0].evidence[2].ends_with("its connections are 4 of 100"), "{diagnosis:?}");
}

#[test]
fn more_sessions_than_processors_are_saturation_only_where_the_processors_are_known() {
    for (processors, expected) in [(Some(4), &[Symptom::ServerSaturated][..]), (Some(8), &[]), (None, &[])] {
        let ready = |n| Activity { processors, ..with(n, (0..9).map(|pid| backend(pid, "active", 30.0))) };
        assert_eq!(found(&window(40, ready)), expected, "{processors:?}");
    }
}

#[test]
fn transactions_are_counted_across_a_reset_of_the_counters() {
    let reset = |n: u64| Activity {
        transactions: 40 * if n < 20 { n + 900 } else { n - 20 },
        ..with(n, (0..6).map(|pid| waiting(pid, "Lock")))
    };
    let diagnosis = examine_postgres(&window(40, reset));
    assert!(diagnosis.findings[0].evidence[1].starts_with("78 transactions ended a second"), "{diagnosis:?}");
}

#[test]
fn unused_connections_are_named_where_they_take_up_what_is_allowed() {
    let kept = |all: u32, busy: u32| {
        window(40, move |n| {
            let backends = (0..all).map(|pid| match pid < busy {
                true => backend(pid, "active", 1.0),
                false => backend(pid, "idle", 4_000_000.0),
            });
            with(n, backends.map(|backend| Backend { age_ms: 9_000_000.0, ..backend }))
        })
    };
    let diagnosis = examine_postgres(&kept(90, 5));
    assert_eq!(symptoms(&diagnosis), [Symptom::OverProvisioned]);
    assert_eq!(setting(&diagnosis), Some(("max_size", None, "10")));
    assert!(diagnosis.findings[0].evidence[2].contains("85 have been idle for over an hour"), "{diagnosis:?}");
    assert_eq!(found(&kept(60, 5)), [], "there is room left");
    assert_eq!(found(&kept(90, 40)), [], "they are used");
}

/// Bursts of eight sessions, every six looks, which are idle for so long before they go: all at once or one by one.
fn bursts(idle_ms: f64, at_once: bool) -> impl Fn(u64) -> Activity {
    move |n: u64| {
        let (burst, at) = (n / 6, n % 6);
        let stays = |k: u32| if at_once { at < 3 } else { at < 3 || k % 4 != burst as u32 % 4 };
        let backends = (0..8).filter(|k| stays(*k)).map(|k| {
            let pid = if at_once { burst as u32 * 8 + k } else { k + 100 * (burst as u32 / 4) };
            if at == 0 { backend(pid, "active", 2.0) } else { backend(pid, "idle", idle_ms) }
        });
        Activity { transactions: 1_000 + n * 400, sessions: Some(50 + burst * 8), ..with(n, backends) }
    }
}

#[test]
fn connections_that_go_after_idleness_and_come_for_each_burst_are_churn() {
    let diagnosis = examine_postgres(&window(48, bursts(1_500.0, true)));
    assert_eq!(symptoms(&diagnosis), [Symptom::IdleChurn]);
    assert_eq!(setting(&diagnosis), Some(("min_size", None, "8")));
    assert_eq!(found(&window(48, bursts(3.0, true))), [], "a job's connections go with it");
    assert_eq!(found(&window(48, bursts(1_500.0, false))), [], "one after the other, as in a deployment");
}

#[test]
fn many_small_batches_from_one_origin_are_a_pool_of_pools() {
    let nested = |n: u64| {
        with(
            n,
            (0..70).map(|k: u32| Backend {
                age_ms: f64::from(k / 5) * 3_000.0 + f64::from(k % 5),
                ..backend(k, "idle", 100.0)
            }),
        )
    };
    let diagnosis = examine_postgres(&window(40, nested));
    assert_eq!((symptoms(&diagnosis), diagnosis.undecided.len()), (vec![], 1));
    assert_eq!(diagnosis.undecided[0].between, [Symptom::PoolOfPools]);
}

#[test]
fn pools_that_are_each_within_their_limit_and_together_beyond_it_are_told_from_one_that_takes_all() {
    let of = |all: u32, busy: u32, name: fn(u32) -> String| {
        window(40, move |n| {
            let state = |pid| if pid < busy { "active" } else { "idle" };
            with(
                n,
                (0..all).map(|pid| Backend {
                    application: name(pid),
                    wait: Some("Timeout".into()),
                    ..backend(pid, state(pid), 50.0)
                }),
            )
        })
    };
    let four: fn(u32) -> String = |pid| format!("web-{}", pid % 4);
    let diagnosis = examine_postgres(&of(95, 60, four));
    assert_eq!(symptoms(&diagnosis), [Symptom::LimitsAddUp]);
    // Nine tenths of the 97, shared by four.
    assert_eq!(setting(&diagnosis), Some(("max_size", None, "21")));
    assert!(diagnosis.findings[0].advice.contains("--server-limit 100 --reserved 3"), "{diagnosis:?}");
    // Two large ones, and 25 that are small: these keep what they have. 35 each is too much already.
    let mixed: fn(u32) -> String = |pid| if pid < 70 { format!("web-{}", pid % 2) } else { format!("small-{pid}") };
    let diagnosis = examine_postgres(&of(95, 60, mixed));
    assert_eq!(
        (symptoms(&diagnosis), setting(&diagnosis)),
        (vec![Symptom::LimitsAddUp], Some(("max_size", None, "31")))
    );
    assert_eq!(found(&of(95, 60, |_| "web".into())), [], "one application takes them all: its own limit is wrong");
    assert_eq!(found(&of(85, 60, four)), [], "there is room left");
    assert_eq!(found(&of(95, 10, four)), [Symptom::OverProvisioned], "hardly any of them works");
}

#[test]
fn sessions_whose_client_takes_no_answer_may_have_lost_it() {
    let stuck = |sessions: u32, every: u64| {
        window(40, move |n| {
            let event = if n.is_multiple_of(every) { "ClientWrite" } else { "ClientRead" };
            let stuck = (0..sessions)
                .map(|pid| Backend { event: Some(event.into()), ..backend(pid, "active", throughout_ms(n)) });
            let others = quiet(n).backends.into_iter().map(|backend| Backend { pid: backend.pid + 50, ..backend });
            with(n, stuck.chain(others))
        })
    };
    let diagnosis = examine_postgres(&stuck(3, 1));
    assert_eq!(symptoms(&diagnosis), []);
    assert_eq!(diagnosis.undecided[0].between, [Symptom::Zombies], "a client that reads slowly looks the same");
    assert!(diagnosis.undecided[0].seen[0].starts_with("3 sessions waited at every look"), "{diagnosis:?}");
    assert_eq!(found(&stuck(1, 1)), [], "one is a terminal");
    assert_eq!(found(&stuck(3, 2)), [], "they go on, slowly");
}

#[test]
fn sessions_that_an_application_left_behind_when_it_began_anew_may_be_zombies() {
    let left = |old_age_ms: f64, young: fn(u32) -> Backend, young_age_ms: f64| {
        window(40, move |n| {
            let old = (0..3).map(|pid| Backend { age_ms: old_age_ms, ..backend(pid, "idle", 2.0 * HOUR_MS) });
            with(n, old.chain((10..14).map(|pid| Backend { age_ms: young_age_ms, ..young(pid) })))
        })
    };
    let idle: fn(u32) -> Backend = |pid| backend(pid, "idle", 800.0);
    let diagnosis = examine_postgres(&left(9.0 * HOUR_MS, idle, 1.5 * HOUR_MS));
    assert_eq!((symptoms(&diagnosis), diagnosis.undecided.len()), (vec![], 1));
    assert_eq!(diagnosis.undecided[0].between, [Symptom::Zombies]);
    assert!(diagnosis.undecided[0].needs.contains("tcp_keepalives_idle"));
    // A pool that uses some of its connections.
    assert_eq!(found(&left(9.0 * HOUR_MS, idle, 5.0 * HOUR_MS)), [], "the others are as old");
    // Times that are told compressed, of sessions that are all as old.
    let compressed = left(90_000.0, |pid| backend(pid, "active", 3.0), 90_000.0);
    assert_eq!(found(&compressed), [], "no session is idle for longer than it exists");
}
