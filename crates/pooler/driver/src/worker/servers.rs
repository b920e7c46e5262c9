//! Servers: handing their bytes to their sessions, their becoming usable, and their moves between workers.

use std::{io, rc::Rc, sync::Arc, time::Duration};

use pool::{ServerId, Time};
use seam::{Blame, CloseReason, Input, Peer, PoolId, Protocol};

use super::{
    Work, Worker,
    attempts::Attempts,
    calls::{ClientSessions, HasSession, Source, call},
    cancel_request::Cancels,
    input_buffer::InputBuffer,
    pools::Location,
    usage::Usage,
};
use crate::{
    config::Address,
    mailbox::MovingServer,
    reactor::{Buffer, ConnId, Owner, Reactor},
    shared_pool::{self, Guarded, SharedPool},
};

/// Most bytes of unconsumed input kept for one server (an incomplete message).
const MAX_SERVER_INPUT: usize = 64 << 10;

/// What a server is doing, beyond being held or not.
pub(super) enum Phase {
    /// It logs in. If that fails, these hosts are tried next.
    Starting(Box<Attempts>),
    Live,
    /// Being reset or checked.
    Cleaning,
    /// Asked whether it answers, as the replacement of a shared server that does not.
    Probing,
}

/// What is known of a server's connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Link {
    Up,
    /// The server is removed as soon as the work at hand is done.
    Ending,
    /// The same, and the connection has ended or is broken.
    Down,
}

impl Link {
    pub(super) fn is_ending(self) -> bool {
        self != Self::Up
    }
}

pub(super) struct ServerConn<S> {
    pub(super) session: S,
    pub(super) conn: ConnId,
    pub(super) pool: Arc<SharedPool>,
    pub(super) id: ServerId,
    /// The host of the upstream.
    pub(super) address: Address,
    pub(super) phase: Phase,
    /// The database has accepted the login.
    pub(super) authenticated: bool,
    pub(super) link: Link,
    /// The server was given back soiled, and no client has had it since.
    pub(super) soiled: bool,
    /// The lease that has ended was for a transaction, which is not counted yet.
    pub(super) served: bool,
    pub(super) usage: Usage,
    /// Input that the session has not consumed: an incomplete message.
    pub(super) input: InputBuffer,
    /// The session has not consumed all of the input of the call at hand.
    pub(super) unconsumed: bool,
    /// When the server came into its phase, was granted, or became idle.
    pub(super) since: Time,
    pub(super) born: Time,
    pub(super) pinned: Option<&'static str>,
    pub(super) cancels: Cancels,
}

impl<S> ServerConn<S> {
    /// A server of no client, at the beginning of this phase.
    pub(super) fn new(
        (session, conn): (S, ConnId),
        (pool, id): (Arc<SharedPool>, ServerId),
        (address, phase): (Address, Phase),
        now: Time,
    ) -> Self {
        Self {
            session,
            conn,
            pool,
            id,
            address,
            phase,
            authenticated: false,
            link: Link::Up,
            soiled: false,
            served: false,
            usage: Usage::Free,
            input: InputBuffer::default(),
            unconsumed: false,
            since: now,
            born: now,
            pinned: None,
            cancels: Cancels::default(),
        }
    }

    /// The server may be used from now on. Returns the phase that has ended, and how long it took.
    fn end_phase(&mut self, now: Time) -> (Phase, Duration) {
        let took = now - std::mem::replace(&mut self.since, now);
        (std::mem::replace(&mut self.phase, Phase::Live), took)
    }

    /// The last part of a start: what follows the login, if the session has reported the end of the login.
    fn last_part_of_start(&self) -> shared_pool::ConnectPhase {
        if self.authenticated { shared_pool::ConnectPhase::Ready } else { shared_pool::ConnectPhase::Auth }
    }

    /// Whether the server has sent something that its session has not consumed.
    fn has_input(&self) -> bool {
        self.unconsumed || !self.input.is_empty()
    }
}

impl<S> HasSession for ServerConn<S> {
    type Session = S;

    fn session(&mut self) -> &mut S {
        &mut self.session
    }
}

/// Pools that try to connect again at once because a host has accepted a server of another pool. Each of them lets as
/// many more try if it succeeds. So not all pools ask a host that is full again after one success.
const MAX_RETRIES_ON_RECOVERY: u32 = 4;

/// Whether the server that a pool is about to get shows that its host has recovered: the pool has no other server, or
/// could make none before. Any other success is no reason for other pools to try again.
fn shows_recovery(guarded: &Guarded) -> bool {
    let counts = guarded.pool.counts();
    guarded.pool.is_connect_failing() || counts.idle + counts.in_use + counts.checking == 0
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    // ---- their bytes ----

    pub(super) fn on_server_received(&mut self, slot: usize, buffer: &Rc<Buffer>, length: usize) {
        if length == 0 {
            self.servers[slot].link = Link::Down;
            return self.push_server_gone(slot, "the server closed the connection".into());
        }
        self.note_activity(slot);
        let shared = self.servers[slot].usage.is_shared();
        let was_overdue = shared && self.note_answer(slot);
        let server = &mut self.servers[slot];
        let id = server.id;
        let pool = server.pool.id;
        if server.usage.is_in_use() {
            self.traffic.add_sent(pool, length);
        }
        if server.input.is_empty() {
            let (used, need) = self.hand_server_input(slot, Source::Ring(buffer, 0), &buffer[..length]);
            if used < length
                && let Some(server) = self.servers.get_mut(slot).filter(|server| server.id == id)
            {
                server.input.extend(&buffer[used..length]);
                server.input.consumed(0, need);
            }
        } else {
            server.input.extend(&buffer[..length]);
            if server.input.is_enough(MAX_SERVER_INPUT) {
                let mut input = std::mem::take(&mut server.input);
                let (used, need) = self.hand_server_input(slot, Source::Bytes(input.bytes()), input.bytes());
                input.consumed(used, need);
                if let Some(server) = self.servers.get_mut(slot).filter(|server| server.id == id) {
                    server.input = input;
                }
            }
        }
        if was_overdue {
            self.admit_if_open(pool, slot);
        }
        self.rearm_server(slot);
    }

    /// Lets the session consume input for as long as it makes progress. Returns how much it took, and how much of the
    /// rest it needs at least.
    fn hand_server_input(&mut self, slot: usize, source: Source<'_>, bytes: &[u8]) -> (usize, usize) {
        let tag = self.server_tag(slot);
        let id = self.servers[slot].id;
        let (mut at, mut need) = (0, 0);
        while at < bytes.len() {
            let mut out = self.take_outbox();
            let Some(server) = self.servers.get_mut(slot).filter(|server| server.id == id) else {
                self.outboxes.put(out);
                return (bytes.len(), 0);
            };
            let (full, now) = (bytes.len() - at >= MAX_SERVER_INPUT, self.now.since(Time(0)));
            let input = Input { bytes: &bytes[at..], full, unread: false, now };
            let protocol = &self.shared.protocol;
            let mut clients = ClientSessions::new(&mut self.clients);
            let used = call(|| {
                let used = protocol.server_input(tag, &mut server.session, &mut clients, input, &mut out);
                assert!(used <= bytes.len() - at, "a session consumes no more than it was given");
                used
            });
            let shown = clients.shown;
            let Some(used) = used else {
                self.on_server_defect(slot, shown, out);
                return (bytes.len(), 0);
            };
            // If another worker wants the server meanwhile, it must be known that something is left over.
            server.unconsumed = at + used < bytes.len();
            need = out.need;
            self.execute(out, source.skip(at));
            if let Some(server) = self.servers.get_mut(slot).filter(|server| server.id == id) {
                server.unconsumed = false;
            }
            at += used;
            if self.upgrading.is_some() {
                self.upgrade(Peer::Server(tag), &bytes[at..]);
                return (bytes.len(), 0);
            }
            if used == 0 {
                break;
            }
        }
        (at, need)
    }

    /// Receives from the server if its bytes can go anywhere.
    pub(super) fn rearm_server(&mut self, slot: usize) {
        let Some(server) = self.servers.get(slot) else { return };
        match &server.usage {
            Usage::Held(hold) if self.is_behind_its_server(hold.client()) => return,
            Usage::Shared(share) if share.is_stalled() => return,
            Usage::Retained if self.posts_wait() => {
                if !self.posters.contains(&(slot as u32)) {
                    self.posters.push(slot as u32);
                }
                return;
            }
            _ => {}
        }
        self.reactor.receive(server.conn);
    }

    pub(super) fn on_server_sent(&mut self, slot: usize) {
        match &self.servers[slot].usage {
            Usage::Held(hold) => self.rearm_client(hold.client()),
            Usage::Shared(_) => self.on_shared_sent(slot),
            Usage::Free | Usage::Retained | Usage::AwaitsCancels(_) => {}
        }
    }

    pub(super) fn on_server_broken(&mut self, slot: usize, error: &io::Error) {
        self.servers[slot].link = Link::Down;
        if let Some(reason) = self.tls_failure(slot, error) {
            return self.end_server(slot, reason);
        }
        self.push_server_gone(slot, format!("the connection to the server broke: {error}"));
    }

    fn push_server_gone(&mut self, slot: usize, message: String) {
        self.end_server(slot, CloseReason::Error(Blame::Server, message));
    }

    /// Removes a server once the work at hand is done.
    pub(super) fn end_server(&mut self, slot: usize, reason: CloseReason) {
        let Some(server) = self.servers.get_mut(slot) else { return };
        if server.link == Link::Up {
            server.link = Link::Ending;
        }
        let (server, id) = (slot as u32, server.id);
        self.work.push_back(Work::ServerGone { server, id, reason });
    }

    // ---- becoming usable ----

    pub(super) fn on_server_authenticated(&mut self, slot: usize) {
        let server = &mut self.servers[slot];
        server.authenticated = true;
        server.pool.lock().stats.on_phase(shared_pool::ConnectPhase::Auth, self.now - server.since);
        server.since = self.now;
    }

    pub(super) fn on_server_ready(&mut self, slot: usize) {
        let server = &mut self.servers[slot];
        if matches!(server.phase, Phase::Probing) {
            return self.work.push_back(Work::ProbeAnswered { server: slot as u32, id: server.id });
        }
        let (pool, id, last) = (Arc::clone(&server.pool), server.id, server.last_part_of_start());
        let (phase, took) = server.end_phase(self.now);
        let (home, now, mut reached) = (self.home(), self.now, false);
        let grant = self.pools.operate(&pool, self.now, |guarded| {
            let grant = match &phase {
                Phase::Starting(_) => {
                    reached = shows_recovery(guarded);
                    guarded.stats.on_created(last, took);
                    guarded.pool.handle_connected(id, home, now)
                }
                Phase::Cleaning => guarded.pool.handle_checked(id, true, home, now),
                Phase::Live | Phase::Probing => unreachable!("a session is ready once per start or cleaning"),
            };
            if let Some(grant) = &grant {
                guarded.stats.on_grant(grant);
            }
            grant
        });
        if matches!(phase, Phase::Starting(_)) {
            self.log_database_back(&pool);
        }
        if reached {
            self.end_outage(slot);
        }
        if let Some(grant) = grant {
            self.deliver(pool.id, grant);
        }
    }

    /// The start of a server has ended, and its session retains it.
    pub(super) fn retain_from_start(&mut self, slot: usize) {
        let server = &mut self.servers[slot];
        let (pool, id, last) = (Arc::clone(&server.pool), server.id, server.last_part_of_start());
        let (_, took) = server.end_phase(self.now);
        let (home, now, mut reached) = (self.home(), self.now, false);
        let kept = self.pools.operate(&pool, self.now, |guarded| {
            reached = shows_recovery(guarded);
            guarded.stats.on_created(last, took);
            guarded.pool.handle_connected_in_use(id, home, now)
        });
        self.servers[slot].usage = if kept { Usage::Retained } else { Usage::Free };
        self.log_database_back(&pool);
        if reached {
            self.end_outage(slot);
        }
    }

    /// The host of this server accepts connections again: some of the pools that could not connect try again at once.
    fn end_outage(&mut self, slot: usize) {
        let (now, mut tries) = (self.now, 0);
        while tries < MAX_RETRIES_ON_RECOVERY
            && let Some(pool) = self.process.registry.outages.take_one(&self.servers[slot].address)
        {
            if let Some(pool) = self.process.registry.known(pool) {
                tries += u32::from(
                    self.pools.operate(&pool, self.now, |guarded| guarded.pool.handle_upstream_recovered(now)),
                );
            }
        }
    }

    /// Has a session reset or check its server. `Effect::Ready` or a close ends that.
    pub(super) fn clean(&mut self, pool: &Arc<SharedPool>, id: ServerId, reset: bool) {
        let Some(slot) = self.server_here(pool.id, id) else { return };
        // A server may report that it is clean before it was asked, and a client may have it by now.
        if !pool.lock().pool.is_checking(id) {
            return;
        }
        let server = &mut self.servers[slot];
        server.phase = Phase::Cleaning;
        server.since = self.now;
        let called = self.call_server(slot, Source::NONE, |protocol, tag, session, out| match reset {
            true => protocol.reset(tag, session, out),
            false => protocol.check(tag, session, out),
        });
        if called.is_some() {
            self.rearm_server(slot);
        }
    }

    pub(super) fn on_pinned(&mut self, slot: usize, reason: Option<&'static str>) {
        let server = &mut self.servers[slot];
        if server.pinned == reason {
            return;
        }
        {
            let mut guarded = server.pool.lock();
            if let Some(old) = server.pinned {
                guarded.stats.on_pinned(old, -1);
            }
            if let Some(new) = reason {
                guarded.stats.on_pinned(new, 1);
            }
            guarded.pool.set_pinned(server.id, server.usage.is_retained() || reason.is_some());
        }
        server.pinned = reason;
        let (holder, spec) = (server.usage.holder(), server.pool.spec());
        if let (Some(reason), Some(client)) = (reason, holder)
            && let Some(withheld) = self.paces.pinned.take_line(self.now)
        {
            tracing::info!(
                withheld,
                client = %self.client_address(client), database = %spec.database, user = %spec.user,
                server = self.backend(slot), reason,
                "a client keeps its server beyond its transaction"
            );
        }
    }

    /// A client may not keep a server, because clients keep as many servers of its pool as they may.
    pub(super) fn on_pin_refused(&mut self, slot: usize, pool: PoolId, reason: &'static str) {
        let Some(pool) = self.pools.find_or_make(pool, self.now) else { return };
        pool.lock().stats.on_pin_refused(reason);
        // If the session ends for this reason, another line of the log says so.
        let goes_on = self.clients.get(slot).is_some_and(|client| !client.life.is_closing());
        if goes_on && let Some(withheld) = self.paces.pin_refused.take_line(self.now) {
            let spec = pool.spec();
            tracing::warn!(
                withheld,
                client = %self.client_address(slot), database = %spec.database, user = %spec.user, reason,
                "a client may not keep a server beyond its transaction: max_pinned have one"
            );
        }
    }

    // ---- moving ----

    /// Takes a granted server out of this worker. `None` if it cannot leave: then it is closed.
    pub(super) fn move_out(&mut self, slot: usize) -> Option<MovingServer<P, R>> {
        if self.servers[slot].link.is_ending() {
            return None;
        }
        if self.reactor.is_sending(self.servers[slot].conn) || self.servers[slot].has_input() {
            self.push_server_gone(slot, "the server sent something unasked".into());
            return None;
        }
        let server = self.servers.remove(slot);
        self.pools.set_location(server.pool.id, server.id, Location::None);
        match self.reactor.detach(server.conn) {
            Ok(connection) => {
                let ServerConn { session, pool, id, address, soiled, born, .. } = server;
                Some(MovingServer { session, connection, pool, id, address, soiled, born })
            }
            Err(error) => {
                tracing::error!(%error, "cannot move a server");
                self.forget_server(&server.pool, server.id, None);
                None
            }
        }
    }

    /// Takes a server in that was granted to a client of this worker. False if that cannot be done, and it is lost.
    pub(super) fn take_in(&mut self, moving: MovingServer<P, R>) -> bool {
        let MovingServer { session, connection, pool, id, address, soiled, born } = moving;
        self.pools.enter(&pool);
        let slot = self.servers.vacant_key();
        let conn = match self.reactor.attach_moved(connection, Owner::Server(slot as u32)) {
            Ok(conn) => conn,
            Err(error) => {
                tracing::error!(%error, "cannot take over a server");
                self.forget_server(&pool, id, None);
                return false;
            }
        };
        self.counters.server_moved();
        self.pools.set_location(pool.id, id, Location::Server(slot as u32));
        let server = ServerConn::new((session, conn), (pool, id), (address, Phase::Live), self.now);
        self.servers.insert(ServerConn { authenticated: true, soiled, born, ..server });
        true
    }

    /// The database's own name for a server's connection, if it has one.
    pub(super) fn backend(&self, slot: usize) -> Option<u32> {
        call(|| self.shared.protocol.backend(&self.servers[slot].session)).flatten()
    }
}
