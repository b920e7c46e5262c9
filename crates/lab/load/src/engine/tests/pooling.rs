//! The pool under test: which connections are made and closed, and for what reason.

use std::time::Duration;

use arrivals::{Shape, Spacing};
use pool::{PoolConfig, Time};

use super::{
    closed, fixed, ms, open, plan, seconds,
    simulated_target::{Fate, SimulatedTarget, always},
};
use report::result::BenchResult;

fn bursts(min_size: u32, at_once: u32) -> BenchResult {
    let shape = Shape::Burst { size: 100, at_once, idle: seconds(90), rounds: 5 };
    let config = PoolConfig {
        max_size: 100,
        min_size,
        max_connecting: 10,
        max_idle_time: Some(seconds(60)),
        max_life_time: None,
        ..PoolConfig::default()
    };
    let mut target = SimulatedTarget::new(always(ms(2)));
    target.connect = Some(ms(40));
    target.run(&plan(shape, config))
}

#[test]
fn bursts_after_idleness_make_no_connections_where_the_minimum_covers_them() {
    // 30 at once: with no minimum all but those that come back in time are made anew, each time.
    let churning = bursts(0, 30);
    let burst = churning.total.connections.created_for["burst"];
    assert!((5 * 10..=5 * 30).contains(&burst), "{burst}");
    assert_eq!(churning.total.connections.closed["idle"], burst - u64::from(churning.total.connections.last));
    assert!(churning.total.response_ms.unwrap().max > 40.0);
    assert_eq!(churning.steps.len(), 5);
    assert!(churning.steps.iter().all(|step| step.measured.requests == 100));

    let some = bursts(10, 30).total.connections.created_for["burst"];
    assert!(some > 0 && some < burst, "{some} {burst}");

    let covered = bursts(30, 30);
    assert_eq!(covered.total.connections.created_for, [("start".to_owned(), 30)].into());
    assert!(covered.total.connections.closed.is_empty());
    assert!(covered.total.response_ms.unwrap().max < 2.1);
}

#[test]
fn a_burst_of_one_at_a_time_makes_one_connection() {
    let result = bursts(0, 1);
    assert_eq!(result.total.connections.created_for["burst"], 5);
    assert_eq!(result.total.requests, 500);
    // Idle, burst, idle, burst, ...: five times 90 s and 240 ms.
    assert!((result.total.duration_s - 5.0 * 90.240).abs() < 0.01, "{}", result.total.duration_s);
    assert!((result.steps[1].from_s - 90.24).abs() < 0.01, "{}", result.steps[1].from_s);
}

#[test]
fn connections_that_reach_their_life_time_are_rotated() {
    let config = PoolConfig { max_life_time: Some(seconds(10)), life_time_jitter: 0.0, ..fixed(20) };
    let result = SimulatedTarget::new(always(ms(5))).run(&plan(closed(10, seconds(95)), config));
    let connections = &result.total.connections;
    assert_eq!(connections.created_for.keys().collect::<Vec<_>>(), ["rotation", "start"]);
    // 20 connections, 9 times each.
    assert!(connections.created_for["rotation"].abs_diff(180) <= 20, "{connections:?}");
    assert!(connections.closed["life"].abs_diff(180) <= 20, "{connections:?}");
    assert!(result.total.errors.is_empty());
}

#[test]
fn lost_connections_are_replaced() {
    let mut n = 0;
    let mut target = SimulatedTarget::new(move |_| {
        n += 1;
        if n % 100 == 0 { Fate::Lost(ms(1)) } else { Fate::Served(ms(10)) }
    });
    let result = target.run(&plan(closed(5, seconds(10)), fixed(5)));
    let lost = result.total.errors["connection lost"];
    assert!((40..=60).contains(&lost), "{lost}");
    assert_eq!(result.total.connections.closed["error"], lost);
    assert!(result.total.connections.created_for["replacement"].abs_diff(lost) <= 1);
}

#[test]
fn without_reuse_each_operation_makes_and_closes_a_connection_and_its_making_is_part_of_the_response() {
    let mut plan = plan(open(100.0, seconds(10), Spacing::Even), PoolConfig::default());
    plan.pool.reuse = false;
    let mut target = SimulatedTarget::new(always(ms(2)));
    target.connect = Some(ms(30));
    let result = target.run(&plan);
    let total = &result.total;
    assert_eq!((total.requests, total.connections.created), (1000, 1000));
    assert_eq!(total.connections.created_for, [("ephemeral".to_owned(), 1000)].into());
    assert_eq!(total.connections.closed["ephemeral"], 1000);
    assert!((total.response_ms.as_ref().unwrap().p50 - 32.0).abs() < 0.1);
    assert!((total.service_ms.as_ref().unwrap().p50 - 2.0).abs() < 0.1);
    assert!((total.connect_ms.total.as_ref().unwrap().p50 - 30.0).abs() < 0.1);
    assert_eq!(total.pool_wait_ms, None);
}

#[test]
fn operations_go_to_the_instances_in_turn_each_with_a_pool_of_its_own() {
    let mut plan = plan(open(1000.0, seconds(5), Spacing::Even), fixed(3));
    plan.pool.instances = 50;
    let mut target = SimulatedTarget::new(always(ms(10)));
    let result = target.run(&plan);
    assert_eq!((result.total.requests, target.most.0), (5000, 150));
    assert_eq!(result.total.connections.most, 150);
    assert_eq!(result.total.pool_wait_ms.unwrap().max, 0.0);
}

#[test]
fn users_who_come_at_random_go_to_any_instance() {
    // 20/s of 10 ms to each of 50 connections: a fifth of the operations finds it in use, as if each instance had users
    // of its own.
    let mut plan = plan(open(1000.0, seconds(20), Spacing::Poisson), fixed(1));
    plan.pool.instances = 50;
    let waits = SimulatedTarget::new(always(ms(10))).run(&plan).total.pool_wait_ms.unwrap();
    assert!(waits.p50 == 0.0 && waits.p90 > 1.0, "{waits:?}");
}

#[test]
fn a_pool_without_minimum_grows_to_what_the_load_needs_and_shrinks_when_it_ends() {
    // 100/s of 50 ms: 5 connections (Little).
    let config = PoolConfig { max_idle_time: Some(seconds(3)), ..PoolConfig::default() };
    let stage = |length, rate| arrivals::Stage { duration: seconds(length), from: rate, to: rate };
    let stages = vec![stage(10, 100.0), stage(10, 0.0), stage(10, 100.0)];
    let shape = Shape::Open { stages, spacing: Spacing::Even, max_in_flight: 1000 };
    let result = SimulatedTarget::new(always(ms(50))).run(&plan(shape, config));
    let at = |second: usize| result.series[second].connections;
    assert!((5..=7).contains(&at(8)) && at(18) == 0 && (5..=7).contains(&at(28)), "{:?}", result.series);
    assert_eq!(result.steps[1].measured.connections.closed["idle"], u64::from(at(8)));
}

#[test]
fn a_run_in_which_the_pool_is_not_warm_begins_at_once() {
    let mut plan = plan(open(10.0, seconds(1), Spacing::Even), fixed(10));
    plan.pool.warm = false;
    let mut target = SimulatedTarget::new(always(ms(1)));
    target.connect = Some(seconds(2));
    let result = target.run(&plan);
    assert!((result.total.response_ms.unwrap().max - 1901.0).abs() < 10.0);
    assert!(target.over > Time(0) + Duration::from_secs(2));
}

#[test]
fn whoever_waits_too_long_in_one_of_many_pools_fails_in_time_whatever_the_others_do() {
    // Each of 40 pools has one connection for 20/s, and 25/s come.
    let config = PoolConfig { max_wait_time: Some(ms(100)), ..fixed(1) };
    let mut plan = plan(open(1000.0, seconds(3), Spacing::Even), config);
    plan.pool.instances = 40;
    let total = SimulatedTarget::new(always(ms(50))).run(&plan).total;
    assert!(total.errors["check-out timeout"] > 300, "{:?}", total.errors);
    let (waited, response) = (total.pool_wait_ms.unwrap().max, total.response_ms.unwrap().max);
    assert!(waited <= 100.1 && response <= 150.2, "{waited} {response}");
}
