//! What a client has of a pool. Knows no client and no pool.

use pool::{Need, Ticket};
use seam::PoolId;

/// What a client has of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lease {
    None,
    /// A place in the pool's queue. Without a ticket the client was granted a server that is on its way, or was refused
    /// one: that needs no deadline, because the client waits only for messages between live workers and for work of
    /// this one.
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
    /// A share of a server; `index` is the client's index among the clients of the share. `heard`: the client's session
    /// has got input since the client has the share.
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
