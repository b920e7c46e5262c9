//! How long a request has waited.

use std::time::Duration;

/// How long the request of a client has waited so far.
#[derive(Clone, Copy, Default, Debug)]
pub struct Wait {
    /// When it began to wait, for a host or for a server.
    since: Option<Duration>,
    /// Milliseconds for which it has waited for servers of hosts that were up.
    for_servers: u32,
}

impl Wait {
    /// It waits now, if it did not before. Returns since when.
    pub fn begin(&mut self, now: Duration) -> Duration {
        *self.since.get_or_insert(now)
    }

    /// Since when it has waited, if it has not only just begun.
    pub fn begun_before(self, now: Duration) -> Option<Duration> {
        self.since.filter(|since| *since < now)
    }

    pub fn elapsed(self, now: Duration) -> Duration {
        self.since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    /// What is left of the time for which it may wait for servers.
    pub fn left(self, limit: Duration) -> Duration {
        limit.saturating_sub(Duration::from_millis(self.for_servers.into()))
    }

    /// It leaves the queue of a pool, where it might have waited `until` then.
    pub fn note_queue_left(&mut self, limit: Duration, until: Option<Duration>, now: Duration) {
        let Some(since) = self.since else { return };
        let left = until.unwrap_or(since + limit).saturating_sub(now);
        self.for_servers = limit.saturating_sub(left).as_millis().try_into().unwrap_or(u32::MAX);
    }
}
