//! The half of the virtual driver between sessions and pools: who asks, who gets which server, who shares one, and what
//! a server must look like when it changes hands. It reads no bytes.

use pool::{Action, CheckIn, CheckOut, CheckOutFailed, Grant, Home, Ticket, WaiterId};
use protocol::{ClientTag, LeaseFailure, LeaseKind, Outbox, Peer, Protocol, ServerTag, Verdict};

use super::{
    connection::{Asking, ServerConn, Use},
    driver::{Call, Driver, Event},
};

/// Who stands behind a waiter of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asker {
    /// A client, by tag and serial.
    Client(ClientTag, u64),
    /// Those who share, of a worker and a pool.
    Mux(u8, usize),
}

/// The clients of one worker that share a server of one pool: a single holder to the pool.
#[derive(Debug, Default)]
pub struct Mux {
    waiter: u64,
    /// Its place in the queue, while there is no server.
    ticket: Option<Ticket>,
    server: Option<ServerTag>,
    /// Clients that have a share, or are just being told so. The seam does not say which client gives its share back,
    /// so they can only be counted.
    members: u32,
    /// Clients that wait for a share, by tag and serial.
    joining: Vec<(ClientTag, u64)>,
    /// The worst verdict of those who left.
    worst: Option<Verdict>,
}

fn rank(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Clean => 0,
        Verdict::Reset => 1,
        Verdict::Discard => 2,
    }
}

fn failure(reason: CheckOutFailed) -> LeaseFailure {
    match reason {
        CheckOutFailed::Timeout => LeaseFailure::WaitTimeout { waited: Default::default(), servers: 0 },
        CheckOutFailed::Unavailable | CheckOutFailed::Refused | CheckOutFailed::Paused => {
            LeaseFailure::Unavailable { waited: Default::default(), last_error: None }
        }
        CheckOutFailed::QueueFull => LeaseFailure::QueueFull,
        CheckOutFailed::PoolClosed | CheckOutFailed::PoolCleared => LeaseFailure::Closed,
    }
}

impl<P: Protocol> Driver<P> {
    pub(super) fn lease(&mut self, client: ClientTag, pool: usize, kind: LeaseKind) {
        let waiter = self.serial();
        let conn = self.clients.get_mut(&client).expect("a client that has gone asks for a lease");
        assert!(conn.session.is_some(), "a client that has gone asks for a lease");
        if conn.closing {
            return;
        }
        let serial = conn.serial;
        conn.asking.push(Asking { pool, kind, waiter, ticket: None });
        if kind == LeaseKind::Shared {
            return self.share(client, serial, pool);
        }
        let ticket = self.check_out(pool, waiter, Asker::Client(client, serial));
        let asking = &mut self.clients.get_mut(&client).expect("seen above").asking;
        asking.last_mut().expect("pushed above").ticket = ticket;
    }

    /// Asks the pool; an answer that comes at once is on its way when this returns.
    fn check_out(&mut self, pool: usize, waiter: u64, asker: Asker) -> Option<Ticket> {
        let worker = match asker {
            Asker::Client(tag, _) => tag.worker(),
            Asker::Mux(worker, _) => worker,
        };
        self.waiters.insert(waiter, asker);
        let now = self.now();
        match self.pools[pool].check_out(WaiterId(waiter), Home(worker), now) {
            CheckOut::Granted(grant) => self.grant(pool, grant),
            CheckOut::Failed(reason) => self.fail(waiter, reason),
            CheckOut::Queued(ticket) => return Some(ticket),
        }
        None
    }

    fn share(&mut self, client: ClientTag, serial: u64, pool: usize) {
        let key = (client.worker(), pool);
        if let Some(mux) = self.muxes.get_mut(&key) {
            match mux.server {
                // Somebody has broken it: no more may join, and the next one comes when all have left.
                Some(server) if mux.worst != Some(Verdict::Discard) => {
                    mux.members += 1;
                    self.calls.push_back(Call::Joined(client, serial, server));
                }
                _ => mux.joining.push((client, serial)),
            }
            return;
        }
        self.start_sharing(key, vec![(client, serial)]);
    }

    fn start_sharing(&mut self, key: (u8, usize), joining: Vec<(ClientTag, u64)>) {
        let waiter = self.serial();
        self.muxes.insert(key, Mux { waiter, joining, ..Mux::default() });
        let ticket = self.check_out(key.1, waiter, Asker::Mux(key.0, key.1));
        if let Some(mux) = self.muxes.get_mut(&key) {
            mux.ticket = ticket;
        }
    }

    /// The client asks for nothing any more.
    pub(super) fn withdraw(&mut self, client: ClientTag) {
        let Some(conn) = self.clients.get_mut(&client) else { return };
        let now = self.agenda.now();
        for asking in std::mem::take(&mut conn.asking) {
            if let Some(ticket) = asking.ticket {
                self.waiters.remove(&asking.waiter);
                self.pools[asking.pool].cancel(ticket, WaiterId(asking.waiter), now);
            }
            if asking.kind == LeaseKind::Shared {
                let key = (client.worker(), asking.pool);
                let Some(mux) = self.muxes.get_mut(&key) else { continue };
                mux.joining.retain(|j| j.0 != client);
                if mux.joining.is_empty()
                    && let Some(ticket) = mux.ticket
                {
                    let waiter = mux.waiter;
                    self.muxes.remove(&key);
                    self.waiters.remove(&waiter);
                    self.pools[asking.pool].cancel(ticket, WaiterId(waiter), now);
                }
            }
        }
    }

    /// Executes what the pools have ordered.
    pub(super) fn pump(&mut self) {
        for pool in 0..self.pools.len() {
            while let Some(action) = self.pools[pool].poll_action() {
                self.tell(|| format!("  pool {pool}: {action:?}"));
                self.act(pool, action);
            }
        }
    }

    fn act(&mut self, pool: usize, action: Action) {
        let now = self.now();
        match action {
            Action::AskPermit => assert!(self.pools[pool].permit(now), "a permit just asked for is not taken"),
            Action::WithdrawPermit => panic!("a permit that was granted at once is withdrawn"),
            Action::Connect { server, home } => {
                let any = self.rng.below(u64::from(self.plan.workers)) as u8;
                self.dialling.insert((pool, server), home.map_or(any, |h| h.0));
                let after = self.rng.around(self.plan.connect);
                self.agenda.after(after, Event::Opened(pool, server));
            }
            Action::Grant(grant) => self.grant(pool, grant),
            Action::Fail { waiter, reason, .. } => self.fail(waiter.0, reason),
            Action::Close { server, .. } => {
                if self.dialling.remove(&(pool, server)).is_some() {
                    self.closing.insert((pool, server));
                    let after = self.soon();
                    self.agenda.after(after, Event::Closed(pool, server));
                } else if let Some(&tag) = self.by_id.get(&(pool, server)) {
                    self.closing.insert((pool, server));
                    self.calls.push_back(Call::Retire(tag));
                }
            }
            Action::Check { server, .. } => self.clean(pool, server, Call::Check),
            Action::Reset { server, .. } => self.clean(pool, server, Call::Reset),
            Action::Interrupt { server, .. } => {
                if let Some(&tag) = self.by_id.get(&(pool, server)) {
                    self.calls.push_back(Call::Interrupt(tag));
                }
            }
        }
    }

    fn clean(&mut self, pool: usize, server: pool::ServerId, call: impl FnOnce(ServerTag) -> Call) {
        let Some(&tag) = self.by_id.get(&(pool, server)) else { return };
        self.servers.get_mut(&tag).expect("an id has a server").usage = Use::Cleaning;
        self.calls.push_back(call(tag));
    }

    fn fail(&mut self, waiter: u64, reason: CheckOutFailed) {
        match self.waiters.remove(&waiter).expect("a failure for somebody who does not wait") {
            Asker::Client(tag, serial) => self.calls.push_back(Call::Failed(tag, serial, waiter, failure(reason))),
            Asker::Mux(worker, pool) => {
                let mux = self.muxes.remove(&(worker, pool)).expect("a waiting mux exists");
                for (tag, serial) in mux.joining {
                    self.fail_share(tag, serial, pool, failure(reason));
                }
            }
        }
    }

    fn fail_share(&mut self, tag: ClientTag, serial: u64, pool: usize, why: LeaseFailure) {
        let Some(conn) = self.clients.get(&tag).filter(|c| c.serial == serial) else { return };
        if let Some(asking) = conn.asking.iter().find(|a| a.kind == LeaseKind::Shared && a.pool == pool) {
            self.calls.push_back(Call::Failed(tag, serial, asking.waiter, why));
        }
    }

    pub(super) fn failed(&mut self, tag: ClientTag, serial: u64, waiter: u64, why: LeaseFailure) {
        let Some(conn) = self.clients.get_mut(&tag).filter(|c| c.serial == serial && !c.closing) else { return };
        let Some(at) = conn.asking.iter().position(|a| a.waiter == waiter) else { return };
        conn.asking.remove(at);
        let mut out = Outbox::new();
        self.protocol.lease_failed(tag, conn.session.as_mut().expect("not closing"), why, &mut out);
        self.execute(out, &[], Peer::Client(tag));
        self.calls.push_back(Call::ClientInput(tag));
    }

    /// A pool gives a server to a waiter, who may be at another worker.
    fn grant(&mut self, pool: usize, grant: Grant) {
        let waiter = grant.waiter.0;
        let worker = match *self.waiters.get(&waiter).expect("a grant for somebody who does not wait") {
            Asker::Client(client, serial) => {
                let conn = self.clients.get_mut(&client).filter(|c| c.serial == serial);
                let asking = conn.and_then(|c| c.asking.iter_mut().find(|a| a.waiter == waiter));
                if let Some(asking) = asking {
                    asking.ticket = None;
                }
                client.worker()
            }
            Asker::Mux(worker, pool) => {
                self.muxes.get_mut(&(worker, pool)).expect("a waiting mux exists").ticket = None;
                worker
            }
        };
        assert_eq!(grant.waiter_home, Home(worker), "the pool has the wrong worker of the waiter");
        let tag = *self.by_id.get(&(pool, grant.server)).expect("a grant of a server that does not exist");
        assert_eq!(grant.home, Home(tag.worker()), "the pool has the wrong worker of the server");
        let conn = self.servers.get_mut(&tag).expect("an id has a server");
        assert_eq!(conn.usage, Use::Idle, "a grant of a server that is not idle");
        conn.check_untouched("grant");
        conn.usage = Use::Moving;
        let serial = conn.serial;
        if tag.worker() == worker {
            self.calls.push_back(Call::Granted(waiter, tag, serial));
        } else {
            let after = self.soon();
            self.agenda.after(after, Event::Arrived(tag, serial, waiter));
        }
    }

    /// The server has come to the worker of the waiter and gets a tag there.
    pub(super) fn moved(&mut self, old: ServerTag, serial: u64, waiter: u64) {
        let worker = match self.waiters.get(&waiter) {
            Some(&Asker::Client(tag, _)) => tag.worker(),
            Some(&Asker::Mux(worker, _)) => worker,
            None => panic!("whom a server is sent to is remembered"),
        };
        if self.servers.get(&old).is_some_and(|s| s.serial == serial) {
            let mut conn = self.servers.remove(&old).expect("just seen");
            let tag = self.free_server_tag(worker);
            self.by_id.insert((conn.pool, conn.id), tag);
            conn.stirred = false;
            conn.blocked = None;
            self.servers.insert(tag, conn);
            self.calls.push_back(Call::Granted(waiter, tag, serial));
        } else {
            // It broke on the way.
            self.calls.push_back(Call::Granted(waiter, old, serial));
        }
    }

    /// The server is where the waiter is. Either may be gone.
    pub(super) fn arrived(&mut self, waiter: u64, tag: ServerTag, serial: u64) {
        let asker = self.waiters.remove(&waiter).expect("whom a server is sent to is remembered");
        let there = self.servers.get(&tag).is_some_and(|s| s.serial == serial);
        match asker {
            Asker::Client(client, of) => {
                let conn = self.clients.get_mut(&client).filter(|c| c.serial == of && !c.closing);
                let asking = conn.and_then(|c| Some((c.asking.iter().position(|a| a.waiter == waiter)?, c)));
                let Some((at, conn)) = asking else {
                    return if there {
                        self.check_in(tag, Verdict::Clean)
                    };
                };
                if !there {
                    let why = LeaseFailure::Unavailable { waited: Default::default(), last_error: None };
                    return self.failed(client, of, waiter, why);
                }
                conn.asking.remove(at);
                conn.holds.insert(tag);
                self.lend(client, tag, Use::Lent(client));
            }
            Asker::Mux(worker, pool) => {
                let mux = self.muxes.get_mut(&(worker, pool)).expect("a mux waits for its server");
                let joining = std::mem::take(&mut mux.joining);
                if !there || joining.is_empty() {
                    self.muxes.remove(&(worker, pool));
                    let why = LeaseFailure::Unavailable { waited: Default::default(), last_error: None };
                    joining.iter().for_each(|j| self.fail_share(j.0, j.1, pool, why.clone()));
                    return if there {
                        self.check_in(tag, Verdict::Clean)
                    };
                }
                (mux.server, mux.members) = (Some(tag), joining.len() as u32);
                self.servers.get_mut(&tag).expect("seen above").usage = Use::Shared;
                self.calls.extend(joining.iter().map(|j| Call::Joined(j.0, j.1, tag)));
                self.calls.push_back(Call::ServerInput(tag));
            }
        }
    }

    pub(super) fn joined(&mut self, client: ClientTag, serial: u64, tag: ServerTag) {
        let shared = self.servers.get(&tag).filter(|s| s.usage == Use::Shared).map(|s| s.pool);
        let Some(pool) = shared else {
            // It died just now, and nobody told this client, who was no sharer yet.
            let why = LeaseFailure::Unavailable { waited: Default::default(), last_error: None };
            return (0..self.pools.len()).for_each(|pool| self.fail_share(client, serial, pool, why.clone()));
        };
        let conn = self.clients.get_mut(&client).filter(|c| c.serial == serial && !c.closing);
        let asking = conn.and_then(|c| Some((c.asking.iter().position(|a| a.pool == pool)?, c)));
        let Some((at, conn)) = asking else { return self.leave(tag, pool, Verdict::Clean) };
        conn.asking.remove(at);
        self.lend(client, tag, Use::Shared);
    }

    fn lend(&mut self, client: ClientTag, tag: ServerTag, usage: Use) {
        let (client_conn, conn) = (self.clients.get_mut(&client), self.servers.get_mut(&tag));
        let (client_conn, conn) = (client_conn.expect("seen above"), conn.expect("seen above"));
        conn.usage = usage;
        conn.user = client_conn.serial;
        let session = client_conn.session.as_mut().expect("not closing");
        let mut out = Outbox::new();
        self.protocol.granted(client, session, tag, conn.session.as_mut().expect("a server has a session"), &mut out);
        self.execute(out, &[], Peer::Client(client));
        self.calls.push_back(Call::ClientInput(client));
        self.calls.push_back(Call::ServerInput(tag));
    }

    /// A client gives a server back.
    pub(super) fn release(&mut self, tag: ServerTag, verdict: Verdict) {
        let conn = self.servers.get(&tag).unwrap_or_else(|| panic!("{tag:?} is released and does not exist"));
        match conn.usage {
            Use::Lent(client) => {
                let held = self.clients.get_mut(&client).is_some_and(|c| c.holds.remove(&tag));
                assert!(held, "{client:?} releases {tag:?}, which it does not hold");
                self.check_in(tag, verdict);
            }
            Use::Shared => self.leave(tag, conn.pool, verdict),
            other => panic!("{tag:?} is released and nobody holds it: {other:?}"),
        }
    }

    /// One of those who share a server leaves; the last one gives it back.
    fn leave(&mut self, tag: ServerTag, pool: usize, verdict: Verdict) {
        let key = (tag.worker(), pool);
        let mux = self.muxes.get_mut(&key).expect("a shared server has a mux");
        assert_eq!(mux.server, Some(tag), "a share of another server is given back");
        mux.members = mux.members.checked_sub(1).expect("more shares are given back than there were");
        let worst = mux.worst.filter(|w| rank(*w) >= rank(verdict)).unwrap_or(verdict);
        mux.worst = Some(worst);
        if mux.members == 0 {
            let mux = self.muxes.remove(&key).expect("just seen");
            self.check_in(tag, worst);
            if !mux.joining.is_empty() {
                self.start_sharing(key, mux.joining);
            }
        }
    }

    fn check_in(&mut self, tag: ServerTag, verdict: Verdict) {
        let conn = self.servers.get_mut(&tag).expect("seen by the caller");
        if conn.sides > 0 {
            conn.usage = Use::Withheld(verdict);
            return;
        }
        let how = match verdict {
            Verdict::Clean => CheckIn::Clean,
            Verdict::Reset => CheckIn::Reset,
            Verdict::Discard => CheckIn::Discard,
        };
        if verdict == Verdict::Clean {
            conn.check_untouched("check-in");
        }
        conn.usage = Use::Idle;
        let (pool, id, now) = (conn.pool, conn.id, self.now());
        if let Some(grant) = self.pools[pool].check_in(id, Home(tag.worker()), how, now) {
            self.grant(pool, grant);
        }
        // A close may be ordered: nothing else may happen to the server before that.
        self.pump();
        self.calls.push_back(Call::ServerInput(tag));
    }

    /// A side connection is over.
    pub(super) fn side_ended(&mut self, tag: ServerTag, serial: u64) {
        let Some(conn) = self.servers.get_mut(&tag).filter(|s| s.serial == serial) else { return };
        conn.sides -= 1;
        if let (0, Use::Withheld(verdict)) = (conn.sides, conn.usage) {
            self.check_in(tag, verdict);
        }
    }

    /// A start-up, reset or check is over.
    pub(super) fn ready(&mut self, tag: ServerTag) {
        let conn = self.servers.get_mut(&tag).expect("a server that has gone is ready");
        conn.check_untouched("ready");
        let usage = std::mem::replace(&mut conn.usage, Use::Idle);
        let (pool, id, home, now) = (conn.pool, conn.id, Home(tag.worker()), self.now());
        if self.closing.contains(&(pool, id)) {
            return; // Too late: its end has been ordered.
        }
        let grant = match usage {
            Use::Starting => self.pools[pool].connected(id, home, now),
            Use::Cleaning => self.pools[pool].checked(id, true, home, now),
            other => panic!("{tag:?} is ready when nobody asked: {other:?}"),
        };
        if let Some(grant) = grant {
            self.grant(pool, grant);
        }
    }

    /// The server is no more; who held it holds it no longer.
    pub(super) fn forget_server(&mut self, tag: ServerTag, conn: &ServerConn<P::Server>) {
        self.by_id.remove(&(conn.pool, conn.id));
        self.closing.remove(&(conn.pool, conn.id));
        match conn.usage {
            Use::Lent(client) => {
                self.clients.get_mut(&client).expect("a holder lives").holds.remove(&tag);
            }
            Use::Shared => {
                let key = (tag.worker(), conn.pool);
                let mux = self.muxes.remove(&key).expect("a shared server has a mux");
                if !mux.joining.is_empty() {
                    self.start_sharing(key, mux.joining);
                }
            }
            _ => {}
        }
    }

    /// Whether pools and driver agree on every server.
    pub fn check(&self) {
        for (i, pool) in self.pools.iter().enumerate() {
            pool.check_invariants();
            let (mut idle, mut in_use, mut cleaning, mut starting) = (0, 0, 0, 0);
            for (_, conn) in self.servers.iter().filter(|s| s.1.pool == i && !self.closing.contains(&(i, s.1.id))) {
                match conn.usage {
                    Use::Idle => idle += 1,
                    Use::Moving | Use::Lent(_) | Use::Shared | Use::Withheld(_) => in_use += 1,
                    Use::Cleaning => cleaning += 1,
                    Use::Starting => starting += 1,
                }
            }
            starting += self.dialling.keys().filter(|d| d.0 == i).count() as u32;
            let closing = self.closing.iter().filter(|c| c.0 == i).count() as u32;
            let counts = pool.counts();
            let pools = (counts.idle, counts.in_use, counts.checking, counts.connecting, counts.closing);
            assert_eq!(pools, (idle, in_use, cleaning, starting, closing), "pool {i} and driver disagree");
            let most = self.plan.pools[i].effective_max_size();
            assert!(counts.total <= most, "pool {i} has {} servers of {most}", counts.total);
        }
    }
}
