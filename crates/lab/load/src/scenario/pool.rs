//! `[pool]`: the pool under test, in the words of the pool core.

use pool::MAX_SERVERS;
use settings::Section;

use crate::plan::{MAX_INSTANCES, PoolWishes};

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
    "goodbye",
    "blind",
];

/// The keys of one table, each as it is or absent.
pub(super) fn read(section: &Section<'_>) -> PoolWishes {
    PoolWishes {
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
        goodbye: section.truth("goodbye"),
        blind: section.truth("blind"),
    }
}
