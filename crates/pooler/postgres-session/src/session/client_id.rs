//! What identifies a client for longer than its connection lasts.

use seam::ClientTag;

/// A client: its tag, which may be reused, and its secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ClientId(pub(crate) ClientTag, pub(crate) u64);
