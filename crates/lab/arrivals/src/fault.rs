//! What goes wrong between a client and a server.

use std::time::Duration;

/// Something that happens to bytes on their way.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Fault {
    /// Everything takes so much longer, in each direction.
    Delay {
        delay: Duration,
        /// And up to so much more, at random.
        jitter: Duration,
    },
    /// In these windows, what comes from the server arrives so much later: a stall.
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

/// A time that comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// The first begins this long after the load.
    pub first: Duration,
    /// How long each lasts.
    pub length: Duration,
    /// From the beginning of one to the next. `None`: only once.
    pub every: Option<Duration>,
}
