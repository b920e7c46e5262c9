//! Counts that another process tells, which may be of any size.

use std::collections::BTreeMap;

/// Counts by reason.
pub type Counts = BTreeMap<String, u64>;

/// The sum, or `u64::MAX` where it is larger.
pub fn sum<'c>(counts: impl IntoIterator<Item = &'c u64>) -> u64 {
    counts.into_iter().fold(0, |all, count| all.saturating_add(*count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_that_is_too_large_stays_at_the_largest() {
        assert_eq!(sum(&[1, 2, 3]), 6);
        assert_eq!(sum(&[u64::MAX, u64::MAX, 1]), u64::MAX);
        assert_eq!(sum(&[]), 0);
    }
}
