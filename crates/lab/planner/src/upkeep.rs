//! Rules that derive the other settings of a pool from its sizes: `max_connecting`, `max_life_time`, `max_wait_time`.
//! The search simulates them before it recommends them.

use std::time::Duration;

use load::plan::PoolConfig;

use crate::{facts::Facts, run::Outcome, sizes::Sizes};

/// The default life time of a connection: long beside the cost of making one, short beside a deployment.
const DEFAULT_LIFE_TIME: Duration = Duration::from_secs(30 * 60);
/// Round values for `max_wait_time`, in milliseconds.
const ROUND_WAITS_MS: [u64; 7] = [500, 1000, 2000, 5000, 10_000, 20_000, 30_000];
/// Ratio of `max_wait_time` to the longest expected wait.
const WAIT_FACTOR: f64 = 2.0;
/// The largest `max_connecting` that the rules recommend.
const MAX_USEFUL_CONNECTING: u32 = 16;

/// Settings that follow from the sizes by rules. The life time is shortened by the scenario's compression; the wait
/// time is that of the real service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Upkeep {
    pub max_connecting: u32,
    pub max_life_time: Option<Duration>,
    pub max_wait_time: Option<Duration>,
}

impl Upkeep {
    pub fn given(config: &PoolConfig) -> Self {
        let PoolConfig { max_connecting, max_life_time, max_wait_time, .. } = *config;
        Self { max_connecting, max_life_time, max_wait_time }
    }

    /// The settings that follow from the given ones, the sizes, and the outcomes with these.
    pub fn by_rule(self, compression: f64, facts: &Facts, sizes: &Sizes, outcomes: &[Outcome]) -> Self {
        let max_wait_time = max_wait_time(self.max_wait_time, facts, outcomes);
        Self {
            max_connecting: max_connecting(self.max_connecting, facts, sizes, max_wait_time.unwrap_or(Duration::MAX)),
            max_life_time: self.max_life_time.or(Some(DEFAULT_LIFE_TIME.div_f64(compression))),
            max_wait_time,
        }
    }

    /// The names of the settings that differ.
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        let differ = [
            ("max_connecting", self.max_connecting != other.max_connecting),
            ("max_life_time", self.max_life_time != other.max_life_time),
            ("max_wait_time", self.max_wait_time != other.max_wait_time),
        ];
        differ.into_iter().filter(|(_, is_other)| *is_other).map(|(name, _)| name).collect()
    }

    pub fn apply_to(self, config: &mut PoolConfig) {
        let Self { max_connecting, max_life_time, max_wait_time } = self;
        (config.max_connecting, config.max_life_time, config.max_wait_time) =
            (max_connecting, max_life_time, max_wait_time);
    }
}

/// A round time of at least twice the 99.9th percentile of the waits, and at least the longest wait, so that no further
/// operation fails. It is never longer than the given time.
fn max_wait_time(given: Option<Duration>, facts: &Facts, outcomes: &[Outcome]) -> Option<Duration> {
    let waits = outcomes.iter().filter_map(|outcome| outcome.result.total.pool_wait_ms.as_ref());
    let waited =
        waits.fold(facts.connect_ms * WAIT_FACTOR, |most, waits| most.max(waits.p999 * WAIT_FACTOR).max(waits.max));
    let round = ROUND_WAITS_MS.into_iter().find(|ms| *ms as f64 >= waited).map(Duration::from_millis);
    [round, given].into_iter().flatten().min()
}

/// The smallest `max_connecting` with which a pool grows within half of the maximum wait.
fn max_connecting(given: u32, facts: &Facts, sizes: &Sizes, max_wait: Duration) -> u32 {
    let missing = sizes.max_size - sizes.min_size;
    let fast = |at_a_time: &u32| facts.growth_time(missing, *at_a_time) <= max_wait / 2;
    // Beyond the number that keeps the server's processors busy, connections are made no faster.
    let busy = facts.connects_per_s.map_or(MAX_USEFUL_CONNECTING, |most| (most * facts.connect_ms / 1e3).ceil() as u32);
    (given..=MAX_USEFUL_CONNECTING).find(fast).unwrap_or(MAX_USEFUL_CONNECTING.min(busy).max(given))
}
