//! `[pool]`: the pool under test, in the words of the pool core.

use std::time::Duration;

use pool::{MAX_SERVERS, PoolConfig};
use settings::Section;
use workload::Shape;

use crate::plan::{MAX_INSTANCES, PoolUnderTest};

pub(super) const KEYS: &[&str] = &[
    "max_size",
    "min_size",
    "max_connecting",
    "max_idle_time",
    "max_life_time",
    "max_wait_time",
    "connect_time",
    "reuse",
    "instances",
    "warm",
];

/// The keys of one table, each as it is or absent.
#[derive(Clone, Copy, Default)]
pub(super) struct PoolKeys {
    max_size: Option<u32>,
    min_size: Option<u32>,
    max_connecting: Option<u32>,
    max_idle_time: Option<Option<Duration>>,
    max_life_time: Option<Option<Duration>>,
    max_wait_time: Option<Option<Duration>>,
    connect_time: Option<Duration>,
    reuse: Option<bool>,
    instances: Option<u32>,
    warm: Option<bool>,
}

impl PoolKeys {
    pub(super) fn read(section: &Section<'_>) -> Self {
        Self {
            max_size: section.number("max_size", 0..=MAX_SERVERS),
            min_size: section.number("min_size", 0..=MAX_SERVERS),
            max_connecting: section.number("max_connecting", 1..=MAX_SERVERS),
            max_idle_time: section.duration("max_idle_time"),
            max_life_time: section.duration("max_life_time"),
            max_wait_time: section.duration("max_wait_time"),
            connect_time: section.duration_on("connect_time"),
            reuse: section.truth("reuse"),
            instances: section.number("instances", 1..=MAX_INSTANCES),
            warm: section.truth("warm"),
        }
    }

    pub(super) fn over(self, below: &Self) -> Self {
        Self {
            max_size: self.max_size.or(below.max_size),
            min_size: self.min_size.or(below.min_size),
            max_connecting: self.max_connecting.or(below.max_connecting),
            max_idle_time: self.max_idle_time.or(below.max_idle_time),
            max_life_time: self.max_life_time.or(below.max_life_time),
            max_wait_time: self.max_wait_time.or(below.max_wait_time),
            connect_time: self.connect_time.or(below.connect_time),
            reuse: self.reuse.or(below.reuse),
            instances: self.instances.or(below.instances),
            warm: self.warm.or(below.warm),
        }
    }

    /// The pool that the keys describe. In a closed loop without `max_size` each client has a connection and keeps it, as in
    /// pgbench; otherwise the defaults are those of the pool core.
    pub(super) fn pool(&self, shape: &Shape) -> PoolUnderTest {
        let own = match (shape, self.max_size) {
            (Shape::Closed { clients, .. }, None) => PoolConfig {
                max_size: *clients,
                min_size: *clients,
                max_idle_time: None,
                max_life_time: None,
                max_wait_time: None,
                ..PoolConfig::default()
            },
            _ => PoolConfig::default(),
        };
        let config = PoolConfig {
            max_size: self.max_size.unwrap_or(own.max_size),
            min_size: self.min_size.unwrap_or(own.min_size),
            max_connecting: self.max_connecting.unwrap_or(own.max_connecting),
            max_idle_time: self.max_idle_time.unwrap_or(own.max_idle_time),
            max_life_time: self.max_life_time.unwrap_or(own.max_life_time),
            max_wait_time: self.max_wait_time.unwrap_or(own.max_wait_time),
            connect_timeout: self.connect_time.unwrap_or(own.connect_timeout),
            ..own
        };
        PoolUnderTest {
            warm: self.warm.unwrap_or(config.min_size > 0),
            config,
            reuse: self.reuse.unwrap_or(true),
            instances: self.instances.unwrap_or(1),
        }
    }
}
