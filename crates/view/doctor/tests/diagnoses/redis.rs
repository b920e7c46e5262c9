//! Windows of a Redis, one for each symptom that it shows, and healthy ones that resemble them.

use std::time::Duration;

use admin_api::{Redis, RedisClient};
use doctor::{RedisWindow, Symptom, examine_redis};

use crate::{
    random_load::random_load,
    support::{Random, found, setting},
};

const INTERVAL_MS: u64 = 500;

/// A window in which each look shows what `look_at` returns.
fn window(looks: u64, look_at: impl Fn(u64) -> Redis) -> RedisWindow {
    let mut window = RedisWindow::default();
    for n in 0..looks {
        let look = Redis { version: "7.0.15".into(), run_id: "abc".into(), ..look_at(n) };
        assert!(window.add(Duration::from_millis(n * INTERVAL_MS), look), "look {n}");
    }
    window
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

/// A quiet server with these numbers of connections and commands since the start.
fn counted(made: u64, commands: u64) -> Redis {
    Redis { received: 400 + made, commands: 100_000 + commands, ..quiet(0) }
}

/// Nearly all allowed connections are open. All but three of them are idle for `idle_s`.
fn kept(n: u64, idle_s: u64, rejected: u64, waits: bool) -> Redis {
    let clients = (0..95).map(|id| RedisClient { waits, ..client(id, if id < 3 { 0 } else { idle_s }) });
    Redis { connected: 95, rejected: n * rejected, clients: Some(clients.collect()), ..quiet(n) }
}

type Case = (&'static str, fn(u64) -> Redis, &'static [Symptom]);

const CASES: &[Case] = &[
    ("ordinary work", quiet, &[]),
    // Each says twice what it is, and asks one thing.
    ("a connection for each command", |n| counted(n * 20, n * 62), &[Symptom::EphemeralClients]),
    ("connections that ask at once", |n| counted(n * 20, n * 22), &[Symptom::EphemeralClients]),
    ("commands over connections that are kept", |n| counted(n * 20, n * 400), &[]),
    ("a burst, which passes", |n| if n < 20 { counted(0, 0) } else { counted(200, 600) }, &[]),
    ("a deployment, which stays", |n| Redis { connected: 10 + n * 2, ..counted(n * 2, n * 8) }, &[]),
    ("connections that are kept for nothing", |n| kept(n, 4_000, 1, false), &[Symptom::OverProvisioned]),
    ("a full server whose connections work", |n| kept(n, 0, 0, false), &[]),
    ("clients that wait for what others publish", |n| kept(n, 4_000, 0, true), &[]),
    ("a server that refuses connections", |n| kept(n, 0, 1, false), &[Symptom::ConnectionsRefused]),
    ("room for more", |n| Redis { max_clients: Some(10_000), ..kept(n, 4_000, 0, false) }, &[]),
    (
        "a server that loads its data, which explains the rest",
        |n| Redis { is_loading: true, rejected: n * 9, ..counted(n * 50, n) },
        &[Symptom::OutOfReach],
    ),
    ("a restart, which passes", |n| Redis { is_loading: n < 5, ..quiet(n) }, &[]),
    ("a replica without its primary", |n| Redis { link_down_s: Some(n as f64), ..quiet(n) }, &[Symptom::OutOfReach]),
    (
        "a new replica, which its primary fills",
        |_| {
            let info = "connected_clients:5\nmaxclients:100\ntotal_connections_received:9\n\
                    total_commands_processed:9\nmaster_link_status:down\nmaster_link_down_since_seconds:-1\n\
                    master_sync_in_progress:1\n";
            Redis::read(info).unwrap()
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
    let diagnosis = examine_redis(&window(40, quiet));
    assert!(diagnosis.in_short()[0].ends_with("whether clients wait cannot be seen from there"), "{diagnosis:?}");
    let text = diagnosis.text(str::to_owned);
    assert!(text.starts_with("Looked at 20 connections of Redis 7.0.15 for 20 s.\n"), "{text}");
    for part in ["symptoms that can be seen from here", "a pool that is too small"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn findings_tell_what_was_seen() {
    let idle = examine_redis(&window(40, |n| kept(n, 4_000, 1, false)));
    assert_eq!(setting(&idle), Some(("max_size", None, "6")), "twice the three that were used");
    let seen = idle.findings[0].evidence.join("\n");
    let idle_text = "92 have asked nothing for over an hour";
    for part in ["95 of 100", "95 of web from 10.0.0.5", idle_text, "39 connections were refused"] {
        assert!(seen.contains(part), "{part}: {seen}");
    }
    // What a replica says for as long as it has never had a connection to its primary.
    let never = examine_redis(&window(40, |n| Redis { link_down_s: Some(0.0), ..quiet(n) }));
    assert_eq!(never.findings[0].of, "its primary");
    let seen = never.findings[0].evidence.join("\n");
    assert!(seen.contains("at 100% of the looks") && !seen.contains("by now"), "{seen}");
}

#[test]
fn without_a_list_it_is_undetermined_and_what_would_decide_it_is_said() {
    let hides_clients = || Some("CLIENT LIST is refused".into());
    let hidden = |n: u64| Redis { clients: None, hides_clients: hides_clients(), ..kept(n, 0, 1, false) };
    let diagnosis = examine_redis(&window(40, hidden));
    assert_eq!(diagnosis.undecided[0].between, [Symptom::OverProvisioned, Symptom::ConnectionsRefused]);
    assert!(diagnosis.undecided[0].needs.contains("CLIENT LIST") && diagnosis.findings.is_empty());
    assert!(diagnosis.unseen.iter().any(|unseen| unseen.contains("CLIENT LIST is refused")));
}

#[test]
fn figures_at_the_end_of_their_range_are_examined() {
    for figure in [0, 1, u64::MAX / 2, u64::MAX] {
        let grown = |n: u64| if n == 0 { 0 } else { figure };
        let hostile = |n: u64| Redis {
            connected: figure,
            max_clients: Some(figure),
            received: grown(n),
            rejected: grown(n),
            commands: grown(n),
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
fn healthy_windows_are_found_healthy() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let load = random_load(&mut random, 60);
        let mut look = |(connected, received, commands): (u64, u64, u64)| {
            let clients = (0..connected).map(|id| client(id, random.between(0.0, 9.0) as u64)).collect();
            Redis { connected, received, commands, clients: Some(clients), ..quiet(0) }
        };
        let looks: Vec<Redis> = load.into_iter().map(&mut look).collect();
        assert_eq!(found(&window(60, |n| looks[n as usize].clone())), [], "seed {seed}");
    }
}
