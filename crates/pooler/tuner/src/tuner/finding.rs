//! What a tuner whose process ends knows, and how another one resumes with it.

use std::time::Duration;

use pool::Time;

use super::{Baseline, Found, MAX_AGE, Stage, Tuner};
use crate::{limits::Limits, search::Search};

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Finding {
    pub size: u32,
    /// The search has ended.
    pub found: bool,
    /// The size that the pool had before, and gets back if errors rise. It is `size` if there was no other.
    pub before: u32,
    /// Errors with the size `before`, as a fraction of all holds and errors.
    pub errors: f64,
    /// The mean hold with the size that was found, under demand, if it was measured. Throughput is not resumed: while
    /// the process before lets its clients finish, the next one has only some of them. Holds do not depend on that.
    pub hold: Option<Duration>,
    /// The time since the size was found, or was last better than its neighbours.
    pub age: Duration,
}

impl Tuner {
    /// Resumes with what another tuner knew of the same pool. It watches a size that was found for ten minutes before
    /// it tries the neighbours, and goes back to the one before if errors rise. It searches from the best size so far
    /// if no size was found, if the limits do not allow it, or if it was found more than 90 minutes ago: with demand,
    /// the neighbours would have been tried since.
    pub fn resumed(limits: Limits, finding: Finding, now: Time) -> Self {
        let mut tuner = Self::new(limits, finding.size);
        let size = tuner.size;
        // A new search has no size before it.
        if size != finding.size || finding.found && finding.age > MAX_AGE {
            return tuner;
        }
        let errors = if finding.errors.is_finite() { finding.errors.clamp(0.0, 1.0) } else { 0.0 };
        let before = Baseline { size: limits.clamp(finding.before), errors };
        tuner.stage = match finding.found {
            false => Stage::searching(Search::new(limits, size), before),
            true => {
                let hold = finding.hold.filter(|hold| !hold.is_zero());
                Stage::Found(Found { age_at_start: finding.age, hold, ..Found::new(before, now, tuner.rest) })
            }
        };
        tuner
    }

    /// What another tuner can resume with. A size that is only being tried is not included.
    pub fn finding(&self, now: Time) -> Finding {
        let size = self.best_known_size();
        match &self.stage {
            Stage::Searching(searching) => {
                let Baseline { size: before, errors } = searching.before;
                let (size, age) = (searching.search.anchor(), Duration::ZERO);
                Finding { size, found: false, before, errors, hold: None, age }
            }
            Stage::Found(found) => {
                let Baseline { size: before, errors } = found.before;
                let own = found.first_window.filter(|window| window.completed > 0).map(|window| window.mean_hold());
                Finding { size, found: true, before, errors, hold: found.hold.or(own), age: found.age(now) }
            }
        }
    }
}
