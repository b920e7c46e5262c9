//! What a client has of a pool. Knows neither.

use pool::{Need, Ticket};
use seam::PoolId;

/// What a client has of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lease {
    None,
    /// A place in its queue. Without a ticket it was granted a server that is on its way, or was refused one: that
    /// needs no deadline, because nothing but messages between live workers and work of this one stands between it and
    /// the outcome.
    Waiting {
        pool: PoolId,
        ticket: Option<Ticket>,
        need: Need,
    },
    /// A server, by its slot here.
    Held {
        server: u32,
    },
    /// The client waits to share a server with others.
    Joining {
        pool: PoolId,
    },
    /// A share of a server; `place` is the client's place among the clients of the share. `heard`: its session has got
    /// input since it has the share.
    Shared {
        server: u32,
        index: u32,
        heard: bool,
    },
}

impl Lease {
    pub(super) fn is_waiting(self) -> bool {
        matches!(self, Lease::Waiting { .. } | Lease::Joining { .. })
    }
}
