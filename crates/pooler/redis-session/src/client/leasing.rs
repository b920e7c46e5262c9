//! How a client gets a server and gives it back: what follows from grants, failures and replies.

use seam::{Effect, Outbox, Peer, PoolId, ServerTag, Standing, Verdict};

use super::{
    Client,
    lease::{Lease, LeaseRequest, Purpose},
};
use crate::{Redis, Server, Servers, refusal::NO_SERVER, resp, server::ReplyKind};

impl Redis {
    pub(crate) fn on_granted(&self, client: &mut Client, tag: ServerTag, server: &mut Server, out: &mut Outbox) {
        let (lease, purpose) = client.lease.take_request().granted(tag);
        if matches!(lease, Lease::Held(_)) {
            server.lend(client.tag);
        }
        client.lease = lease;
        match purpose {
            Purpose::Command { .. } => return self.blocking_waits.end(client.id),
            Purpose::Subscriptions => return self.on_hub_server_found(client, tag, server, out),
            Purpose::Unblock { id, with_error } => {
                // CLIENT UNBLOCK is sent when the clients have answered.
                server.expect(Some((client.tag, client.id)), ReplyKind::Unblock);
                client.replies.add();
                return client.survey_for_unblock(&id, with_error, out);
            }
            Purpose::Select(database) if server.select_error().is_some() => {
                client.lease.wait_for_database(database);
                return server.select_again(tag, (client.tag, client.id), out);
            }
            Purpose::Select(database) => self.set_database(client, database, out),
            Purpose::Hello(version, name) => {
                client.settings.set_version(version);
                self.update_counting_pool(client, out);
                if let Some(name) = name {
                    client.settings.set_name(name);
                }
                out.insert(Peer::Client(client.tag), |to| server.hello().write(version, client.id, to));
            }
        }
        client.give_back(tag, server, Verdict::Clean, out);
    }

    /// SELECT has succeeded.
    fn set_database(&self, client: &mut Client, database: u32, out: &mut Outbox) {
        client.settings.set_database(database);
        self.update_counting_pool(client, out);
        out.insert(Peer::Client(client.tag), |to| to.extend_from_slice(b"+OK\r\n"));
    }

    /// The client's server has selected its database, or cannot, for this reason.
    pub(crate) fn on_selected(
        &self,
        client: &mut Client,
        tag: ServerTag,
        server: &mut Server,
        error: Option<&str>,
        out: &mut Outbox,
    ) {
        match (client.lease.selecting(), error) {
            (None, error) => client.lease_error = error.map(Box::from),
            (Some(_), Some(error)) => out.insert(Peer::Client(client.tag), |to| resp::error(to, error)),
            (Some(database), None) => self.set_database(client, database, out),
        }
        client.give_back(tag, server, Verdict::Clean, out);
    }
}

impl Client {
    pub(super) fn request_lease(&mut self, pool: PoolId, request: LeaseRequest, out: &mut Outbox) {
        let kind = request.kind();
        self.lease = Lease::Requested(request);
        out.push(Effect::Standing { client: self.tag, standing: Standing::Active });
        out.push(Effect::Lease { client: self.tag, pool, kind });
    }

    pub(crate) fn has(&self, server: ServerTag) -> bool {
        self.lease.server() == Some(server)
    }

    /// A reply of this kind has come whole. `refused`: it says that nothing has changed. Returns whether the client
    /// needs its server no longer.
    pub(crate) fn on_reply(&mut self, kind: ReplyKind, refused: bool, out: &mut Outbox) -> bool {
        self.replies.take();
        if let Some(held) = self.lease.held_mut() {
            held.on_reply(self.replies.is_empty());
            match kind {
                _ if refused => {}
                ReplyKind::Multi => held.transaction_mut().open(),
                ReplyKind::Watch => held.transaction_mut().watch(),
                ReplyKind::EndTransaction => held.transaction_mut().end(),
                _ => {}
            }
        }
        if self.replies.resume_input() {
            out.push(Effect::Wake { client: self.tag });
        }
        if !self.replies.is_empty() || self.partial.is_some() || self.lease.is_pinned() {
            return false;
        }
        if self.needs_its_server() {
            let is_open = self.lease.transaction().is_open();
            let standing = if is_open { Standing::InTransaction } else { Standing::Preparing };
            out.push(Effect::Standing { client: self.tag, standing });
        }
        !self.needs_its_server()
    }

    /// Ends a transaction, or the watching of keys, by giving up the server.
    pub(super) fn abandon_transaction(&mut self, servers: &mut Servers<'_>, out: &mut Outbox) {
        if let Some(held) = self.lease.held() {
            let tag = held.server();
            let server = servers.get(tag).expect("a held server lives");
            self.give_back(tag, server, Verdict::Discard, out);
        }
    }

    /// Gives its server back, or its share of it.
    pub(crate) fn give_back(&mut self, tag: ServerTag, server: &mut Server, verdict: Verdict, out: &mut Outbox) {
        out.push(Effect::Standing { client: self.tag, standing: self.standing() });
        match self.lease.take() {
            Lease::Shared { .. } => out.push(Effect::Leave { client: self.tag, server: tag, verdict }),
            Lease::Held(held) if !held.is_clean() && verdict == Verdict::Clean => {
                out.push(Effect::Release { server: tag, verdict: server.take_back(Verdict::Discard) });
            }
            _ => out.push(Effect::Release { server: tag, verdict: server.take_back(verdict) }),
        }
        self.remind(out);
    }

    pub(crate) fn on_lease_failed(&mut self, error: &str, out: &mut Outbox) {
        match self.lease.take_request().into_purpose() {
            Purpose::Command { .. } => self.lease_error = Some(error.into()),
            Purpose::Subscriptions => unreachable!("its failure is told to all subscribers"),
            // Redis itself refuses a database that does not exist. After any other error, the client would go on in the
            // database that it wanted to leave.
            Purpose::Select(_) if error.starts_with(NO_SERVER) => return self.fail(error, out),
            Purpose::Select(_) | Purpose::Hello(..) | Purpose::Unblock { .. } => {
                out.insert(Peer::Client(self.tag), |to| resp::error(to, error))
            }
        }
        out.push(Effect::Standing { client: self.tag, standing: self.standing() });
        self.remind(out);
    }
}
