//! Counting durations into buckets. Kept under the lock of the pool they belong to, so plain numbers.

use std::time::Duration;

use crate::snapshot::{BUCKET_BOUNDS_US, DurationHistogram};

impl DurationHistogram {
    pub(crate) fn record(&mut self, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let bucket = BUCKET_BOUNDS_US.partition_point(|bound| *bound < us);
        self.buckets[bucket] += 1;
        self.sum_ns = self.sum_ns.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds what another has counted.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.buckets.iter_mut().zip(other.buckets) {
            *count += more;
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }

    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_on_a_bound_belongs_to_that_bucket() {
        let mut h = DurationHistogram::default();
        h.record(Duration::from_micros(50));
        h.record(Duration::from_micros(51));
        h.record(Duration::from_secs(3600));
        assert_eq!((h.buckets[0], h.buckets[1], h.buckets[BUCKET_BOUNDS_US.len()]), (1, 1, 1));
        assert_eq!(h.count(), 3);
    }
}
