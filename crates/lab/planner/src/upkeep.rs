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

/// Settings derived by rules. Times are those of the simulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Upkeep {
    /// Most connections that are being made at a time.
    pub max_connecting: u32,
    /// When one is replaced; `None`: never.
    pub max_life_time: Option<Duration>,
    /// How long an operation waits for one; `None`: for as long as it takes.
    pub max_wait_time: Option<Duration>,
}

impl Upkeep {
    pub fn given(config: &PoolConfig) -> Self {
        let PoolConfig { max_connecting, max_life_time, max_wait_time, .. } = *config;
        Self { max_connecting, max_life_time, max_wait_time }
    }

    /// What follows from these sizes and the given settings, which have led to these outcomes. A second of them stands
    /// for so many (`compression`) of the real service.
    pub fn by_rule(self, compression: f64, facts: &Facts, sizes: &Sizes, outcomes: &[Outcome]) -> Self {
        let max_wait_time = wait_time(self.max_wait_time, facts, outcomes);
        Self {
            max_connecting: connecting(self.max_connecting, facts, sizes, max_wait_time.unwrap_or(Duration::MAX)),
            max_life_time: self.max_life_time.or(Some(DEFAULT_LIFE_TIME.div_f64(compression))),
            max_wait_time,
        }
    }

    /// What is tried instead of the given settings, one after the other: all of these, then all but one. Never the
    /// given ones themselves.
    pub fn choices(self, given: Self) -> Vec<Self> {
        let all = [
            self,
            Self { max_wait_time: given.max_wait_time, ..self },
            Self { max_connecting: given.max_connecting, ..self },
            Self { max_life_time: given.max_life_time, ..self },
        ];
        let mut choices: Vec<Self> = Vec::new();
        for choice in all {
            if choice != given && !choices.contains(&choice) {
                choices.push(choice);
            }
        }
        choices
    }

    /// The names of those that are others there.
    pub fn other_than(&self, other: &Self) -> Vec<&'static str> {
        let differ = [
            ("max_connecting", self.max_connecting != other.max_connecting),
            ("max_life_time", self.max_life_time != other.max_life_time),
            ("max_wait_time", self.max_wait_time != other.max_wait_time),
        ];
        differ.into_iter().filter(|(_, is_other)| *is_other).map(|(name, _)| name).collect()
    }

    /// Puts them into the settings of a pool.
    pub fn set(self, config: &mut PoolConfig) {
        let Self { max_connecting, max_life_time, max_wait_time } = self;
        (config.max_connecting, config.max_life_time, config.max_wait_time) =
            (max_connecting, max_life_time, max_wait_time);
    }
}

/// A wait that is easily remembered, twice as long as all but one of 1,000 were, and no shorter than the longest: with
/// it nobody fails who did not fail with the given one, and nobody waits for longer than that allows.
fn wait_time(given: Option<Duration>, facts: &Facts, outcomes: &[Outcome]) -> Option<Duration> {
    let waits = outcomes.iter().filter_map(|outcome| outcome.result.total.pool_wait_ms.as_ref());
    let waited =
        waits.fold(facts.connect_ms * WAIT_FACTOR, |most, waits| most.max(waits.p999 * WAIT_FACTOR).max(waits.max));
    let remembered = ROUND_WAITS_MS.into_iter().find(|ms| *ms as f64 >= waited).map(Duration::from_millis);
    [remembered, given].into_iter().flatten().min()
}

/// The largest useful `max_connecting`, at least the given one.
pub fn most_connecting(given: u32, facts: &Facts) -> u32 {
    // More at a time than keep the server's processors busy are made no faster.
    let busy = facts.connects_per_s.map_or(MAX_USEFUL_CONNECTING, |most| (most * facts.connect_ms / 1e3).ceil() as u32);
    MAX_USEFUL_CONNECTING.min(busy).max(given)
}

/// So many at a time that a pool has grown before somebody has waited for half of what one may wait.
fn connecting(given: u32, facts: &Facts, sizes: &Sizes, max_wait: Duration) -> u32 {
    let missing = sizes.max_size - sizes.min_size;
    let fast = |at_a_time: &u32| facts.growing(missing, *at_a_time) <= max_wait / 2;
    (given..=MAX_USEFUL_CONNECTING).find(fast).unwrap_or_else(|| most_connecting(given, facts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_by_rule_is_tried_whole_and_then_without_one_setting_each() {
        let s = |n| Some(Duration::from_secs(n));
        let given = Upkeep { max_connecting: 2, max_life_time: None, max_wait_time: s(2) };
        let rule = Upkeep { max_connecting: 8, max_life_time: s(1800), max_wait_time: s(1) };
        let choices = [
            rule,
            Upkeep { max_wait_time: s(2), ..rule },
            Upkeep { max_connecting: 2, ..rule },
            Upkeep { max_life_time: None, ..rule },
        ];
        assert_eq!(rule.choices(given), choices);
        // Where one alone differs, all but that one are the given ones.
        let one = Upkeep { max_connecting: 8, ..given };
        assert_eq!((one.choices(given), given.choices(given)), (vec![one], vec![]));
    }
}
