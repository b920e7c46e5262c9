//! The half of the virtual driver between sessions and pools: who asks, who gets which server, and what a server must look
//! like when it changes hands. Who shares one is in `sharing`. It reads no bytes.

use pool::{CheckIn, CheckOut, CheckOutFailed, Grant, Home, Ticket, WaiterId};
use protocol::{ClientTag, LeaseFailure, LeaseKind, Outbox, Peer, Protocol, ServerTag, Verdict};

use super::{
    super::connection::{Asker, Asking, ServerConn, Use},
    Call, Driver,
    sharing::Mux,
    workers::Message,
};

fn failure(reason: CheckOutFailed) -> LeaseFailure {
    match reason {
        CheckOutFailed::Timeout => {
            LeaseFailure::WaitTimeout { waited: Default::default(), servers: 0, limit: "max_size" }
        }
        CheckOutFailed::Unavailable | CheckOutFailed::Refused | CheckOutFailed::Paused => {
            LeaseFailure::Unavailable { waited: Default::default(), last_error: None }
        }
        CheckOutFailed::QueueFull => LeaseFailure::QueueFull,
        CheckOutFailed::PoolClosed | CheckOutFailed::PoolCleared => LeaseFailure::Closed,
    }
}

impl<P: Protocol> Driver<P> {
    // ---- check-out ----

    pub(super) fn lease(&mut self, client: ClientTag, pool: usize, kind: LeaseKind) {
        let (serial, since) = (self.serial(), self.now());
        let conn = self.clients.get_mut(&client).expect("a client that has gone asks for a lease");
        assert!(conn.session.is_some(), "a client that has gone asks for a lease");
        if conn.closing {
            return;
        }
        // Whoever asks for one lease at a time has the same number each time, unless an answer to it may be on its way.
        let waiter = if kind == LeaseKind::Exclusive && conn.asking.is_empty() { conn.waiter } else { serial };
        let serial = conn.serial;
        conn.asking.push(Asking { pool, kind, waiter, ticket: None, since });
        self.refresh_state(client);
        match kind {
            LeaseKind::Shared => self.share(client, serial, pool),
            LeaseKind::Exclusive | LeaseKind::Lasting | LeaseKind::Unused => {
                self.check_out(pool, waiter, Asker::Client(client, serial))
            }
        }
    }

    /// Asks the pool. An answer that comes at once is on its way, or executed, when this returns.
    pub(super) fn check_out(&mut self, pool: usize, waiter: u64, asker: Asker) {
        let worker = asker.worker();
        let before = self.waiters.insert(waiter, asker);
        assert_eq!(before, None, "two wishes under one number");
        match self.operate(worker, pool, |pool, now| pool.check_out(WaiterId(waiter), Home(worker), now)) {
            CheckOut::Granted(grant) => {
                self.books.granted(pool, grant.server);
                if grant.home != Home(worker) {
                    self.mail(grant.home.0, Message::Bring(pool, grant));
                } else if matches!(asker, Asker::Client(..)) && self.usable(worker, pool, &grant).is_some() {
                    self.granted(worker, pool, grant);
                } else {
                    self.call(worker, Call::Granted(pool, grant));
                }
            }
            CheckOut::Failed(reason) => self.call(worker, Call::Failed(waiter, reason)),
            CheckOut::Queued(ticket) => match asker {
                Asker::Client(client, _) => {
                    let asking = &mut self.clients.get_mut(&client).expect("who asks lives").asking;
                    let asking = asking.iter_mut().find(|a| a.waiter == waiter);
                    asking.expect("who asks is remembered").ticket = Some(ticket);
                }
                Asker::Mux(worker, pool) => {
                    self.muxes.get_mut(&(worker, pool)).expect("a waiting mux exists").ticket = Some(ticket);
                }
            },
        }
    }

    /// The client asks for nothing any more. What is on its way to it must not be taken for the answer to a later wish.
    pub(super) fn withdraw(&mut self, client: ClientTag) {
        let Some(conn) = self.clients.get_mut(&client) else { return };
        for asking in std::mem::take(&mut conn.asking) {
            match asking.kind {
                LeaseKind::Exclusive | LeaseKind::Lasting | LeaseKind::Unused => {
                    if !self.leave_queue(client.worker(), asking.pool, asking.waiter, asking.ticket) {
                        let number = self.serial();
                        self.clients.get_mut(&client).expect("just seen").waiter = number;
                    }
                }
                LeaseKind::Shared => self.withdraw_share(client, asking.pool),
            }
        }
        self.refresh_state(client);
    }

    /// False if the answer is on its way already.
    pub(super) fn leave_queue(&mut self, worker: u8, pool: usize, waiter: u64, ticket: Option<Ticket>) -> bool {
        let Some(ticket) = ticket else { return false };
        let left = self.operate(worker, pool, |pool, now| pool.cancel(ticket, WaiterId(waiter), now));
        if left {
            self.waiters.remove(&waiter).expect("who waits is remembered");
        }
        left
    }

    // ---- the answer ----

    /// The server, if it lives at this worker and its end has not been seen.
    fn usable(&self, here: u8, pool: usize, grant: &Grant) -> Option<ServerTag> {
        self.server_here(here, pool, grant.server).filter(|tag| !self.servers[tag].ending)
    }

    /// The server that was granted lives here, and so does who waits for it; either may be gone.
    pub(super) fn granted(&mut self, here: u8, pool: usize, grant: Grant) {
        let waiter = grant.waiter.0;
        let asker = *self.waiters.get(&waiter).expect("a grant for somebody who does not wait");
        assert_eq!(asker.worker(), here, "a grant reaches another worker than its waiter's");
        let server = self.usable(here, pool, &grant);
        if self.waits(asker, waiter) {
            match (server, asker) {
                (None, _) => self.grant_lost(here, pool, grant),
                (Some(tag), Asker::Client(client, _)) => {
                    self.waiters.remove(&waiter);
                    self.books.met(pool, grant.server);
                    let conn = self.clients.get_mut(&client).expect("who waits lives");
                    conn.asking.retain(|a| a.waiter != waiter);
                    conn.holds.insert(tag);
                    self.lend(client, tag, Use::Lent(client));
                }
                (Some(tag), Asker::Mux(worker, pool)) => {
                    self.waiters.remove(&waiter);
                    self.books.met(pool, grant.server);
                    self.invite((worker, pool), tag);
                }
            }
            return;
        }
        self.forget_wish(asker, waiter);
        // A server that has ended is given back by what ends it.
        if let Some(tag) = server {
            self.books.met(pool, grant.server);
            self.check_in(tag, Verdict::Clean);
        }
    }

    /// Whether somebody still wants what was asked for under this number.
    fn waits(&self, asker: Asker, waiter: u64) -> bool {
        match asker {
            Asker::Client(client, serial) => {
                let conn = self.clients.get(&client).filter(|c| c.serial == serial && !c.closing);
                conn.is_some_and(|c| c.asking.iter().any(|a| a.waiter == waiter))
            }
            Asker::Mux(worker, pool) => !self.muxes[&(worker, pool)].joining.is_empty(),
        }
    }

    fn forget_wish(&mut self, asker: Asker, waiter: u64) {
        self.waiters.remove(&waiter).expect("seen by the caller");
        if let Asker::Mux(worker, pool) = asker {
            self.muxes.remove(&(worker, pool));
        }
    }

    /// The server died between the grant and its arrival: nothing was sent, so whoever waits simply asks again.
    pub(super) fn grant_lost(&mut self, here: u8, pool: usize, grant: Grant) {
        let waiter = grant.waiter.0;
        let asker = *self.waiters.get(&waiter).expect("a grant for somebody who does not wait");
        assert_eq!(asker.worker(), here, "news reaches another worker than its waiter's");
        if !self.waits(asker, waiter) {
            return self.forget_wish(asker, waiter);
        }
        self.waiters.remove(&waiter);
        let now = self.now();
        if let Asker::Client(client, _) = asker {
            let asking = &mut self.clients.get_mut(&client).expect("who waits lives").asking;
            let asking = asking.iter_mut().find(|a| a.waiter == waiter).expect("who waits is remembered");
            (asking.ticket, asking.since) = (None, now);
        }
        self.check_out(pool, waiter, asker);
    }

    pub(super) fn failed(&mut self, waiter: u64, reason: CheckOutFailed) {
        match self.waiters.remove(&waiter).expect("a failure for somebody who does not wait") {
            Asker::Client(tag, serial) => self.lease_failed(tag, serial, waiter, failure(reason)),
            Asker::Mux(worker, pool) => self.fail_sharing((worker, pool), &failure(reason)),
        }
    }

    pub(super) fn lease_failed(&mut self, tag: ClientTag, serial: u64, waiter: u64, why: LeaseFailure) {
        let Some(conn) = self.clients.get_mut(&tag).filter(|c| c.serial == serial && !c.closing) else { return };
        let Some(at) = conn.asking.iter().position(|a| a.waiter == waiter) else { return };
        conn.asking.remove(at);
        self.refresh_state(tag);
        let mut out = Outbox::new();
        let session = &mut self.clients.get_mut(&tag).expect("just seen").session;
        self.protocol.lease_failed(tag, session.as_mut().expect("not closing"), why, &mut out);
        self.execute(out, &[], Peer::Client(tag));
        self.call(tag.worker(), Call::ClientInput(tag));
    }

    pub(super) fn lend(&mut self, client: ClientTag, tag: ServerTag, usage: Use) {
        self.refresh_state(client);
        let (client_conn, conn) = (self.clients.get_mut(&client), self.servers.get_mut(&tag));
        let (client_conn, conn) = (client_conn.expect("seen above"), conn.expect("seen above"));
        if let Use::Lent(_) = usage {
            conn.check_lendable();
        }
        conn.usage = usage;
        conn.user = client_conn.serial;
        let session = client_conn.session.as_mut().expect("not closing");
        let mut out = Outbox::new();
        self.protocol.granted(client, session, tag, conn.session.as_mut().expect("a server has a session"), &mut out);
        self.execute(out, &[], Peer::Client(client));
        self.call(client.worker(), Call::ClientInput(client));
        self.call(tag.worker(), Call::ServerInput(tag));
    }

    // ---- check-in ----

    /// A client gives a server back.
    pub(super) fn release(&mut self, tag: ServerTag, verdict: Verdict) {
        let conn = self.servers.get_mut(&tag).unwrap_or_else(|| panic!("{tag:?} is released and does not exist"));
        match conn.usage {
            Use::Lent(client) => {
                let held = self.clients.get_mut(&client).is_some_and(|c| c.holds.remove(&tag));
                assert!(held, "{client:?} releases {tag:?}, which it does not hold");
                if conn.sides > 0 {
                    // A cancel request is under way that must not meet the next one's query.
                    conn.usage = Use::Withheld(verdict);
                    // The client was not listened to on account of this server, and has nothing to do with it any more.
                    return self.call(client.worker(), Call::ClientInput(client));
                }
                self.check_in(tag, verdict);
            }
            Use::Shared => panic!("{tag:?} is released as if one client had it, and is shared"),
            other => panic!("{tag:?} is released and nobody holds it: {other:?}"),
        }
    }

    /// Gives a server that nobody holds back to its pool.
    pub(super) fn check_in(&mut self, tag: ServerTag, verdict: Verdict) {
        let conn = self.servers.get_mut(&tag).expect("seen by the caller");
        assert_eq!(conn.sides, 0, "{tag:?} is given back with a cancel request under way");
        let how = match verdict {
            _ if conn.tainted => CheckIn::Discard,
            Verdict::Clean => CheckIn::Clean,
            Verdict::Soiled | Verdict::Reset => CheckIn::Reset,
            Verdict::Discard => CheckIn::Discard,
        };
        if verdict == Verdict::Clean {
            conn.check_untouched("check-in");
        }
        (conn.usage, conn.pinned) = (Use::Idle, false);
        let (pool, id, worker) = (conn.pool, conn.id, tag.worker());
        if let Some(grant) = self.operate(worker, pool, |pool, now| pool.check_in(id, Home(worker), how, now)) {
            self.books.granted(pool, grant.server);
            self.deliver(worker, pool, grant);
        }
        self.call(worker, Call::ServerInput(tag));
    }

    /// A side connection is over; if it was not seen to end, what it carried may still arrive.
    pub(super) fn side_ended(&mut self, tag: ServerTag, serial: u64, seen: bool) {
        let Some(conn) = self.servers.get_mut(&tag).filter(|s| s.serial == serial) else { return };
        conn.sides -= 1;
        conn.tainted |= !seen;
        match (conn.sides, conn.usage) {
            (0, Use::Withheld(verdict)) => self.check_in(tag, verdict),
            (0, Use::Lent(client)) => self.call(client.worker(), Call::ClientInput(client)),
            _ => {}
        }
    }

    /// A start-up, reset or check is over.
    pub(super) fn ready(&mut self, tag: ServerTag) {
        let conn = self.servers.get_mut(&tag).expect("a server that has gone is ready");
        conn.check_untouched("ready");
        let usage = std::mem::replace(&mut conn.usage, Use::Idle);
        let (pool, id, worker) = (conn.pool, conn.id, tag.worker());
        // If its end has been ordered meanwhile, the pool takes no notice.
        let grant = self.operate(worker, pool, |pool, now| match usage {
            Use::Starting => pool.connected(id, Home(worker), now),
            Use::Cleaning => pool.checked(id, true, Home(worker), now),
            other => panic!("{tag:?} is ready when nobody asked: {other:?}"),
        });
        if let Some(grant) = grant {
            self.books.granted(pool, grant.server);
            self.deliver(worker, pool, grant);
        }
    }

    /// Who held a server that is no more holds it no longer. Returns those who shared it.
    pub(super) fn forget_holder(&mut self, tag: ServerTag, conn: &ServerConn<P::Server>) -> Option<Mux> {
        self.by_id.remove(&(conn.pool, conn.id));
        match conn.usage {
            Use::Lent(client) => {
                self.clients.get_mut(&client).expect("a holder lives").holds.remove(&tag);
                None
            }
            Use::Shared => Some(self.muxes.remove(&(tag.worker(), conn.pool)).expect("a shared server has a mux")),
            _ => None,
        }
    }

    /// The pool is told that a server is no more.
    pub(super) fn tell_lost(&mut self, worker: u8, conn: &ServerConn<P::Server>, permanent: bool) {
        let (pool, id) = (conn.pool, conn.id);
        match conn.usage {
            Use::Starting => self.operate(worker, pool, |pool, now| pool.connect_failed(id, permanent, now)),
            _ => self.operate(worker, pool, |pool, now| pool.lost(id, now)),
        }
        self.books.gone(pool, id);
    }
}
