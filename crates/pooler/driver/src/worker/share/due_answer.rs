//! Whether a shared server owes an answer, and for how long.

use std::time::Duration;

use pool::Time;

/// Whether a shared server owes an answer, and since when.
#[derive(Clone, Copy, Default)]
pub(in crate::worker) struct DueAnswer {
    since: Option<Time>,
    overdue: bool,
    /// When the last overdue answer came.
    overdue_until: Option<Time>,
}

/// What it meant that a server answered.
#[derive(Debug)]
pub(in crate::worker) struct Answered {
    /// How long an answer had been due, if one was.
    pub(in crate::worker) took: Option<Duration>,
    pub(in crate::worker) was_overdue: bool,
}

impl DueAnswer {
    /// Something was sent to the server.
    pub(super) fn begin(&mut self, now: Time) {
        self.since.get_or_insert(now);
    }

    /// The server says something: what was due has come, and what else its clients wait for is due from now on.
    pub(in crate::worker) fn end(&mut self, now: Time) -> Answered {
        let took = self.since.replace(now).map(|since| now - since);
        let was_overdue = std::mem::take(&mut self.overdue);
        if was_overdue {
            self.overdue_until = Some(now);
        }
        Answered { took, was_overdue }
    }

    /// Notes whether the answer has been due for longer than `limit`.
    pub(in crate::worker) fn check(&mut self, now: Time, limit: Duration) {
        self.overdue |= self.since.is_some_and(|since| now - since >= limit);
    }

    pub(super) fn is_overdue(&self) -> bool {
        self.overdue
    }

    /// Since when a client that came at `since` has waited for other clients, and not for an overdue answer.
    pub(in crate::worker) fn others_since(&self, since: Time) -> Time {
        self.overdue_until.map_or(since, |until| until.max(since))
    }
}
