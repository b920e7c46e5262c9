//! The engine in virtual time: a little target plays the target, with times that are known.

mod pooling;
mod queueing;
mod simulated_target;
mod trouble;

use std::time::Duration;

use arrivals::{Shape, Spacing, Stage};
use pool::PoolConfig;
use settings::Secret;

use crate::plan::{Plan, PoolUnderTest, PostgresTarget, QueryProtocol, Script, Target};

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
    Plan {
        name: "test".to_owned(),
        target: Target::Postgres(PostgresTarget {
            url: Secret::new("postgres://app:hunter2@localhost/bench"),
            scripts: vec![(Script::SelectOnly, 1)],
            protocol: QueryProtocol::Simple,
            scale: 1,
            schema: "poolhouse_bench".to_owned(),
            variables: vec![],
        }),
        shape,
        pool: PoolUnderTest { config, reuse: true, instances: 1, warm: true, goodbye: true, blind: false },
        faults: vec![],
        warmup: Duration::ZERO,
        timeout: seconds(60),
        seed: 1,
        fail_if: vec![],
        freeze: None,
        poolhouse: None,
    }
}

fn closed(clients: u32, duration: Duration) -> Shape {
    Shape::Closed { clients, think: Duration::ZERO, duration, operations: None }
}

fn open(rate: f64, duration: Duration, spacing: Spacing) -> Shape {
    Shape::Open { stages: vec![Stage { duration, from: rate, to: rate }], spacing, max_in_flight: 100_000 }
}
