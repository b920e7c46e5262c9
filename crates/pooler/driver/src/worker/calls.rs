//! Calls into sessions: how they are made, which other sessions they may look at, and where the bytes are that their
//! effects refer to.

use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    sync::Arc,
};

use seam::{ClientTag, Outbox, Protocol, ServerTag, Sessions};
use slab::Slab;

use super::Worker;
use crate::reactor::{Buffer, Data, Reactor};

/// Calls into the protocol. `None`: it panicked.
pub(super) fn call<T>(protocol: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(protocol)).ok()
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// Calls the session of a client, and executes its effects. `None`: the session panicked, and the client ends.
    pub(super) fn call_client<T>(
        &mut self,
        slot: usize,
        source: Source<'_>,
        f: impl FnOnce(&P, ClientTag, &mut P::Client, &mut Outbox) -> T,
    ) -> Option<T> {
        let (mut out, tag) = (self.take_outbox(), self.client_tag(slot));
        let (protocol, session) = (&*self.shared.protocol, &mut self.clients[slot].session);
        let Some(result) = call(|| f(protocol, tag, session, &mut out)) else {
            self.on_client_defect(slot, out);
            return None;
        };
        self.execute(out, source);
        Some(result)
    }

    /// Calls the session of a server, and executes its effects. `None`: the session panicked, and the server ends.
    pub(super) fn call_server<T>(
        &mut self,
        slot: usize,
        source: Source<'_>,
        f: impl FnOnce(&P, ServerTag, &mut P::Server, &mut Outbox) -> T,
    ) -> Option<T> {
        let (mut out, tag) = (self.take_outbox(), self.server_tag(slot));
        let (protocol, session) = (&*self.shared.protocol, &mut self.servers[slot].session);
        let Some(result) = call(|| f(protocol, tag, session, &mut out)) else {
            self.on_server_defect(slot, None, out);
            return None;
        };
        self.execute(out, source);
        Some(result)
    }
}

/// Where the spans of an outbox point.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    /// Into a buffer of the ring, from an offset on.
    Ring(&'a Rc<Buffer>, usize),
    /// Into what was posted to several sessions.
    Posted(&'a Arc<[u8]>),
    /// Into other bytes.
    Bytes(&'a [u8]),
}

impl<'a> Source<'a> {
    /// For calls that are handed no input.
    pub(super) const NONE: Self = Source::Bytes(&[]);

    pub(super) fn span(self, span: Range<usize>) -> Data<'a> {
        match self {
            Source::Ring(buffer, base) => Data::Ring(buffer, base + span.start..base + span.end),
            Source::Posted(bytes) => Data::Shared(bytes, span),
            Source::Bytes(bytes) => Data::Bytes(&bytes[span]),
        }
    }

    pub(super) fn slice(self, span: Range<usize>) -> &'a [u8] {
        match self {
            Source::Ring(buffer, base) => &buffer[base + span.start..base + span.end],
            Source::Posted(bytes) => &bytes[span],
            Source::Bytes(bytes) => &bytes[span],
        }
    }

    /// The same, `by` bytes further on.
    pub(super) fn skip(self, by: usize) -> Self {
        match self {
            Source::Ring(buffer, base) => Source::Ring(buffer, base + by),
            Source::Posted(_) => unreachable!("posts are handed over whole"),
            Source::Bytes(bytes) => Source::Bytes(&bytes[by..]),
        }
    }
}

/// A connection, which has a session.
pub(super) trait HasSession {
    type Session;

    fn session(&mut self) -> &mut Self::Session;
}

/// The clients of a worker, as sessions of servers see them.
pub(super) struct ClientSessions<'a, C> {
    clients: &'a mut Slab<C>,
    /// The slot of the client that was looked at last.
    pub(super) shown: Option<usize>,
}

impl<'a, C> ClientSessions<'a, C> {
    pub(super) fn new(clients: &'a mut Slab<C>) -> Self {
        Self { clients, shown: None }
    }
}

impl<C: HasSession> Sessions<ClientTag, C::Session> for ClientSessions<'_, C> {
    fn get(&mut self, tag: ClientTag) -> Option<&mut C::Session> {
        let client = self.clients.get_mut(tag.slot())?;
        self.shown = Some(tag.slot());
        Some(client.session())
    }
}

/// The servers of a worker, as sessions of clients see them.
pub(super) struct ServerSessions<'a, S>(pub(super) &'a mut Slab<S>);

impl<S: HasSession> Sessions<ServerTag, S::Session> for ServerSessions<'_, S> {
    fn get(&mut self, tag: ServerTag) -> Option<&mut S::Session> {
        self.0.get_mut(tag.slot()).map(HasSession::session)
    }
}
