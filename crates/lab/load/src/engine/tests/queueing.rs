//! What queueing theory and arithmetic say must come out.

use std::time::Duration;

use arrivals::{Random, Shape, Spacing, Stage};
use pool::{PoolConfig, Time};

use super::{
    closed, fixed, ms, open, plan, seconds,
    simulated_target::{Fate, SimulatedTarget, always, stalled},
};
use report::result::Percentiles;

fn near(value: f64, expected: f64, part: f64) {
    assert!((value - expected).abs() <= expected * part, "{value} is not within {part} of {expected}");
}

#[test]
fn a_closed_loop_does_as_many_operations_as_its_clients_can() {
    let mut target = SimulatedTarget::new(always(ms(10)));
    let result = target.run(&plan(closed(10, seconds(10)), fixed(10)));
    assert_eq!(result.total.requests, 10 * 1000);
    let response = result.total.response_ms.unwrap();
    near(response.p50, 10.0, 0.001);
    near(response.max, 10.0, 0.001);
    assert_eq!(result.total.pool_wait_ms.unwrap().max, 0.0);
    near(result.total.duration_s, 10.0, 0.001);
    assert_eq!(target.most, (10, 10));
    assert_eq!((result.series.len(), result.series[5].requests, result.series[5].in_use), (11, 1000, 10));
    assert_eq!(result.total.connections.created_for, [("start".to_owned(), 10)].into());
    assert!(result.warnings.is_empty(), "{:?}", result.warnings);
}

#[test]
fn percentiles_are_those_of_the_service_times() {
    // 1, 2, ... 1000 ms, again and again, in an order that visits all.
    let mut n = 0;
    let mut target = SimulatedTarget::new(move |_| {
        n = (n + 617) % 1000;
        Fate::Served(ms(n + 1))
    });
    let result = target.run(&plan(open(1000.0, seconds(100), Spacing::Even), fixed(2000)));
    for shown in [result.total.response_ms, result.total.service_ms] {
        let Percentiles { count, p50, p90, p99, p999, max, .. } = shown.unwrap();
        assert_eq!(count, 100_000);
        for (value, expected) in [(p50, 500.0), (p90, 900.0), (p99, 990.0), (p999, 999.0), (max, 1000.0)] {
            near(value, expected, 0.001);
        }
    }
}

#[test]
fn littles_law_holds_with_thinking_clients() {
    let shape = Shape::Closed { clients: 30, think: ms(20), duration: seconds(30), operations: None };
    let result = SimulatedTarget::new(always(ms(10))).run(&plan(shape, fixed(30)));
    // N = X (R + Z)
    near(result.total.requests as f64 / result.total.duration_s, 30.0 / 0.030, 0.01);
}

#[test]
fn a_pool_smaller_than_its_clients_makes_them_wait_as_long_as_littles_law_says() {
    let mut target = SimulatedTarget::new(always(ms(10)));
    let result = target.run(&plan(closed(40, seconds(20)), fixed(10)));
    near(result.total.requests as f64 / result.total.duration_s, 1000.0, 0.01);
    near(result.total.response_ms.unwrap().p50, 40.0, 0.002);
    near(result.total.service_ms.unwrap().p50, 10.0, 0.002);
    near(result.total.pool_wait_ms.unwrap().p50, 30.0, 0.002);
    assert_eq!((target.most, result.series[3].waiting), ((10, 10), 30));
}

/// Mean wait in an M/M/c queue (Erlang 1917), in units of the mean service time.
fn erlang_c_wait(servers: u32, load: f64) -> f64 {
    let mut inverse = 1.0;
    for k in 1..=servers {
        inverse = 1.0 + f64::from(k) / load * inverse;
    }
    let blocking = 1.0 / inverse; // Erlang B
    let occupied = load / f64::from(servers);
    let waiting = blocking / (1.0 - occupied * (1.0 - blocking)); // Erlang C
    waiting / (f64::from(servers) - load)
}

#[test]
fn waits_for_a_pool_under_random_load_are_those_of_erlang_c() {
    for (servers, load) in [(1, 0.7), (5, 4.0), (20, 17.0)] {
        let mut random = Random::new(1000 + u64::from(servers));
        let mut target =
            SimulatedTarget::new(move |_| Fate::Served(Duration::from_secs_f64(0.010 * random.exponential())));
        let shape = open(load * 100.0, seconds(150_000 / (load * 100.0) as u64), Spacing::Poisson);
        let result = target.run(&plan(shape, fixed(servers)));
        let wait = result.total.pool_wait_ms.unwrap();
        assert!(wait.count > 140_000);
        near(wait.mean, 10.0 * erlang_c_wait(servers, load), 0.08);
        let (response, service) = (result.total.response_ms.unwrap(), result.total.service_ms.unwrap());
        near(service.mean, 10.0, 0.01);
        near(response.mean, service.mean + wait.mean, 0.001);
    }
}

#[test]
fn a_stall_shows_in_the_open_loop_and_the_closed_one_is_marked_as_blind() {
    let serve = || stalled(ms(5), Time(10_000_000_000), seconds(2));
    let open = SimulatedTarget::new(serve()).run(&plan(open(200.0, seconds(60), Spacing::Even), fixed(500)));
    // 2 of 60 seconds: 3.3% of the arrivals waited, evenly up to 2 s; so of all, 1% longer than 1.4 s.
    let response = open.total.response_ms.unwrap();
    near(response.p99, 2000.0 - 0.6 * 1000.0, 0.02);
    near(response.max, 2000.0, 0.01);
    assert!(response.p50 < 6.0);
    assert!(open.warnings.is_empty(), "{:?}", open.warnings);

    let closed = SimulatedTarget::new(serve()).run(&plan(closed(10, seconds(60)), fixed(10)));
    let response = closed.total.response_ms.unwrap();
    assert!(response.p99 < 6.0, "{}", response.p99);
    assert!(closed.warnings.iter().any(|warning| warning.contains("blind to stalls")), "{:?}", closed.warnings);
}

#[test]
fn if_the_load_generator_is_late_response_still_counts_from_the_schedule() {
    let mut target = SimulatedTarget::new(always(ms(1)));
    target.asleep = Some((Time(5_000_000_000), Time(6_000_000_000)));
    let result = target.run(&plan(open(100.0, seconds(10), Spacing::Even), fixed(200)));
    assert_eq!(result.total.requests, 1000);
    near(result.total.response_ms.unwrap().max, 1000.0, 0.02);
    near(result.total.service_ms.unwrap().max, 1.0, 0.01);
    assert!(result.warnings.iter().any(|warning| warning.contains("itself was late")), "{:?}", result.warnings);
}

#[test]
fn what_cannot_be_begun_is_dropped_and_counted() {
    let mut shape = open(100.0, seconds(10), Spacing::Even);
    if let Shape::Open { max_in_flight, .. } = &mut shape {
        *max_in_flight = 10;
    }
    // Each takes a second: 10 of 100 in each second.
    let result = SimulatedTarget::new(always(seconds(1))).run(&plan(shape, fixed(100)));
    assert_eq!(result.total.requests + result.total.dropped, 1000);
    near(result.total.dropped as f64, 900.0, 0.02);
    assert_eq!(result.series.iter().map(|second| second.dropped).sum::<u64>(), result.total.dropped);
    assert_eq!(result.series.iter().map(|second| second.arrived).sum::<u64>(), 1000);
}

#[test]
fn each_stage_is_a_step_with_the_operations_that_arrived_in_it() {
    let stage = |from, to| Stage { duration: seconds(10), from, to };
    let stages = vec![stage(100.0, 100.0), stage(100.0, 300.0), stage(300.0, 300.0)];
    let shape = Shape::Open { stages, spacing: Spacing::Even, max_in_flight: 1000 };
    let mut plan = plan(shape, fixed(100));
    plan.warmup = seconds(5);
    let result = SimulatedTarget::new(always(ms(8))).run(&plan);
    let steps: Vec<_> = result.steps.iter().map(|s| (s.name.as_str(), s.from_s, s.measured.requests)).collect();
    assert_eq!(steps, [("100/s", 5.0, 1000), ("100/s to 300/s", 15.0, 2000), ("300/s", 25.0, 3000)]);
    assert!(result.steps[..2].iter().all(|step| step.measured.duration_s == 10.0));
    // The warm-up is in the series only.
    assert_eq!((result.total.requests, result.series[0].requests, result.series.len()), (6000, 99, 36));
    near(result.total.duration_s, 30.0, 0.001);
}

#[test]
fn a_closed_loop_can_end_after_a_number_of_operations_however_long_they_wait() {
    for (clients, connections, service, duration_s) in
        [(7, 7, ms(10), 0.150), (7, 2, ms(10), 0.5), (100, 1, seconds(1), 100.0)]
    {
        let shape = Shape::Closed { clients, think: Duration::ZERO, duration: seconds(1000), operations: Some(100) };
        let mut plan = plan(shape, fixed(connections));
        plan.timeout = seconds(30);
        let result = SimulatedTarget::new(always(service)).run(&plan);
        assert_eq!((result.total.requests, result.total.errors.len()), (100, 0), "{:?}", result.total.errors);
        near(result.total.duration_s, duration_s, 0.01);
    }
}

#[test]
fn an_overloaded_pool_with_a_longest_wait_fails_what_it_cannot_serve() {
    // 800/s with 10 servers of 20 ms: capacity 500/s.
    let config = PoolConfig { max_wait_time: Some(ms(500)), ..fixed(10) };
    let result = SimulatedTarget::new(always(ms(20))).run(&plan(open(800.0, seconds(30), Spacing::Even), config));
    let failed = result.total.errors["check-out timeout"];
    assert_eq!(failed + result.total.requests, 24_000);
    near(failed as f64, 300.0 * 30.0 - 400.0, 0.05);
    // Operations fail after a wait of 500 ms, and none is answered after a longer wait.
    near(result.total.response_ms.unwrap().p50, 520.0, 0.05);
    near(result.total.service_ms.unwrap().max, 20.0, 0.002);
}
