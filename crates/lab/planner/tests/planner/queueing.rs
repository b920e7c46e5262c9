//! Simulations agree with queueing theory.

use std::time::Duration;

use ::report::{histogram::Histogram, result::Measured};
use arrivals::Shape;
use load::plan::Spacing;
use planner::server::{Curve, Processors, Times};

use super::{fixed, ms, near, open, plan, response, run, seconds, spec, waits};

/// The probability that an arrival waits in an M/M/c queue (Erlang C, 1917).
fn erlang_c(servers: u32, load: f64) -> f64 {
    let mut inverse = 1.0;
    for k in 1..=servers {
        inverse = 1.0 + f64::from(k) / load * inverse;
    }
    let blocking = 1.0 / inverse; // Erlang B
    let occupied = load / f64::from(servers);
    blocking / (1.0 - occupied * (1.0 - blocking))
}

/// Half the width of a 99.9% interval of a mean of waiting times, which are correlated: the effective number of
/// independent ones is about their number times (1 - occupation)^2 / 2 (relaxation time of a queue in heavy traffic).
fn tolerance(count: u64, occupied: f64) -> f64 {
    3.3 * 2.0 / ((count as f64 * (1.0 - occupied).powi(2) / 2.0).sqrt())
}

#[test]
fn waiting_before_a_pool_is_that_of_erlang_c() {
    for (servers, load) in [(1, 0.6), (4, 3.0), (20, 16.0), (50, 45.0)] {
        let shape = open(load * 100.0, Duration::from_secs_f64(400.0 + 600.0 / load), Spacing::Poisson);
        let result = run(&plan(shape, fixed(servers)), &spec(Times::Exponential(ms(10)))).result;
        let wait = waits(&result);
        let (waiting, occupied) = (erlang_c(servers, load), load / f64::from(servers));
        let expected = 10.0 * waiting / (f64::from(servers) - load);
        let tolerance = tolerance(wait.count, occupied).max(0.02);
        near(wait.mean, expected, tolerance);
        // The histogram counts in microseconds: a wait of less than half of one counts as none.
        let histogram = Histogram::decode(wait.histogram.as_ref().expect("it is kept")).unwrap();
        let none: u64 = histogram.counted().filter(|(time, _)| time.is_zero()).map(|(_, n)| n).sum();
        near(1.0 - none as f64 / wait.count as f64, waiting, tolerance);
        // The 99th percentile: P(W > t) = C e^(-(c - a) t / S).
        let p99 = (waiting / 0.01).ln().max(0.0) * 10.0 / (f64::from(servers) - load);
        near(wait.p99, p99, 2.0 * tolerance);
    }
}

#[test]
fn waiting_for_one_connection_of_constant_service_is_half_of_that_of_exponential_service() {
    // Pollaczek and Khinchine: W = S rho / (2 (1 - rho)).
    for rho in [0.5, 0.8] {
        let shape = open(rho * 100.0, seconds(3000), Spacing::Poisson);
        let result = run(&plan(shape, fixed(1)), &spec(Times::Constant(ms(10)))).result;
        let wait = waits(&result);
        near(wait.mean, 10.0 * rho / (2.0 * (1.0 - rho)), tolerance(wait.count, rho));
    }
}

#[test]
fn operations_that_share_one_processor_take_as_long_as_processor_sharing_says_whatever_their_distribution() {
    // M/G/1-PS: T = S / (1 - rho), insensitive to the distribution.
    for service in [Times::Constant(ms(10)), Times::Exponential(ms(10)), Times::lognormal(ms(10), ms(60)).unwrap()] {
        let mut spec = spec(service);
        spec.curve = Some(Curve::parallel(1, 0.010));
        let result = run(&plan(open(70.0, seconds(2000), Spacing::Poisson), fixed(200)), &spec).result;
        near(response(&result).mean, 10.0 / 0.3, 0.08);
    }
}

#[test]
fn operations_that_wait_for_one_processor_wait_as_pollaczek_and_khinchine_say() {
    // M/D/1 of the work, and beside it what needs no processor: T = S + D rho / (2 (1 - rho)).
    let mut spec = spec(Times::Constant(ms(25)));
    spec.processors = Some(Processors { count: 1, work: ms(10) });
    let result = run(&plan(open(70.0, seconds(3000), Spacing::Poisson), fixed(200)), &spec).result;
    let response = response(&result);
    near(response.mean, 25.0 + 10.0 * 0.7 / (2.0 * 0.3), tolerance(response.count, 0.7));
}

#[test]
fn operations_that_are_nothing_but_work_wait_for_processors_as_erlang_c_says() {
    let mut spec = spec(Times::Exponential(ms(10)));
    spec.processors = Some(Processors { count: 4, work: ms(10) });
    let result = run(&plan(open(300.0, seconds(600), Spacing::Poisson), fixed(200)), &spec).result;
    let response = response(&result);
    near(response.mean, 10.0 + 10.0 * erlang_c(4, 3.0) / (4.0 - 3.0), tolerance(response.count, 0.75));
}

#[test]
fn an_operation_alone_takes_as_long_as_was_said_whatever_part_of_it_is_work() {
    for work in [1, 5, 8, 10] {
        let mut spec = spec(Times::Exponential(ms(10)));
        spec.processors = Some(Processors { count: 2, work: ms(work) });
        // At a hundredth of what the processors can do.
        let result = run(&plan(open(2.0, seconds(20_000), Spacing::Even), fixed(20)), &spec).result;
        near(response(&result).mean, 10.0, 0.02);
    }
}

#[test]
fn a_burst_takes_as_long_as_its_work_takes_the_processors_and_new_connections_longer() {
    let burst = |rounds| Shape::Burst { size: 50, at_once: 50, idle: ms(500), rounds };
    let mut spec = spec(Times::Constant(ms(10)));
    spec.processors = Some(Processors { count: 2, work: ms(2) });
    let result = run(&plan(burst(4), fixed(50)), &spec).result;
    // 2 are done after 10 ms, and 2 more every 2 ms: the last after 58 ms.
    let response = |measured: &Measured| measured.response_ms.clone().unwrap();
    near(response(&result.total).max, 58.0, 0.01);
    near(response(&result.total).p50, 34.0, 0.03);
    // Half of the connections: each does two, the second when the first one's answer is there.
    let half = run(&plan(burst(4), fixed(25)), &spec).result;
    near(response(&half.total).max, 58.0, 0.05);
    // The first operation on each connection takes 4 ms of a processor more: the first burst has 50 of them, and lasts
    // 100 ms longer.
    spec.first = ms(4);
    let fresh = run(&plan(burst(4), fixed(50)), &spec).result;
    let steps: Vec<f64> = fresh.steps.iter().map(|step| response(&step.measured).max).collect();
    near(steps[0], 158.0, 0.01);
    near(steps[1], 58.0, 0.01);
}

#[test]
fn fifty_connections_on_two_processors_take_as_long_as_twenty_five_one_after_the_other() {
    let shape = Shape::Burst { size: 1, at_once: 1, idle: ms(1), rounds: 1 };
    let longest = |count: u32, work: u64| {
        let mut spec = spec(Times::Constant(ms(1)));
        (spec.connect.auth, spec.connect.work) = (Some(Times::Constant(ms(10))), ms(work));
        spec.processors = Some(Processors { count: 2, work: ms(1) });
        run(&plan(shape.clone(), fixed(count)), &spec).result.total.connect_ms.auth.unwrap().max
    };
    near(longest(1, 10), 10.0, 0.01);
    near(longest(50, 10), 250.0, 0.01);
    // Of each 10 ms the processor is needed for 4: 24 wait before the last two.
    near(longest(50, 4), 24.0 * 4.0 + 10.0, 0.01);
    near(longest(50, 0), 10.0, 0.01);
}

#[test]
fn operations_wait_for_processors_that_connections_need_while_they_are_made() {
    let mut spec = spec(Times::Constant(ms(1)));
    (spec.connect.auth, spec.connect.work) = (Some(Times::Constant(ms(10))), ms(10));
    spec.processors = Some(Processors { count: 1, work: ms(1) });
    // One operation at a time, each on a connection of its own: none waits.
    let mut lone = plan(Shape::Burst { size: 1, at_once: 1, idle: ms(500), rounds: 5 }, fixed(1));
    (lone.pool.reuse, lone.pool.warm) = (false, false);
    near(waits_for_service(&lone, &spec), 1.0, 0.01);
    // Three at once: the operation of the first comes while the others log in.
    let mut crowd = plan(Shape::Burst { size: 3, at_once: 3, idle: ms(500), rounds: 5 }, fixed(3));
    (crowd.pool.reuse, crowd.pool.warm) = (false, false);
    near(waits_for_service(&crowd, &spec), 21.0, 0.01);
}

/// The longest service time.
fn waits_for_service(plan: &load::plan::Plan, spec: &planner::server::Spec) -> f64 {
    run(plan, spec).result.total.service_ms.unwrap().max
}

#[test]
fn littles_law_holds_in_every_run() {
    let cases = [(5, 300.0, 300, None), (20, 1500.0, 200, None), (40, 150.0, 1500, Some(Curve::parallel(2, 0.010)))];
    for (servers, rate, length, curve) in cases {
        let mut spec = spec(Times::Exponential(ms(10)));
        spec.curve = curve;
        let result = run(&plan(open(rate, seconds(length), Spacing::Poisson), fixed(servers)), &spec).result;
        let whole = &result.series[1..length as usize - 1];
        let in_use = whole.iter().map(|second| f64::from(second.in_use)).sum::<f64>() / whole.len() as f64;
        let service = result.total.service_ms.as_ref().unwrap().mean / 1e3;
        // The seconds are nearly independent samples, so the deviation of their mean is at most a thirtieth.
        near(in_use, result.total.rate().unwrap() * service, 0.1);
        near(result.total.rate().unwrap(), rate, 0.02);
        near(response(&result).mean, 1e3 * service + waits(&result).mean, 0.01);
    }
}

#[test]
fn a_closed_loop_on_a_measured_server_does_what_was_measured() {
    use ::report::result::sweep::{Curve as Points, CurvePoint, SweepResult};
    let point = |(clients, throughput)| CurvePoint { clients, throughput, ..CurvePoint::default() };
    let direct = Points { points: [(1, 100.0), (4, 300.0), (16, 200.0)].map(point).into(), ..Points::default() };
    let curve = Curve::measured(&SweepResult { direct, ..SweepResult::default() }).unwrap();
    for (clients, expected) in [(1, 100.0), (4, 300.0), (16, 200.0), (64, 200.0)] {
        let shape = Shape::Closed { clients, think: ms(0), duration: seconds(200), operations: None };
        let mut spec = spec(Times::Exponential(ms(10)));
        spec.curve = Some(curve.clone());
        let outcome = run(&plan(shape, fixed(clients)), &spec);
        near(outcome.result.total.rate().unwrap(), expected, 0.03);
        assert_eq!(outcome.server.max_concurrent, Some(clients));
    }
}

#[test]
fn the_same_seed_gives_the_same_result_and_another_seed_another() {
    let of = |seed| {
        let mut plan = plan(open(500.0, seconds(20), Spacing::Poisson), fixed(6));
        plan.seed = seed;
        run(&plan, &spec(Times::Exponential(ms(10)))).result.total
    };
    assert_eq!(of(7), of(7));
    assert_ne!(of(7), of(8));
}
