//! Connections that go on in TLS: beginning the handshake, and what its end means. Knows no certificate.
//!
//! What the session has not consumed when it asks for TLS belongs to the handshake. The session hears nothing more
//! until the handshake is done, and what it sends meanwhile is dropped. So no byte in the clear can be taken for one of
//! the peer that TLS has proved.

use std::{io, sync::Arc};

use seam::{Blame, CloseReason, Peer, Protocol, Secured, TlsFailure};

use super::{
    Worker,
    calls::{Source, call},
    servers::Phase,
};
use crate::{
    config::{Address, PoolSpec},
    reactor::{Reactor, Submitted},
    shared_pool,
    tls::{Channel, TlsError, tls_failure_of},
};

/// The channel of a TLS connection to one of a pool's hosts. Sends nothing.
pub(super) fn client_channel(spec: &PoolSpec, address: &Address) -> Result<Channel, TlsError> {
    match (&spec.tls, address) {
        (Some(connector), Address::Tcp { host, .. }) => connector.client_channel(host),
        (Some(_), Address::Unix(_)) => Err(TlsError::new("there is no TLS on a Unix socket")),
        (None, _) => Err(TlsError::new("this pool has no TLS")),
    }
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// A session asked for TLS. `received` is what it left of its input: it belongs to the handshake.
    pub(super) fn upgrade(&mut self, peer: Peer, received: &[u8]) {
        assert!(self.upgrading.take() == Some(peer), "a session upgrades its own connection");
        match peer {
            Peer::Client(tag) => {
                let Some(client) = self.clients.get(tag.slot()).filter(|client| !client.life.is_closing()) else {
                    return;
                };
                let listener = &self.process.listeners[usize::from(client.listener)];
                let conn = client.conn;
                let begun = match listener.tls.as_ref().map(|acceptor| acceptor.accept()) {
                    Some(Ok(channel)) => self.reactor.start_tls(conn, channel, received),
                    Some(Err(error)) => Submitted::Broken(io::Error::other(error)),
                    None => Submitted::Broken(io::Error::other("this listener was made without TLS")),
                };
                if let Submitted::Broken(error) = begun {
                    self.on_client_broken(tag.slot(), &error);
                }
            }
            Peer::Server(tag) => {
                let Some(server) = self.servers.get_mut(tag.slot()).filter(|server| !server.link.is_ending()) else {
                    return;
                };
                let conn = server.conn;
                let reason = match client_channel(&server.pool.spec(), &server.address) {
                    Ok(channel) => match self.reactor.start_tls(conn, channel, received) {
                        Submitted::Broken(error) => CloseReason::Error(Blame::Server, format!("cannot send: {error}")),
                        Submitted::Done | Submitted::Pending => return,
                    },
                    Err(error) => CloseReason::StartFailed { permanent: true, message: error.to_string() },
                };
                self.end_server(tag.slot(), reason);
            }
        }
    }

    pub(super) fn on_client_secured(&mut self, slot: usize, secured: Secured) {
        if self.clients[slot].life.is_closing() {
            return;
        }
        self.clients[slot].log.tls = true;
        let called = self.call_client(slot, Source::NONE, |protocol, tag, session, out| {
            protocol.client_secured(tag, session, secured, out);
        });
        if called.is_some() {
            self.rearm_client(slot);
        }
    }

    pub(super) fn on_server_secured(&mut self, slot: usize, secured: Secured) {
        let server = &mut self.servers[slot];
        if server.link.is_ending() {
            return;
        }
        server.pool.lock().stats.on_phase(shared_pool::ConnectPhase::Tls, self.now - server.since);
        server.since = self.now;
        let called = self.call_server(slot, Source::NONE, |protocol, tag, session, out| {
            protocol.server_secured(tag, session, secured, out);
        });
        if called.is_some() {
            self.rearm_server(slot);
        }
    }

    /// The client's connection is over. A failure of TLS is worth a line: its client knows it only as numbers.
    pub(super) fn on_client_broken(&mut self, slot: usize, error: &io::Error) {
        if let Some(TlsFailure { message, .. }) = tls_failure_of(error)
            && let Some(withheld) = self.paces.client_error.take_line(self.now)
        {
            tracing::info!(withheld, client = %self.client_address(slot), "TLS failed: {message}");
        }
        self.push_client_gone(slot);
    }

    /// What it means that the connection to a server broke, if that was a handshake that failed.
    pub(super) fn tls_failure(&mut self, slot: usize, error: &io::Error) -> Option<CloseReason> {
        let failure = tls_failure_of(error)?.clone();
        let server = self.servers.get_mut(slot).filter(|server| matches!(server.phase, Phase::Starting(_)))?;
        let protocol = Arc::clone(&self.shared.protocol);
        let message = format!("TLS with {} failed: {}", server.address, failure.message);
        let failure = TlsFailure { message, ..failure };
        let meaning = call(|| protocol.server_tls_failed(&mut server.session, failure));
        if meaning.is_none() {
            self.count_defect();
        }
        meaning
    }
}
