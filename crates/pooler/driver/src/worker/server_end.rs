//! Servers that end: closed because their pool has given them up, or lost. Tells their clients, and the pool.

use std::sync::Arc;

use pool::{Closed, ConnectFault};
use seam::{CloseReason, Protocol};

use super::{
    Worker,
    attempts::{Attempts, HostRequirement},
    calls::{ClientSessions, Source, call},
    closing_servers::OpenConnection,
    lease::Lease,
    pools::Location,
    server_log::reason_of,
    servers::{Link, Phase, ServerConn},
    share::Share,
};
use crate::{config::Address, reactor::Reactor};

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// Says goodbye and closes; the pool has given it up already, for this reason.
    pub(super) fn retire(&mut self, slot: usize, reason: Closed) {
        self.log_server_closed(&self.servers[slot], reason_of(&self.servers[slot], reason), false);
        if !matches!(self.servers[slot].phase, Phase::Starting(_)) {
            let mut out = self.take_outbox();
            let tag = self.server_tag(slot);
            let protocol = Arc::clone(&self.shared.protocol);
            let session = &mut self.servers[slot].session;
            match call(|| protocol.retire(tag, session, &mut out)) {
                Some(()) => {
                    self.execute(out, Source::NONE);
                }
                None => self.discard(out),
            }
        }
        let server = self.servers.remove(slot);
        assert!(!server.usage.is_in_use(), "a server that is held is not retired");
        self.pools.set_location(server.pool.id, server.id, Location::None);
        let open = self.open_connection(&server);
        match (open, server.cancels.into_repeated()) {
            (Some(open), Some(request)) => self.begin_cancelled_close(open, server.pool, server.id, request),
            (open, _) => self.close_connection_of(&server.pool, server.id, open),
        }
    }

    /// The connection has ended, or its session has given it up. Tells its clients.
    pub(super) fn remove_server(&mut self, slot: usize, reason: CloseReason) {
        let mut share = self.servers[slot].usage.take_share();
        let joining = share.as_ref().and_then(|_| self.end_mux(slot));
        if matches!(self.servers[slot].phase, Phase::Probing) {
            self.on_probe_gone(slot);
        }
        if share.is_some() || self.servers[slot].usage.is_in_use() {
            self.notify_server_gone(slot, share.as_deref_mut());
        }
        self.log_server_closed(&self.servers[slot], message_of(&reason), is_refusal(&reason));
        let mut server = self.servers.remove(slot);
        self.pools.set_location(server.pool.id, server.id, Location::None);
        if let Some(pinned) = server.pinned {
            server.pool.lock().stats.on_pinned(pinned, -1);
        }
        if let Phase::Starting(attempts) = std::mem::replace(&mut server.phase, Phase::Live) {
            return self.end_start(server, *attempts, reason);
        }
        let (spec, message) = (server.pool.spec(), message_of(&reason));
        let (database, user) = (&spec.database, &spec.user);
        if let Some(withheld) = self.paces.server_lost.take_line(self.now) {
            let held = server.usage.holder().is_some() || share.is_some();
            tracing::warn!(withheld, %database, %user, held, "server lost: {message}");
        }
        server.pool.set_last_error(message);
        let open = self.open_connection(&server);
        self.forget_server(&server.pool, server.id, open);
        if let Some(joining) = joining {
            self.share_anew(server.pool.id, joining);
        }
    }

    /// Tells the session of a server that it is gone, and ends the leases of its clients.
    fn notify_server_gone(&mut self, slot: usize, share: Option<&mut Share>) {
        let holder = self.servers[slot].usage.holder();
        let mut out = self.take_outbox();
        let tag = self.server_tag(slot);
        let protocol = Arc::clone(&self.shared.protocol);
        let mut clients = ClientSessions::new(&mut self.clients);
        let session = &mut self.servers[slot].session;
        let told = call(|| protocol.server_gone(tag, session, &mut clients, &mut out)).is_some();
        // The lease is over before what the session makes of it, which may be asking for another.
        let sharers = share.iter().flat_map(|share| share.clients());
        let holders: Vec<usize> = holder.into_iter().chain(sharers).collect();
        for slot in holders.iter().copied() {
            self.clients[slot].lease = Lease::None;
        }
        if told {
            self.execute(out, Source::NONE);
        } else {
            // What the clients' sessions were shown is in doubt.
            self.discard(out);
            holders.into_iter().for_each(|slot| self.end_broken_client(slot));
        }
        if let Some(holder) = holder {
            self.refresh_state(holder);
            self.push_feed(holder);
        }
        if let Some(share) = share {
            self.servers[slot].pool.lock().stats.totals.transactions += share.take_answered();
            self.end_share(share);
        }
    }

    /// A server has ended before it was ready.
    fn end_start(&mut self, server: ServerConn<P::Server>, attempts: Attempts, reason: CloseReason) {
        if let CloseReason::Redirected { host, port } = reason {
            self.reactor.close(server.conn);
            let address = Address::Tcp { host, port };
            return self.dial_host(server.pool, server.id, attempts, address, HostRequirement::Redirected);
        }
        let fault = match reason {
            CloseReason::UnknownDatabase { .. } => ConnectFault::UnknownDatabase,
            CloseReason::StartFailed { permanent: true, .. } => ConnectFault::Permanent,
            _ => ConnectFault::Transient,
        };
        self.start_failed(&server, attempts, message_of(&reason), fault);
    }

    /// A server did not get through its start. Another host may do, unless this one said that asking again is useless.
    fn start_failed(
        &mut self,
        server: &ServerConn<P::Server>,
        mut attempts: Attempts,
        message: &str,
        fault: ConnectFault,
    ) {
        let open = self.open_connection(server);
        let (pool, id) = (Arc::clone(&server.pool), server.id);
        if fault != ConnectFault::Transient {
            return self.connect_failed(&pool, id, message, fault, open);
        }
        attempts.note(message);
        match open {
            Some(open) if attempts.left() > 0 => self.begin_close(open, pool, id, Some(Box::new(attempts))),
            open => self.dial_again(pool, id, attempts, open),
        }
    }

    /// The connection of a server that was just removed, if the database has not ended it: then it is closed.
    fn open_connection(&mut self, server: &ServerConn<P::Server>) -> Option<OpenConnection> {
        if server.link == Link::Down {
            self.reactor.close(server.conn);
            return None;
        }
        Some(OpenConnection::new(server.conn, server.authenticated))
    }
}

/// Whether a database has refused a login. Its error has a SQLSTATE, which stands behind the text.
fn is_refusal(reason: &CloseReason) -> bool {
    match reason {
        CloseReason::UnknownDatabase { .. } => true,
        CloseReason::StartFailed { message, .. } => message.contains(" (SQLSTATE "),
        _ => false,
    }
}

/// The text for the log about the end of a server.
fn message_of(reason: &CloseReason) -> &str {
    match reason {
        CloseReason::StartFailed { message, .. }
        | CloseReason::UnknownDatabase { message }
        | CloseReason::Error(_, message) => message,
        CloseReason::Goodbye | CloseReason::Done => "the server ended the connection",
        CloseReason::Redirected { .. } => "the upstream is elsewhere",
    }
}
