//! The engine in virtual time: a little target plays the target, with times that are known.

mod pooling;
mod queueing;
mod simulated_target;
mod trouble;

use std::time::Duration;

use arrivals::{Shape, Spacing, Stage};
use pool::PoolConfig;
use settings::Secret;

use crate::plan::{Plan, PoolUnderTest, PostgresTarget, Script, Target};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A pool of `size` connections, which are open from the start to the end.
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
    let url = Secret::new("postgres://app:hunter2@localhost/bench");
    let target = Target::Postgres(PostgresTarget::new(url, vec![(Script::SelectOnly, 1)]));
    let pool = PoolUnderTest { config, reuse: true, instances: 1, warm: true, goodbye: true, blind: false };
    Plan { timeout: seconds(60), ..Plan::new("test".to_owned(), target, shape, pool) }
}

fn closed(clients: u32, duration: Duration) -> Shape {
    Shape::Closed { clients, think: Duration::ZERO, duration, operations: None }
}

fn open(rate: f64, duration: Duration, spacing: Spacing) -> Shape {
    Shape::Open { stages: vec![Stage { duration, from: rate, to: rate }], spacing, max_in_flight: 100_000 }
}
