//! What a session sends to a server when that is granted leaves in one system call with the client's request, which is
//! handed over next: the database is woken once.

use pool::ServerId;
use seam::{Bytes, Effect, Outbox, Peer, PoolId, Protocol, ServerTag};

use super::{Worker, calls::Source};
use crate::reactor::{Data, Reactor};

/// A request up to this size is copied behind a preface; a longer one goes out on its own.
const MAX_JOINED_REQUEST: usize = 16 * 1024;

/// The bytes for one server that wait for the request.
#[derive(Default)]
pub(super) struct Preface {
    /// The server's slot, and its pool and number there, by which it is known again.
    server: Option<(u32, PoolId, ServerId)>,
    bytes: Vec<u8>,
}

impl Preface {
    #[inline]
    pub(super) fn waits(&self) -> bool {
        self.server.is_some()
    }

    #[inline]
    pub(super) fn is_for(&self, slot: usize) -> bool {
        self.server.is_some_and(|(server, ..)| server as usize == slot)
    }
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// Executes the effects of a grant. If the only effect is to send bytes to the server, they wait for the request.
    pub(super) fn execute_grant(&mut self, tag: ServerTag, mut out: Outbox) {
        if !matches!(out.effects[..], [Effect::Send { to: Peer::Server(to), bytes: Bytes::Insert(_) }] if to == tag) {
            self.execute(out, Source::NONE);
            return;
        }
        self.send_preface();
        // All that is inserted is what this one effect sends.
        std::mem::swap(&mut self.preface.bytes, &mut out.inserted);
        let server = &self.servers[tag.slot()];
        self.preface.server = Some((tag.slot() as u32, server.pool.id, server.id));
        self.outboxes.put(out);
    }

    /// Sends the waiting bytes, if no request has come.
    pub(super) fn send_preface(&mut self) {
        let Some((slot, pool, id)) = self.preface.server.take() else { return };
        let slot = slot as usize;
        if self.servers.get(slot).is_some_and(|server| server.pool.id == pool && server.id == id) {
            let bytes = std::mem::take(&mut self.preface.bytes);
            self.send_to_server(slot, Data::Bytes(&bytes));
            self.preface.bytes = bytes;
        }
        self.preface.bytes.clear();
    }

    /// Sends the waiting bytes together with the request that follows.
    pub(super) fn send_behind_preface(&mut self, slot: usize, data: &Data<'_>) {
        if data.bytes().len() <= MAX_JOINED_REQUEST {
            self.preface.bytes.extend_from_slice(data.bytes());
            return self.send_preface();
        }
        self.send_preface();
        if self.servers.contains(slot) {
            self.send_to_server(slot, Data::Bytes(data.bytes()));
        }
    }
}
