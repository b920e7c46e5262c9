//! Sums of counts that somebody else tells: no count is too large for them.

/// All of them together; what is more than a count can be is told as the largest that it can be.
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
