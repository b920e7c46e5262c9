//! A cancel request on its way: what is said, where, and in which channel. It opens nothing itself.

use std::{net::SocketAddr, sync::Arc};

use crate::config::{Address, PoolSpec};

/// What is asked for first, and the byte that agrees.
pub(super) type Upgrade = (Vec<u8>, u8);

/// A cancel request, and where it goes: to where the server is connected.
pub(super) struct CancelRequest {
    pub(super) bytes: Vec<u8>,
    pub(super) upgrade: Option<Upgrade>,
    pub(super) address: Address,
    /// What the name of a TCP address stood for.
    pub(super) peer: Option<SocketAddr>,
    /// What TLS to the server needs.
    pub(super) spec: Arc<PoolSpec>,
}
