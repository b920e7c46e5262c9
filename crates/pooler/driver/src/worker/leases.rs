//! Check-out and check-in, and doing what the pool and the budget want done.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use pool::{Action, CheckIn, CheckOut, CheckOutFailed, Clear, Closed, Grant, Need, ServerId, WaiterId};
use seam::{CloseReason, LeaseFailure, Limit, Outage, PoolId, Protocol, Shortage, Verdict};

use super::{
    ClientWork, Work, Worker,
    calls::{Source, call},
    lease::Lease,
    pools::Location,
    server_deadlines::AnswerDue,
    servers::Phase,
    usage::{Hold, Usage},
};
use crate::{
    client_state::State,
    mailbox::{ClientKey, Command, Message},
    reactor::Reactor,
    registry::Demand,
    shared_pool::{Guarded, SharedPool},
};

/// What kept a client from a server that is busy, for the log.
fn shortage_of(why: &LeaseFailure) -> Option<String> {
    match why {
        LeaseFailure::WaitTimeout { shortage, .. } => Some(shortage.to_string()),
        _ => None,
    }
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    // ---- check-out ----

    /// A client needs a server. True when it has one at once.
    pub(super) fn check_out(&mut self, slot: usize, pool: PoolId, need: Need) -> bool {
        let Some(client) = self.clients.get(slot).filter(|client| !client.life.is_closing()) else { return false };
        assert!(client.lease == Lease::None, "a client leases one server at a time");
        let waiter = self.client_waiter(slot, client.waiter);
        // The lease may be part of a login. A client gets this far only with a password, so no other client may take
        // its place, however long the database takes.
        if !self.leave_lobby(slot) {
            self.push_displaced(slot);
            return false;
        }
        let home = self.home();
        let ticket = match self.pools.check_out(pool, waiter, need, self.now) {
            Some(CheckOut::Granted(grant)) if grant.home == home => {
                if self.server_usable(pool, grant.server) {
                    self.begin_hold(slot, pool, &grant);
                    return true;
                }
                // Its end has been seen, but not dealt with yet.
                self.work.push_back(Work::Granted(pool, grant));
                None
            }
            Some(CheckOut::Granted(grant)) => {
                self.mailbox(grant.home).send(Message::Bring(pool, grant));
                None
            }
            Some(CheckOut::Queued(ticket)) => {
                // A server that is shared now would not be for it.
                if need == Need::Any {
                    self.give_back_unused(pool);
                }
                Some(ticket)
            }
            Some(CheckOut::Failed(reason)) => {
                self.push_failed(pool, waiter, reason);
                None
            }
            None => {
                self.work.push_back(Work::PoolGone { pool, waiter });
                None
            }
        };
        self.clients[slot].lease = Lease::Waiting { pool, ticket, need };
        // Whatever it waits for, it is not idle: nothing that sends idle clients away may take it.
        self.refresh_state(slot);
        false
    }

    /// The client leaves the queue. Returns how long it has waited there; `None` if a server or a refusal is on its
    /// way, or it did not wait.
    pub(super) fn withdraw(&mut self, slot: usize) -> Option<Duration> {
        let client = self.clients.get_mut(slot)?;
        let (pool, ticket) = match client.lease {
            Lease::Waiting { pool, ticket, .. } => (pool, ticket),
            Lease::Joining { pool } => (pool, None),
            _ => return None,
        };
        client.lease = Lease::None;
        let number = client.waiter;
        let waiter = self.client_waiter(slot, number);
        // A pool that is forgotten has no queue.
        let (shared, now) = (self.pools.find_or_make(pool, self.now), self.now);
        let waited = ticket.zip(shared).and_then(|(ticket, pool)| {
            self.pools.operate(&pool, self.now, |guarded| guarded.pool.cancel(ticket, waiter, now))
        });
        if waited.is_none() {
            // A server is on its way to it. When that arrives it must not be taken for the answer to a later request.
            self.clients[slot].waiter = self.new_serial();
        }
        self.refresh_state(slot);
        waited
    }

    /// The server that was granted to a client lives here, and so does the client.
    pub(super) fn on_client_granted(&mut self, pool: PoolId, (slot, number): (u32, u32), grant: &Grant) {
        let waits = |lease| matches!(lease, Lease::Waiting { pool: p, .. } if p == pool);
        let present = self.waiter_is(slot, number) && waits(self.clients[slot as usize].lease);
        if !present {
            // A server that has ended is given back by what ends it.
            if self.server_usable(pool, grant.server) {
                let server = self.server_here(pool, grant.server).expect("a usable server is here");
                let verdict = if self.servers[server].soiled { Verdict::Soiled } else { Verdict::Clean };
                self.check_in(server, verdict);
            }
            return;
        }
        if !self.server_usable(pool, grant.server) {
            return self.on_client_grant_lost(pool, (slot, number));
        }
        self.begin_hold(slot as usize, pool, grant);
        self.feed(slot as usize);
    }

    /// Puts client and server together.
    fn begin_hold(&mut self, slot: usize, pool: PoolId, grant: &Grant) {
        let server_slot = self.server_here(pool, grant.server).expect("a granted server lives where the pool says");
        let server = &mut self.servers[server_slot];
        let free = server.usage.is_free() && matches!(server.phase, Phase::Live);
        assert!(free, "an exclusive server has one holder");
        server.usage = Usage::Held(Hold::new(slot, self.now));
        server.soiled = false;
        server.since = self.now;
        self.clients[slot].lease = Lease::Held { server: server_slot as u32 };
        self.refresh_state(slot);
        if grant.waited >= self.process.config.slow_wait
            && let Some(withheld) = self.paces.slow_wait.take_line(self.now)
        {
            let spec = self.servers[server_slot].pool.spec();
            tracing::warn!(
                withheld,
                client = %self.client_address(slot), database = %spec.database, user = %spec.user,
                server = self.backend(server_slot), waited_ms = grant.waited.as_millis() as u64,
                "a client waited long for a server"
            );
        }
        let mut out = self.take_outbox();
        let (client_tag, server_tag) = (self.client_tag(slot), self.server_tag(server_slot));
        let protocol = &self.shared.protocol;
        let (client, server) = (&mut self.clients[slot], &mut self.servers[server_slot]);
        if client.life.is_broken() {
            // It ends, and this server with it.
            return self.outboxes.put(out);
        }
        if call(|| protocol.granted(client_tag, &mut client.session, server_tag, &mut server.session, &mut out))
            .is_none()
        {
            return self.on_client_defect(slot, out);
        }
        self.execute_grant(server_tag, out);
        self.rearm_server(server_slot);
    }

    /// The server died between the grant and its arrival: nothing was sent, so the client simply asks again.
    pub(super) fn on_client_grant_lost(&mut self, pool: PoolId, (slot, number): (u32, u32)) {
        let Some(Lease::Waiting { need, .. }) = self.clients.get(slot as usize).map(|client| client.lease) else {
            return;
        };
        if !self.waiter_is(slot, number) {
            return;
        }
        self.clients[slot as usize].lease = Lease::None;
        if self.check_out(slot as usize, pool, need) {
            self.feed(slot as usize);
        }
    }

    /// A check-out failed at once.
    pub(super) fn push_failed(&mut self, pool: PoolId, waiter: WaiterId, reason: CheckOutFailed) {
        let pool = Arc::clone(self.pools.used(pool));
        self.work.push_back(Work::LeaseFailed { pool, waiter, reason, waited: Duration::ZERO });
    }

    /// The pool that a client has asked is forgotten.
    pub(super) fn on_client_pool_gone(&mut self, (slot, number): (u32, u32)) {
        if self.waiter_is(slot, number) && self.clients[slot as usize].lease.is_waiting() {
            self.fail_lease(slot as usize, LeaseFailure::Forgotten);
        }
    }

    /// A client gets no server.
    pub(super) fn on_client_lease_failed(
        &mut self,
        pool: &Arc<SharedPool>,
        (slot, number): (u32, u32),
        reason: CheckOutFailed,
        waited: Duration,
    ) {
        if !self.waiter_is(slot, number) || !self.clients[slot as usize].lease.is_waiting() {
            return;
        }
        let slot = slot as usize;
        let why = self.lease_failure(pool, reason, waited);
        if let Some(withheld) = self.paces.no_server.take_line(self.now) {
            tracing::warn!(
                withheld,
                client = %self.client_address(slot), database = %pool.spec().database, user = %pool.spec().user,
                reason = reason.as_str(), waited_ms = waited.as_millis() as u64,
                limit = shortage_of(&why), "no server for a client"
            );
        }
        self.fail_lease(slot, why);
    }

    /// A failed check-out as sessions hear of it.
    pub(super) fn lease_failure(
        &self,
        pool: &Arc<SharedPool>,
        reason: CheckOutFailed,
        waited: Duration,
    ) -> LeaseFailure {
        match reason {
            CheckOutFailed::Timeout => {
                let shortage = self.shortage(pool);
                // No server is busy: there is none yet.
                if shortage.connecting > 0 && shortage.in_use + shortage.between == 0 {
                    let why = "connecting takes longer than max_wait_time allows";
                    return LeaseFailure::Unavailable {
                        waited,
                        last_error: Some(why.into()),
                        outage: Outage::Connecting,
                    };
                }
                LeaseFailure::WaitTimeout { waited, shortage }
            }
            CheckOutFailed::Paused => {
                let last_error = Some("an operator has paused it".into());
                LeaseFailure::Unavailable { waited, last_error, outage: Outage::Paused }
            }
            CheckOutFailed::Unavailable => {
                LeaseFailure::Unavailable { waited, last_error: pool.last_error(), outage: Outage::Unreachable }
            }
            CheckOutFailed::Refused => {
                LeaseFailure::Unavailable { waited, last_error: pool.last_error(), outage: Outage::Refused }
            }
            CheckOutFailed::UnknownDatabase => LeaseFailure::UnknownDatabase { said: pool.last_error() },
            CheckOutFailed::QueueFull => LeaseFailure::QueueFull,
            CheckOutFailed::PoolClosed | CheckOutFailed::PoolCleared => LeaseFailure::Closed,
        }
    }

    /// What keeps a pool from having more servers.
    fn shortage(&self, pool: &Arc<SharedPool>) -> Shortage {
        let (counts, full, at_a_time, fails) = {
            let Guarded { pool, .. } = &*pool.lock();
            let (counts, config) = (pool.counts(), pool.config());
            let full = counts.total >= config.effective_max_size();
            (counts, full, counts.connecting >= config.max_connecting, pool.is_connect_failing())
        };
        let refused = || if fails { pool.last_error() } else { None };
        let limit = if full {
            Limit::Setting("max_size")
        } else if let Some(said) = refused() {
            Limit::Database(said)
        } else if let Some(name) = self.process.registry.limiting_setting(pool) {
            Limit::Setting(name)
        } else if at_a_time {
            Limit::AtATime("max_connecting")
        } else if counts.connecting > 0 {
            Limit::Connecting
        } else {
            // Clients that keep servers for long leave one of these to others.
            Limit::Setting(self.process.registry.narrowest_setting(pool).unwrap_or("max_size"))
        };
        let (in_use, connecting, left) = (counts.in_use, counts.connecting, counts.idle);
        Shortage { in_use, connecting, between: counts.total - in_use - connecting - left, left, limit }
    }

    /// Tells a client that what it waits for is not to be had.
    pub(super) fn fail_lease(&mut self, slot: usize, why: LeaseFailure) {
        self.clients[slot].lease = Lease::None;
        self.refresh_state(slot);
        let client = &self.clients[slot];
        if client.life.is_broken() {
            return;
        }
        let arrived = client.input.len() + self.reactor.unreceived(client.conn);
        let called = self.call_client(slot, Source::NONE, |protocol, tag, session, out| {
            protocol.lease_failed(tag, session, why, arrived, out);
        });
        if called.is_some() {
            self.feed(slot);
        }
    }

    // ---- check-in ----

    /// A session is done with a server.
    pub(super) fn release(&mut self, slot: usize, verdict: Verdict) {
        if self.preface.is_for(slot) {
            self.send_preface();
        }
        match self.servers[slot].usage.is_retained() {
            true => self.servers[slot].usage = Usage::Free,
            false => self.end_lease_of_holder(slot),
        }
        let server = &mut self.servers[slot];
        if server.cancels.are_under_way() {
            // A cancel request is under way that must not meet the next one's query.
            server.usage = Usage::AwaitsCancels(verdict);
            return;
        }
        self.check_in(slot, verdict);
    }

    /// A session is done with a server, which goes on on its own account, perhaps only for an answer.
    pub(super) fn retain(&mut self, slot: usize, briefly: bool) {
        if matches!(self.servers[slot].phase, Phase::Starting(_)) {
            return self.retain_from_start(slot);
        }
        self.end_lease_of_holder(slot);
        let server = &mut self.servers[slot];
        server.usage = Usage::Retained;
        let served = std::mem::take(&mut server.served);
        self.counters.add_transactions(u64::from(served));
        {
            let mut guarded = server.pool.lock();
            if served {
                guarded.stats.on_hold_ended(self.now - server.since);
            }
            guarded.pool.set_pinned(server.id, true);
        }
        server.since = self.now;
        if briefly {
            self.server_deadlines.add_answer(AnswerDue { server: slot, id: server.id, since: self.now });
        }
        self.rearm_server(slot);
    }

    /// Ends the lease of a server's holder.
    fn end_lease_of_holder(&mut self, slot: usize) {
        let server = &mut self.servers[slot];
        let holder = server.usage.end_hold();
        let client = &mut self.clients[holder];
        assert!(client.lease == Lease::Held { server: slot as u32 });
        client.lease = Lease::None;
        // A login borrows a server, too, but that is no transaction.
        server.served |= client.state != State::Login;
        if self.reactor.is_sending(server.conn) || server.cancels.are_under_way() {
            // The client's input was paused on account of this server, which the client holds no more.
            let key = ClientKey { slot: holder as u32, serial: client.serial };
            self.work.push_back(Work::Client(key, ClientWork::Feed));
        }
        self.refresh_state(holder);
    }

    /// Gives a server that no client holds back to its pool.
    pub(super) fn check_in(&mut self, slot: usize, verdict: Verdict) {
        let server = &mut self.servers[slot];
        // A server that has not even taken what was sent to it is not clean, whatever it answered.
        let how = match verdict {
            _ if server.cancels.are_tainted() || self.reactor.is_sending(server.conn) => CheckIn::Discard,
            Verdict::Clean | Verdict::Soiled => CheckIn::Clean,
            Verdict::Reset => CheckIn::Reset,
            Verdict::Discard => CheckIn::Discard,
        };
        if let Some(reason) = server.pinned.take() {
            server.pool.lock().stats.on_pinned(reason, -1);
        }
        let (pool, id, held) = (server.pool.id, server.id, self.now - server.since);
        server.since = self.now;
        server.soiled = verdict == Verdict::Soiled;
        let served = std::mem::take(&mut server.served);
        self.counters.add_transactions(u64::from(served));
        let asked = how != CheckIn::Discard && server.pool.awaits_idle.load(Relaxed);
        let how = if asked && self.offer_to_budget(pool, id) { CheckIn::Reclaim } else { how };
        if how == CheckIn::Reset {
            self.servers[slot].phase = Phase::Cleaning;
        }
        let (home, now) = (self.home(), self.now);
        let grant = self.pools.operate_used(pool, self.now, |guarded| {
            if served {
                guarded.stats.on_hold_ended(held);
            }
            let grant = guarded.pool.check_in(id, home, how, now);
            if let Some(grant) = &grant {
                guarded.stats.on_grant(grant);
            }
            grant
        });
        match grant {
            Some(grant) => self.deliver(pool, grant),
            None => {
                self.rearm_server(slot);
                if how == CheckIn::Clean && verdict == Verdict::Soiled {
                    self.server_deadlines.add_soiled(pool, id, self.now);
                }
            }
        }
    }

    /// Cleans servers that were given back soiled, and that no client has taken since.
    pub(super) fn clean_soiled(&mut self) {
        let now = self.now;
        while let Some((pool, id)) = self.server_deadlines.take_soiled(now) {
            // A client may have had it since, and have left it clean.
            let is_soiled = self.server_here(pool, id).is_some_and(|slot| self.servers[slot].soiled);
            if is_soiled && self.pools.known(pool).is_some() {
                self.pools.operate_used(pool, self.now, |guarded| guarded.pool.reset_idle(id, now));
            }
        }
    }

    /// A server of a pool is to see to what no client waits for.
    pub(super) fn request_reset(&mut self, pool: PoolId) {
        let now = self.now;
        if let Some(shared) = self.pools.find_or_make(pool, self.now) {
            self.pools.operate(&shared, self.now, |guarded| guarded.pool.request_reset(now));
        }
    }

    /// Whether a server that is about to be checked in is to be closed for another pool: the budget has asked for one.
    #[cold]
    fn offer_to_budget(&mut self, pool: PoolId, server: ServerId) -> bool {
        let pool = self.pools.find_or_make(pool, self.now).expect("it has a server here");
        if !pool.lock().pool.can_spare(server, self.now) {
            return false;
        }
        pool.awaits_idle.store(false, Relaxed);
        self.pools.budget(|registry, demands| registry.offer_returning(&pool, demands))
    }

    /// Sends a server that lives here to the worker of the client it was granted to.
    pub(super) fn bring(&mut self, pool: PoolId, grant: Grant) {
        if grant.waiter_home == self.home() {
            return self.work.push_back(Work::Granted(pool, grant));
        }
        let moving = self.server_here(pool, grant.server).and_then(|slot| self.move_out(slot));
        match moving {
            Some(moving) => self.mailbox(grant.waiter_home).send(Message::Server(Box::new(moving), grant)),
            None => self.mailbox(grant.waiter_home).send(Message::GrantLost(pool, grant)),
        }
    }

    // ---- what the pool wants done ----

    /// Does what a pool wants, here or where the server lives.
    pub(super) fn perform(&mut self, pool: Arc<SharedPool>, action: Action) {
        if let Some(place) = action.executing_home().filter(|place| *place != self.home()) {
            let message = match action {
                Action::Fail { waiter, reason, waited, .. } => {
                    pool.lock().stats.on_failed(reason);
                    Message::Failed { pool, waiter, reason, waited }
                }
                action => Message::Command(Command::Act(pool, action)),
            };
            return self.mailbox(place).send(message);
        }
        match action {
            Action::AskPermit => self.pools.budget(|registry, demands| registry.request(&pool, demands)),
            Action::WithdrawPermit => self.pools.budget(|registry, demands| registry.withdraw(&pool, demands)),
            Action::ReportStarvation => {
                self.pools.budget(|registry, demands| registry.report_starvation(&pool, demands))
            }
            Action::ReportCongestion => {
                self.pools.budget(|registry, demands| registry.report_congestion(&pool, demands))
            }
            Action::ReportSpare => {
                pool.awaits_idle.store(false, Relaxed);
                self.pools.budget(|registry, demands| registry.report_spare(&pool, demands));
            }
            Action::Connect { server, .. } => {
                // An order to close it may have come from another worker, and overtaken this one.
                let wanted = pool.lock().pool.is_closing(server) == Some(false);
                if wanted {
                    self.log_use_of_reserve(&pool);
                    self.dial(pool, server);
                }
            }
            Action::Grant(grant) => {
                pool.lock().stats.on_grant(&grant);
                self.deliver(pool.id, grant);
            }
            Action::Fail { waiter, reason, waited, .. } => {
                pool.lock().stats.on_failed(reason);
                self.work.push_back(Work::LeaseFailed { pool, waiter, reason, waited });
            }
            Action::Close { server, reason, .. } => self.close_for_pool(&pool, server, reason),
            Action::Check { server, .. } => self.clean(&pool, server, false),
            Action::Reset { server, .. } => self.clean(&pool, server, true),
            Action::RequestReturn { server, .. } => self.request_return(&pool, server),
            Action::Interrupt { server, .. } => {
                if let Some(slot) = self.server_here(pool.id, server) {
                    let reason = CloseReason::Error(seam::Blame::Exhausted, "interrupted by an operator".into());
                    self.remove_server(slot, reason);
                }
            }
        }
    }

    /// Closes a connection that the pool has given up.
    fn close_for_pool(&mut self, pool: &Arc<SharedPool>, server: ServerId, reason: Closed) {
        if reason == Closed::Error {
            self.log_server_timeout(pool, server);
            self.process.registry.outages.note(pool.id, &pool.spec().hosts);
            let since = pool.lock().pool.unavailable_since();
            self.log_database_lost(pool, since);
        }
        match self.locate(pool.id, server) {
            // It was lost, or the order to connect it is yet to come from another worker, and will be void.
            Location::None if pool.lock().pool.is_closing(server) != Some(true) => return,
            // It ends already.
            Location::Closing(slot) if !self.cancel_redial(slot as usize) => return,
            Location::Closing(_) => return pool.lock().stats.on_closed(reason),
            Location::None => {}
            Location::Dial(slot) => self.drop_dial(slot as usize, reason),
            Location::Server(slot) => {
                pool.lock().stats.on_closed(reason);
                return self.retire(slot as usize, reason);
            }
        }
        let now = self.now;
        self.pools.operate(pool, self.now, |guarded| {
            guarded.stats.on_closed(reason);
            guarded.pool.handle_closed(server, now);
        });
        self.pools.budget(|registry, demands| registry.release(pool, demands));
    }

    /// Says what a server did not do in time.
    fn log_server_timeout(&mut self, pool: &Arc<SharedPool>, server: ServerId) {
        let what = match self.locate(pool.id, server) {
            Location::None | Location::Closing(_) => return,
            Location::Dial(_) => "no connection",
            Location::Server(slot) => match self.servers[slot as usize].phase {
                Phase::Starting(_) => "no answer to the login",
                Phase::Cleaning => "no answer to a check or a reset",
                Phase::Live | Phase::Probing => return,
            },
        };
        let spec = pool.spec();
        let error = format!("{what} within the {:?} of connect_time", spec.config.connect_timeout);
        if let Some(withheld) = self.paces.server_lost.take_line(self.now) {
            tracing::warn!(withheld, database = %spec.database, user = %spec.user, "server given up: {error}");
        }
        pool.set_last_error(error.as_str());
    }

    pub(super) fn meet(&mut self, demand: Demand) {
        let now = self.now;
        match demand {
            Demand::Permit(pool) => {
                if !self.pools.operate(&pool, self.now, |guarded| guarded.pool.handle_permit(now)) {
                    self.pools.budget(|registry, demands| registry.decline(&pool, demands));
                }
            }
            Demand::Reclaim(pool, claim) => {
                self.pools.operate_with_budget(&pool, now, |guarded, registry, demands| {
                    if !guarded.pool.reclaim(claim, now) {
                        registry.reclaim_failed(&pool, claim, demands);
                    }
                });
            }
        }
    }

    /// Whether the client in this slot is the one that asked under this number.
    fn waiter_is(&self, slot: u32, waiter: u32) -> bool {
        self.clients.get(slot as usize).is_some_and(|client| client.waiter == waiter)
    }

    /// A server showed that its upstream is not what the pool wants any more, such as a primary that has become a
    /// standby: the whole pool looks for another one. A client can provoke this, so it happens only so often.
    pub(super) fn on_outdated(&mut self, slot: usize) {
        let Some(server) = self.servers.get_mut(slot) else { return };
        let (pool, now) = (Arc::clone(&server.pool), self.now);
        if !pool.try_begin_renewal(now) {
            return;
        }
        let (spec, address) = (pool.spec(), server.address.to_string());
        let (database, user) = (&spec.database, &spec.user);
        tracing::warn!(%database, %user, %address, "the server takes no writes any more: connecting anew");
        self.pools.operate(&pool, self.now, |guarded| guarded.pool.clear(Clear::default(), now));
    }
}
