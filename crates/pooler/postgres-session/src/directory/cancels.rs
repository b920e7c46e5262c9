//! Cancel requests for clients of other nodes.

use std::fmt;

use seam::ClientTag;

/// A cancel request that another node has to carry out. Its key is a secret, and never logged.
pub struct ForeignCancel {
    /// The client that sends it, and waits until it has been dealt with.
    pub client: ClientTag,
    /// Tells this request from that of another client that gets the same tag later.
    pub serial: u64,
    /// The node that gave its key out.
    pub node: u16,
    /// The packet for the next node.
    pub request: Vec<u8>,
}

impl fmt::Debug for ForeignCancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForeignCancel").field("client", &self.client).field("node", &self.node).finish_non_exhaustive()
    }
}

/// A client whose cancel request for another node has been dealt with, well or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CancelDealtWith {
    pub client: ClientTag,
    pub serial: u64,
}
