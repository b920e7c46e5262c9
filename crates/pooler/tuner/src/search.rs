//! Which size is tried next, until nothing is left that could be better. It takes throughput to rise up to some size
//! and to fall or to stay beyond it. First small steps away from the present size, then larger ones for as long as they
//! pay; where one was too far, halfway back in ratio, until the neighbours lie close. Fewer servers first: that is the
//! safe side for the database. Knows no measurement and no time.

use crate::{evidence::Reason, limits::Limits};

/// How far the next size lies from the last one, as a ratio: small steps first.
const REACH: [f64; 3] = [1.25, 1.6, 2.0];
/// Sizes whose ratio is at most this have nothing between them that is worth a trial.
const CLOSE: f64 = 1.25;
/// Trials in a row on one side that decided nothing, until that side is left.
const MISSES: u32 = 2;
/// Trials of one search at most.
pub const MAX_TRIALS: u32 = 24;

#[derive(Clone, Debug)]
pub struct Search {
    limits: Limits,
    /// The best size so far; each candidate is tried beside it.
    anchor: u32,
    /// The smallest size that does as much as the anchor.
    low: u32,
    /// The nearest sizes that are known to be worse, below `low` and above `anchor`.
    worse: (Option<u32>, Option<u32>),
    down: Side,
    up: Side,
    /// What lies between `low` and `anchor` was tried: where both do as much, the peak may be there.
    hump: bool,
    trials: u32,
}

/// What is known of one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Side {
    done: bool,
    reach: usize,
    /// How far it was gone without a decision.
    far: Option<u32>,
    misses: u32,
}

impl Side {
    fn paid(&mut self) {
        *self = Self { reach: (self.reach + 1).min(REACH.len() - 1), ..Self::default() };
    }

    /// The next step is a large one, after others that paid: where it leads, the best size may have been passed.
    fn leapt(&self) -> bool {
        self.misses == 0 && self.reach > 0
    }

    /// A step decided nothing.
    fn missed(&mut self, at: u32) {
        self.misses += 1;
        self.far = Some(at);
        self.reach = (self.reach + 1).min(REACH.len() - 1);
        self.done |= self.misses >= MISSES;
    }
}

impl Search {
    /// One that begins at this size.
    pub fn new(limits: Limits, size: u32) -> Self {
        let (down, up) = Default::default();
        Self { limits, anchor: size, low: size, worse: (None, None), down, up, hump: false, trials: 0 }
    }

    /// One that begins at a size which was just found to be better than another.
    pub fn after(limits: Limits, size: u32, worse: u32) -> Self {
        let worse = if worse < size { (Some(worse), None) } else { (None, Some(worse)) };
        Self { worse, ..Self::new(limits, size) }
    }

    pub fn anchor(&self) -> u32 {
        self.anchor
    }

    /// The smallest size that does as much as the best: what the pool is to have when the search is over.
    pub fn result(&self) -> u32 {
        self.low
    }

    pub fn trials(&self) -> u32 {
        self.trials
    }

    /// The size to be tried beside the anchor; `None`: the search is over.
    pub fn next(&mut self) -> Option<u32> {
        if self.trials >= MAX_TRIALS {
            return None;
        }
        if !self.down.done {
            let next = match self.worse.0 {
                Some(worse) => between(worse, self.low),
                None => self.below(self.down.far.unwrap_or(self.low)),
            };
            if next.is_some() {
                return next;
            }
            self.down.done = true;
        }
        if !self.up.done {
            let next = match self.worse.1 {
                Some(worse) => between(self.anchor, worse),
                None => self.above(self.up.far.unwrap_or(self.anchor)),
            };
            if next.is_some() {
                return next;
            }
            self.up.done = true;
        }
        between(self.low, self.anchor).filter(|_| !self.hump)
    }

    /// What came of a trial of this size beside the anchor. Trials that were broken off count, too, so that there is an
    /// end.
    pub fn tell(&mut self, size: u32, outcome: Reason) {
        self.trials += 1;
        let fewer = size < self.anchor;
        if fewer && size > self.low {
            self.hump = true;
            if outcome == Reason::Better {
                self.worse = (Some(self.low), Some(self.anchor));
                (self.anchor, self.low) = (size, size);
                (self.down.done, self.up.done) = (false, false);
            }
            return;
        }
        match (outcome, fewer) {
            (Reason::Better, true) => {
                self.worse.1 = Some(self.anchor);
                (self.anchor, self.low) = (size, size);
                self.down.paid();
                self.up = Side::default();
            }
            (Reason::Better, false) => {
                self.worse.0 = Some(self.anchor);
                (self.anchor, self.low) = (size, size);
                self.up.paid();
                self.down = Side::default();
            }
            (Reason::Alike, _) => {
                (self.low, self.hump) = (size, false);
                self.down.paid();
            }
            (Reason::Worse | Reason::Errors, true) => (self.worse.0, self.down.far) = (Some(size), None),
            (Reason::Worse | Reason::Errors, false) => (self.worse.1, self.up.far) = (Some(size), None),
            (Reason::Unclear | Reason::NoGain, true) if self.worse.0.is_some() || self.down.leapt() => {
                self.worse.0 = Some(size)
            }
            (Reason::Unclear | Reason::NoGain, false) if self.worse.1.is_some() || self.up.leapt() => {
                self.worse.1 = Some(size)
            }
            (Reason::Unclear | Reason::NoGain, true) => self.down.missed(size),
            (Reason::Unclear | Reason::NoGain, false) => self.up.missed(size),
            _ => {}
        }
    }

    fn below(&self, size: u32) -> Option<u32> {
        let next = (f64::from(size) / REACH[self.down.reach]) as u32;
        (size > self.limits.least).then(|| self.limits.clamp(next.min(size - 1)))
    }

    fn above(&self, size: u32) -> Option<u32> {
        let next = (f64::from(size) * REACH[self.up.reach]).ceil() as u32;
        (size < self.limits.most).then(|| self.limits.clamp(next.max(size + 1)))
    }
}

/// The size halfway in ratio; `None`: they lie close.
fn between(low: u32, high: u32) -> Option<u32> {
    let (least, most) = (f64::from(low), f64::from(high));
    let middle = (least * most).sqrt().round() as u32;
    (high > low + 1 && most > CLOSE * least).then(|| middle.clamp(low + 1, high - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const LIMITS: Limits = Limits { least: 1, most: 60, window: Duration::from_secs(4) };

    /// A search without noise, through a database with this throughput.
    fn searched(from: u32, throughput: impl Fn(u32) -> f64) -> (u32, Vec<u32>) {
        let mut search = Search::new(LIMITS, from);
        let mut tried = Vec::new();
        while let Some(size) = search.next() {
            assert!((1..=60).contains(&size) && size != search.anchor(), "{size} beside {}", search.anchor());
            tried.push(size);
            let gain = throughput(size) / throughput(search.anchor()) - 1.0;
            let outcome = match (size < search.anchor(), gain) {
                (_, gain) if gain > 0.01 => Reason::Better,
                (_, gain) if gain < -0.02 => Reason::Worse,
                (true, _) => Reason::Alike,
                (false, _) => Reason::NoGain,
            };
            search.tell(size, outcome);
        }
        (search.result(), tried)
    }

    #[test]
    fn from_anywhere_it_comes_close_to_a_peak_wherever_that_is() {
        for best in 1..=60 {
            let throughput = |n: u32| {
                let ratio = f64::from(n) / f64::from(best);
                1000.0 * ratio / (1.0 + ratio * ratio)
            };
            for from in [1, 5, 20, 40, 60] {
                let (found, tried) = searched(from, throughput);
                let regret = 1.0 - throughput(found) / throughput(best);
                // The 2% of fewer servers that count as doing as much, and what lies between neighbours.
                assert!(regret < 0.045, "from {from} to {found}, best {best}: {regret}, by {tried:?}");
                assert!(tried.len() <= MAX_TRIALS as usize - 2, "{tried:?}");
            }
        }
    }

    #[test]
    fn of_sizes_that_do_as_much_it_takes_a_small_one() {
        for knee in [1, 2, 4, 7, 12, 30] {
            let (found, tried) = searched(20, |n| 100.0 * f64::from(n.min(knee)));
            assert!(found >= knee && f64::from(found) <= 1.3 * f64::from(knee) + 1.0, "{found} of {knee} by {tried:?}");
        }
        assert_eq!(searched(20, |_| 100.0).0, 1);
    }

    #[test]
    fn the_first_steps_are_small_and_it_stays_within_the_bounds() {
        let (found, tried) = searched(20, |n| 100.0 * f64::from(n));
        assert_eq!((found, &tried[..2]), (60, &[16, 25][..]), "{tried:?}");
    }

    #[test]
    fn where_nothing_can_be_told_it_stays_and_ends_soon() {
        let mut search = Search::new(LIMITS, 20);
        let mut tried = Vec::new();
        while let Some(size) = search.next() {
            tried.push(size);
            search.tell(size, Reason::Unclear);
        }
        assert_eq!((search.result(), tried), (20, vec![16, 10, 25, 40]));
    }

    #[test]
    fn trials_that_are_broken_off_come_to_an_end() {
        let mut search = Search::new(LIMITS, 20);
        let tried = std::iter::from_fn(|| {
            let size = search.next()?;
            search.tell(size, Reason::NoDemand);
            Some(size)
        });
        assert_eq!(tried.count(), MAX_TRIALS as usize);
    }
}
