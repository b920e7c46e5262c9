//! Servers: dialling them, handing their bytes to their sessions, moving and closing them.

use std::{
    collections::VecDeque,
    io,
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use pool::{Closed, Grant, ServerId, Time};
use protocol::{Blame, CloseReason, Input, PoolId, Protocol, Verdict};

use super::{
    Work, Worker,
    effects::{ClientSessions, Source},
};
use crate::{
    config::Address,
    mailbox::Message,
    reactor::{Buffer, ConnId, Data, Owner, Submitted},
    shared_pool::{self, SharedPool},
    socket,
};

/// Most bytes of unconsumed input kept for one server (an incomplete message).
const MAX_HELD: usize = 64 << 10;
/// How long a cancel request may take before the server it was for is closed.
const SIDE_TIME: Duration = Duration::from_secs(5);
/// Cancel requests under way for one server; further ones are dropped, as they would ask for the same.
const MAX_SIDES: u32 = 4;

/// Where a pool's connection is on this worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Local {
    None,
    Dial(u32),
    Server(u32),
}

/// A connection in the making.
pub(super) struct Dial {
    pub(super) id: ServerId,
    pool: Arc<SharedPool>,
    conn: Option<ConnId>,
    /// Addresses still to be tried.
    addresses: VecDeque<SocketAddr>,
    /// When the phase at hand began.
    since: Time,
}

/// What a server is doing, beyond being held or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Logging in.
    Starting,
    /// Idle or held.
    Live,
    /// Being reset or checked.
    Cleaning,
}

/// One server.
pub(super) struct ServerConn<S> {
    pub(super) session: S,
    pub(super) conn: ConnId,
    pub(super) pool: Arc<SharedPool>,
    pub(super) id: ServerId,
    pub(super) phase: Phase,
    /// Its login was accepted.
    authenticated: bool,
    /// Its end has been seen, and is dealt with as soon as the work at hand is done.
    pub(super) ending: bool,
    /// A cancel request for it got lost and may still arrive: it must not be lent again.
    pub(super) tainted: bool,
    /// The lease that is ending was for a transaction.
    pub(super) served: bool,
    /// The client that holds it.
    pub(super) holder: Option<u32>,
    held: Vec<u8>,
    /// Since when it is held, idle or in its phase.
    pub(super) since: Time,
    pub(super) born: Time,
    pub(super) pinned: Option<&'static str>,
    /// Cancel requests under way for it.
    pub(super) sides: u32,
    /// The verdict of a release that waits for those to end.
    pub(super) after_side: Option<Verdict>,
}

/// A server on its way to another worker.
pub(crate) struct MovingServer<P: Protocol> {
    session: P::Server,
    socket: OwnedFd,
    pool: Arc<SharedPool>,
    id: ServerId,
    born: Time,
}

/// A connection beside a server's own, for a cancel request.
pub(super) struct Side {
    conn: ConnId,
    server: u32,
    server_id: ServerId,
    pool: PoolId,
    bytes: Vec<u8>,
    until: Time,
}

impl<P: Protocol> Worker<P> {
    // ---- dialling ----

    /// Begins a connection for a slot of the pool.
    pub(super) fn dial(&mut self, pool: Arc<SharedPool>, id: ServerId) {
        self.pool(pool.id);
        let address = pool.spec.address.clone();
        let dial = Dial { id, pool: Arc::clone(&pool), conn: None, addresses: VecDeque::new(), since: self.now };
        let slot = self.dials.insert(dial);
        self.set_whereabouts(pool.id, id, Local::Dial(slot as u32));
        match address {
            Address::Unix(path) => self.try_connect(slot, socket::connect_unix(&path)),
            Address::Tcp { host, port } => match host.parse::<IpAddr>() {
                Ok(ip) => self.dial_addresses(slot, [SocketAddr::new(ip, port)].into()),
                Err(_) => {
                    let (shared, number, dial) = (Arc::clone(&self.shared), usize::from(self.number), slot as u32);
                    let pool = pool.id;
                    self.shared.resolver.resolve(&host, port, move |(result, took)| {
                        shared.mailboxes[number].send(Message::Resolved { dial, pool, server: id, result, took });
                    });
                }
            },
        }
    }

    pub(super) fn on_resolved(
        &mut self,
        slot: usize,
        (pool, server): (PoolId, ServerId),
        result: Result<Vec<SocketAddr>, String>,
        took: Duration,
    ) {
        // The dial may have been given up, and its slot be another pool's by now.
        let asked = |dial: &&Dial| dial.pool.id == pool && dial.id == server && dial.conn.is_none();
        let Some(dial) = self.dials.get(slot).filter(asked) else { return };
        dial.pool.lock().stats.on_phase(shared_pool::Phase::Dns, took);
        match result {
            Ok(addresses) if !addresses.is_empty() => self.dial_addresses(slot, addresses.into()),
            Ok(_) => self.dial_failed(slot, "the name has no address"),
            Err(error) => self.dial_failed(slot, &error),
        }
    }

    fn dial_addresses(&mut self, slot: usize, mut addresses: VecDeque<SocketAddr>) {
        let address = addresses.pop_front().expect("there is an address to try");
        self.dials[slot].addresses = addresses;
        self.dials[slot].since = self.now;
        self.try_connect(slot, socket::connect_tcp(address));
    }

    fn try_connect(&mut self, slot: usize, socket: io::Result<OwnedFd>) {
        let conn = socket.and_then(|socket| self.reactor.connect(socket, Owner::Dial(slot as u32)));
        match conn {
            Ok(conn) => self.dials[slot].conn = Some(conn),
            Err(error) => self.next_address(slot, &error),
        }
    }

    fn next_address(&mut self, slot: usize, error: &io::Error) {
        if self.dials[slot].addresses.is_empty() {
            let text = format!("cannot connect to {}: {error}", self.dials[slot].pool.spec.address);
            return self.dial_failed(slot, &text);
        }
        let addresses = std::mem::take(&mut self.dials[slot].addresses);
        self.dial_addresses(slot, addresses);
    }

    pub(super) fn on_dialled(&mut self, slot: usize, result: io::Result<()>) {
        let conn = self.dials[slot].conn.take().expect("a connect that ended was begun");
        if let Err(error) = result {
            self.reactor.close(conn);
            return self.next_address(slot, &error);
        }
        let dial = self.dials.remove(slot);
        let server_slot = self.servers.vacant_key();
        self.reactor.set_owner(conn, Owner::Server(server_slot as u32));
        dial.pool.lock().stats.on_phase(shared_pool::Phase::Tcp, self.now - dial.since);
        let mut out = self.outbox();
        let session = self.shared.protocol.server_start(self.server_tag(server_slot), dial.pool.id, &mut out);
        self.set_whereabouts(dial.pool.id, dial.id, Local::Server(server_slot as u32));
        self.servers.insert(ServerConn {
            session,
            conn,
            pool: dial.pool,
            id: dial.id,
            phase: Phase::Starting,
            authenticated: false,
            ending: false,
            tainted: false,
            served: false,
            holder: None,
            held: Vec::new(),
            since: self.now,
            born: self.now,
            pinned: None,
            sides: 0,
            after_side: None,
        });
        self.execute(out, Source::NONE);
        self.rearm_server(server_slot);
    }

    fn dial_failed(&mut self, slot: usize, error: &str) {
        let dial = self.dials.remove(slot);
        self.set_whereabouts(dial.pool.id, dial.id, Local::None);
        self.connect_failed(&dial.pool, dial.id, error, false);
    }

    fn connect_failed(&mut self, pool: &Arc<SharedPool>, id: ServerId, error: &str, permanent: bool) {
        if let Some(withheld) = self.paces.server_lost.permits(self.now) {
            tracing::warn!(withheld, database = %pool.spec.database, user = %pool.spec.user, "{error}");
        }
        pool.set_last_error(error);
        let now = self.now;
        self.operate(pool, |guarded| {
            guarded.stats.on_closed(Closed::Error);
            guarded.pool.connect_failed(id, permanent, now);
        });
        self.shared.registry.release(pool.member, &mut self.demands);
    }

    pub(super) fn drop_dial(&mut self, slot: usize) {
        let dial = self.dials.remove(slot);
        self.set_whereabouts(dial.pool.id, dial.id, Local::None);
        if let Some(conn) = dial.conn {
            self.reactor.close(conn);
        }
        dial.pool.set_last_error(format!("connecting to {} takes too long", dial.pool.spec.address));
    }

    // ---- their bytes ----

    pub(super) fn on_server_received(&mut self, slot: usize, buffer: &Rc<Buffer>, length: usize) {
        if length == 0 {
            return self.push_server_gone(slot, "the server closed the connection".into());
        }
        let server = &mut self.servers[slot];
        if server.held.is_empty() {
            self.hand_server_input(slot, Source::Ring(buffer, 0), &buffer[..length]);
        } else {
            let mut held = std::mem::take(&mut server.held);
            held.extend_from_slice(&buffer[..length]);
            self.hand_server_input(slot, Source::Bytes(&held), &held);
        }
        self.rearm_server(slot);
    }

    fn hand_server_input(&mut self, slot: usize, source: Source<'_>, bytes: &[u8]) {
        let protocol = Arc::clone(&self.shared.protocol);
        let tag = self.server_tag(slot);
        let id = self.servers[slot].id;
        let mut at = 0;
        while at < bytes.len() {
            let mut out = self.outbox();
            let Some(server) = self.servers.get_mut(slot).filter(|server| server.id == id) else {
                self.outboxes.push(out);
                return;
            };
            server.held = Vec::new();
            let input = Input { bytes: &bytes[at..], full: bytes.len() - at >= MAX_HELD };
            let mut clients = ClientSessions(&mut self.clients);
            let used = protocol.server_input(tag, &mut server.session, &mut clients, input, &mut out);
            assert!(used <= bytes.len() - at, "a session consumes no more than it was given");
            // What is left over must be seen by whoever wants to move the server meanwhile.
            server.held = bytes[at + used..].to_vec();
            self.execute(out, source.skip(at));
            at += used;
            if used == 0 {
                break;
            }
        }
    }

    /// Receives from the server if its bytes can go anywhere.
    pub(super) fn rearm_server(&mut self, slot: usize) {
        let Some(server) = self.servers.get(slot) else { return };
        if let Some(holder) = server.holder
            && self.reactor.is_sending(self.clients[holder as usize].conn)
        {
            return;
        }
        self.reactor.receive(server.conn);
    }

    pub(super) fn on_server_sent(&mut self, slot: usize) {
        if let Some(holder) = self.servers[slot].holder {
            self.rearm_client(holder as usize);
        }
    }

    pub(super) fn on_server_broken(&mut self, slot: usize, error: &io::Error) {
        self.push_server_gone(slot, format!("the connection to the server broke: {error}"));
    }

    fn push_server_gone(&mut self, slot: usize, message: String) {
        self.end_server(slot, CloseReason::Error(Blame::Server, message));
    }

    /// Has a server removed once the work at hand is done.
    pub(super) fn end_server(&mut self, slot: usize, reason: CloseReason) {
        let Some(server) = self.servers.get_mut(slot) else { return };
        server.ending = true;
        let (server, id) = (slot as u32, server.id);
        self.work.push_back(Work::ServerGone { server, id, reason });
    }

    // ---- becoming usable ----

    pub(super) fn on_server_authenticated(&mut self, slot: usize) {
        let server = &mut self.servers[slot];
        server.authenticated = true;
        server.pool.lock().stats.on_phase(shared_pool::Phase::Auth, self.now - server.since);
        server.since = self.now;
    }

    pub(super) fn on_server_ready(&mut self, slot: usize) {
        let server = &mut self.servers[slot];
        let (pool, id, phase) = (Arc::clone(&server.pool), server.id, server.phase);
        let (took, authenticated) = (self.now - server.since, server.authenticated);
        server.phase = Phase::Live;
        server.since = self.now;
        let (home, now) = (self.home(), self.now);
        let grant = self.operate(&pool, |guarded| {
            let grant = match phase {
                Phase::Starting => {
                    let last = if authenticated { shared_pool::Phase::Ready } else { shared_pool::Phase::Auth };
                    guarded.stats.on_phase(last, took);
                    guarded.stats.created += 1;
                    guarded.pool.connected(id, home, now)
                }
                Phase::Cleaning => guarded.pool.checked(id, true, home, now),
                Phase::Live => unreachable!("a session is ready once per start or cleaning"),
            };
            if let Some(grant) = &grant {
                guarded.stats.on_grant(grant);
            }
            grant
        });
        match grant {
            Some(grant) => self.deliver(pool, grant),
            None => self.tell_idle(&pool),
        }
    }

    /// Lets the session reset or check its server; it ends with `Effect::Ready` or a close.
    pub(super) fn clean(&mut self, pool: &Arc<SharedPool>, id: ServerId, reset: bool) {
        let Some(slot) = self.server_here(pool, id) else { return };
        let server = &mut self.servers[slot];
        server.phase = Phase::Cleaning;
        server.since = self.now;
        let mut out = self.outbox();
        let tag = self.server_tag(slot);
        let session = &mut self.servers[slot].session;
        let protocol = Arc::clone(&self.shared.protocol);
        if reset {
            protocol.reset(tag, session, &mut out);
        } else {
            protocol.check(tag, session, &mut out);
        }
        self.execute(out, Source::NONE);
        self.rearm_server(slot);
    }

    pub(super) fn on_pinned(&mut self, slot: usize, reason: Option<&'static str>) {
        let server = &mut self.servers[slot];
        if server.pinned == reason {
            return;
        }
        let stats = &mut server.pool.lock().stats;
        if let Some(old) = server.pinned {
            stats.on_pinned(old, -1);
        }
        if let Some(new) = reason {
            stats.on_pinned(new, 1);
        }
        server.pinned = reason;
    }

    // ---- moving ----

    /// Takes a granted server out of this worker. `None` if it cannot leave: then it is closed.
    pub(super) fn move_out(&mut self, slot: usize) -> Option<MovingServer<P>> {
        if self.servers[slot].ending {
            return None;
        }
        if self.reactor.is_sending(self.servers[slot].conn) || !self.servers[slot].held.is_empty() {
            self.push_server_gone(slot, "the server sent something unasked".into());
            return None;
        }
        let server = self.servers.remove(slot);
        self.set_whereabouts(server.pool.id, server.id, Local::None);
        match self.reactor.detach(server.conn) {
            Ok(socket) => {
                let ServerConn { session, pool, id, born, .. } = server;
                Some(MovingServer { session, socket, pool, id, born })
            }
            Err(error) => {
                tracing::error!(%error, "cannot move a server");
                self.forget_server(&server.pool, server.id, Closed::Error);
                None
            }
        }
    }

    pub(super) fn on_server_arrived(&mut self, moving: MovingServer<P>, grant: Grant) {
        let MovingServer { session, socket, pool, id, born } = moving;
        self.pool(pool.id);
        let slot = self.servers.vacant_key();
        let conn = match self.reactor.attach(socket, Owner::Server(slot as u32)) {
            Ok(conn) => conn,
            Err(error) => {
                tracing::error!(%error, "cannot take over a server");
                self.forget_server(&pool, id, Closed::Error);
                return self.on_grant_lost(pool.id, grant);
            }
        };
        self.moves += 1;
        self.set_whereabouts(pool.id, id, Local::Server(slot as u32));
        self.servers.insert(ServerConn {
            session,
            conn,
            pool: Arc::clone(&pool),
            id,
            phase: Phase::Live,
            authenticated: true,
            ending: false,
            tainted: false,
            served: false,
            holder: None,
            held: Vec::new(),
            since: self.now,
            born,
            pinned: None,
            sides: 0,
            after_side: None,
        });
        self.on_granted(pool, grant);
    }

    // ---- closing ----

    /// Says goodbye and closes; the pool has given it up already.
    pub(super) fn retire(&mut self, slot: usize) {
        if self.servers[slot].phase != Phase::Starting {
            let mut out = self.outbox();
            let tag = self.server_tag(slot);
            let protocol = Arc::clone(&self.shared.protocol);
            protocol.retire(tag, &mut self.servers[slot].session, &mut out);
            self.execute(out, Source::NONE);
        }
        let server = self.servers.remove(slot);
        assert!(server.holder.is_none(), "a server that is held is not retired");
        self.set_whereabouts(server.pool.id, server.id, Local::None);
        self.reactor.close(server.conn);
    }

    /// The connection has ended, or its session gave it up. Its holder is told.
    pub(super) fn remove_server(&mut self, slot: usize, reason: CloseReason) {
        if let Some(holder) = self.servers[slot].holder {
            let mut out = self.outbox();
            let tag = self.server_tag(slot);
            let protocol = Arc::clone(&self.shared.protocol);
            let mut clients = ClientSessions(&mut self.clients);
            protocol.server_gone(tag, &mut self.servers[slot].session, &mut clients, &mut out);
            // The lease is over before what the session makes of it, which may be asking for another.
            self.clients[holder as usize].lease = super::leases::Lease::None;
            self.execute(out, Source::NONE);
            self.refresh_state(holder as usize);
            self.push_client_feed(holder);
        }
        let server = self.servers.remove(slot);
        self.set_whereabouts(server.pool.id, server.id, Local::None);
        self.reactor.close(server.conn);
        if let Some(pinned) = server.pinned {
            server.pool.lock().stats.on_pinned(pinned, -1);
        }
        let message = match &reason {
            CloseReason::StartFailed { message, .. } | CloseReason::Error(_, message) => message.as_str(),
            CloseReason::Goodbye | CloseReason::Done => "the server ended the connection",
        };
        if server.phase == Phase::Starting {
            let permanent = matches!(reason, CloseReason::StartFailed { permanent: true, .. });
            return self.connect_failed(&server.pool, server.id, message, permanent);
        }
        let (database, user) = (&server.pool.spec.database, &server.pool.spec.user);
        if let Some(withheld) = self.paces.server_lost.permits(self.now) {
            tracing::warn!(withheld, %database, %user, held = server.holder.is_some(), "server lost: {message}");
        }
        server.pool.set_last_error(message);
        self.forget_server(&server.pool, server.id, Closed::Error);
    }

    fn push_client_feed(&mut self, client: u32) {
        let serial = self.clients[client as usize].serial;
        self.work.push_back(Work::Feed { client, serial });
    }

    fn forget_server(&mut self, pool: &Arc<SharedPool>, id: ServerId, reason: Closed) {
        let now = self.now;
        self.operate(pool, |guarded| {
            guarded.stats.on_closed(reason);
            guarded.pool.lost(id, now);
        });
        self.shared.registry.release(pool.member, &mut self.demands);
    }

    // ---- cancel requests ----

    /// Opens a connection beside a server's own, to where that is connected, and says `bytes` there.
    pub(super) fn open_side(&mut self, slot: usize, bytes: &[u8]) {
        let Some(server) = self.servers.get(slot).filter(|server| server.sides < MAX_SIDES) else { return };
        let id = server.id;
        let socket = match &server.pool.spec.address {
            Address::Unix(path) => socket::connect_unix(path),
            Address::Tcp { .. } => match socket::peer(self.reactor.socket(server.conn)) {
                Some(address) => socket::connect_tcp(address),
                None => return,
            },
        };
        let side = self.sides.vacant_key();
        match socket.and_then(|socket| self.reactor.connect(socket, Owner::Side(side as u32))) {
            Ok(conn) => {
                let until = self.now + SIDE_TIME;
                let pool = self.servers[slot].pool.id;
                let bytes = bytes.to_vec();
                self.sides.insert(Side { conn, server: slot as u32, server_id: id, pool, bytes, until });
                self.servers[slot].sides += 1;
            }
            Err(error) => tracing::warn!(%error, "cannot send a cancel request"),
        }
    }

    pub(super) fn on_side_connected(&mut self, slot: usize, result: io::Result<()>) {
        let side = &self.sides[slot];
        let bytes = side.bytes.clone();
        let sent = result.is_ok() && !matches!(self.reactor.send(side.conn, Data::Bytes(&bytes)), Submitted::Broken(_));
        if sent {
            self.reactor.receive(self.sides[slot].conn);
        } else {
            self.end_side(slot);
        }
    }

    pub(super) fn on_side_received(&mut self, slot: usize, length: usize) {
        if length == 0 {
            self.end_side(slot);
        } else {
            self.reactor.receive(self.sides[slot].conn);
        }
    }

    fn end_side(&mut self, slot: usize) {
        let side = self.sides.remove(slot);
        self.reactor.close(side.conn);
        let it = |s: &&mut ServerConn<P::Server>| s.id == side.server_id && s.pool.id == side.pool;
        let Some(server) = self.servers.get_mut(side.server as usize).filter(it) else { return };
        server.sides -= 1;
        if server.sides == 0
            && let Some(verdict) = server.after_side.take()
        {
            self.check_in(side.server as usize, verdict);
        }
    }

    /// Gives up cancel requests that take too long; their servers are closed when they come back, because the
    /// request may still arrive.
    pub(super) fn end_slow_sides(&mut self) {
        let late: Vec<usize> =
            self.sides.iter().filter(|(_, side)| side.until <= self.now).map(|(slot, _)| slot).collect();
        for slot in late {
            let Side { server, server_id, pool, .. } = self.sides[slot];
            let it = |s: &&mut ServerConn<P::Server>| s.id == server_id && s.pool.id == pool;
            if let Some(server) = self.servers.get_mut(server as usize).filter(it) {
                server.tainted = true;
            }
            self.end_side(slot);
        }
    }

    /// Where a name has several addresses, gives each its part of the time there is for connecting.
    pub(super) fn try_next_addresses(&mut self) {
        let late = |dial: &Dial| {
            let share = dial.pool.spec.config.connect_timeout / (dial.addresses.len() as u32 + 1);
            dial.conn.is_some() && !dial.addresses.is_empty() && self.now - dial.since >= share
        };
        let late: Vec<usize> = self.dials.iter().filter(|(_, dial)| late(dial)).map(|(slot, _)| slot).collect();
        for slot in late {
            let conn = self.dials[slot].conn.take().expect("it was being connected");
            self.reactor.close(conn);
            self.next_address(slot, &io::ErrorKind::TimedOut.into());
        }
    }

    /// The database's own name for a server's connection, when the protocol tells one.
    pub(super) fn backend(&self, slot: usize) -> Option<u32> {
        self.shared.protocol.backend(&self.servers[slot].session)
    }
}
