//! Whether a shared server is silent: its answer has been due for longer than answers usually take. What is done then
//! is in `relief`.

use std::time::Duration;

use pool::Time;
use seam::PoolId;

use crate::by_pool::ByPool;

/// An answer that takes no longer is nothing unusual.
pub(super) const PATIENCE: Duration = Duration::from_millis(20);

/// Nor is one that takes this many times as long as usual.
const UNUSUAL: u32 = 4;

/// An answer changes what is usual by one part in so many.
const WEIGHT: u32 = 8;

/// Whether a shared server owes an answer, and since when.
#[derive(Clone, Copy, Default)]
pub(super) struct Silence {
    due: Option<Time>,
    /// For longer than is usual.
    long: bool,
    over: Option<Time>,
}

impl Silence {
    /// Something was sent to it.
    pub(super) fn begin(&mut self, now: Time) {
        self.due.get_or_insert(now);
    }

    /// The server says something. Returns how long an answer had been due, if one was, and whether that was long.
    pub(super) fn end(&mut self, now: Time) -> (Option<Duration>, bool) {
        let took = self.due.replace(now).map(|since| now - since);
        let long = std::mem::take(&mut self.long);
        if long {
            self.over = Some(now);
        }
        (took, long)
    }

    /// What takes longer than `limit` is long.
    pub(super) fn look(&mut self, now: Time, limit: Duration) {
        self.long |= self.due.is_some_and(|due| now - due >= limit);
    }

    pub(super) fn is_long(&self) -> bool {
        self.long
    }

    /// Since when a client that came at `since` has waited for other clients, and not for Redis.
    pub(super) fn others_since(&self, since: Time) -> Time {
        self.over.map_or(since, |over| over.max(since))
    }
}

/// How long answers of shared servers take, by pool.
#[derive(Default)]
pub(super) struct RoundTrips(ByPool<Duration>);

impl RoundTrips {
    fn of(&mut self, pool: PoolId) -> &mut Duration {
        self.0.entry(pool).or_default()
    }

    pub(super) fn forget(&mut self, pool: PoolId) {
        self.0.remove(&pool);
    }

    /// An answer took this long. One that was unusual changes little, or the next one would not be noticed.
    pub(super) fn note(&mut self, pool: PoolId, took: Duration) {
        let took = took.min(self.limit(pool));
        let usual = self.of(pool);
        *usual = *usual - *usual / WEIGHT + took / WEIGHT;
    }

    /// What takes longer is unusual.
    pub(super) fn limit(&mut self, pool: PoolId) -> Duration {
        (*self.of(pool) * UNUSUAL).max(PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_usual_is_learnt_and_what_is_not_changes_little() {
        let (mut trips, pool) = (RoundTrips::default(), PoolId(3));
        assert_eq!(trips.limit(pool), PATIENCE);
        (0..100).for_each(|_| trips.note(pool, Duration::from_millis(100)));
        let limit = trips.limit(pool);
        assert!(limit > Duration::from_millis(350) && limit <= Duration::from_millis(400), "{limit:?}");
        trips.note(pool, Duration::from_secs(3600));
        assert!(trips.limit(pool) < Duration::from_millis(600));
        assert_eq!(trips.limit(PoolId(0)), PATIENCE, "of another pool nothing is known");
    }
}
