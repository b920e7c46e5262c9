//! Windows of a Redis that are made up, one for each symptom that it tells, and healthy ones that resemble them.

use std::time::Duration;

use admin_api::{Redis, RedisClient};
use doctor::{Diagnosis, RedisWindow, Symptom, examine_redis};

#[path = "databases/course.rs"]
mod course;

use course::{Random, course};

const EVERY_MS: u64 = 500;

/// A window in which each look shows what `of` says of it.
fn window(looks: u64, of: impl Fn(u64) -> Redis) -> RedisWindow {
    let mut window = RedisWindow::default();
    for n in 0..looks {
        let base = Redis { version: "7.0.15".into(), run_id: "abc".into(), ..of(n) };
        assert!(window.add(Duration::from_millis(n * EVERY_MS), base), "look {n}");
    }
    window
}

fn symptoms(diagnosis: &Diagnosis) -> Vec<Symptom> {
    diagnosis.findings.iter().map(|finding| finding.symptom).collect()
}

fn found(window: &RedisWindow) -> Vec<Symptom> {
    let diagnosis = examine_redis(window);
    for finding in &diagnosis.findings {
        let whole = finding.evidence.len() >= 2 && !finding.rules_out.is_empty() && !finding.advice.is_empty();
        assert!(whole, "{finding:?}");
    }
    assert!(diagnosis.undecided.is_empty(), "{:?}", diagnosis.undecided);
    symptoms(&diagnosis)
}

fn client(id: u64, idle_s: u64) -> RedisClient {
    RedisClient { id, idle_s, age_s: 5_000, host: "10.0.0.5".into(), name: "web".into(), ..RedisClient::default() }
}

/// Twenty connections that are kept, of which a few work; three hundred commands between two looks.
fn quiet(n: u64) -> Redis {
    Redis {
        connected: 20,
        max_clients: Some(100),
        received: 400,
        commands: 100_000 + n * 300,
        clients: Some((0..20).map(|id| client(id, (id + n) % 5)).collect()),
        ..Redis::default()
    }
}

#[test]
fn ordinary_work_is_healthy_and_it_says_what_it_cannot_see() {
    let window = window(40, quiet);
    assert_eq!(found(&window), []);
    let short = examine_redis(&window).in_short();
    assert!(short[0].ends_with("whether clients wait cannot be seen from there"), "{short:?}");
    let text = examine_redis(&window).text(str::to_owned);
    assert!(text.starts_with("Looked at 20 connections of Redis 7.0.15 for 20 s.\n"), "{text}");
    assert!(
        text.contains("symptoms that can be seen from here") && text.contains("a pool that is too small"),
        "{text}"
    );
}

#[test]
fn connections_that_serve_a_command_each_are_named() {
    // Each says twice what it is, and asks one thing.
    let coming = |n: u64| Redis { received: 400 + n * 20, commands: 100_000 + n * 62, ..quiet(0) };
    assert_eq!(found(&window(40, coming)), [Symptom::EphemeralClients]);
    let bare = |n: u64| Redis { received: 400 + n * 20, commands: 100_000 + n * 22, ..quiet(0) };
    assert_eq!(found(&window(40, bare)), [Symptom::EphemeralClients], "some ask at once");
    let reused = |n: u64| Redis { received: 400 + n * 20, commands: 100_000 + n * 400, ..quiet(0) };
    assert_eq!(found(&window(40, reused)), [], "most commands came over connections that were kept");
    let burst = |n: u64| {
        let made = if n < 20 { 0 } else { 200 };
        Redis { received: 400 + made, commands: 100_000 + 3 * made, ..quiet(0) }
    };
    assert_eq!(found(&window(40, burst)), [], "a burst passes");
    let growing =
        |n: u64| Redis { connected: 10 + n * 2, received: 400 + n * 2, commands: 100_000 + n * 8, ..quiet(0) };
    assert_eq!(found(&window(40, growing)), [], "those of a deployment stay");
}

#[test]
fn connections_that_are_kept_for_nothing_are_named_and_those_that_are_used_are_not() {
    let kept = |idle: u64, rejected: u64, waits: bool| {
        move |n: u64| Redis {
            connected: 95,
            rejected: n * rejected,
            clients: Some(
                (0..95).map(|id| RedisClient { waits, ..client(id, if id < 3 { 0 } else { idle }) }).collect(),
            ),
            ..quiet(n)
        }
    };
    let idle = window(40, kept(4_000, 1, false));
    assert_eq!(found(&idle), [Symptom::OverProvisioned]);
    let finding = &examine_redis(&idle).findings[0];
    assert_eq!(finding.setting.as_ref().unwrap().to, "6", "twice the three that were used");
    let seen = finding.evidence.join("\n");
    for part in [
        "95 of 100",
        "95 of web from 10.0.0.5",
        "92 have asked nothing for over an hour",
        "39 connections were refused",
    ] {
        assert!(seen.contains(part), "{part}: {seen}");
    }
    assert_eq!(found(&window(40, kept(0, 0, false))), [], "all of them work");
    assert_eq!(found(&window(40, kept(4_000, 0, true))), [], "who waits for what others publish is not idle");
    assert_eq!(found(&window(40, kept(0, 1, false))), [Symptom::ConnectionsRefused]);
    let roomy = |n: u64| Redis { max_clients: Some(10_000), ..kept(4_000, 0, false)(n) };
    assert_eq!(found(&window(40, roomy)), [], "there is room for more");
}

#[test]
fn without_a_list_it_is_undetermined_and_what_would_decide_it_is_said() {
    let hidden = |n: u64| Redis {
        connected: 95,
        rejected: n,
        clients: None,
        hides_clients: Some("CLIENT LIST is refused".into()),
        ..quiet(n)
    };
    let diagnosis = examine_redis(&window(40, hidden));
    assert_eq!(diagnosis.undecided[0].between, [Symptom::OverProvisioned, Symptom::ConnectionsRefused]);
    assert!(diagnosis.undecided[0].needs.contains("CLIENT LIST") && diagnosis.findings.is_empty());
    assert!(diagnosis.unseen.iter().any(|unseen| unseen.contains("CLIENT LIST is refused")));
}

#[test]
fn who_serves_nobody_is_out_of_reach_and_has_no_other_trouble() {
    let loading =
        |n: u64| Redis { is_loading: true, rejected: n * 9, received: 400 + n * 50, commands: 100_000 + n, ..quiet(0) };
    let loading = window(40, loading);
    assert_eq!(found(&loading), [Symptom::OutOfReach]);
    let replica = |n: u64| Redis { link_down_s: Some(n as f64), ..quiet(n) };
    let replica = window(40, replica);
    assert_eq!(
        (found(&replica), examine_redis(&replica).findings[0].of.as_str()),
        (vec![Symptom::OutOfReach], "its primary")
    );
    // What it says for as long as it has never had one.
    let never = |n: u64| Redis { link_down_s: Some(0.0), ..quiet(n) };
    let seen = examine_redis(&window(40, never)).findings[0].evidence.join("\n");
    assert!(seen.contains("at 100% of the looks") && !seen.contains("by now"), "{seen}");
    let filled = "connected_clients:5\nmaxclients:100\ntotal_connections_received:9\ntotal_commands_processed:9\n\
        master_link_status:down\nmaster_link_down_since_seconds:-1\nmaster_sync_in_progress:1\n";
    assert_eq!(found(&window(40, |_| Redis::read(filled).unwrap())), [], "a new replica is filled by its primary");
    let restarted = |n: u64| Redis { is_loading: n < 5, ..quiet(n) };
    assert_eq!(found(&window(40, restarted)), [], "a restart passes");
}

#[test]
fn figures_at_the_end_of_their_range_are_examined() {
    for figure in [0, 1, u64::MAX / 2, u64::MAX] {
        let hostile = |n: u64| Redis {
            connected: figure,
            max_clients: Some(figure),
            blocked: figure,
            received: if n == 0 { 0 } else { figure },
            rejected: if n == 0 { 0 } else { figure },
            commands: if n == 0 { 0 } else { figure },
            link_down_s: Some(f64::MAX),
            left_out: figure,
            clients: Some(vec![RedisClient { age_s: figure, ..client(figure, figure) }]),
            ..Redis::default()
        };
        let text = examine_redis(&window(9, hostile)).text(str::to_owned);
        assert!(text.contains("Looked at"), "{text}");
    }
}

#[test]
fn none_of_three_hundred_healthy_windows_is_taken_for_ill() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let course = course(&mut random, 60);
        let looks: Vec<Redis> = course
            .into_iter()
            .map(|(connected, received, commands)| {
                let clients = (0..connected).map(|id| client(id, random.between(0.0, 9.0) as u64)).collect();
                Redis {
                    connected,
                    max_clients: Some(100),
                    received,
                    commands,
                    clients: Some(clients),
                    ..Redis::default()
                }
            })
            .collect();
        let diagnosis = examine_redis(&window(60, |n| looks[n as usize].clone()));
        assert!(diagnosis.findings.is_empty() && diagnosis.undecided.is_empty(), "seed {seed}: {diagnosis:?}");
    }
}
