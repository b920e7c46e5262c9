//! What happened in a pool, in the words of MongoDB's Connection Monitoring and Pooling specification (CMAP), and a
//! bounded record of it.

use alloc::collections::VecDeque;
use core::time::Duration;

/// Unread events beyond which the oldest are dropped and counted.
pub const MAX_EVENTS: usize = 4096;

/// One thing that happened in a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    PoolCreated,
    PoolReady,
    /// Servers of earlier generations are stale.
    PoolCleared,
    PoolClosed,
    ConnectionCreated,
    ConnectionReady {
        /// From its order to its end.
        duration: Duration,
    },
    /// A connection was ordered to close, or is gone.
    ConnectionClosed {
        reason: Closed,
    },
    CheckOutStarted,
    CheckOutFailed {
        reason: CheckOutFailed,
        /// From the check-out to its failure.
        duration: Duration,
    },
    CheckedOut {
        path: Path,
        /// From the check-out to its grant.
        duration: Duration,
    },
    CheckedIn,
}

/// Where a granted server came from. These are three causes of delay, which are measured apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Path {
    /// An idle server was there.
    Idle,
    /// A connection was made.
    Created,
    /// Another client checked it in, or its check ended.
    Queued,
}

impl Path {
    /// The name in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Created => "created",
            Self::Queued => "queued",
        }
    }
}

/// Why a server's connection was closed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Closed {
    /// The pool was cleared after it was made.
    Stale,
    /// It was idle for longer than `max_idle_time`.
    Idle,
    /// Its life has ended.
    Life,
    /// It failed: while connecting, in a check, or later.
    Error,
    /// The budget took it back.
    Reclaimed,
    /// `max_size` was lowered.
    Shrunk,
    PoolClosed,
    /// It was checked in as not usable, or made room for a new connection.
    Discarded,
    /// A clear interrupted it while it was in use.
    Interrupted,
}

impl Closed {
    /// All reasons, for tables of counters.
    pub const ALL: [Self; 9] = [
        Self::Stale,
        Self::Idle,
        Self::Life,
        Self::Error,
        Self::Reclaimed,
        Self::Shrunk,
        Self::PoolClosed,
        Self::Discarded,
        Self::Interrupted,
    ];

    /// The name in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stale => "stale",
            Self::Idle => "idle",
            Self::Life => "life",
            Self::Error => "error",
            Self::Reclaimed => "reclaimed",
            Self::Shrunk => "shrunk",
            Self::PoolClosed => "pool_closed",
            Self::Discarded => "discarded",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Why a check-out got no server.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CheckOutFailed {
    PoolClosed,
    /// The pool was cleared with `fail_waiters`.
    PoolCleared,
    /// All servers were busy for `max_wait_time`.
    Timeout,
    /// No connection could be made for `unavailable_wait_time`.
    Unavailable,
    /// The upstream refused a connection, and would refuse the next one.
    Refused,
    /// The upstream does not know the name.
    Unknown,
    /// There were `max_waiters` waiters.
    QueueFull,
    /// The pool is paused. If it holds waiters, they fail after `unavailable_wait_time`.
    Paused,
}

impl CheckOutFailed {
    /// All reasons, for tables of counters.
    pub const ALL: [Self; 8] = [
        Self::PoolClosed,
        Self::PoolCleared,
        Self::Timeout,
        Self::Unavailable,
        Self::Refused,
        Self::Unknown,
        Self::QueueFull,
        Self::Paused,
    ];

    /// The name in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PoolClosed => "pool_closed",
            Self::PoolCleared => "pool_cleared",
            Self::Timeout => "timeout",
            Self::Unavailable => "unavailable",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
            Self::QueueFull => "queue_full",
            Self::Paused => "paused",
        }
    }
}

/// The record of events.
#[derive(Debug)]
pub(crate) struct Events {
    on: bool,
    queue: VecDeque<Event>,
    dropped: u64,
}

impl Events {
    /// A record that is off and has the pool's creation, which comes before a caller can turn it on.
    pub(crate) fn new() -> Self {
        Self { on: false, queue: VecDeque::from([Event::PoolCreated]), dropped: 0 }
    }

    pub(crate) fn record(&mut self, on: bool) {
        self.on = on;
        if !on {
            self.queue = VecDeque::new();
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, event: Event) {
        if self.on {
            self.store(event);
        }
    }

    #[cold]
    fn store(&mut self, event: Event) {
        if self.queue.len() == MAX_EVENTS {
            self.queue.pop_front();
            self.dropped += 1;
        }
        self.queue.push_back(event);
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        self.queue.pop_front()
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_creation_is_recorded_before_recording_is_on() {
        let mut events = Events::new();
        events.push(Event::PoolReady);
        assert_eq!(events.pop(), Some(Event::PoolCreated));
        assert_eq!(events.pop(), None);
    }

    #[test]
    fn a_full_record_drops_and_counts_its_oldest_events() {
        let mut events = Events::new();
        events.record(true);
        for _ in 0..MAX_EVENTS + 1 {
            events.push(Event::CheckedIn);
        }
        assert_eq!(events.dropped(), 2);
        assert_eq!(events.pop(), Some(Event::CheckedIn));
    }

    #[test]
    fn no_two_reasons_share_a_name() {
        for (i, a) in Closed::ALL.iter().enumerate() {
            assert!(Closed::ALL[i + 1..].iter().all(|b| a.as_str() != b.as_str()));
        }
        for (i, a) in CheckOutFailed::ALL.iter().enumerate() {
            assert!(CheckOutFailed::ALL[i + 1..].iter().all(|b| a.as_str() != b.as_str()));
        }
    }
}
