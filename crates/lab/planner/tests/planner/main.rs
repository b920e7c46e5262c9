//! The planner as its users see it: questions in, predictions out. What must come out is known from queueing theory,
//! from arithmetic, or from the rules of the pool.

mod advised;
mod asked;
mod claims;
mod connecting;
mod edges;
mod front;
mod hosts;
mod queueing;
mod rules;
mod scenarios;
mod search;

use std::time::Duration;

use ::report::result::{BenchResult, Percentiles};
use load::plan::{Plan, PoolConfig, PoolUnderTest, Shape, Spacing, Stage, Target};
use planner::{
    run::{Outcome, run},
    server::{Connect, Spec, Times},
};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn near(value: f64, expected: f64, part: f64) {
    assert!((value - expected).abs() <= expected * part, "{value} is not within {part} of {expected}");
}

/// A pool of so many connections, which are there from the start and stay.
fn fixed(size: u32) -> PoolConfig {
    PoolConfig {
        max_size: size,
        min_size: size,
        max_connecting: size,
        max_idle_time: None,
        max_life_time: None,
        max_wait_time: None,
        ..PoolConfig::default()
    }
}

fn plan(shape: Shape, config: PoolConfig) -> Plan {
    Plan {
        name: "test".to_owned(),
        target: Target::nowhere(),
        shape,
        pool: PoolUnderTest {
            warm: config.min_size > 0,
            config,
            reuse: true,
            instances: 1,
            goodbye: true,
            blind: false,
        },
        faults: Vec::new(),
        warmup: Duration::ZERO,
        timeout: seconds(600),
        seed: 1,
        fail_if: Vec::new(),
        freeze: None,
        poolhouse: None,
    }
}

fn open(rate: f64, duration: Duration, spacing: Spacing) -> Shape {
    Shape::Open { stages: vec![Stage { duration, from: rate, to: rate }], spacing, max_in_flight: 1_000_000 }
}

/// One that connects in a millisecond.
fn spec(service: Times) -> Spec {
    let connect = Connect { tcp: Some(Times::Constant(ms(1))), ..Connect::default() };
    Spec { connect, ..Spec::new(service) }
}

fn simulate(plan: &Plan, spec: &Spec) -> Outcome {
    run(plan, spec)
}

fn response(result: &BenchResult) -> &Percentiles {
    result.total.response_ms.as_ref().expect("something was answered")
}

fn waits(result: &BenchResult) -> &Percentiles {
    result.total.pool_wait_ms.as_ref().expect("somebody got a connection")
}
