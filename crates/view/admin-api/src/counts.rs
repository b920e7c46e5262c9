//! Counts that another process tells, which may be of any size.

use std::collections::BTreeMap;

/// Counts by reason.
pub type Counts = BTreeMap<String, u64>;

/// The sum, or `u64::MAX` where it is larger.
pub fn sum<'c>(counts: impl IntoIterator<Item = &'c u64>) -> u64 {
    counts.into_iter().fold(0, |all, count| all.saturating_add(*count))
}
