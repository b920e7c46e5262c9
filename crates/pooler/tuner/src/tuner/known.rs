//! What is worth keeping of a tuner whose process ends, and how another one goes on with it. Keeps it nowhere.

use std::time::Duration;

use pool::Time;

use super::{Before, Found, LASTS, Stage, Tuner};
use crate::{limits::Limits, search::Search};

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Known {
    pub size: u32,
    /// The search for it is over.
    pub found: bool,
    /// The size that the pool had before: what it gets back if errors rise. The same as `size` if there was no other.
    pub before: u32,
    /// Errors at that time, as a part of all that ended.
    pub errors: f64,
    /// The mean hold with the size that was found, under demand, if that was measured. Throughput is not among what is
    /// known: while the process before lets its clients finish, the next one has only a part of them; holds do not
    /// depend on that.
    pub hold: Option<Duration>,
    /// How long ago the size was found, or last was better than its neighbours.
    pub age: Duration,
}

impl Tuner {
    /// Goes on with what another one knew of the same pool. It watches a size that was found for ten minutes before it
    /// tries the neighbours, and goes back to the one before if errors rise. It searches, from the best size so far, if
    /// nothing was found, if the limits do not allow what was, or if that is more than 90 minutes ago: under demand the
    /// neighbours would have been tried by then, so nobody knows whether it still holds.
    pub fn resumed(limits: Limits, known: Known, now: Time) -> Self {
        let mut tuner = Self::new(limits, known.size);
        let size = tuner.size;
        // A search that begins anew has nothing before it.
        if size != known.size || known.found && known.age > LASTS {
            return tuner;
        }
        let errors = if known.errors.is_finite() { known.errors.clamp(0.0, 1.0) } else { 0.0 };
        let before = Before { size: limits.clamp(known.before), errors };
        tuner.stage = match known.found {
            false => Stage::searching(Search::new(limits, size), before),
            true => {
                let hold = known.hold.filter(|hold| !hold.is_zero());
                Stage::Found(Found { aged: known.age, hold, ..Found::new(before, now, tuner.rest) })
            }
        };
        tuner
    }

    /// What another one can go on with. A size that is only being tried is not known to be good.
    pub fn known(&self, now: Time) -> Known {
        let size = self.known_best();
        match &self.stage {
            Stage::Searching(searching) => {
                let Before { size: before, errors } = searching.before;
                let (size, age) = (searching.search.anchor(), Duration::ZERO);
                Known { size, found: false, before, errors, hold: None, age }
            }
            Stage::Found(found) => {
                let Before { size: before, errors } = found.before;
                let own = found.level.filter(|level| level.completed > 0).map(|level| level.hold());
                Known { size, found: true, before, errors, hold: found.hold.or(own), age: found.age(now) }
            }
        }
    }
}
