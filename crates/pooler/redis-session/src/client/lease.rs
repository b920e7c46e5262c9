//! What a client has of a pool, or waits for, and why.

use seam::{LeaseKind, ServerTag};

use crate::Version;

/// What a client has of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Lease {
    None,
    /// It waits for a server, for this purpose.
    Asked(LeaseKind, Purpose),
    Held(ServerTag),
    /// This one it shares with others, until no reply is due to it.
    Shared(ServerTag),
}

/// What a server is wanted for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// The command that is next.
    Commands,
    /// To find out whether this logical database exists.
    Select(u32),
    /// To answer HELLO with what the server says of itself: the version and the name that come with it.
    Hello(Version, Option<Box<[u8]>>),
    /// To hold the subscriptions of all.
    Subscriptions,
    /// To let the client with this number go on that waits for something.
    Unblock(Box<[u8]>),
}
