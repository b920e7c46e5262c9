//! When pools want to be looked at though nothing happens to them: each worker looks after some of them, and at those
//! only that are due, so that a pool in which nothing is due costs nothing.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use pool::Time;
use seam::PoolId;

/// The alarms of all pools, by the worker that looks after the pool. A pool has one at most.
pub(crate) struct Alarms(Vec<Mutex<BTreeSet<(Time, PoolId)>>>);

impl Alarms {
    pub(crate) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| Mutex::default()).collect())
    }

    /// The worker that looks after a pool.
    pub(crate) fn keeper(&self, pool: PoolId) -> usize {
        pool.0 as usize % self.0.len()
    }

    /// Sets the alarm of a pool to the time `at`, in place of the one at `before`, if the pool had one. To be called
    /// under the lock of the pool.
    pub(crate) fn set(&self, pool: PoolId, before: Time, at: Time) {
        let mut alarms = self.0[self.keeper(pool)].lock().unwrap_or_else(PoisonError::into_inner);
        if before < Time::NEVER {
            alarms.remove(&(before, pool));
        }
        alarms.insert((at, pool));
    }

    /// A pool is gone, and had an alarm for `at`. To be called under its lock.
    pub(crate) fn remove(&self, pool: PoolId, at: Time) {
        self.0[self.keeper(pool)].lock().unwrap_or_else(PoisonError::into_inner).remove(&(at, pool));
    }

    /// Takes out a worker's alarms that are due, each with the time for which it was set.
    pub(crate) fn take_due(&self, worker: usize, now: Time, due: &mut Vec<(PoolId, Time)>) {
        let mut alarms = self.0[worker].lock().unwrap_or_else(PoisonError::into_inner);
        while alarms.first().is_some_and(|(at, _)| *at <= now) {
            due.extend(alarms.pop_first().map(|(at, pool)| (pool, at)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_worker_hears_of_its_own_pools_in_the_order_of_time_and_once() {
        let alarms = Alarms::new(2);
        for (pool, before, at) in [(4, u64::MAX, 30), (1, u64::MAX, 5), (2, u64::MAX, 10), (4, 30, 20)] {
            alarms.set(PoolId(pool), Time(before), Time(at));
        }
        let due = |worker, at| {
            let mut due = Vec::new();
            alarms.take_due(worker, Time(at), &mut due);
            due.into_iter().map(|(pool, at)| (pool.0, at.0)).collect::<Vec<_>>()
        };
        assert_eq!(due(0, 9), []);
        assert_eq!(due(0, 25), [(2, 10), (4, 20)]);
        assert_eq!(due(0, 40), []);
        assert_eq!(due(1, 5), [(1, 5)]);
    }
}
