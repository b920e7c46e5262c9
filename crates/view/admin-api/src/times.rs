//! Durations counted into buckets.

use serde::{Deserialize, Serialize};

use crate::sum;

/// A histogram. Its bounds are those of the [`Look`](crate::Look) that it belongs to.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Times {
    /// One count a bucket, not cumulative; the last has no upper bound.
    pub buckets: Vec<u64>,
    /// Sum of all durations, in milliseconds.
    pub sum_ms: f64,
}

/// A histogram as `/api/pools` writes it: with figures for readers that do not add up buckets.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summarized {
    pub buckets: Vec<u64>,
    pub count: u64,
    pub mean_ms: Option<f64>,
    /// The upper bound of the bucket that has the quantile; `None` in the last bucket, which has none.
    pub p50_below_ms: Option<f64>,
    pub p95_below_ms: Option<f64>,
    pub p99_below_ms: Option<f64>,
    pub sum_ms: f64,
}

impl Times {
    pub fn count(&self) -> u64 {
        sum(&self.buckets)
    }

    /// Counts those of another histogram of the same bounds, too.
    pub fn add(&mut self, other: &Self) {
        self.buckets.resize(self.buckets.len().max(other.buckets.len()), 0);
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(own, more)| *own = own.saturating_add(*more));
        self.sum_ms += other.sum_ms;
    }

    /// In milliseconds; `None` without any.
    pub fn mean_ms(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum_ms / count as f64)
    }

    /// What has come since an earlier state of the same histogram. Its sum is less than nothing where more was taken
    /// off it meanwhile than came.
    pub fn since(&self, before: &Self) -> Self {
        let earlier = |bucket: usize| before.buckets.get(bucket).copied().unwrap_or(0);
        let buckets = self.buckets.iter().enumerate().map(|(n, count)| count.saturating_sub(earlier(n))).collect();
        Self { buckets, sum_ms: self.sum_ms - before.sum_ms }
    }

    /// The quantile, in milliseconds: a straight line through its bucket. `None` without any duration, and where it
    /// lies beyond the last bound. Its error is at most the width of the bucket.
    pub fn quantile_ms(&self, quantile: f64, bounds_ms: &[f64]) -> Option<f64> {
        let rank = (self.count() as f64 * quantile).max(f64::MIN_POSITIVE);
        let mut seen = 0.0;
        let mut lower = 0.0;
        for (count, upper) in self.buckets.iter().map(|count| *count as f64).zip(bounds_ms) {
            if count > 0.0 && seen + count >= rank {
                return Some(lower + (upper - lower) * (rank - seen) / count);
            }
            seen += count;
            lower = *upper;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: [f64; 3] = [1.0, 2.0, 4.0];

    fn times(buckets: [u64; 4], sum_ms: f64) -> Times {
        Times { buckets: buckets.to_vec(), sum_ms }
    }

    #[test]
    fn a_quantile_lies_within_its_bucket() {
        let times = times([50, 0, 50, 0], 175.0);
        assert_eq!(times.quantile_ms(0.25, &BOUNDS), Some(0.5));
        assert_eq!(times.quantile_ms(0.5, &BOUNDS), Some(1.0));
        assert_eq!(times.quantile_ms(1.0, &BOUNDS), Some(4.0));
        assert_eq!(times.mean_ms(), Some(1.75));
    }

    #[test]
    fn what_lies_beyond_the_last_bound_is_not_known() {
        assert_eq!(times([0, 0, 0, 1], 9.0).quantile_ms(0.5, &BOUNDS), None);
        assert_eq!(times([0; 4], 0.0).quantile_ms(0.5, &BOUNDS), None);
        assert_eq!(times([0; 4], 0.0).mean_ms(), None);
    }

    #[test]
    fn only_what_came_since_counts() {
        let between = times([5, 1, 0, 0], 9.0).since(&times([4, 0, 0, 0], 2.0));
        assert_eq!(between, times([1, 1, 0, 0], 7.0));
        // A wait that is taken off before its transaction has ended: later the same is added, and both together are
        // right.
        let states = [times([4, 0, 0, 0], 20.0), times([5, 0, 0, 0], 15.0), times([8, 0, 0, 0], 40.0)];
        let mut both = states[1].since(&states[0]);
        both.add(&states[2].since(&states[1]));
        assert_eq!(both, states[2].since(&states[0]));
    }

    #[test]
    fn counts_of_any_size_are_added_up() {
        let most = times([u64::MAX, u64::MAX, 1, 0], 1.0);
        assert_eq!((most.count(), most.mean_ms()), (u64::MAX, Some(1.0 / u64::MAX as f64)));
        let mut both = times([1, 0, 0, 2], 3.0);
        both.add(&most);
        assert_eq!(both, times([u64::MAX, u64::MAX, 1, 2], 4.0));
        let mut none = Times::default();
        none.add(&times([1, 0, 0, 2], 3.0));
        assert_eq!(none, times([1, 0, 0, 2], 3.0));
    }
}
