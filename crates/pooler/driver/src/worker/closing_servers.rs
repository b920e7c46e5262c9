//! Connections to a database that the worker has ended, until the database has ended its side, too. The database counts
//! its session in its limits until then, so the server keeps its place in its pool and its permit of the budget. Knows
//! no session.

use std::{rc::Rc, sync::Arc, time::Duration};

use pool::{Closed, ConnectFault, ServerId, Time};
use seam::{PoolId, Protocol};

use super::{Worker, attempts::Attempts, cancel_request::CancelRequest, pools::Location};
use crate::{
    reactor::{ConnId, Owner, Reactor},
    shared_pool::SharedPool,
};

/// How long the database's host has to acknowledge the end of a connection. A host that does not is taken for dead.
const HOST_ACK_TIMEOUT: Duration = Duration::from_millis(1500);

/// How long the database has to end its side. An idle session of PostgreSQL takes some milliseconds. One that is busy
/// ends when it has done all that has reached it, and counts in the database's limits until then. A database that hangs
/// must not withhold its places for ever, so the connection is closed after this time, and the database may have more
/// sessions than the limits allow.
const MAX_CLOSE_TIME: Duration = Duration::from_secs(60);

/// How long a server has that has not accepted a login. A proxy may accept connections for a database that hangs, and
/// never end one.
const MAX_UNAUTHENTICATED_CLOSE_TIME: Duration = Duration::from_millis(1500);

/// When the worker first repeats the cancel request of a client that has gone; each further time after twice as long. A
/// request that the database handles before it has read the statement has no effect.
const FIRST_CANCEL_RETRY: Duration = Duration::from_millis(40);

/// The cancel request of a client that has gone, and when it is due again.
struct CancelAgain {
    request: Rc<CancelRequest>,
    due: Time,
    pause: Duration,
}

/// A connection that is to be ended, and how long its database has to end its side.
pub(super) struct OpenConnection {
    conn: ConnId,
    time: Duration,
}

impl OpenConnection {
    /// `authenticated`: the database has accepted the login.
    pub(super) fn new(conn: ConnId, authenticated: bool) -> Self {
        Self { conn, time: if authenticated { MAX_CLOSE_TIME } else { MAX_UNAUTHENTICATED_CLOSE_TIME } }
    }
}

pub(super) struct ClosingServer {
    conn: ConnId,
    pool: Arc<SharedPool>,
    id: ServerId,
    /// The hosts to try then, if the server has not got through its start.
    next: Option<Box<Attempts>>,
    since: Time,
    /// How long the database has to end its side.
    time: Duration,
    /// The session still does what a client has asked for that has gone.
    cancel_again: Option<CancelAgain>,
}

impl ClosingServer {
    /// Whether a cancel request for this server is under way, and may not have arrived yet.
    pub(super) fn awaits_cancel(&self, now: Time) -> bool {
        self.cancel_again.is_some() && now.since(self.since) < HOST_ACK_TIMEOUT
    }

    pub(super) fn is_of(&self, pool: PoolId, server: ServerId) -> bool {
        self.pool.id == pool && self.id == server
    }
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// Says that nothing more will be sent on a server's connection. When the database has ended it, the next host is
    /// tried, or the pool hears that the server is gone.
    pub(super) fn begin_close(
        &mut self,
        OpenConnection { conn, time }: OpenConnection,
        pool: Arc<SharedPool>,
        id: ServerId,
        next: Option<Box<Attempts>>,
    ) {
        let slot = self.closing_servers.vacant_key();
        self.pools.set_location(pool.id, id, Location::Closing(slot as u32));
        self.closing_servers.insert(ClosingServer { conn, pool, id, next, since: self.now, time, cancel_again: None });
        self.reactor.set_owner(conn, Owner::ClosingServer(slot as u32));
        self.reactor.half_close(conn);
        self.reactor.receive(conn);
    }

    /// The same for a server that may still do what a client has asked for that has gone: until its end, that is
    /// cancelled again.
    pub(super) fn begin_cancelled_close(
        &mut self,
        open: OpenConnection,
        pool: Arc<SharedPool>,
        id: ServerId,
        request: Rc<CancelRequest>,
    ) {
        let slot = self.closing_servers.vacant_key();
        self.begin_close(open, pool, id, None);
        let due = self.now + FIRST_CANCEL_RETRY;
        self.closing_servers[slot].cancel_again = Some(CancelAgain { request, due, pause: FIRST_CANCEL_RETRY });
    }

    /// Repeats the cancel requests that are due.
    pub(super) fn repeat_cancels(&mut self) {
        let now = self.now;
        let mut due = Vec::new();
        for (_, closing) in self.closing_servers.iter_mut() {
            if let Some(cancel_again) = closing.cancel_again.as_mut().filter(|cancel_again| cancel_again.due <= now) {
                cancel_again.pause *= 2;
                cancel_again.due = now + cancel_again.pause;
                due.push((Rc::clone(&cancel_again.request), closing.id, closing.pool.id));
            }
        }
        for (request, id, pool) in due {
            // No server is withheld on its account.
            self.send_beside(request, u32::MAX, id, pool);
        }
    }

    /// The database has said something more, or ended its side.
    pub(super) fn on_closing_received(&mut self, slot: usize, length: usize) {
        match length {
            0 => self.end_close(slot),
            _ => self.reactor.receive(self.closing_servers[slot].conn),
        }
    }

    /// The pool orders to close a server that is here. True if it was to go on with another host, and is not any more.
    pub(super) fn cancel_redial(&mut self, slot: usize) -> bool {
        self.closing_servers[slot].next.take().is_some()
    }

    pub(super) fn end_close(&mut self, slot: usize) {
        let ClosingServer { conn, pool, id, next, .. } = self.closing_servers.remove(slot);
        self.reactor.close(conn);
        self.pools.set_location(pool.id, id, Location::None);
        match next {
            Some(attempts) => self.dial_again(pool, id, *attempts, None),
            None => self.server_gone(&pool, id),
        }
    }

    /// Waits no longer for databases that do not end their side.
    pub(super) fn end_late_closes(&mut self) {
        self.end_closes(|closing, waited, _| waited >= closing.time);
    }

    /// Waits no longer for databases whose hosts are dead. Asking the kernel is not for every tick: a database that
    /// hangs may have hundreds of such connections for a minute.
    pub(super) fn end_closes_to_silent_hosts(&mut self) {
        self.end_closes(|closing, waited, reactor| {
            waited >= HOST_ACK_TIMEOUT && reactor.is_host_silent(closing.conn, HOST_ACK_TIMEOUT)
        });
    }

    fn end_closes(&mut self, ends: impl Fn(&ClosingServer, Duration, &R) -> bool) {
        let ends = |closing: &ClosingServer| ends(closing, self.now.since(closing.since), &self.reactor);
        let ended: Vec<usize> = self.closing_servers.iter().filter(|(_, f)| ends(f)).map(|(slot, _)| slot).collect();
        ended.into_iter().for_each(|slot| self.end_close(slot));
    }

    /// A server's connection has ended on both sides, and its pool knows already that the server ends.
    fn server_gone(&mut self, pool: &Arc<SharedPool>, id: ServerId) {
        let now = self.now;
        self.pools.operate(pool, self.now, |guarded| guarded.pool.handle_closed(id, now));
        self.pools.budget(|registry, demands| registry.release(pool, demands));
    }

    /// A server is no more, and its pool did not close it. `open` is its connection, if that has yet to end.
    pub(super) fn forget_server(&mut self, pool: &Arc<SharedPool>, id: ServerId, open: Option<OpenConnection>) {
        let now = self.now;
        let since = self.pools.operate(pool, self.now, |guarded| {
            guarded.stats.on_closed(Closed::Error);
            guarded.pool.handle_abandoned(id, now);
            guarded.pool.unavailable_since()
        });
        self.log_database_lost(pool, since);
        self.close_connection_of(pool, id, open);
    }

    /// A server has not got through its start, and no other host is tried.
    pub(super) fn forget_start(
        &mut self,
        pool: &Arc<SharedPool>,
        id: ServerId,
        fault: ConnectFault,
        open: Option<OpenConnection>,
    ) {
        let now = self.now;
        let since = self.pools.operate(pool, self.now, |guarded| {
            guarded.stats.on_closed(Closed::Error);
            guarded.pool.handle_connect_abandoned(id, fault, now);
            guarded.pool.unavailable_since()
        });
        if fault == ConnectFault::Transient {
            self.process.registry.outages.note(pool.id, &pool.spec().hosts);
        }
        self.log_database_lost(pool, since);
        self.close_connection_of(pool, id, open);
    }

    /// The pool knows that a server ends. `open` is its connection, if that has yet to end.
    pub(super) fn close_connection_of(&mut self, pool: &Arc<SharedPool>, id: ServerId, open: Option<OpenConnection>) {
        match open {
            Some(open) => self.begin_close(open, Arc::clone(pool), id, None),
            None => self.server_gone(pool, id),
        }
    }
}
