//! Whether the answer of a shared server is overdue: due for longer than answers usually take. What is done then is in
//! `replacement`.

use std::time::Duration;

use pool::Time;
use seam::PoolId;

use crate::by_pool::ByPool;

/// An answer that takes no longer is not overdue, however fast answers usually are.
pub(super) const MIN_OVERDUE_TIME: Duration = Duration::from_millis(20);

/// An answer is overdue that takes longer than this many usual ones.
const OVERDUE_FACTOR: u32 = 4;

/// The weight of the average so far; a new answer has the weight of one.
const AVERAGE_WEIGHT: u32 = 8;

/// Whether a shared server owes an answer, and since when.
#[derive(Clone, Copy, Default)]
pub(super) struct DueAnswer {
    since: Option<Time>,
    overdue: bool,
    /// When the last overdue answer came.
    overdue_until: Option<Time>,
}

/// What it meant that a server answered.
#[derive(Debug)]
pub(super) struct Answered {
    /// How long an answer had been due, if one was.
    pub(super) took: Option<Duration>,
    pub(super) was_overdue: bool,
}

impl DueAnswer {
    /// Something was sent to the server.
    pub(super) fn begin(&mut self, now: Time) {
        self.since.get_or_insert(now);
    }

    /// The server says something.
    pub(super) fn end(&mut self, now: Time) -> Answered {
        let took = self.since.replace(now).map(|since| now - since);
        let was_overdue = std::mem::take(&mut self.overdue);
        if was_overdue {
            self.overdue_until = Some(now);
        }
        Answered { took, was_overdue }
    }

    /// Notes whether the answer has been due for longer than `limit`.
    pub(super) fn check(&mut self, now: Time, limit: Duration) {
        self.overdue |= self.since.is_some_and(|since| now - since >= limit);
    }

    pub(super) fn is_overdue(&self) -> bool {
        self.overdue
    }

    /// Since when a client that came at `since` has waited for other clients, and not for an overdue answer.
    pub(super) fn others_since(&self, since: Time) -> Time {
        self.overdue_until.map_or(since, |until| until.max(since))
    }
}

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
