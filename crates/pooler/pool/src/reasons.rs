//! Where grants come from, and why servers close and check-outs fail: labels of metrics and words of logs.

/// Where a granted server came from. These are three causes of delay, which are measured apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GrantSource {
    /// An idle server was there.
    Idle,
    /// A connection was made.
    Created,
    /// Another client checked it in, or its check ended.
    Queued,
}

impl GrantSource {
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
    /// The upstream does not know the database.
    UnknownDatabase,
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
        Self::UnknownDatabase,
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
            Self::UnknownDatabase => "unknown",
            Self::QueueFull => "queue_full",
            Self::Paused => "paused",
        }
    }
}
