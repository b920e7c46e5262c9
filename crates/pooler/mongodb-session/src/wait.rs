//! The time that a request has spent waiting.

use std::time::Duration;

#[derive(Clone, Copy, Default, Debug)]
pub struct Wait {
    /// When it began to wait, for a host or for a server.
    since: Option<Duration>,
    /// The time spent in the queues of hosts that were up.
    in_queues_ms: u32,
}

impl Wait {
    /// Starts the wait unless it has begun. Returns when it began.
    pub fn begin(&mut self, now: Duration) -> Duration {
        *self.since.get_or_insert(now)
    }

    /// When the wait began, if that was before `now`.
    pub fn begun_before(self, now: Duration) -> Option<Duration> {
        self.since.filter(|since| *since < now)
    }

    pub fn elapsed(self, now: Duration) -> Duration {
        self.since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    /// What remains of `limit` for waiting in queues.
    pub fn remaining(self, limit: Duration) -> Duration {
        limit.saturating_sub(Duration::from_millis(self.in_queues_ms.into()))
    }

    /// The request leaves the queue of a pool, in which it could have stayed until `until`.
    pub fn note_left_queue(&mut self, limit: Duration, until: Option<Duration>, now: Duration) {
        let Some(since) = self.since else { return };
        let left = until.unwrap_or(since + limit).saturating_sub(now);
        self.in_queues_ms = limit.saturating_sub(left).as_millis().try_into().unwrap_or(u32::MAX);
    }
}
