//! Which size is tried next, until no better one can be left. It assumes that throughput rises up to some size, and
//! then falls or stays. The first steps from the present size are small, and become larger while they pay. Behind a
//! step that was too large, the size halfway in ratio is tried, until the neighbours are close. Fewer servers come
//! first, which is safer for the database. It knows no measurement and no time.

use crate::{evidence::Reason, limits::Limits};

/// The ratios of a size to the last one, for successive steps.
const STEP_RATIOS: [f64; 3] = [1.25, 1.6, 2.0];
/// Between sizes whose ratio is at most this, no size is tried.
const MIN_TRIED_RATIO: f64 = 1.25;
/// Successive trials without a decision on one side after which that side is done.
const MAX_UNDECIDED_ON_A_SIDE: u32 = 2;
/// The most trials of one search.
pub const MAX_TRIALS: u32 = 24;

#[derive(Clone, Debug)]
pub struct Search {
    limits: Limits,
    /// The best size so far. Each candidate is tried beside it.
    anchor: u32,
    /// The smallest size that does as much as the anchor.
    low: u32,
    /// The nearest sizes that are known to be worse, below `low` and above `anchor`.
    worse: (Option<u32>, Option<u32>),
    down: Side,
    up: Side,
    /// A size between `low` and `anchor` was tried: if both do as much, the peak may be between them.
    tried_between: bool,
    trials: u32,
}

/// One direction of the search.
#[derive(Clone, Copy, Debug, Default)]
struct Side {
    done: bool,
    step: usize,
    /// The last size that was tried without a decision.
    undecided_at: Option<u32>,
    undecided: u32,
}

impl Side {
    fn advance(&mut self) {
        *self = Self { step: (self.step + 1).min(STEP_RATIOS.len() - 1), ..Self::default() };
    }

    /// Whether the last step was a large one after others that paid. It may have passed the best size.
    fn stepped_far(&self) -> bool {
        self.undecided == 0 && self.step > 0
    }

    /// A trial of this size ended without a decision.
    fn note_undecided(&mut self, at: u32) {
        self.undecided += 1;
        self.undecided_at = Some(at);
        self.step = (self.step + 1).min(STEP_RATIOS.len() - 1);
        self.done |= self.undecided >= MAX_UNDECIDED_ON_A_SIDE;
    }
}

impl Search {
    /// A search that begins at this size.
    pub fn new(limits: Limits, size: u32) -> Self {
        let (down, up) = Default::default();
        Self { limits, anchor: size, low: size, worse: (None, None), down, up, tried_between: false, trials: 0 }
    }

    /// A search that begins at a size which was just found to be better than another one.
    pub fn after(limits: Limits, size: u32, worse: u32) -> Self {
        let worse = if worse < size { (Some(worse), None) } else { (None, Some(worse)) };
        Self { worse, ..Self::new(limits, size) }
    }

    pub fn anchor(&self) -> u32 {
        self.anchor
    }

    /// The size for the pool when the search ends: the smallest that does as much as the best.
    pub fn result(&self) -> u32 {
        self.low
    }

    pub fn trials(&self) -> u32 {
        self.trials
    }

    /// The next size to try beside the anchor; `None` if the search has ended.
    pub fn next(&mut self) -> Option<u32> {
        if self.trials >= MAX_TRIALS {
            return None;
        }
        if !self.down.done {
            let next = match self.worse.0 {
                Some(worse) => between(worse, self.low),
                None => self.below(self.down.undecided_at.unwrap_or(self.low)),
            };
            if next.is_some() {
                return next;
            }
            self.down.done = true;
        }
        if !self.up.done {
            let next = match self.worse.1 {
                Some(worse) => between(self.anchor, worse),
                None => self.above(self.up.undecided_at.unwrap_or(self.anchor)),
            };
            if next.is_some() {
                return next;
            }
            self.up.done = true;
        }
        between(self.low, self.anchor).filter(|_| !self.tried_between)
    }

    /// The outcome of a trial of this size beside the anchor. Trials that were broken off count, too, so the search
    /// ends.
    pub fn record(&mut self, size: u32, outcome: Reason) {
        self.trials += 1;
        let fewer = size < self.anchor;
        if fewer && size > self.low {
            self.tried_between = true;
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
                self.down.advance();
                self.up = Side::default();
            }
            (Reason::Better, false) => {
                self.worse.0 = Some(self.anchor);
                (self.anchor, self.low) = (size, size);
                self.up.advance();
                self.down = Side::default();
            }
            (Reason::Alike, _) => {
                (self.low, self.tried_between) = (size, false);
                self.down.advance();
            }
            (Reason::Worse | Reason::Errors, true) => (self.worse.0, self.down.undecided_at) = (Some(size), None),
            (Reason::Worse | Reason::Errors, false) => (self.worse.1, self.up.undecided_at) = (Some(size), None),
            (Reason::Unclear | Reason::NoGain, true) if self.worse.0.is_some() || self.down.stepped_far() => {
                self.worse.0 = Some(size)
            }
            (Reason::Unclear | Reason::NoGain, false) if self.worse.1.is_some() || self.up.stepped_far() => {
                self.worse.1 = Some(size)
            }
            (Reason::Unclear | Reason::NoGain, true) => self.down.note_undecided(size),
            (Reason::Unclear | Reason::NoGain, false) => self.up.note_undecided(size),
            _ => {}
        }
    }

    fn below(&self, size: u32) -> Option<u32> {
        let next = (f64::from(size) / STEP_RATIOS[self.down.step]) as u32;
        (size > self.limits.min).then(|| self.limits.clamp(next.min(size - 1)))
    }

    fn above(&self, size: u32) -> Option<u32> {
        let next = (f64::from(size) * STEP_RATIOS[self.up.step]).ceil() as u32;
        (size < self.limits.max).then(|| self.limits.clamp(next.max(size + 1)))
    }
}

/// The size halfway in ratio; `None` if the two are close.
fn between(low: u32, high: u32) -> Option<u32> {
    let (least, most) = (f64::from(low), f64::from(high));
    let middle = (least * most).sqrt().round() as u32;
    (high > low + 1 && most > MIN_TRIED_RATIO * least).then(|| middle.clamp(low + 1, high - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const LIMITS: Limits = Limits { min: 1, max: 60, window: Duration::from_secs(4) };

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
            search.record(size, outcome);
        }
        (search.result(), tried)
    }

    #[test]
    fn a_search_from_any_size_ends_close_to_the_peak() {
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
    fn of_sizes_that_do_as_much_a_small_one_is_chosen() {
        for knee in [1, 2, 4, 7, 12, 30] {
            let (found, tried) = searched(20, |n| 100.0 * f64::from(n.min(knee)));
            assert!(found >= knee && f64::from(found) <= 1.3 * f64::from(knee) + 1.0, "{found} of {knee} by {tried:?}");
        }
        assert_eq!(searched(20, |_| 100.0).0, 1);
    }

    #[test]
    fn the_first_steps_are_small_and_all_stay_within_the_limits() {
        let (found, tried) = searched(20, |n| 100.0 * f64::from(n));
        assert_eq!((found, &tried[..2]), (60, &[16, 25][..]), "{tried:?}");
    }

    #[test]
    fn without_decisions_the_search_ends_soon_at_its_first_size() {
        let mut search = Search::new(LIMITS, 20);
        let mut tried = Vec::new();
        while let Some(size) = search.next() {
            tried.push(size);
            search.record(size, Reason::Unclear);
        }
        assert_eq!((search.result(), tried), (20, vec![16, 10, 25, 40]));
    }

    #[test]
    fn a_search_of_broken_off_trials_ends() {
        let mut search = Search::new(LIMITS, 20);
        let tried = std::iter::from_fn(|| {
            let size = search.next()?;
            search.record(size, Reason::NoDemand);
            Some(size)
        });
        assert_eq!(tried.count(), MAX_TRIALS as usize);
    }
}
