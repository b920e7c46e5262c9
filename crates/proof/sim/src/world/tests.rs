//! A few thousand schedules, and the proof that each check can fail.

use super::*;
use crate::runner;

#[test]
fn thousands_of_small_worlds_hold() {
    let (mut decided, mut cancelled) = ([0; 2], 0);
    let schedule = |seed| run(seed, None, Fault::None, false);
    let result = runner::run(7_000_000, 3000, schedule, |tally| {
        decided = [0, 1].map(|i| decided[i] + tally.decided[i]);
        cancelled += tally.cancelled;
    });
    if let Err(violation) = result {
        let replay = format!("cargo run -p sim --release -- world --seed {} --trace", violation.seed);
        panic!("{}\nreplay with: {replay}", violation.what);
    }
    assert!(decided.iter().all(|&n| n > 1000) && cancelled > 100, "all ends happen: {decided:?}, {cancelled}");
}

/// Worlds in which a budget that leaves everybody their last permit makes others wait for ever beside an idle server.
#[test]
fn an_idle_last_server_of_one_pool_does_not_starve_another() {
    for seed in [129, 294, 536, 601, 882, 935, 1078, 1111, 1166] {
        let mut rng = Rng::new(seed);
        let plan = plan::plan(&mut rng);
        run_plan(plan, rng, Rng::new(seed), seed, Fault::None, false);
    }
}

#[test]
fn a_world_is_the_same_each_time() {
    let tally = |seed| format!("{:?}", run(seed, None, Fault::None, false));
    assert!((900..950).all(|seed| tally(seed) == tally(seed)));
}

fn assert_found(fault: Fault, words: &[&str]) {
    let what = match runner::run(5_000, 4_000, |seed| run(seed, None, fault, false), |_| {}) {
        Ok(()) => panic!("{fault:?} goes unnoticed"),
        Err(violation) => violation.what,
    };
    assert!(words.iter().any(|w| what.contains(w)), "{fault:?} is noticed as something else: {what}");
}

#[test]
fn a_server_granted_to_two_is_noticed() {
    assert_found(Fault::GrantTwice, &["is granted and is InUse", "overtaken", "another home"]);
}

#[test]
fn a_failure_that_reaches_nobody_is_noticed() {
    assert_found(Fault::ForgetFailure, &["the answer to a waiter is lost"]);
}

#[test]
fn a_permit_that_is_kept_is_noticed() {
    assert_found(Fault::KeepPermit, &["permits are lost"]);
}

#[test]
fn a_connection_without_a_permit_is_noticed() {
    assert_found(Fault::ConnectWithoutPermit, &["permits are lost"]);
}

#[test]
fn a_wish_beside_the_permit_that_fulfils_it_is_noticed() {
    assert_found(Fault::RememberTooMuch, &["a wish is remembered", "are asked for"]);
}

#[test]
fn a_waiter_past_its_time_is_noticed() {
    assert_found(Fault::ForgetTimeouts, &["is forgotten", "a waiter waits for ever"]);
}

#[test]
fn an_overtaking_too_many_is_noticed() {
    assert_found(Fault::ExpectStrictOrder, &["was overtaken"]);
}

#[test]
fn a_pool_that_starves_because_nobody_hears_of_its_waiters_is_noticed() {
    assert_found(Fault::ForgetInsisting, &["starves"]);
}

#[test]
fn a_pool_that_starves_because_another_keeps_its_last_server_is_noticed() {
    assert_found(Fault::KeepLast, &["starves"]);
}

#[test]
fn a_pool_that_waits_beside_servers_that_nobody_uses_is_noticed() {
    assert_found(Fault::ForgetPressing, &["does not use"]);
}

#[test]
fn a_server_that_nobody_gives_back_is_noticed() {
    assert_found(Fault::KeepServer, &["a server is kept"]);
}

#[test]
fn a_server_lent_with_a_cancel_under_way_is_noticed() {
    assert_found(Fault::LendWithheld, &["a cancel request under way"]);
}

#[test]
fn a_server_lent_while_a_client_keeps_it_is_noticed() {
    assert_found(Fault::LendPinned, &["which it does not have", "is checked in while"]);
}
