//! What is worth keeping of a tuner whose process ends, and how another one goes on with it. Keeps it nowhere.

use pool::Time;

use super::{Before, Found, Stage, Tuner};
use crate::limits::Limits;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    /// The best size so far.
    pub size: u32,
    /// The search for it is over.
    pub found: bool,
}

impl Tuner {
    /// Goes on with what another one knew of the same pool. It searches if that had found nothing, or if the limits do not allow it.
    pub fn resumed(limits: Limits, known: Known, now: Time) -> Self {
        let mut tuner = Self::new(limits, known.size);
        if known.found && tuner.size == known.size {
            tuner.stage = Stage::Found(Found::new(Before { size: known.size, errors: 0.0 }, now, tuner.rest));
        }
        tuner
    }

    /// What another one can go on with. A size that is only being tried is not known to be good.
    pub fn known(&self) -> Known {
        match (&self.stage, &self.trial) {
            (Stage::Searching(searching), _) => Known { size: searching.search.anchor(), found: false },
            (Stage::Found(_), Some(trial)) => Known { size: trial.present(), found: true },
            (Stage::Found(_), None) => Known { size: self.size, found: true },
        }
    }
}
