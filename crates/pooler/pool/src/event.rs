//! What happened, in the vocabulary of MongoDB's Connection Monitoring and Pooling specification (CMAP), and a bounded
//! record of it. Knows nothing of how things happen, and nobody who reads it.

use alloc::collections::VecDeque;
use core::time::Duration;

/// How many events wait to be read; beyond that the oldest are dropped and counted.
pub const MAX_EVENTS: usize = 4096;

/// One thing that happened in a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The pool exists; it is paused.
    PoolCreated,
    /// The pool grants and connects from now on.
    PoolReady,
    /// The generation went up: servers of earlier ones are stale.
    PoolCleared,
    /// The pool is closed for ever.
    PoolClosed,
    /// A connection was ordered.
    ConnectionCreated,
    /// A connection finished its start-up.
    ConnectionReady {
        /// From the order to the end of the start-up.
        duration: Duration,
    },
    /// A connection was ordered to close, or is gone.
    ConnectionClosed {
        reason: Closed,
    },
    /// Somebody asked for a server.
    CheckOutStarted,
    /// Somebody got none.
    CheckOutFailed {
        reason: CheckOutFailed,
        /// From asking to failing.
        duration: Duration,
    },
    CheckedOut {
        path: Path,
        /// From asking to getting.
        duration: Duration,
    },
    CheckedIn,
}

/// Where a granted server came from: three causes of delay that are measured apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Path {
    /// An idle one was there at once.
    Idle,
    /// A new connection was made and went to the waiter.
    Created,
    /// Somebody else checked it in, or its check ended, while the waiter was waiting.
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
    /// Unused for longer than `max_idle_time`.
    Idle,
    /// Older than its life time.
    Life,
    /// It failed: while connecting, in a check, or later.
    Error,
    /// The budget took it back.
    Reclaimed,
    /// `max_size` was lowered.
    Shrunk,
    PoolClosed,
    /// Its user said it must not be used again.
    Discarded,
    /// It was cut while in use, by a clear that interrupts.
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
    /// The pool was cleared, and its waiters with it.
    PoolCleared,
    /// All servers were busy for `max_wait_time`.
    Timeout,
    /// No connection could be made for `unavailable_wait_time`.
    Unavailable,
    /// The upstream refused a connection in a way that trying again will not cure.
    Refused,
    /// The upstream knows nothing under the name that was asked for.
    Unknown,
    /// `max_waiters` were waiting already.
    QueueFull,
    /// The pool is paused: at once if it fails waiters, after `unavailable_wait_time` if it holds them.
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

/// The record: off until asked for, and never longer than [`MAX_EVENTS`].
#[derive(Debug)]
pub(crate) struct Events {
    on: bool,
    queue: VecDeque<Event>,
    dropped: u64,
}

impl Events {
    /// Off, but holding the pool's creation, which nobody could have asked for beforehand.
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
    fn nothing_but_the_creation_is_kept_until_recording_is_asked_for() {
        let mut events = Events::new();
        events.push(Event::PoolReady);
        assert_eq!(events.pop(), Some(Event::PoolCreated));
        assert_eq!(events.pop(), None);
    }

    #[test]
    fn a_full_record_drops_the_oldest_and_counts_it() {
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
