//! How long answers of shared servers usually take, and after which time one is overdue. What is done then is in
//! `replacement`.

use std::time::Duration;

use seam::PoolId;

use crate::by_pool::ByPool;

/// An answer that takes no longer is not overdue, however fast answers usually are.
pub(super) const MIN_OVERDUE_TIME: Duration = Duration::from_millis(20);

/// An answer is overdue that takes longer than this many usual ones.
const OVERDUE_FACTOR: u32 = 4;

/// The weight of the average so far; a new answer has the weight of one.
const AVERAGE_WEIGHT: u32 = 8;

/// How long answers of shared servers take, on average, by pool.
#[derive(Default)]
pub(super) struct RoundTrips(ByPool<Duration>);

impl RoundTrips {
    fn average(&mut self, pool: PoolId) -> &mut Duration {
        self.0.entry(pool).or_default()
    }

    pub(super) fn forget(&mut self, pool: PoolId) {
        self.0.remove(&pool);
    }

    /// An answer took this long. An overdue one changes the average little, or the next one would not be noticed.
    pub(super) fn note(&mut self, pool: PoolId, took: Duration) {
        let took = took.min(self.overdue_after(pool));
        let average = self.average(pool);
        *average = *average - *average / AVERAGE_WEIGHT + took / AVERAGE_WEIGHT;
    }

    /// After which time an answer is overdue.
    pub(super) fn overdue_after(&mut self, pool: PoolId) -> Duration {
        (*self.average(pool) * OVERDUE_FACTOR).max(MIN_OVERDUE_TIME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_follows_usual_answers_and_hardly_an_overdue_one() {
        let (mut trips, pool) = (RoundTrips::default(), PoolId(3));
        assert_eq!(trips.overdue_after(pool), MIN_OVERDUE_TIME);
        (0..100).for_each(|_| trips.note(pool, Duration::from_millis(100)));
        let limit = trips.overdue_after(pool);
        assert!(limit > Duration::from_millis(350) && limit <= Duration::from_millis(400), "{limit:?}");
        trips.note(pool, Duration::from_secs(3600));
        assert!(trips.overdue_after(pool) < Duration::from_millis(600));
        assert_eq!(trips.overdue_after(PoolId(0)), MIN_OVERDUE_TIME, "each pool has an average of its own");
    }
}
