//! When the hosts are checked, and what a monitor is asked to do.

use std::time::Duration;

/// Time between two checks of a host (`heartbeatFrequencyMS`).
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum time between two checks of a host (`minHeartbeatFrequencyMS`), and between two notifications of clients.
pub const MIN_HEARTBEAT_INTERVAL: Duration = Duration::from_millis(100);

/// How long hosts are checked at the minimum interval after a primary was lost. MongoDB elects another within 12
/// seconds (`electionTimeoutMillis` is 10 seconds).
const PRIMARY_SEARCH_TIME: Duration = Duration::from_secs(20);

/// What a monitor is asked to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckRequest {
    /// To check its host, unless a check is under way.
    Scheduled = 0,
    /// To check its host. If a check is under way, its result may be out of date: the host is checked again.
    Immediate = 1,
    /// To check its host again if a check is under way, whose result may be out of date.
    Repeat = 2,
}

impl CheckRequest {
    pub fn read(bytes: &[u8]) -> Self {
        match bytes {
            [1, ..] => Self::Immediate,
            [2, ..] => Self::Repeat,
            _ => Self::Scheduled,
        }
    }
}

#[derive(Default)]
pub struct CheckSchedule {
    next: Duration,
    last: Duration,
    /// When the replica set lost its primary, while it has none.
    primary_lost: Option<Duration>,
}

impl CheckSchedule {
    pub fn is_due(&self, now: Duration) -> bool {
        now >= self.next
    }

    /// Moves the next check as near as the minimum interval allows.
    pub fn hasten(&mut self) {
        self.next = self.next.min(self.last + MIN_HEARTBEAT_INTERVAL);
    }

    pub fn begin(&mut self, now: Duration) {
        let seeks_primary = self.primary_lost.is_some_and(|lost| now < lost + PRIMARY_SEARCH_TIME);
        self.last = now;
        self.next = now + if seeks_primary { MIN_HEARTBEAT_INTERVAL } else { HEARTBEAT_INTERVAL };
    }

    /// The replica set had a primary before or not, and has one now or not.
    pub fn note_primary(&mut self, had_primary: bool, has_primary: bool, now: Duration) {
        if has_primary {
            self.primary_lost = None;
        } else if had_primary {
            self.primary_lost = Some(now);
        }
    }
}
