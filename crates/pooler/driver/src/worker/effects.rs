//! Executing the effects of sessions, in order.

use pool::Need;
use seam::{Blame, Bytes, CloseReason, Effect, LeaseKind, Outbox, Peer, Protocol};

use super::{
    ClientWork, Worker, calls::Source, lease::Lease, posts::LastPost, servers::Link, tenant_queue::drop_later_effects,
};
use crate::{
    mailbox::CancelTarget,
    reactor::{Data, Reactor, Submitted},
};

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// An empty outbox; `execute` takes it back.
    pub(super) fn take_outbox(&mut self) -> Outbox {
        self.outboxes.take()
    }

    /// Executes all effects of a call. A client that got a server at once is fed later.
    pub(super) fn execute(&mut self, out: Outbox, source: Source<'_>) {
        self.execute_for(None, out, source);
    }

    /// Executes all effects of a call. True when `client`, whose input it was about, got a server at once, so that the
    /// caller goes on with that.
    pub(super) fn execute_for(&mut self, client: Option<usize>, mut out: Outbox, source: Source<'_>) -> bool {
        let mut go_on = false;
        let mut last_post = None;
        let mut at = 0;
        while at < out.effects.len() {
            if !self.tenant_queue.is_empty() && self.try_defer(&out, at, source) {
                at += 1;
                continue;
            }
            if let Effect::Send { to, .. } = out.effects[at] {
                at = self.execute_sends(&out, at, to, source);
                continue;
            }
            if let Effect::LoggedIn { .. } = out.effects[at] {
                self.log_in(&mut out, at);
                at += 1;
                continue;
            }
            if let Effect::UsesPool { client, pool } = out.effects[at] {
                if !self.on_uses_pool(client.slot(), pool) {
                    drop_later_effects(&mut out, at, client);
                }
                at += 1;
                continue;
            }
            if let Some(slot) = self.execute_one(&mut out.effects[at], &out.inserted, &mut last_post) {
                match client == Some(slot) {
                    true => go_on = true,
                    false => self.push_feed(slot),
                }
            }
            at += 1;
        }
        self.outboxes.put(out);
        go_on
    }

    /// Sends a run of effects to one peer with one system call. Returns where the run ends.
    fn execute_sends(&mut self, out: &Outbox, start: usize, to: Peer, source: Source<'_>) -> usize {
        let mut end = start + 1;
        while matches!(out.effects.get(end), Some(Effect::Send { to: other, .. }) if *other == to) {
            end += 1;
        }
        if end == start + 1 {
            let Effect::Send { bytes, .. } = &out.effects[start] else { unreachable!("a run is of sends") };
            match bytes {
                Bytes::Span(span) => self.send(to, source.span(span.clone())),
                Bytes::Insert(range) => self.send(to, Data::Bytes(&out.inserted[range.clone()])),
            }
        } else {
            let mut joined = self.outboxes.take_joined();
            for effect in &out.effects[start..end] {
                let Effect::Send { bytes, .. } = effect else { unreachable!("a run is of sends") };
                joined.extend_from_slice(match bytes {
                    Bytes::Span(span) => source.slice(span.clone()),
                    Bytes::Insert(range) => &out.inserted[range.clone()],
                });
            }
            self.send(to, Data::Bytes(&joined));
            self.outboxes.put_joined(joined);
        }
        end
    }

    fn send(&mut self, to: Peer, data: Data<'_>) {
        match to {
            Peer::Client(tag) => {
                let Some(client) = self.clients.get(tag.slot()) else { return };
                if client.login.is_answer_delayed() {
                    return self.delay_answer(tag.slot(), &data);
                }
                let unsent = self.reactor.unsent(client.conn);
                // What comes from a shared server is bounded elsewhere.
                let shares = matches!(client.lease, Lease::Shared { .. });
                let most = || self.process.listeners[usize::from(client.listener)].client_rules.max_unread;
                if unsent > 0 && !shares && unsent > most() {
                    return self.give_up_unread(tag.slot(), unsent);
                }
                match self.reactor.send(client.conn, data) {
                    Submitted::Done => {}
                    Submitted::Pending => self.note_unread(tag.slot()),
                    Submitted::Broken(_) => {
                        self.push_client_work(tag.slot(), ClientWork::Gone);
                    }
                }
            }
            Peer::Server(tag) => {
                let Some(server) = self.servers.get(tag.slot()) else { return };
                if server.usage.is_shared() {
                    return self.collect(tag.slot(), &data);
                }
                if self.preface.is_for(tag.slot()) {
                    return self.send_behind_preface(tag.slot(), &data);
                }
                self.send_to_server(tag.slot(), data);
            }
        }
    }

    pub(super) fn send_to_server(&mut self, slot: usize, data: Data<'_>) {
        let server = &self.servers[slot];
        if server.usage.is_in_use() {
            self.traffic.add_received(server.pool.id, data.bytes().len());
        }
        if let Submitted::Broken(error) = self.reactor.send(self.servers[slot].conn, data) {
            self.servers[slot].link = Link::Down;
            self.end_server(slot, CloseReason::Error(Blame::Server, format!("cannot send: {error}")));
        }
    }

    /// Disconnects a client for which more bytes wait than may be kept.
    #[cold]
    fn give_up_unread(&mut self, slot: usize, unsent: usize) {
        let client = &mut self.clients[slot];
        if client.life.close() {
            // At once, so that the client gets no time for reading all of them.
            self.push_client_work(slot, ClientWork::Gone);
            let message = format!("the client does not read: {unsent} bytes wait for it, and no more are kept");
            self.log_end(slot, &CloseReason::Error(Blame::Client, message));
        }
    }

    /// Executes an effect other than a send, and takes out what it owns. Says which client got a server at once.
    fn execute_one(&mut self, effect: &mut Effect, inserted: &[u8], last_post: &mut LastPost) -> Option<usize> {
        match *effect {
            Effect::Send { .. } | Effect::LoggedIn { .. } | Effect::UsesPool { .. } => {
                unreachable!("they are executed where the others are at hand")
            }
            Effect::Lease { client, pool, kind } => {
                let granted = match kind {
                    LeaseKind::Exclusive => self.check_out(client.slot(), pool, Need::Any),
                    LeaseKind::LongTerm => self.check_out(client.slot(), pool, Need::Lasting),
                    LeaseKind::Fresh => self.check_out(client.slot(), pool, Need::Fresh),
                    LeaseKind::Shared => self.join(client.slot(), pool),
                };
                return granted.then(|| client.slot());
            }
            Effect::Release { server, verdict } => self.release(server.slot(), verdict),
            Effect::Leave { client, server, verdict } => self.leave_share(client.slot(), server.slot(), verdict),
            Effect::Retain { server, briefly } => self.retain(server.slot(), briefly),
            Effect::Post { to, key, ref bytes } => self.post(to, key, inserted, bytes.clone(), last_post),
            Effect::Survey { client, ref question } => self.begin_survey(client, &inserted[question.clone()]),
            Effect::Authenticated { server } => self.on_server_authenticated(server.slot()),
            Effect::Ready { server } => self.on_server_ready(server.slot()),
            Effect::Pinned { server, reason } => self.on_pinned(server.slot(), reason),
            Effect::PinRefused { client, pool, reason } => self.on_pin_refused(client.slot(), pool, reason),
            Effect::Standing { client, standing } => self.set_standing(client.slot(), standing),
            Effect::Progress { client, in_transaction } => self.note_progress(client.slot(), in_transaction),
            Effect::Wake { client } => self.push_feed(client.slot()),
            Effect::NotifyFlushed { client } => self.request_flush_notice(client.slot()),
            Effect::LoginRequest { client, ref mut login } => {
                self.on_login_request(client.slot(), std::mem::take(login))
            }
            Effect::AuthFailed { client } => self.on_auth_failed(client.slot()),
            Effect::Cancel { asker, target, slot_bits, secret } => {
                self.pass_on_cancel(asker, CancelTarget { client: target, slot_bits, secret })
            }
            Effect::SideConnection { server, ref bytes, ref mut upgrade } => {
                let upgrade = upgrade.take().map(|upgrade| (inserted[upgrade.ask].to_vec(), upgrade.agreed));
                self.open_cancel(server.slot(), &inserted[bytes.clone()], upgrade);
            }
            Effect::StartTls { peer } => {
                assert!(self.upgrading.replace(peer).is_none(), "a call upgrades one connection");
            }
            Effect::ResetOne { pool } => self.request_reset(pool),
            Effect::Withdraw { client } => _ = self.withdraw(client.slot()),
            Effect::Outdated { server } => self.on_outdated(server.slot()),
            Effect::Close { peer: Peer::Client(tag), ref mut reason } => {
                let reason = std::mem::replace(reason, CloseReason::Done);
                if self.clients.contains(tag.slot()) {
                    self.push_close(tag.slot(), reason);
                }
            }
            Effect::Close { peer: Peer::Server(tag), ref mut reason } => {
                let reason = std::mem::replace(reason, CloseReason::Done);
                self.end_server(tag.slot(), reason);
            }
        }
        None
    }

    pub(super) fn push_feed(&mut self, slot: usize) {
        if self.clients.contains(slot) {
            self.push_client_work(slot, ClientWork::Feed);
        }
    }
}
