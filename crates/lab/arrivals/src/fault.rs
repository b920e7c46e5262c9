//! Faults between a client and a server.

use std::time::Duration;

/// A fault that affects bytes on their way.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Fault {
    /// Everything arrives later, in each direction.
    Delay {
        delay: Duration,
        /// A random delay up to this is added.
        jitter: Duration,
    },
    /// In these windows, bytes from the server arrive later by `delay`.
    Stall { delay: Duration, window: Window },
    /// In these windows nothing arrives at all; what was sent arrives afterwards.
    BlackHole { window: Window },
    /// A connection on which nothing has passed for longer than this is forgotten: nothing arrives on it any more, not
    /// even an end, and neither side is told. So do firewalls and the translators of addresses.
    Forget {
        /// For how long a connection may be silent.
        idle: Duration,
    },
    /// At the beginning of each window all connections are cut.
    Cut { window: Window },
}

/// A time, once or at regular intervals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// From the beginning of the measured load, after the warm-up, to the first window.
    pub first: Duration,
    /// The length of each window.
    pub length: Duration,
    /// From the beginning of one window to the next. `None`: there is one window.
    pub every: Option<Duration>,
}
