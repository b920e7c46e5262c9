//! A cancel request on its way: its bytes, its address and its channel; and the cancel requests for one server.
//! Opens nothing.

use std::{net::SocketAddr, rc::Rc, sync::Arc};

use crate::config::{Address, PoolSpec};

/// Cancel requests under way for one server; further ones are dropped, as they would ask for the same.
const MAX_CANCELS: u32 = 4;

/// The cancel requests for one server.
#[derive(Default)]
pub(super) struct Cancels {
    under_way: u32,
    /// A request got lost and may still arrive, so the server must not be lent again.
    tainted: bool,
    /// The request that was sent because the client has gone. It is repeated until the server has ended.
    repeated: Option<Rc<CancelRequest>>,
}

impl Cancels {
    pub(super) fn are_under_way(&self) -> bool {
        self.under_way > 0
    }

    /// Whether one more request may be sent.
    pub(super) fn may_begin(&self) -> bool {
        self.under_way < MAX_CANCELS
    }

    pub(super) fn begin(&mut self) {
        self.under_way += 1;
    }

    /// A request has ended. True if it was the last one.
    pub(super) fn end(&mut self) -> bool {
        self.under_way -= 1;
        self.under_way == 0
    }

    /// A request got lost.
    pub(super) fn taint(&mut self) {
        self.tainted = true;
    }

    pub(super) fn are_tainted(&self) -> bool {
        self.tainted
    }

    /// The request is to be repeated while the server is closing.
    pub(super) fn repeat(&mut self, request: Rc<CancelRequest>) {
        self.repeated = Some(request);
    }

    /// The request that is to be repeated while the server is closing.
    pub(super) fn into_repeated(self) -> Option<Rc<CancelRequest>> {
        self.repeated
    }
}

/// The bytes that ask the server for TLS, and the byte by which it agrees.
pub(super) type TlsRequest = (Vec<u8>, u8);

/// A cancel request, and the address that the server is connected to.
pub(super) struct CancelRequest {
    pub(super) bytes: Vec<u8>,
    pub(super) upgrade: Option<TlsRequest>,
    pub(super) address: Address,
    /// The address that the host name stood for when the server was connected.
    pub(super) peer: Option<SocketAddr>,
    /// What TLS to the server needs.
    pub(super) spec: Arc<PoolSpec>,
}
