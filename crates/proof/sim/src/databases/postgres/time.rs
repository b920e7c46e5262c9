//! What happens to a session by itself, or because of others: sleeps end, locks are got, time-outs pass, statements are
//! cancelled.

use std::time::Duration;

use super::{
    failure::Failure,
    session::{Block, Running, Session, Stage, Wait},
    shared::Shared,
    values::Value,
};

/// PostgreSQL's `deadlock_timeout`.
const DEADLOCK_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Lock,
    Statement,
    Deadlock,
    Woken,
    Idle,
}

impl Session {
    pub(super) fn due(&self) -> Option<Duration> {
        self.next().map(|(when, _)| when)
    }

    fn next(&self) -> Option<(Duration, Event)> {
        let mut events = Vec::new();
        let after = |since: Duration, name: &str| {
            let limit = self.settings.milliseconds(name);
            (limit > 0).then(|| since + Duration::from_millis(limit))
        };
        match &self.wait {
            Some(Wait::Sleep(until)) => events.push((*until, Event::Woken)),
            Some(Wait::Lock { since, looked, .. }) => {
                events.extend(after(*since, "lock_timeout").map(|when| (when, Event::Lock)));
                events.extend((!looked).then_some((*since + DEADLOCK_TIMEOUT, Event::Deadlock)));
            }
            None => {}
        }
        if let Some(since) = self.statement_since {
            events.extend(after(since, "statement_timeout").map(|when| (when, Event::Statement)));
        }
        if let Some(since) = self.idle_since.filter(|_| self.stage == Stage::Ready) {
            let name = match self.block {
                Block::Idle => "idle_session_timeout",
                _ => "idle_in_transaction_session_timeout",
            };
            events.extend(after(since, name).map(|when| (when, Event::Idle)));
        }
        events.into_iter().min()
    }

    pub(super) fn tick(&mut self, shared: &mut Shared) {
        let Some((_, event)) = self.next().filter(|(when, _)| *when <= self.now) else { return };
        match event {
            Event::Woken => {
                self.wait = None;
                self.got(Value::Void);
            }
            Event::Lock => self.interrupt(shared, Failure::new("55P03", "canceling statement due to lock timeout")),
            Event::Statement => {
                self.interrupt(shared, Failure::new("57014", "canceling statement due to statement timeout"));
            }
            Event::Deadlock if shared.is_deadlocked(self.me) => {
                let hint = "See server log for query details.";
                self.interrupt(shared, Failure::new("40P01", "deadlock detected").hint(hint));
            }
            Event::Deadlock => {
                if let Some(Wait::Lock { looked, .. }) = &mut self.wait {
                    *looked = true;
                }
            }
            Event::Idle if self.block == Block::Idle => {
                self.end_with(Failure::new("57P05", "terminating connection due to idle-session timeout"));
            }
            Event::Idle => {
                self.end_with(Failure::new("25P03", "terminating connection due to idle-in-transaction timeout"));
            }
        }
    }

    /// The statement that waits does so no more.
    fn interrupt(&mut self, shared: &mut Shared, failure: Failure) {
        shared.leave_queues(self.me);
        let failure = if self.copying.is_some() { self.in_line(failure, None) } else { failure };
        self.fail(shared, &failure);
    }

    /// Cancels the running statement; returns whether there was one.
    pub(super) fn cancel(&mut self, shared: &mut Shared) -> bool {
        let waits = self.wait.is_some() || self.copying.is_some();
        if waits {
            self.interrupt(shared, Failure::new("57014", "canceling statement due to user request"));
        }
        waits
    }

    /// It has got the lock that it has waited for.
    pub(super) fn got_lock(&mut self) {
        if let Some(Wait::Lock { key, of_transaction, .. }) = self.wait.take() {
            if of_transaction {
                self.transaction.locks.push(key);
            }
            self.got(Value::Void);
        }
    }

    /// What has been waited for is there.
    fn got(&mut self, value: Value) {
        match &mut self.running {
            Some(Running::Query(query)) => {
                if let Some(progress) = query.progress() {
                    progress.push(value);
                }
            }
            Some(Running::Portal { progress, .. }) => progress.push(value),
            None => {}
        }
    }
}
