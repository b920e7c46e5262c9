//! Cancel requests: which clients they reach, and the connections beside a server's own that carry them to the
//! database.
//!
//! A request must hit the query it was meant for and no other. So while one is under way, the server is lent to no
//! other client, and its holder gets no input, because its next query must not be hit either. When the database closes
//! the cancel connection it has sent its signal. If the worker does not see that (it takes too long, or the connection
//! breaks), the request may still arrive, and the server is never lent again. A request for a server in TLS goes in
//! TLS, too, and is not sent at all without it.

use std::{io, rc::Rc};

use pool::{ServerId, Time};
use seam::{ClientTag, CloseReason, PoolId, Protocol, Verdict};

use super::{
    Worker,
    calls::{ServerSessions, Source, call},
    cancel_request::{CancelRequest, TlsRequest},
    lease::Lease,
    servers::ServerConn,
    usage::Usage,
};
use crate::{
    config::Address,
    mailbox::{Asker, CancelTarget, Message},
    reactor::{ConnId, Data, Owner, Reactor, Submitted},
    tls::Channel,
};

/// A connection beside a server's own, for a cancel request.
pub(super) struct CancelConnection {
    conn: ConnId,
    server: u32,
    server_id: ServerId,
    pool: PoolId,
    request: Rc<CancelRequest>,
    step: Step,
    until: Time,
    /// The client that waits to hear that the request has been dealt with.
    asker: Option<Asker>,
}

enum Step {
    /// The connection must be secured before the request is sent.
    Ask(TlsRequest, Box<Channel>),
    Asked(u8, Box<Channel>),
    /// The handshake is under way.
    Handshake,
    /// The request is sent, or can be sent at once.
    Plain,
}

/// What the end of the last cancel request for a server lets happen.
enum Freed {
    CheckIn(Verdict),
    /// The input of the server's holder was paused.
    Feed(usize),
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// A session passes on a request of its client.
    pub(super) fn pass_on_cancel(&mut self, asker: ClientTag, target: CancelTarget) {
        let Some(client) = self.clients.get(asker.slot()) else { return };
        let asker = Asker { tag: asker, serial: client.serial };
        match self.shared.mailboxes.get(usize::from(target.client.worker())) {
            Some(mailbox) => mailbox.send(Message::Cancel { asker, target }),
            None => self.notify_asker(asker),
        }
    }

    /// A request for a client of this worker, of which the lowest bits of the slot are known.
    pub(super) fn on_cancel(&mut self, asker: Asker, target: CancelTarget) {
        self.asker = Some(asker);
        let CancelTarget { client, slot_bits, secret } = target;
        // The distance between slots that the request cannot tell apart.
        let step = 1 << slot_bits;
        let slots = (client.slot() % step..self.clients.capacity()).step_by(step);
        for slot in slots {
            let tag = self.client_tag(slot);
            let Some(client) = self.clients.get_mut(slot).filter(|client| !client.life.is_closing()) else { continue };
            let waiting = client.lease.is_waiting();
            let mut out = self.outboxes.take();
            let mut servers = ServerSessions(&mut self.servers);
            let protocol = std::sync::Arc::clone(&self.shared.protocol);
            if call(|| protocol.cancel(tag, &mut client.session, &mut servers, secret, waiting, &mut out)).is_none() {
                self.on_client_defect(slot, out);
                continue;
            }
            self.execute(out, Source::NONE);
        }
        if let Some(asker) = self.asker.take() {
            self.notify_asker(asker);
        }
    }

    /// Closes the client that asked: so it learns that its request has been dealt with.
    fn notify_asker(&mut self, asker: Asker) {
        self.mailbox(pool::Home(asker.tag.worker())).send(Message::CancelDone(asker));
    }

    pub(super) fn on_cancel_done(&mut self, asker: Asker) {
        let slot = asker.tag.slot();
        if self.client_is(asker.key()) && !self.clients[slot].life.is_closing() {
            self.close_client(slot, &CloseReason::Done);
        }
    }

    /// Whether the client's input must wait because a cancel request is under way for the server it holds, or on
    /// account of one that it shares; or until it has a place with its database and its user.
    pub(super) fn is_input_paused(&self, slot: usize) -> bool {
        if self.clients[slot].places.is_in_tenant_queue() {
            return true;
        }
        match self.clients[slot].lease {
            Lease::Held { server } => self.servers[server as usize].cancels.are_under_way(),
            Lease::Shared { server, heard, .. } => self.is_share_paused(server as usize, heard),
            Lease::None | Lease::Waiting { .. } | Lease::Joining { .. } => false,
        }
    }

    /// Opens a connection beside a server's own, to where that is connected, secures it if `upgrade` is given, and
    /// sends `bytes` there.
    pub(super) fn open_cancel(&mut self, slot: usize, bytes: &[u8], upgrade: Option<TlsRequest>) {
        let Some(server) = self.servers.get(slot).filter(|server| server.cancels.may_begin()) else { return };
        let peer = match &server.address {
            Address::Unix(_) => None,
            Address::Tcp { .. } => match self.reactor.peer(server.conn) {
                None => return,
                peer => peer,
            },
        };
        let (id, pool) = (server.id, server.pool.id);
        let (address, spec) = (server.address.clone(), server.pool.spec());
        let request = Rc::new(CancelRequest { bytes: bytes.to_vec(), upgrade, address, peer, spec });
        if self.send_beside(request, slot as u32, id, pool) {
            self.servers[slot].cancels.begin();
        }
    }

    /// Opens a connection for a request on account of a server, which may be gone; false: it cannot be opened.
    pub(super) fn send_beside(
        &mut self,
        request: Rc<CancelRequest>,
        server: u32,
        server_id: ServerId,
        pool: PoolId,
    ) -> bool {
        let step = match &request.upgrade {
            None => Step::Plain,
            Some(upgrade) => match super::tls_upgrade::client_channel(&request.spec, &request.address) {
                Ok(channel) => Step::Ask(upgrade.clone(), Box::new(channel)),
                Err(error) => {
                    tracing::warn!(%error, "cannot send a cancel request");
                    return false;
                }
            },
        };
        let side = self.cancel_connections.vacant_key();
        let owner = Owner::Cancel(side as u32);
        let connected = match (&request.address, request.peer) {
            (_, Some(address)) => self.reactor.connect_tcp(address, owner),
            (Address::Unix(path), None) => self.reactor.connect_unix(path, owner),
            (Address::Tcp { .. }, None) => unreachable!("seen above"),
        };
        match connected {
            Ok(conn) => {
                let (until, asker) = (self.now + request.spec.cancel_timeout, self.asker.take());
                self.cancel_connections.insert(CancelConnection {
                    conn,
                    server,
                    server_id,
                    pool,
                    request,
                    step,
                    until,
                    asker,
                });
                true
            }
            Err(error) => {
                tracing::warn!(%error, "cannot send a cancel request");
                false
            }
        }
    }

    pub(super) fn on_cancel_connected(&mut self, slot: usize, result: io::Result<()>) {
        if let Err(error) = result {
            tracing::warn!(%error, "cannot send a cancel request");
            return self.end_cancel(slot);
        }
        match std::mem::replace(&mut self.cancel_connections[slot].step, Step::Plain) {
            Step::Ask((ask, _), channel) if ask.is_empty() => self.secure_cancel(slot, *channel),
            Step::Ask((ask, agreed), channel) => {
                self.cancel_connections[slot].step = Step::Asked(agreed, channel);
                self.send_cancel(slot, &ask);
            }
            _ => self.on_cancel_secured(slot),
        }
    }

    pub(super) fn on_cancel_received(&mut self, slot: usize, bytes: &[u8]) {
        match std::mem::replace(&mut self.cancel_connections[slot].step, Step::Plain) {
            // Bytes behind the agreement may be an attacker's.
            Step::Asked(agreed, channel) if bytes == [agreed] => self.secure_cancel(slot, *channel),
            Step::Plain if !bytes.is_empty() => self.reactor.receive(self.cancel_connections[slot].conn),
            _ => self.end_cancel(slot),
        }
    }

    fn secure_cancel(&mut self, slot: usize, channel: Channel) {
        let side = &mut self.cancel_connections[slot];
        side.step = Step::Handshake;
        let conn = side.conn;
        match self.reactor.start_tls(conn, channel, &[]) {
            Submitted::Done | Submitted::Pending => self.reactor.receive(conn),
            Submitted::Broken(_) => self.end_cancel(slot),
        }
    }

    /// What was to be said can be said.
    pub(super) fn on_cancel_secured(&mut self, slot: usize) {
        self.cancel_connections[slot].step = Step::Plain;
        let request = Rc::clone(&self.cancel_connections[slot].request);
        self.send_cancel(slot, &request.bytes);
    }

    fn send_cancel(&mut self, slot: usize, bytes: &[u8]) {
        let conn = self.cancel_connections[slot].conn;
        match self.reactor.send(conn, Data::Bytes(bytes)) {
            Submitted::Broken(_) => self.on_cancel_broken(slot),
            Submitted::Done | Submitted::Pending => self.reactor.receive(conn),
        }
    }

    /// The connection broke. If the request was sent, it may still arrive.
    pub(super) fn on_cancel_broken(&mut self, slot: usize) {
        if matches!(self.cancel_connections[slot].step, Step::Plain)
            && let Some(server) = self.server_of_cancel(slot)
        {
            server.cancels.taint();
        }
        self.end_cancel(slot);
    }

    fn server_of_cancel(&mut self, slot: usize) -> Option<&mut ServerConn<P::Server>> {
        let CancelConnection { server, server_id, pool, .. } = self.cancel_connections[slot];
        self.servers.get_mut(server as usize).filter(|s| s.id == server_id && s.pool.id == pool)
    }

    fn end_cancel(&mut self, slot: usize) {
        let freed = self.server_of_cancel(slot).and_then(|server| {
            server.cancels.end().then(|| match server.usage {
                Usage::AwaitsCancels(verdict) => {
                    server.usage = Usage::Free;
                    Some(Freed::CheckIn(verdict))
                }
                Usage::Held(ref hold) => Some(Freed::Feed(hold.client())),
                Usage::Free | Usage::Shared(_) | Usage::Retained => None,
            })?
        });
        let side = self.cancel_connections.remove(slot);
        self.reactor.close(side.conn);
        // What the client asked for itself hits the statement that it was meant for, or nothing: that is not repeated.
        let repeats = side.asker.is_none();
        if let Some(asker) = side.asker {
            self.notify_asker(asker);
        }
        match freed {
            Some(Freed::CheckIn(verdict)) => {
                if repeats && verdict == Verdict::Discard {
                    self.servers[side.server as usize].cancels.repeat(side.request);
                }
                self.check_in(side.server as usize, verdict);
            }
            Some(Freed::Feed(holder)) => self.push_feed(holder),
            None => {}
        }
    }

    /// Gives up cancel requests that take too long; their servers are closed when they come back, because the
    /// request may still arrive.
    pub(super) fn end_slow_cancels(&mut self) {
        let late: Vec<usize> =
            self.cancel_connections.iter().filter(|(_, side)| side.until <= self.now).map(|(slot, _)| slot).collect();
        for slot in late {
            self.on_cancel_broken(slot);
        }
    }
}
