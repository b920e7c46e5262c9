//! What a server knows of its lease. All of it goes with the lease.

use seam::ClientTag;

pub(crate) struct Lease {
    pub(crate) holder: ClientTag,
    /// The holder knows that it has received only a part of a message.
    pub(crate) told_mid_message: bool,
    /// A portal of the holder's transaction may be a COPY.
    pub(crate) may_copy: bool,
    /// A message of the extended protocol was forwarded, and no Sync since: the server may skip what comes next.
    pub(crate) mid_pipeline: bool,
}

impl Lease {
    pub(crate) fn new(holder: ClientTag) -> Self {
        Self { holder, told_mid_message: false, may_copy: false, mid_pipeline: false }
    }
}
