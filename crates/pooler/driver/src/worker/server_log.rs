//! Lines of the log about each connection to a database: how it is made, and why it ends. Decides nothing.

use std::net::SocketAddr;

use pool::{Closed, ServerId};
use seam::Protocol;

use super::{
    Worker,
    servers::{Phase, ServerConn},
};
use crate::{
    config::Address,
    reactor::{ConnId, Reactor},
    shared_pool::SharedPool,
};

/// What became of an attempt to connect that got no connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoConnection {
    /// The host's name has no address.
    Lookup,
    /// No address of the host took the connection.
    Connect,
}

impl NoConnection {
    fn as_str(self) -> &'static str {
        match self {
            Self::Lookup => "lookup failed",
            Self::Connect => "connect failed",
        }
    }
}

/// Why the pool has a server closed.
pub(super) fn reason_of<S>(server: &ServerConn<S>, reason: Closed) -> &'static str {
    match (reason, &server.phase) {
        (Closed::Error, Phase::Starting(_)) => "connect timeout",
        (Closed::Error, Phase::Cleaning) => "check failed",
        (reason, _) => reason.as_str(),
    }
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    fn logs_servers_of(&self, pool: &SharedPool) -> bool {
        self.process.config.log_servers && !pool.spec().hidden
    }

    /// A connection is about to be made; is it one of the reserve?
    pub(super) fn log_use_of_reserve(&self, pool: &SharedPool) {
        if !self.logs_servers_of(pool) {
            return;
        }
        let is_above = {
            let guarded = pool.lock();
            guarded.pool.counts().total > guarded.pool.config().max_size
        };
        if is_above {
            let spec = pool.spec();
            tracing::info!(database = %spec.database, user = %spec.user, "server of the reserve");
        }
    }

    /// A connection to a host has been made. The login comes now.
    pub(super) fn log_server_connected(&self, pool: &SharedPool, id: ServerId, conn: ConnId, address: &Address) {
        if self.logs_servers_of(pool) {
            let (spec, from) = (pool.spec(), self.reactor.local(conn).as_ref().map(SocketAddr::to_string));
            tracing::info!(
                server = %address, number = number(pool, id), database = %spec.database, user = %spec.user, from,
                "server connected"
            );
        }
    }

    /// A connection is about to be closed, or has ended. `refused`: the database has refused the login, with this
    /// error.
    pub(super) fn log_server_closed(&self, server: &ServerConn<P::Server>, reason: &str, refused: bool) {
        if self.logs_servers_of(&server.pool) {
            let spec = server.pool.spec();
            tracing::info!(
                server = %server.address, number = number(&server.pool, server.id), database = %spec.database,
                user = %spec.user, lasted_s = (self.now - server.born).as_secs_f64(), refused, reason,
                "server closed"
            );
        }
    }

    /// No connection was made.
    pub(super) fn log_not_connected(&self, pool: &SharedPool, id: ServerId, address: &Address, why: NoConnection) {
        if self.logs_servers_of(pool) {
            let spec = pool.spec();
            tracing::info!(
                server = %address, number = number(pool, id), database = %spec.database, user = %spec.user,
                lasted_s = 0.0, reason = why.as_str(), "server closed"
            );
        }
    }
}

/// A number that no other server has at the same time.
fn number(pool: &SharedPool, id: ServerId) -> u64 {
    u64::from(pool.id.0) << 32 | id.slot() as u64
}
