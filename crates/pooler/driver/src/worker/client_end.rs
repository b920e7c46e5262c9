//! Clients that go: sent away, closed, or gone by themselves.

use std::{collections::VecDeque, sync::atomic::Ordering::Relaxed, time::Duration};

use pool::Time;

use seam::{Blame, CloseReason, Protocol, Refusal, Standing};

use super::{
    ClientWork, Worker,
    calls::{ServerSessions, Source, call},
    clients::ClientConn,
    connection_log::End,
    input_buffer::InputBuffer,
    lease::Lease,
    life::ReadSide,
};
use crate::{
    client_state::State,
    listener::SentAway,
    mailbox::{Admission, ClientKey},
    reactor::Reactor,
};

/// How long the last bytes to a client may take to leave before it is closed all the same.
const MAX_LINGER_TIME: Duration = Duration::from_secs(5);

/// A client that waits for a server, has sent nothing more and ends its side later than this has given up: one that
/// ends its side on purpose does so right behind what it asks, and places in line are not for clients that have run
/// into their own time-outs.
const MAX_PROMPT_END: Duration = Duration::from_millis(250);

/// Clients that are closed as soon as their last bytes have left, and after [`MAX_LINGER_TIME`] at the latest.
#[derive(Default)]
pub(super) struct Lingering(VecDeque<(ClientKey, Time)>);

impl Lingering {
    fn push(&mut self, client: ClientKey, now: Time) {
        self.0.push_back((client, now + MAX_LINGER_TIME));
    }

    /// The next client whose time is up.
    fn take_late(&mut self, now: Time) -> Option<ClientKey> {
        self.0.front().filter(|(_, until)| *until <= now)?;
        self.0.pop_front().map(|(client, _)| client)
    }
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// Sends a client away. Its session tells it why.
    pub(super) fn refuse(&mut self, slot: usize, why: Refusal) {
        if self.clients[slot].life.is_closing() {
            return;
        }
        let reason = match &why {
            Refusal::Evicted => Some(SentAway::Evicted),
            Refusal::IdleTimeout => Some(SentAway::IdleTimeout),
            Refusal::LoginTimeout => Some(SentAway::LoginTimeout),
            Refusal::QueryTimeout => Some(SentAway::QueryTimeout),
            Refusal::TransactionIdleTimeout => Some(SentAway::TransactionIdleTimeout),
            Refusal::TransactionTimeout => Some(SentAway::TransactionTimeout),
            Refusal::ServerReplaced => Some(SentAway::ServerReplaced),
            Refusal::ShuttingDown => Some(SentAway::ShuttingDown),
            Refusal::Drained { .. } => Some(SentAway::Drained),
            Refusal::Disabled { .. } => Some(SentAway::Disabled),
            Refusal::Displaced => Some(SentAway::Crowded),
            Refusal::TooManyClients { .. }
            | Refusal::Full { .. }
            | Refusal::Throttled { .. }
            | Refusal::Killed
            | Refusal::DatabaseKilled => None,
        };
        self.clients[slot].sent_away = reason;
        if why == Refusal::QueryTimeout {
            // The session may end only the request, and the client stays.
            self.send_refusal(slot, why.clone());
            let Some(client) = self.clients.get_mut(slot) else { return };
            if !client.life.is_closing() && client.state == State::Idle && client.lease == Lease::None {
                client.sent_away = None;
                return;
            }
            self.note_sent_away(slot, &why);
        } else {
            self.note_sent_away(slot, &why);
            self.send_refusal(slot, why);
        }
        if self.clients.get(slot).is_some_and(|client| !client.life.is_closing()) {
            self.push_close(slot, CloseReason::Done);
        }
    }

    /// Counts and logs that a client is sent away.
    fn note_sent_away(&mut self, slot: usize, why: &Refusal) {
        let client = &self.clients[slot];
        let reason = client.sent_away;
        if let Some(reason) = reason {
            self.process.listeners[usize::from(client.listener)].count_sent_away(reason);
        }
        // Another line tells more of clients that are displaced.
        if self.process.logged.load().errors
            && !matches!(why, Refusal::ShuttingDown | Refusal::Drained { .. } | Refusal::Displaced)
            && let Some(withheld) = self.paces.sent_away.take_line(self.now)
        {
            tracing::info!(
                withheld,
                client = %self.client_address(slot), database = %self.database(slot), user = %self.user(slot),
                reason = reason.map_or_else(|| format!("{why:?}"), |reason| reason.label().to_owned()),
                "client sent away"
            );
        }
    }

    /// Has a session tell its client why it must go. False if the session does so later, and closes the client then.
    pub(super) fn send_refusal(&mut self, slot: usize, why: Refusal) -> bool {
        self.withdraw_from_tenants(slot);
        let told = self.call_client(slot, Source::NONE, |protocol, tag, session, out| {
            protocol.refuse(tag, session, why, out);
            !out.effects.is_empty()
        });
        // The end of a session that panicked closes its client.
        told.unwrap_or(true)
    }

    /// A client has ended its sending side. If its protocol allows that, it gets the answers that it is owed, and is
    /// closed then. Otherwise it has gone.
    pub(super) fn on_end_of_input(&mut self, slot: usize) {
        if !self.is_owed_answers(slot) {
            return self.push_client_gone(slot);
        }
        self.begin_lingering(slot);
        self.clients[slot].read_side = ReadSide::Ended;
        self.push_client_work(slot, ClientWork::Answered);
    }

    /// Whether a client may end its sending side before it has its answers, and may be owed some.
    pub(super) fn is_owed_answers(&self, slot: usize) -> bool {
        let client = &self.clients[slot];
        let rules = &self.process.listeners[usize::from(client.listener)].client_rules;
        let may_be_owed = match client.lease {
            // The rest of a command does not come any more.
            Lease::Held { server } => {
                let server = &self.servers[server as usize];
                let awaits = || call(|| self.shared.protocol.awaits_client(&client.session, &server.session));
                !(client.input.is_empty() && awaits().unwrap_or(false))
            }
            Lease::Waiting { .. } | Lease::Joining { .. } => {
                let is_prompt = self.now - client.since < MAX_PROMPT_END;
                client.read_side == ReadSide::Ended || is_prompt || self.reactor.unreceived(client.conn) > 0
            }
            Lease::None | Lease::Shared { .. } => true,
        };
        rules.answers_half_closed
            && !client.life.is_closing()
            && !client.places.is_in_tenant_queue()
            && client.standing != Standing::Blocked
            && may_be_owed
    }

    /// A client has ended its side, and may have all its answers: then it is closed, unless it has asked for more
    /// before.
    pub(super) fn on_answered(&mut self, slot: usize) {
        let client = &self.clients[slot];
        if client.life.is_closing()
            || self.awaits_answer(slot)
            || (!client.input.is_empty() && self.is_input_paused(slot))
        {
            return;
        }
        let client = self.client_key(slot);
        self.feed(slot);
        if self.client_is(client) && !self.clients[slot].life.is_closing() && !self.awaits_answer(slot) {
            self.push_close(slot, CloseReason::Goodbye);
        }
    }

    /// Whether a client that has ended its side waits for an answer.
    fn awaits_answer(&self, slot: usize) -> bool {
        let client = &self.clients[slot];
        match (client.standing, client.lease) {
            // Whether a pinned server has more to send is not known. The worker waits until the server is quiet.
            (_, Lease::Held { server }) if self.servers[server as usize].pinned.is_some() => true,
            (Standing::Blocked, _) => false,
            // Its session keeps what it has not read.
            (Standing::Reading, _) => true,
            _ => matches!(client.state, State::Active | State::Waiting),
        }
    }

    /// Closes a client once the work at hand is done. Its session gets no more input.
    pub(super) fn push_close(&mut self, slot: usize, reason: CloseReason) {
        self.clients[slot].life.close();
        self.push_client_work(slot, ClientWork::Close(reason));
    }

    pub(super) fn push_client_gone(&mut self, slot: usize) {
        self.push_client_work(slot, ClientWork::Gone);
    }

    /// The session (or the driver) wants the client closed: its servers are given back at once, its
    /// socket is closed when the last bytes have left.
    pub(super) fn close_client(&mut self, slot: usize, reason: &CloseReason) {
        self.log_end(slot, reason);
        self.clients[slot].log.end = End::of(reason);
        self.clients[slot].life.close();
        self.clients[slot].input = InputBuffer::default();
        let _ = self.leave_lobby(slot);
        self.end_session(slot);
        self.refresh_state(slot);
        match self.clients[slot].login.is_answer_delayed() {
            true => self.count_leaving(slot),
            false => self.linger_or_remove(slot),
        }
    }

    /// The client is about to go, but stays for a while yet. Its listener and tenants evict no other client meanwhile.
    fn count_leaving(&mut self, slot: usize) {
        let client = &mut self.clients[slot];
        if client.places.is_admitted() && client.places.begin_leaving() {
            self.process.listeners[usize::from(client.listener)].note_leaving();
            self.process.tenants.note_leaving(client.places.tenants(), self.now);
        }
    }

    /// Logs why a client is closed, if that is an error.
    pub(super) fn log_end(&mut self, slot: usize, reason: &CloseReason) {
        if std::mem::take(&mut self.clients[slot].log.login_failed) {
            let message = if let CloseReason::Error(_, message) = reason { Some(message.as_str()) } else { None };
            return self.log_login_failed(slot, message);
        }
        if let CloseReason::Error(blame, message) = reason
            && (self.process.logged.load().errors || *blame == Blame::Ours)
            && let Some(withheld) = self.paces.client_error.take_line(self.now)
        {
            let (client, database, user) = (self.client_address(slot), self.database(slot), self.user(slot));
            let lasted_s = self.age_in_log(slot);
            match blame {
                Blame::Client => tracing::info!(withheld, %client, %database, %user, lasted_s, "{message}"),
                Blame::Ours => tracing::error!(withheld, %client, %database, %user, lasted_s, "{message}"),
                _ => tracing::warn!(withheld, %client, %database, %user, lasted_s, "{message}"),
            }
        }
    }

    pub(super) fn linger_or_remove(&mut self, slot: usize) {
        let client = &self.clients[slot];
        // A client that has lost its place to another cannot stay by not reading.
        if self.reactor.is_sending(client.conn) && client.places.admission() != Admission::Displaced {
            self.begin_lingering(slot);
            self.count_leaving(slot);
        } else {
            self.reactor.half_close(self.clients[slot].conn);
            self.remove_client(slot);
        }
    }

    /// The client is closed after a while at the latest.
    pub(super) fn begin_lingering(&mut self, slot: usize) {
        self.lingering.push(self.client_key(slot), self.now);
    }

    /// Closes clients whose last bytes did not leave in time.
    pub(super) fn end_lingering(&mut self) {
        while let Some(client) = self.lingering.take_late(self.now) {
            if self.client_is(client) {
                self.remove_client(client.slot as usize);
            }
        }
    }

    /// Takes the client out of the queues it waits in, and has its session release what it holds.
    fn end_session(&mut self, slot: usize) {
        self.withdraw_from_tenants(slot);
        _ = self.withdraw(slot);
        let mut told = self.clients[slot].life.end();
        if !told && !self.clients[slot].life.is_broken() {
            told = true;
            let mut out = self.take_outbox();
            let tag = self.client_tag(slot);
            let protocol = std::sync::Arc::clone(&self.shared.protocol);
            let (client, mut servers) = (&mut self.clients[slot], ServerSessions(&mut self.servers));
            match call(|| protocol.client_gone(tag, &mut client.session, &mut servers, &mut out)) {
                Some(()) => {
                    self.execute(out, Source::NONE);
                }
                None => {
                    client.life.mark_broken();
                    self.discard(out);
                }
            }
        }
        if self.clients[slot].life.is_broken() {
            self.end_broken_session(slot, told);
        }
        assert!(self.clients[slot].lease == Lease::None, "a session that ends releases what it holds");
    }

    /// The connection is over.
    pub(super) fn remove_client(&mut self, slot: usize) {
        self.clients[slot].life.close();
        if std::mem::take(&mut self.clients[slot].log.login_failed) {
            self.log_login_failed(slot, None);
        }
        self.end_session(slot);
        self.end_turn(slot);
        let _ = self.leave_lobby(slot);
        self.forget_stalls_of_client(slot);
        self.log_disconnected(slot);
        self.leave_tenant_queues(slot);
        let mut client = self.clients.remove(slot);
        let listener = usize::from(client.listener);
        self.counters.client_left(client.listener, client.state);
        self.queues.leave(client.listener, &mut client.queued);
        self.close_connection(&client);
        if let Some(pool) = client.pool {
            self.pools.used(pool).clients.fetch_sub(1, Relaxed);
        }
        let rules = &self.process.listeners[listener];
        let places = &client.places;
        if places.is_admitted() {
            rules.left(places.is_leaving());
        }
        self.process.tenants.left(places.tenants(), places.is_leaving(), self.now);
        self.client_has_left(listener as u32, places.admission());
    }

    /// Closes a client's connection. If the client was told why, the worker first watches whether it has heard that.
    fn close_connection(&mut self, client: &ClientConn<P::Client>) {
        let tcp = self.process.listeners[usize::from(client.listener)].tcp;
        // Where the connection is closed at once, what comes from the client then resets it, and the client may not see
        // what it was told.
        let told = client.sent_away.is_some() || client.log.end.is_error();
        let unauthenticated = client.pool.is_none();
        if !(told && tcp && self.closing_clients.make_room(unauthenticated)) {
            return self.reactor.close(client.conn);
        }
        match self.reactor.half_close_and_detach(client.conn) {
            Ok(socket) => {
                self.closing_clients.watch(socket, (client.listener, unauthenticated), client.sent_away, self.now)
            }
            Err(error) => tracing::error!(%error, "cannot let go of a client's connection"),
        }
    }

    /// A client was accepted, and is gone before its session began.
    pub(super) fn drop_accepted(&mut self, listener: u32, admission: Admission) {
        if admission == Admission::Admitted {
            self.process.listeners[listener as usize].unauthenticated_left();
        }
        self.client_has_left(listener, admission);
    }

    fn client_has_left(&mut self, listener: u32, admission: Admission) {
        let listener = &self.process.listeners[listener as usize];
        match admission {
            Admission::Admitted => {}
            Admission::Surplus => {
                listener.surplus.fetch_sub(1, Relaxed);
            }
            Admission::Displaced => listener.displaced_left(),
            Admission::Kept => self.process.kept_places.give_back(),
        }
        self.process.boards[usize::from(self.number)].clients.fetch_sub(1, Relaxed);
    }
}
