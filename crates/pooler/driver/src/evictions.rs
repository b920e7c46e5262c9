//! The clients of a worker that could be evicted first, and whether clients come back as fast as they are evicted, so
//! that each eviction only costs a login. Evicts no client.

use std::time::Duration;

use pool::Time;

/// The time over which evictions are counted together.
const LOOP_WINDOW: Duration = Duration::from_secs(10);

/// An evicted client that was here for less than this has probably been evicted before.
pub(crate) const MAX_YOUNG_AGE: Duration = Duration::from_secs(30);

/// Evictions of young clients in a window that make a loop, if they are at least half of all evictions.
const MIN_LOOP_EVICTIONS: u32 = 10;

/// A client's place in the order of eviction: whether it holds a server, and since when it is idle.
pub(crate) type Rank = (bool, Time);

/// The clients of a worker that could be evicted first, in order, and when the worker published them.
#[derive(Debug, Default)]
pub(crate) struct Evictable {
    pub(crate) at: Time,
    pub(crate) ranks: Vec<Rank>,
}

/// The evictions of one listener.
#[derive(Debug, Default)]
pub(crate) struct Evictions {
    since: Time,
    all: u32,
    young: u32,
    /// A loop was reported in this window.
    reported: bool,
}

impl Evictions {
    /// A client of this age is evicted. True if that shows a loop, once in a window.
    pub(crate) fn note(&mut self, age: Duration, now: Time) -> bool {
        if self.all == 0 || now - self.since >= LOOP_WINDOW {
            *self = Self { since: now, ..Self::default() };
        }
        self.all = self.all.saturating_add(1);
        if age >= MAX_YOUNG_AGE {
            return false;
        }
        self.young = self.young.saturating_add(1);
        let is_loop = self.young >= MIN_LOOP_EVICTIONS.max(self.all.div_ceil(2));
        is_loop && !std::mem::replace(&mut self.reported, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time(seconds * 1_000_000_000)
    }

    const MINUTE: Duration = Duration::from_secs(60);
    const MOMENT: Duration = Duration::from_secs(6);

    #[test]
    fn clients_that_come_back_at_once_are_a_loop_told_once_in_a_window() {
        let mut evictions = Evictions::default();
        assert_eq!((0..100).filter(|_| evictions.note(MOMENT, at(1))).count(), 1);
        assert_eq!((0..100).filter(|_| evictions.note(MOMENT, at(12))).count(), 1);
    }

    #[test]
    fn evictions_that_are_half_young_more_than_once_are_told_once() {
        let mut evictions = Evictions::default();
        let ages = [(MOMENT, 10), (MINUTE, 11), (MOMENT, 2)];
        let ages = ages.into_iter().flat_map(|(age, count)| std::iter::repeat_n(age, count));
        assert_eq!(ages.filter(|age| evictions.note(*age, at(1))).count(), 1);
    }

    #[test]
    fn old_clients_and_few_ones_are_none() {
        let mut evictions = Evictions::default();
        assert!((0..1000).all(|_| !evictions.note(MINUTE, at(1))));
        assert!((0..500).all(|_| !evictions.note(MOMENT, at(2))));
        let mut evictions = Evictions::default();
        assert!((0..100).all(|n| !evictions.note(MOMENT, at(2 * n))));
    }
}
