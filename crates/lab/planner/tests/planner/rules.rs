//! The rules of the real pool decide these numbers. `make plan-mutants` changes the rules, and a test must fail.

use arrivals::{Shape, Stage};
use load::plan::{Fault, PoolConfig, PoolhouseWishes, Spacing, Window};
use planner::server::Times;

use super::{fixed, ms, near, open, plan, response, run, seconds, spec, waits};

fn burst(size: u32, idle: std::time::Duration, rounds: u32) -> Shape {
    Shape::Burst { size, at_once: size, idle, rounds }
}

/// A pool that begins empty.
fn growing(max_size: u32, min_size: u32, max_connecting: u32) -> PoolConfig {
    PoolConfig { min_size, max_connecting, ..fixed(max_size) }
}

#[test]
fn no_more_than_max_connecting_connections_are_made_at_a_time() {
    // 12 operations of 100 ms find nothing; connections of 10 ms come two at a time: after 10, 20, ... 60 ms.
    let mut spec = spec(Times::Constant(ms(100)));
    spec.connect.tcp = Some(Times::Constant(ms(10)));
    let result = run(&plan(burst(12, ms(1), 1), growing(12, 0, 2)), &spec).result;
    let wait = waits(&result);
    assert_eq!((wait.min.round(), wait.max.round(), result.total.connections.created), (10.0, 60.0, 12));
    near(wait.mean, 35.0, 0.01);
}

#[test]
fn a_returned_connection_serves_a_waiter_and_no_needless_connection_is_made() {
    // 1 ms of work: the first connections serve all while others are still being made.
    let mut spec = spec(Times::Constant(ms(1)));
    spec.connect.tcp = Some(Times::Constant(ms(10)));
    let result = run(&plan(burst(12, ms(100), 2), growing(12, 0, 2)), &spec).result;
    // Two after 10 ms serve twelve in 6 ms: the two ordered next are the last, and the next burst finds four.
    assert_eq!(result.total.connections.created, 4);
    near(response(&result).max, 16.0, 0.01);
}

#[test]
fn idle_closing_keeps_the_minimum_and_the_connections_used_last() {
    // Four at once, then one at a time every 100 ms for 3 s: the one used last serves it, so the others reach their
    // idle time of 1 s.
    let stages = vec![Stage { duration: seconds(3), from: 10.0, to: 10.0 }];
    let one = Shape::Open { stages, spacing: Spacing::Even, max_in_flight: 100 };
    let config = PoolConfig { max_idle_time: Some(seconds(1)), ..growing(4, 0, 4) };
    let mut trickle = plan(one, config.clone());
    trickle.pool.config.min_size = 2;
    trickle.pool.warm = true;
    let kept = run(&trickle, &spec(Times::Constant(ms(1)))).result;
    assert_eq!(
        (kept.total.connections.created, kept.total.connections.last),
        (2, 2),
        "two are kept, and never made again"
    );
    // Bursts of four after two seconds: all but the minimum are made again each time.
    let mut bursts = plan(burst(4, seconds(2), 5), config);
    bursts.pool.config.min_size = 1;
    bursts.pool.warm = true;
    let result = run(&bursts, &spec(Times::Constant(ms(50)))).result;
    assert_eq!(result.total.connections.closed["idle"], 4 * 3);
    assert_eq!(result.total.connections.created, 1 + 5 * 3);
}

#[test]
fn a_trickle_after_a_burst_keeps_one_connection_and_lets_the_others_go() {
    let stages = vec![
        Stage { duration: seconds(1), from: 400.0, to: 400.0 },
        Stage { duration: seconds(9), from: 10.0, to: 10.0 },
    ];
    let shape = Shape::Open { stages, spacing: Spacing::Even, max_in_flight: 1000 };
    let config = PoolConfig { max_idle_time: Some(seconds(2)), ..growing(8, 0, 8) };
    let result = run(&plan(shape, config), &spec(Times::Constant(ms(10)))).result;
    // 400/s x 10 ms: four or five at once; then one at a time, which the one used last serves.
    assert!(result.total.connections.most >= 4, "{:?}", result.total.connections);
    assert_eq!(result.total.connections.last, 1, "{:?}", result.total.connections);
}

#[test]
fn an_operation_that_waits_for_too_long_fails() {
    // 20 connections of 20 ms do 1000/s; 1200/s arrive.
    let config = PoolConfig { max_wait_time: Some(ms(500)), ..fixed(20) };
    let result = run(&plan(open(1200.0, seconds(30), Spacing::Even), config), &spec(Times::Constant(ms(20)))).result;
    let failed = result.total.errors["check-out timeout"];
    near(failed as f64, 200.0 * 30.0 - 500.0, 0.05);
    near(waits(&result).max, 500.0, 0.01);
}

#[test]
fn connections_are_replaced_at_the_end_of_their_life_and_lives_differ() {
    let config = PoolConfig { max_life_time: Some(seconds(100)), ..fixed(10) };
    let result = run(&plan(open(10.0, seconds(105), Spacing::Even), config), &spec(Times::Constant(ms(1)))).result;
    assert_eq!(result.total.connections.created_for["rotation"], 10);
    // Their lives end between 90 and 100 s.
    let closed: Vec<u32> = result.series[90..=100].iter().map(|second| second.created).collect();
    assert!(closed.iter().sum::<u32>() >= 9 && closed.iter().all(|count| *count <= 5), "{closed:?}");
}

#[test]
fn a_server_refuses_connections_above_its_limit_and_late_pools_get_none() {
    let shape = Shape::Closed { clients: 20, think: ms(0), duration: seconds(5), operations: None };
    let mut plan = plan(shape, growing(1, 1, 1));
    (plan.pool.instances, plan.pool.warm) = (20, false);
    plan.pool.config.max_wait_time = Some(seconds(1));
    let mut spec = spec(Times::Constant(ms(10)));
    (spec.limit, spec.reserved) = (Some(18), 3);
    let outcome = run(&plan, &spec);
    assert_eq!(outcome.server.max_open, 15);
    assert!(outcome.server.refused > 5, "{:?}", outcome.server);
    near(outcome.result.total.rate().unwrap(), 1500.0, 0.01);
    assert!(outcome.result.total.connections.failed["sqlstate 53300"] > 5);
}

#[test]
fn a_stall_needs_the_connections_of_littles_law() {
    let stall = Fault::Stall { delay: ms(200), window: Window { first: seconds(2), length: seconds(2), every: None } };
    let worst = |size| {
        let mut plan = plan(open(500.0, seconds(10), Spacing::Even), fixed(size));
        plan.faults = vec![stall];
        let result = run(&plan, &spec(Times::Constant(ms(10)))).result;
        waits(&result).max
    };
    // 500/s x 210 ms = 105.
    assert!(worst(105) < 0.5, "{}", worst(105));
    assert!(worst(100) > 50.0, "{}", worst(100));
}

#[test]
fn two_limits_at_the_gate_serve_a_flood_that_one_limit_rejects() {
    // 40 functions a second that stay: 200 places are taken after 5 s.
    let flood = |soft, hard| {
        let stages = vec![Stage { duration: seconds(15), from: 40.0, to: 40.0 }];
        let shape = Shape::Open { stages, spacing: Spacing::Even, max_in_flight: 10_000 };
        let mut plan = plan(shape, fixed(1));
        (plan.pool.reuse, plan.pool.goodbye, plan.pool.warm) = (false, false, false);
        plan.poolhouse = Some(PoolhouseWishes {
            soft_limit: Some(soft),
            hard_limit: Some(hard),
            evict_min_idle: Some(ms(500)),
            ..PoolhouseWishes::default()
        });
        let outcome = run(&plan, &spec(Times::Constant(ms(100))));
        (
            outcome.result.total.requests,
            outcome.front.rejected,
            outcome.front.evicted,
            outcome.result.total.connections.most,
        )
    };
    assert_eq!(flood(200, 200), (200, 400, 0, 200));
    let (served, rejected, evicted, most) = flood(150, 200);
    assert_eq!((served, rejected, evicted), (600, 0, 450));
    assert!((150..=152).contains(&most), "{most}");
}

#[test]
fn pools_under_one_limit_take_turns_so_that_each_is_served() {
    // 40 pools of which each would have two; 20 connections in all.
    let shape = Shape::Closed { clients: 80, think: ms(20), duration: seconds(20), operations: None };
    let mut plan = plan(shape, growing(2, 0, 2));
    (plan.pool.instances, plan.pool.config.max_wait_time) = (40, Some(seconds(10)));
    let mut spec = spec(Times::Constant(ms(2)));
    spec.budget = Some(20);
    let shared = run(&plan, &spec);
    assert_eq!(shared.server.max_open, 20);
    assert!(shared.result.total.errors.is_empty(), "{:?}", shared.result.total.errors);
    assert!(shared.result.total.connections.closed["reclaimed"] > 20, "{:?}", shared.result.total.connections);
    spec.budget = None;
    let alone = run(&plan, &spec);
    assert_eq!(alone.server.max_open, 80);
}
