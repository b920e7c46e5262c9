//! Connections in the making: resolving, connecting, trying the next address and the next host, until there is a server
//! or an error.

use std::{
    collections::VecDeque,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use pool::{Closed, ConnectFault, ServerId, Time};
use seam::{CloseReason, Peer, Protocol};

use super::{
    Worker,
    attempts::{Attempts, HostRequirement},
    calls::{Source, call},
    closing_servers::OpenConnection,
    pools::Location,
    server_log::NoConnection,
    servers::{Link, Phase, ServerConn},
};
use crate::{
    config::{Address, BeginWith},
    mailbox::{DialLookup, Message},
    reactor::{ConnId, Owner, Reactor},
    shared_pool::{self, SharedPool},
};

/// A connection in the making.
pub(super) struct Dial {
    pub(super) id: ServerId,
    pool: Arc<SharedPool>,
    address: Address,
    requirement: HostRequirement,
    attempts: Attempts,
    conn: Option<ConnId>,
    /// Addresses of the host still to be tried.
    addresses: VecDeque<SocketAddr>,
    /// When the phase at hand began.
    since: Time,
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// Begins a connection for a slot of the pool.
    pub(super) fn dial(&mut self, pool: Arc<SharedPool>, id: ServerId) {
        self.pools.enter(&pool);
        let spec = pool.spec();
        let host = match spec.hosts.begin {
            BeginWith::Next => pool.turn.fetch_add(1, Relaxed),
            BeginWith::First | BeginWith::Any | BeginWith::LastGood => pool.host.load(Relaxed),
        };
        let attempts = Attempts::new(spec, host, self.now);
        self.dial_again(pool, id, attempts, None);
    }

    /// Begins, or goes on with another host. `open`: the connection to the host before, which has yet to end.
    pub(super) fn dial_again(
        &mut self,
        pool: Arc<SharedPool>,
        id: ServerId,
        mut attempts: Attempts,
        open: Option<OpenConnection>,
    ) {
        pool.host.store(attempts.host_index(), Relaxed);
        let Some((address, requirement)) = attempts.next() else {
            self.pools.set_location(pool.id, id, Location::None);
            return self.connect_failed(&pool, id, attempts.errors(), ConnectFault::Transient, open);
        };
        self.dial_host(pool, id, attempts, address, requirement);
    }

    /// Begins with a host: one that is configured, or one to which such a host has redirected the worker.
    pub(super) fn dial_host(
        &mut self,
        pool: Arc<SharedPool>,
        id: ServerId,
        attempts: Attempts,
        address: Address,
        requirement: HostRequirement,
    ) {
        let pool_id = pool.id;
        let left = attempts.left();
        let dial = Dial {
            id,
            pool,
            address: address.clone(),
            requirement,
            attempts,
            conn: None,
            addresses: VecDeque::new(),
            since: self.now,
        };
        let slot = self.dials.insert(dial);
        self.pools.set_location(pool_id, id, Location::Dial(slot as u32));
        match address {
            Address::Unix(path) => {
                let conn = self.reactor.connect_unix(&path, Owner::Dial(slot as u32));
                self.on_dial_begun(slot, conn);
            }
            Address::Tcp { host, port } => match host.parse::<IpAddr>() {
                Ok(ip) => self.dial_addresses(slot, [SocketAddr::new(ip, port)].into()),
                Err(_) => {
                    let (shared, number) = (Arc::clone(&self.shared), usize::from(self.number));
                    let lookup = DialLookup { dial: slot as u32, pool: pool_id, server: id, left };
                    self.process.resolver.resolve(&host, port, move |(result, took)| {
                        shared.mailboxes[number].send(Message::Resolved { lookup, result, took });
                    });
                }
            },
        }
    }

    pub(super) fn on_resolved(&mut self, lookup: DialLookup, result: Result<Vec<SocketAddr>, String>, took: Duration) {
        // The dial may have been given up, and its slot be another pool's by now; or it has gone on to another host.
        let slot = lookup.dial as usize;
        let asked = |dial: &&Dial| {
            let (pool, server, left) = (dial.pool.id, dial.id, dial.attempts.left());
            DialLookup { dial: lookup.dial, pool, server, left } == lookup && dial.conn.is_none()
        };
        let Some(dial) = self.dials.get(slot).filter(asked) else { return };
        dial.pool.lock().stats.on_phase(shared_pool::ConnectPhase::Dns, took);
        match result {
            Ok(addresses) if !addresses.is_empty() => self.dial_addresses(slot, addresses.into()),
            Ok(_) => self.dial_failed(slot, "the name has no address", NoConnection::Lookup),
            Err(error) => self.dial_failed(slot, &error, NoConnection::Lookup),
        }
    }

    fn dial_addresses(&mut self, slot: usize, mut addresses: VecDeque<SocketAddr>) {
        let address = addresses.pop_front().expect("there is an address to try");
        self.dials[slot].addresses = addresses;
        self.dials[slot].since = self.now;
        let conn = self.reactor.connect_tcp(address, Owner::Dial(slot as u32));
        self.on_dial_begun(slot, conn);
    }

    fn on_dial_begun(&mut self, slot: usize, conn: io::Result<ConnId>) {
        match conn {
            Ok(conn) => self.dials[slot].conn = Some(conn),
            Err(error) => self.next_address(slot, &error),
        }
    }

    fn next_address(&mut self, slot: usize, error: &io::Error) {
        if self.dials[slot].addresses.is_empty() {
            let text = format!("cannot connect to {}: {error}", self.dials[slot].address);
            return self.dial_failed(slot, &text, NoConnection::Connect);
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
        self.log_server_connected(&dial.pool, dial.id, conn, &dial.address);
        let server_slot = self.servers.vacant_key();
        self.reactor.set_owner(conn, Owner::Server(server_slot as u32));
        dial.pool.lock().stats.on_phase(shared_pool::ConnectPhase::Tcp, self.now - dial.since);
        let mut out = self.take_outbox();
        let tag = self.server_tag(server_slot);
        let protocol = &self.shared.protocol;
        let session = call(|| match dial.requirement {
            HostRequirement::Full => protocol.server_start(tag, dial.pool.id, &mut out),
            HostRequirement::Fallback => protocol.server_start_fallback(tag, dial.pool.id, &mut out),
            HostRequirement::Redirected => protocol.server_start_redirected(tag, dial.pool.id, &mut out),
        });
        let Some(session) = session else {
            self.discard(out);
            self.reactor.close(conn);
            self.pools.set_location(dial.pool.id, dial.id, Location::None);
            return self.connect_failed(
                &dial.pool,
                dial.id,
                "Poolhouse's session panicked as it began",
                ConnectFault::Transient,
                None,
            );
        };
        self.pools.set_location(dial.pool.id, dial.id, Location::Server(server_slot as u32));
        let phase = Phase::Starting(Box::new(dial.attempts));
        let server = ServerConn::new((session, conn), (dial.pool, dial.id), (dial.address, phase), self.now);
        self.servers.insert(server);
        self.execute(out, Source::NONE);
        if self.upgrading.is_some() {
            self.upgrade(Peer::Server(self.server_tag(server_slot)), &[]);
        }
        self.rearm_server(server_slot);
    }

    /// The host that is tried does not serve: the next one is tried.
    fn dial_failed(&mut self, slot: usize, error: &str, why: NoConnection) {
        let mut dial = self.dials.remove(slot);
        self.log_not_connected(&dial.pool, dial.id, &dial.address, why);
        dial.attempts.note(error);
        self.dial_again(dial.pool, dial.id, dial.attempts, None);
    }

    /// No server was made. `open`: the connection that was tried last, if it has yet to end.
    pub(super) fn connect_failed(
        &mut self,
        pool: &Arc<SharedPool>,
        id: ServerId,
        error: &str,
        fault: ConnectFault,
        open: Option<OpenConnection>,
    ) {
        if let Some(withheld) = self.paces.server_lost.take_line(self.now) {
            let spec = pool.spec();
            tracing::warn!(withheld, database = %spec.database, user = %spec.user, "{error}");
        }
        pool.set_last_error(error);
        self.forget_start(pool, id, fault, open);
    }

    pub(super) fn drop_dial(&mut self, slot: usize, reason: Closed) {
        let dial = self.dials.remove(slot);
        if reason == Closed::Error {
            self.log_not_connected(&dial.pool, dial.id, &dial.address, NoConnection::Connect);
        }
        self.pools.set_location(dial.pool.id, dial.id, Location::None);
        if let Some(conn) = dial.conn {
            self.reactor.close(conn);
        }
        dial.pool.set_last_error(format!("connecting to {} takes too long", dial.address));
    }

    /// Where there are several addresses or hosts, each gets its part of the time for connecting.
    pub(super) fn try_next_addresses(&mut self) {
        let late = |dial: &Dial| {
            let share = dial.attempts.share() / (dial.addresses.len() as u32 + 1);
            let another = dial.attempts.left() > 0 || (dial.conn.is_some() && !dial.addresses.is_empty());
            another && self.now - dial.since >= share
        };
        let late: Vec<usize> = self.dials.iter().filter(|(_, dial)| late(dial)).map(|(slot, _)| slot).collect();
        for slot in late {
            if let Some(conn) = self.dials[slot].conn.take() {
                self.reactor.close(conn);
            }
            self.next_address(slot, &io::ErrorKind::TimedOut.into());
        }
        let slow = |server: &ServerConn<P::Server>| {
            let Phase::Starting(attempts) = &server.phase else { return false };
            attempts.left() > 0 && !server.link.is_ending() && self.now - server.born >= attempts.share()
        };
        let slow: Vec<usize> = self.servers.iter().filter(|(_, s)| slow(s)).map(|(slot, _)| slot).collect();
        for slot in slow {
            // Another host is not kept waiting for the end of a connection to one that is silent.
            self.servers[slot].link = Link::Down;
            let message = "its login takes too long".to_owned();
            self.end_server(slot, CloseReason::StartFailed { permanent: false, message });
        }
    }
}
