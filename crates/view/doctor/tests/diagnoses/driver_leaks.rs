//! Leaks that grow while a driver's own pool is looked at, made up as scrapes of HikariCP's metrics, and what resembles
//! them: a growing load, and statements that take long.

use doctor::Symptom;

use crate::scrapes::{Hikari, INTERVAL_S, MAX, found, quiet, read, scrapes, used};

/// Two connections are used for 20 ms again and again, and others are taken one after the other and
/// never given back. Threads wait in the last third only.
fn leaking(scrapes: u64) -> impl Fn(u64) -> Hikari {
    move |n| {
        let leaked = (n * 16 / scrapes).min(8);
        let uses = n * used(2, 20.0);
        let pending = if n * 3 >= scrapes * 2 { 4 } else { 0 };
        Hikari { active: 2 + leaked, pending, used: uses, used_s: uses as f64 * 0.02, timeouts: pending, ..quiet(n) }
    }
}

#[test]
fn a_leak_that_grows_is_a_leak_once_no_statement_can_take_so_long() {
    let text = scrapes(120, leaking(120));
    assert_eq!(found(&text), (vec![Symptom::Leak], vec![]));
    let finding = &read(&text).unwrap().findings[0];
    assert_eq!(finding.setting.as_ref().unwrap().key, "leakDetectionThreshold");
    let seen = &finding.evidence[0];
    assert!(seen.starts_with("6 or more of at most 10 connections were taken for all of the last 7 min, 9."), "{seen}");
    assert!(seen.ends_with("explains 2.0 of these"), "{seen}");
    assert!(finding.rules_out.contains("the pool is not too small"), "{finding:?}");
}

#[test]
fn a_leak_that_grows_in_a_short_window_is_no_pool_that_is_too_small() {
    for scrapes_ in [12, 30, 60] {
        let told = found(&scrapes(scrapes_, leaking(scrapes_)));
        assert_eq!(told, (vec![], vec![vec![Symptom::Leak, Symptom::ServerSaturated]]), "{scrapes_}");
    }
}

/// A load that grows until all connections are taken, each again and again for so long, and then
/// more of it waits.
fn growing(scrapes: u64, use_ms: f64) -> impl Fn(u64) -> Hikari {
    move |n| {
        let active = |n: u64| (2 + n * 16 / scrapes).min(MAX);
        let pending = if n * 3 >= scrapes * 2 { 4 } else { 0 };
        // A use is told when it ends.
        let late = (use_ms / 1e3 / INTERVAL_S as f64) as u64;
        let uses: u64 = (late..n).map(|n| used(active(n - late), use_ms)).sum();
        Hikari {
            active: active(n),
            pending,
            used: uses,
            used_s: uses as f64 * use_ms / 1e3,
            timeouts: pending,
            ..quiet(n)
        }
    }
}

#[test]
fn a_load_that_grows_beyond_the_pool_is_a_pool_that_is_too_small() {
    for scrapes_ in [30, 120] {
        for use_ms in [20.0, 1_000.0, 10_000.0] {
            let told = found(&scrapes(scrapes_, growing(scrapes_, use_ms)));
            assert_eq!(told, (vec![Symptom::PoolTooSmall], vec![]), "{scrapes_} {use_ms}");
        }
    }
}

#[test]
fn statements_of_nearly_five_minutes_that_begin_one_after_the_other_are_no_leak() {
    // Four connections are used for 20 ms again and again; six statements begin within a minute, and none has come to
    // an end 295 s later.
    let reports = |n: u64| {
        let begun = (n.saturating_sub(58) / 2).min(6);
        let uses = n * used(4, 20.0);
        Hikari { active: 4 + begun, pending: begun / 6, used: uses, used_s: uses as f64 * 0.02, ..quiet(n) }
    };
    let told = found(&scrapes(120, reports));
    assert_eq!(told, (vec![], vec![vec![Symptom::Leak, Symptom::ServerSaturated]]));
}

#[test]
fn bursts_that_the_last_looks_meet_are_no_leak() {
    // One is used at a time, on average: all of them for a moment, at which each of the last six looks happens to be.
    let bursts = |n: u64| {
        let uses = n * used(1, 20.0);
        let met = n >= 14;
        let (active, pending) = if met { (MAX, 9) } else { (0, 0) };
        Hikari { active, pending, used: uses, used_s: uses as f64 * 0.02, timeouts: u64::from(met), ..quiet(n) }
    };
    let (findings, undecided) = found(&scrapes(20, bursts));
    assert!(!findings.contains(&Symptom::Leak) && !undecided.concat().contains(&Symptom::Leak), "{undecided:?}");
}
