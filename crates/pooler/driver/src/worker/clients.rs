//! Clients: accepting them, and handing their bytes to their sessions.

use std::{
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use pool::Time;
use seam::{Input, Origin, Peer, PoolId, Protocol, Refusal, Standing};

use super::{
    ClientWork, Worker,
    calls::{HasSession, ServerSessions, Source, call},
    connection_log::ConnectionLog,
    input_buffer::InputBuffer,
    lease::Lease,
    life::{Life, ReadSide},
    login_delays::LoginDelay,
    places::Places,
    sharing::MAX_UNREAD_BYTES,
    timeout_queues::{Queue, QueueEntries},
};
use crate::{
    client_state::State,
    listener::SentAway,
    mailbox::{Accepted, Admission, ClientKey},
    reactor::{Buffer, ConnId, Owner, Reactor},
    shared_pool::SharedPool,
    socket,
    throttle::{self, LoginTicket},
};

/// A client's entry. Tens of thousands of clients are idle, so every byte counts.
pub(crate) struct ClientConn<C> {
    pub(super) session: C,
    /// Input that the session has not consumed: an incomplete message, or a request that waits for a server. It is
    /// empty and takes no memory while the client is idle.
    pub(super) input: InputBuffer,
    pub(super) lease: Lease,
    pub(super) born: Time,
    /// When the client came into its state, or its request began.
    pub(super) since: Time,
    pub(super) pool: Option<PoolId>,
    pub(super) queued: QueueEntries,
    pub(super) conn: ConnId,
    /// The client's number among the logins from its address, if passwords are guessed from there.
    pub(super) login_ticket: Option<Box<LoginTicket>>,
    pub(super) login: LoginDelay,
    /// Tells the client from others that had the same slot.
    pub(super) serial: u32,
    /// The number under which the client waits in pools.
    pub(super) waiter: u32,
    pub(super) listener: u16,
    /// The window in which the client was last counted for coalescing.
    pub(super) counted: u16,
    pub(super) state: State,
    pub(super) standing: Standing,
    pub(super) places: Places,
    pub(super) life: Life,
    pub(super) read_side: ReadSide,
    /// The session is to be told when all has left that was sent to the client.
    pub(super) notify_flushed: bool,
    /// Why the client was sent away, if it was.
    pub(super) sent_away: Option<SentAway>,
    pub(super) log: ConnectionLog,
}

impl<C> ClientConn<C> {
    /// A client that has just been accepted, and is to log in.
    #[expect(clippy::too_many_arguments, reason = "a constructor of a struct with many more fields")]
    fn new(
        session: C,
        conn: ConnId,
        listener: u16,
        admission: Admission,
        serial: u32,
        queued: QueueEntries,
        log: ConnectionLog,
        now: Time,
    ) -> Self {
        Self {
            session,
            input: InputBuffer::default(),
            lease: Lease::None,
            born: now,
            since: now,
            pool: None,
            queued,
            conn,
            login_ticket: None,
            login: LoginDelay::default(),
            serial,
            waiter: serial,
            listener,
            counted: 0,
            state: State::Login,
            standing: Standing::Login,
            places: Places::new(admission),
            life: Life::Open,
            read_side: ReadSide::Open,
            notify_flushed: false,
            log,
            sent_away: None,
        }
    }

    /// Whether nothing is lost if the client goes: nothing is in progress, or it waits for what other clients may do.
    pub(super) fn has_no_work(&self) -> bool {
        match self.state {
            State::Idle => self.standing != Standing::Reading,
            State::Login | State::Subscribed => true,
            State::Active | State::Waiting => self.standing == Standing::Blocked,
            State::Transaction => self.standing == Standing::Preparing,
            State::Closing => false,
        }
    }
}

impl<C> HasSession for ClientConn<C> {
    type Session = C;

    fn session(&mut self) -> &mut C {
        &mut self.session
    }
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    // ---- coming ----

    /// A client is to be served by this worker.
    pub(super) fn add_client(&mut self, accepted: Accepted<R::Socket>, listener: u32, admission: Admission) {
        let Accepted { socket, peer, received } = accepted;
        let slot = self.clients.vacant_key();
        let conn = match self.reactor.attach(socket, Owner::Client(slot as u32)) {
            Ok(conn) => conn,
            Err(error) => {
                tracing::error!(%error, "cannot watch a new client");
                return self.drop_accepted(listener, admission);
            }
        };
        let origin = Origin {
            listener: listener as u16,
            address: peer.map(|peer| peer.ip().to_canonical()),
            port: peer.map_or(0, |peer| peer.port()),
            uid: if peer.is_none() { self.reactor.peer_uid(conn) } else { None },
        };
        let mut out = self.take_outbox();
        let tag = self.client_tag(slot);
        let Some(session) = call(|| self.shared.protocol.client_start(tag, origin, &mut out)) else {
            self.discard(out);
            self.reactor.close(conn);
            return self.drop_accepted(listener, admission);
        };
        let (serial, log) = (self.new_serial(), ConnectionLog::new(peer.map(|peer| (peer.ip(), peer.port()))));
        let mut queued = QueueEntries::default();
        self.queues.join(listener as u16, &mut queued, Queue::Login, slot, self.now);
        self.clients.insert(ClientConn::new(session, conn, listener as u16, admission, serial, queued, log, self.now));
        self.counters.client_came(listener as u16, State::Login);
        if admission == Admission::Admitted {
            let net = peer.map(|peer| throttle::net(peer.ip()));
            self.process.listeners[listener as usize].enter_lobby(self.lobby_client(slot), net, self.now);
        }
        self.execute(out, Source::NONE);
        let why = match admission {
            Admission::Admitted | Admission::Surplus if self.shutdown.is_draining() => Some(Refusal::ShuttingDown),
            Admission::Admitted | Admission::Displaced | Admission::Kept => None,
            Admission::Surplus => {
                let (limit, setting) = self.process.listeners[listener as usize].client_limit();
                Some(Refusal::TooManyClients { limit, setting })
            }
        };
        if let Some(why) = why {
            self.send_refusal(slot, why);
        }
        if !received.is_empty()
            && let Some(client) = self.clients.get_mut(slot)
        {
            client.input.extend(&received);
            self.push_client_work(slot, ClientWork::Feed);
        }
        self.rearm_client(slot);
    }

    /// A client has logged in, and has all the places that it needs.
    pub(super) fn admit_logged_in(&mut self, slot: usize) {
        if !self.leave_lobby(slot) {
            // It hears that in the place of the answer to its login.
            if !self.clients[slot].places.is_in_tenant_queue() {
                self.join_tenant_queue(slot, None, false);
            }
            return self.push_displaced(slot);
        }
        let pool = self.clients[slot].pool.expect("it has logged in");
        let shared = Arc::clone(self.pools.used(pool));
        self.update_user_timeout(slot, &shared, None);
        if let Some(why) = shared.refusal_of_newcomers(self.clients[slot].places.is_in_tenant_queue()) {
            self.push_client_work(slot, ClientWork::Refuse(why));
        }
    }

    /// Its session uses another pool from now on. False if that takes no clients: then the client has to go, and
    /// nothing is to be done for it there.
    pub(super) fn on_uses_pool(&mut self, slot: usize, pool: PoolId) -> bool {
        let shared = self.pools.find_or_make(pool, self.now);
        let Some(client) = self.clients.get_mut(slot) else { return true };
        // It stays with the one before if this one is forgotten: its session hears of that when it asks for a server.
        let Some(shared) = shared.filter(|shared| shared.enter()) else { return true };
        let before = client.pool.replace(pool).expect("a client that has logged in uses a pool");
        let before = Arc::clone(self.pools.used(before));
        before.clients.fetch_sub(1, Relaxed);
        self.update_user_timeout(slot, &shared, Some(&before));
        let refusal = shared.refusal_of_newcomers(false);
        // A client may go on with a database that takes no new ones.
        let refusal = refusal.filter(|why| before.id != pool || !matches!(why, Refusal::Disabled { .. }));
        let stays = refusal.is_none();
        if let Some(why) = refusal {
            self.refuse(slot, why);
        }
        stays
    }

    /// Gives the client's socket the time-out that follows from the idle time of this pool.
    fn update_user_timeout(&mut self, slot: usize, shared: &SharedPool, before: Option<&SharedPool>) {
        let client = &self.clients[slot];
        let rules = &self.process.listeners[usize::from(client.listener)];
        // The idle time of the pool, or of a listener that was reconfigured, may differ from the one that the socket
        // began with.
        let timeout_of =
            |pool: &SharedPool| socket::user_timeout(pool.spec().timeouts.over(rules.timeouts()).client_idle);
        if self.process.config.tcp.user_timeout.is_some() {
            return;
        }
        let (was, user_timeout) = (before.map_or(rules.user_timeout, timeout_of), timeout_of(shared));
        if rules.tcp && user_timeout != was {
            self.reactor.set_user_timeout(client.conn, user_timeout);
        }
    }

    // ---- their bytes ----

    pub(super) fn on_client_received(&mut self, slot: usize, buffer: &Rc<Buffer>, length: usize) {
        let client = &mut self.clients[slot];
        if length == 0 {
            return self.on_end_of_input(slot);
        }
        if client.life.is_closing() {
            return;
        }
        let serial = client.serial;
        if let Lease::Held { server } = client.lease {
            self.note_activity(server as usize);
        }
        let client = &mut self.clients[slot];
        if client.input.is_empty() && !self.is_input_paused(slot) && !self.queue_for_login_turn(slot) {
            let (used, need) = self.hand_over(slot, Source::Ring(buffer, 0), &buffer[..length]);
            if used < length
                && let Some(client) = self.open_client(slot, serial)
            {
                client.input.extend(&buffer[used..length]);
                client.input.consumed(0, need);
            }
        } else {
            let input = &mut self.clients[slot].input;
            input.extend(&buffer[..length]);
            if input.is_enough(self.process.config.max_buffered_input) {
                self.feed(slot);
            }
        }
        self.rearm_client(slot);
    }

    /// The client that is meant, if its session goes on hearing it.
    fn open_client(&mut self, slot: usize, serial: u32) -> Option<&mut ClientConn<P::Client>> {
        self.clients.get_mut(slot).filter(|client| client.serial == serial && !client.life.is_closing())
    }

    /// Hands buffered input to the session again.
    pub(super) fn feed(&mut self, slot: usize) {
        if self.clients[slot].input.is_empty() {
            return self.rearm_client(slot);
        }
        if self.is_input_paused(slot) || self.queue_for_login_turn(slot) {
            return;
        }
        let serial = self.clients[slot].serial;
        let mut input = std::mem::take(&mut self.clients[slot].input);
        let (used, need) = self.hand_over(slot, Source::Bytes(input.bytes()), input.bytes());
        input.consumed(used, need);
        if let Some(client) = self.open_client(slot, serial) {
            debug_assert!(client.input.is_empty());
            client.input = input;
        }
        self.rearm_client(slot);
    }

    /// Lets the session consume input for as long as it makes progress. Returns how much it took, and how much of the
    /// rest it needs at least.
    fn hand_over(&mut self, slot: usize, source: Source<'_>, bytes: &[u8]) -> (usize, usize) {
        let length = bytes.len();
        let tag = self.client_tag(slot);
        let (mut at, mut need) = (0, 0);
        while at < length {
            let Some(client) = self.clients.get(slot).filter(|client| !client.life.is_closing()) else {
                return (length, 0);
            };
            // What came before may have been more than its login, and this is another one.
            let asks_again = |worker: &mut Self| at > 0 && worker.queue_for_login_turn(slot);
            if client.lease.is_waiting() || self.is_input_paused(slot) || asks_again(self) {
                need = 0;
                break;
            }
            let mut out = self.take_outbox();
            let client = &mut self.clients[slot];
            let input = Input {
                bytes: &bytes[at..],
                full: length - at >= self.process.config.max_buffered_input,
                unread: self.reactor.is_sending(client.conn),
                now: self.now.since(Time(0)),
            };
            let protocol = &self.shared.protocol;
            let mut servers = ServerSessions(&mut self.servers);
            let used = call(|| {
                let used = protocol.client_input(tag, &mut client.session, &mut servers, input, &mut out);
                assert!(used <= length - at, "a session consumes no more than it was given");
                used
            });
            let Some(used) = used else {
                self.on_client_defect(slot, out);
                return (length, 0);
            };
            need = out.need;
            if let Lease::Shared { heard, .. } = &mut client.lease {
                *heard = true;
            }
            let go_on = self.execute_for(Some(slot), out, source.skip(at));
            at += used;
            if self.upgrading.is_some() {
                self.upgrade(Peer::Client(tag), &bytes[at..]);
                return (length, 0);
            }
            if used == 0 && !go_on {
                break;
            }
        }
        (at, need)
    }

    /// Receives from the client if its input can go anywhere.
    pub(super) fn rearm_client(&mut self, slot: usize) {
        let Some(client) = self.clients.get(slot) else { return };
        if client.life.is_closing()
            || client.read_side == ReadSide::Ended
            || client.lease.is_waiting()
            || client.places.is_in_tenant_queue()
        {
            return;
        }
        if client.input.len() >= self.process.config.max_buffered_input {
            if client.read_side == ReadSide::HungUp && !self.is_owed_answers(slot) {
                self.push_client_gone(slot);
            }
            return;
        }
        if let Lease::Held { server } = client.lease
            && (self.reactor.is_sending(self.servers[server as usize].conn)
                || self.servers[server as usize].cancels.are_under_way())
        {
            return;
        }
        if matches!(client.lease, Lease::Shared { .. }) && self.is_input_paused(slot) {
            return;
        }
        // The worker does not receive from a client that does not read its own answers either.
        if self.reactor.is_sending(client.conn) && !self.upstream_keeps_replies(client) {
            return;
        }
        self.reactor.receive(client.conn);
    }

    fn upstream_keeps_replies(&self, client: &ClientConn<P::Client>) -> bool {
        self.process.listeners[usize::from(client.listener)].client_rules.upstream_keeps_replies
            && match client.lease {
                Lease::Held { .. } => true,
                // What is answered here is not the upstream's to keep.
                Lease::None => client.state != State::Login && self.reactor.unsent(client.conn) < MAX_UNREAD_BYTES,
                Lease::Shared { .. } | Lease::Waiting { .. } | Lease::Joining { .. } => false,
            }
    }

    /// Whether the server that a client holds has to wait until the client has read what was sent to it.
    pub(super) fn is_behind_its_server(&self, slot: usize) -> bool {
        let client = &self.clients[slot];
        self.reactor.is_sending(client.conn)
            && !self.process.listeners[usize::from(client.listener)].client_rules.session_keeps_replies
    }

    pub(super) fn on_client_sent(&mut self, slot: usize) {
        let client = &mut self.clients[slot];
        if client.life.is_closing() {
            if !client.login.is_answer_delayed() {
                self.linger_or_remove(slot);
            }
            return;
        }
        if std::mem::take(&mut client.notify_flushed) {
            self.flushed_clients.push(ClientKey { slot: slot as u32, serial: client.serial });
        }
        match client.lease {
            Lease::Held { server } => {
                self.rearm_client(slot);
                self.rearm_server(server as usize);
            }
            Lease::Shared { .. } => {
                self.rearm_client(slot);
                self.end_stall(slot);
            }
            Lease::None | Lease::Waiting { .. } | Lease::Joining { .. } => {
                self.end_stall(slot);
                self.rearm_client(slot);
            }
        }
    }

    /// A session is to be told when all bytes for its client have left.
    pub(super) fn request_flush_notice(&mut self, slot: usize) {
        let Some(client) = self.clients.get_mut(slot) else { return };
        match self.reactor.is_sending(client.conn) {
            true => client.notify_flushed = true,
            false => self.flushed_clients.push(ClientKey { slot: slot as u32, serial: client.serial }),
        }
    }

    /// The client has ended its connection while the worker did not receive from it, because it waits for a server or
    /// does not read.
    pub(super) fn on_client_hung_up(&mut self, slot: usize) {
        let is_owed = self.is_owed_answers(slot);
        let client = &mut self.clients[slot];
        if client.read_side == ReadSide::Open {
            client.read_side = ReadSide::HungUp;
        }
        // In all other states the worker sees the end when it receives from the client again.
        if client.lease.is_waiting()
            || client.places.is_in_tenant_queue()
            || client.input.len() >= self.process.config.max_buffered_input
        {
            match is_owed {
                true => self.begin_lingering(slot),
                false => self.push_client_gone(slot),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::servers::ServerConn;

    /// Bytes of a client's entry and of a server's, each without its session.
    #[test]
    fn the_entries_of_connections_stay_small() {
        assert!(size_of::<ClientConn<()>>() <= 192, "{}", size_of::<ClientConn<()>>());
        assert!(size_of::<ServerConn<()>>() <= 208, "{}", size_of::<ServerConn<()>>());
    }
}
