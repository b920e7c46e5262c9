//! `[poolhouse]`: the Poolhouse that is started in front of the scenario's own database, in the words of its
//! configuration.

use settings::Section;

use crate::plan::PoolhouseWishes;

pub(super) const KEYS: &[&str] =
    &["max_size", "max_wait_time", "soft_limit", "hard_limit", "evict_min_idle", "client_idle_time"];

/// Clients that one may be asked to bear.
const MAX_CLIENTS: u32 = 1_000_000;

/// The keys of one table, each as it is or absent.
pub(super) fn read(section: &Section<'_>) -> PoolhouseWishes {
    PoolhouseWishes {
        max_size: section.number("max_size", 1..=MAX_CLIENTS),
        max_wait_time: section.duration("max_wait_time"),
        soft_limit: section.number("soft_limit", 1..=MAX_CLIENTS),
        hard_limit: section.number("hard_limit", 1..=MAX_CLIENTS),
        evict_min_idle: section.duration_on("evict_min_idle"),
        client_idle_time: section.duration("client_idle_time"),
    }
}
