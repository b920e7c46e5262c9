//! Connections beside a server's own, for cancel requests. A server is withheld from others while one is under way. One that must
//! be secured first asks for that, and says nothing else unless it gets it.

use std::{io, time::Duration};

use pool::{ServerId, Time};
use protocol::{PoolId, Protocol};

use super::{Worker, servers::ServerConn};
use crate::{
    config::Address,
    reactor::{ConnId, Data, Owner, Submitted},
    socket,
    tls::Channel,
};

/// How long a cancel request may take before the server it was for is closed.
const SIDE_TIME: Duration = Duration::from_secs(5);
/// Cancel requests under way for one server; further ones are dropped, as they would ask for the same.
const MAX_SIDES: u32 = 4;

/// A connection beside a server's own, for a cancel request.
pub(super) struct Side {
    conn: ConnId,
    server: u32,
    server_id: ServerId,
    pool: PoolId,
    bytes: Vec<u8>,
    step: Step,
    until: Time,
}

/// What is asked for first, and the byte that agrees.
pub(super) type Upgrade = (Vec<u8>, u8);

enum Step {
    /// The connection must be secured before anything is said.
    Ask(Upgrade, Box<Channel>),
    /// That was asked for.
    Asked(u8, Box<Channel>),
    /// The handshake is under way.
    Handshake,
    /// What was to be said is said, or can be said at once.
    Plain,
}

impl<P: Protocol> Worker<P> {
    /// Opens a connection beside a server's own, to where that is connected, secures it if so wished, and says `bytes` there.
    pub(super) fn open_side(&mut self, slot: usize, bytes: &[u8], upgrade: Option<Upgrade>) {
        let Some(server) = self.servers.get(slot).filter(|server| server.sides < MAX_SIDES) else { return };
        let id = server.id;
        let socket = match &server.address {
            Address::Unix(path) => socket::connect_unix(path),
            Address::Tcp { .. } => match socket::peer(self.reactor.socket(server.conn)) {
                Some(address) => socket::connect_tcp(address),
                None => return,
            },
        };
        let step = match upgrade {
            None => Step::Plain,
            Some(upgrade) => match super::secure::connect(&server.pool.spec(), &server.address) {
                Ok(channel) => Step::Ask(upgrade, Box::new(channel)),
                Err(error) => return tracing::warn!(%error, "cannot send a cancel request"),
            },
        };
        let side = self.sides.vacant_key();
        match socket.and_then(|socket| self.reactor.connect(socket, Owner::Side(side as u32))) {
            Ok(conn) => {
                let until = self.now + SIDE_TIME;
                let pool = self.servers[slot].pool.id;
                let bytes = bytes.to_vec();
                self.sides.insert(Side { conn, server: slot as u32, server_id: id, pool, bytes, step, until });
                self.servers[slot].sides += 1;
            }
            Err(error) => tracing::warn!(%error, "cannot send a cancel request"),
        }
    }

    pub(super) fn on_side_connected(&mut self, slot: usize, result: io::Result<()>) {
        if result.is_err() {
            return self.end_side(slot);
        }
        match std::mem::replace(&mut self.sides[slot].step, Step::Plain) {
            Step::Ask((ask, _), channel) if ask.is_empty() => self.secure_side(slot, *channel),
            Step::Ask((ask, agreed), channel) => {
                self.sides[slot].step = Step::Asked(agreed, channel);
                self.say_on_side(slot, &ask);
            }
            _ => self.on_side_secured(slot),
        }
    }

    pub(super) fn on_side_received(&mut self, slot: usize, bytes: &[u8]) {
        match std::mem::replace(&mut self.sides[slot].step, Step::Plain) {
            // Anything behind the agreement would be somebody else's.
            Step::Asked(agreed, channel) if bytes == [agreed] => self.secure_side(slot, *channel),
            Step::Plain if !bytes.is_empty() => self.reactor.receive(self.sides[slot].conn),
            _ => self.end_side(slot),
        }
    }

    fn secure_side(&mut self, slot: usize, channel: Channel) {
        let side = &mut self.sides[slot];
        side.step = Step::Handshake;
        let conn = side.conn;
        match self.reactor.start_tls(conn, channel, &[]) {
            Submitted::Done | Submitted::Pending => self.reactor.receive(conn),
            Submitted::Broken(_) => self.end_side(slot),
        }
    }

    /// What was to be said can be said.
    pub(super) fn on_side_secured(&mut self, slot: usize) {
        self.sides[slot].step = Step::Plain;
        let bytes = std::mem::take(&mut self.sides[slot].bytes);
        self.say_on_side(slot, &bytes);
    }

    fn say_on_side(&mut self, slot: usize, bytes: &[u8]) {
        let conn = self.sides[slot].conn;
        match self.reactor.send(conn, Data::Bytes(bytes)) {
            Submitted::Broken(_) => self.end_side(slot),
            Submitted::Done | Submitted::Pending => self.reactor.receive(conn),
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
}
