//! Waits of a session: sleeps end, locks are granted, statements are cancelled.

use std::time::Duration;

use super::{
    failure::Failure,
    session::{Running, Session, Wait},
    shared::Shared,
    values::Value,
};

impl Session {
    pub(super) fn due(&self) -> Option<Duration> {
        match self.wait {
            Some(Wait::Sleep(until)) => Some(until),
            Some(Wait::Lock { .. }) | None => None,
        }
    }

    pub(super) fn tick(&mut self) {
        if self.due().is_some_and(|due| due <= self.now) {
            self.end_wait();
        }
    }

    /// Cancels the running statement. Returns whether there was one.
    pub(super) fn cancel(&mut self, shared: &mut Shared) -> bool {
        let waits = self.wait.is_some() || self.copying.is_some();
        if waits {
            shared.leave_queues(self.id);
            self.fail(shared, &Failure::new("57014", "canceling statement due to user request"));
        }
        waits
    }

    /// Goes on with the lock that the session has waited for.
    pub(super) fn take_lock(&mut self) {
        if let Some(Wait::Lock { key, of_transaction }) = &self.wait {
            if *of_transaction {
                self.transaction.locks.push(key.clone());
            }
            self.end_wait();
        }
    }

    /// Ends a wait: the function that waited returns.
    fn end_wait(&mut self) {
        self.wait = None;
        match &mut self.running {
            Some(Running::Query(query)) => {
                if let Some(job) = &mut query.job {
                    job.progress.push(Value::Void);
                }
            }
            Some(Running::Portal { progress, .. }) => progress.push(Value::Void),
            None => {}
        }
    }
}
