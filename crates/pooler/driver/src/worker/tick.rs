//! What happens because time passes. Called once per tick. It looks only at the heads of queues, at the servers that
//! are held, which are few, and four times a second at idle clients if a pool has an idle time of its own.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use pool::CheckOutFailed;
use seam::{Blame, CloseReason, LeaseFailure, Outage, Protocol, Refusal};

use super::{
    Worker, calls::Source, clients::ClientConn, lease::Lease, server_deadlines::AnswerDue, servers::ServerConn,
    timeout_queues::Queue,
};
use crate::{client_state::State, config::Timeouts, listener::SentAway, reactor::Reactor, shared_pool::SharedPool};

/// How often pools are asked for time-outs of their own, and idle clients are looked through where there are such: idle
/// times of pools are this exact.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(250);

impl<P: Protocol, R: Reactor> Worker<P, R> {
    pub(super) fn handle_tick(&mut self) {
        self.resume_accepting();
        self.end_late_proxies();
        self.answer_delayed();
        self.resume_turns();
        self.end_lingering();
        self.closing_clients.check(&self.process.listeners, self.now);
        self.end_slow_cancels();
        self.end_late_closes();
        self.repeat_cancels();
        self.try_next_addresses();
        self.expire_queues();
        self.follow_limits();
        self.evict();
        self.let_newcomers_in();
        self.tend_tenant_queue();
        self.expire_holders();
        self.expire_retained();
        self.rearm_posters();
        self.tend_muxes();
        if self.shutdown.is_draining() {
            self.send_idle_away();
        }
        self.send_due_away();
        if self.process.any_drained.load(Relaxed) {
            self.send_drained_away();
        }
        self.pools.handle_alarms(self.now);
        self.publish_traffic();
        self.forget_idle_pools();
        let board = &self.process.boards[usize::from(self.number)];
        board.cpu_ns.store(self.process.clock.cpu_time(), Relaxed);
    }

    /// Clients that take too long to log in, or have been idle too long.
    fn expire_queues(&mut self) {
        for listener in 0..self.process.listeners.len() {
            let timeouts = self.process.listeners[listener].timeouts();
            if let Some(limit) = timeouts.login {
                while let Some((slot, since)) = self.queues.of_listener(listener).first(Queue::Login) {
                    if self.now - since < limit {
                        break;
                    }
                    if self.clients[slot].login.awaits_turn() {
                        self.give_up_turn(slot);
                        continue;
                    }
                    self.end_login(slot);
                }
            }
        }
        if self.now >= self.next_idle_check {
            self.next_idle_check = self.now + IDLE_CHECK_INTERVAL;
            self.pools.refresh_overrides();
            if self.pools.override_client_idle() {
                self.expire_idle_by_pool();
            }
            self.find_awaited_holders();
            self.end_closes_to_silent_hosts();
            self.expire_unserved();
            self.check_slow_readers();
            self.release_outdated();
            self.end_outdated_sessions();
        }
        if !self.pools.override_client_idle() {
            self.expire_idle();
        }
    }

    /// A login takes too long. If it waits for a server, the client is told why there is none.
    fn end_login(&mut self, slot: usize) {
        let pool = match self.clients[slot].lease {
            Lease::Waiting { pool, .. } => self.pools.find_or_make(pool, self.now),
            _ => None,
        };
        let waits = pool.is_some();
        if let Some(pool) = pool {
            let waited = self.withdraw(slot).unwrap_or_default();
            let (why, reason) = self.failure_of_login(&pool, waited);
            pool.lock().stats.on_failed(reason);
            self.fail_lease(slot, why);
        }
        let Some(client) = self.clients.get_mut(slot) else { return };
        if client.life.is_closing() && waits {
            client.sent_away = Some(SentAway::LoginTimeout);
            self.process.listeners[usize::from(client.listener)].count_sent_away(SentAway::LoginTimeout);
        } else if client.state == State::Login {
            self.refuse(slot, Refusal::LoginTimeout);
        }
        self.refresh_state(slot);
    }

    /// Why a login that has waited for so long got no server.
    fn failure_of_login(&self, pool: &Arc<SharedPool>, waited: Duration) -> (LeaseFailure, CheckOutFailed) {
        let (is_paused, is_down) = {
            let guarded = pool.lock();
            (guarded.pool.is_paused(), guarded.pool.unavailable_since().is_some())
        };
        let reason = match () {
            () if is_paused => CheckOutFailed::Paused,
            () if is_down => CheckOutFailed::Unavailable,
            () => CheckOutFailed::Timeout,
        };
        let why = match self.lease_failure(pool, reason, waited) {
            LeaseFailure::Unavailable { outage: Outage::Connecting, .. } => {
                let last_error = Some("connecting takes longer than what is left of login_time".into());
                LeaseFailure::Unavailable { waited, last_error, outage: Outage::Unreachable }
            }
            why => why,
        };
        (why, reason)
    }

    /// Where all clients of a listener have the same idle time, only those idle longest are looked at.
    fn expire_idle(&mut self) {
        for listener in 0..self.process.listeners.len() {
            let Some(limit) = self.process.listeners[listener].timeouts().client_idle else { continue };
            for queue in [Queue::Idle, Queue::Pinned] {
                while let Some((slot, since)) = self.queues.of_listener(listener).first(queue) {
                    if self.now - since < limit {
                        break;
                    }
                    self.refuse(slot, Refusal::IdleTimeout);
                    self.refresh_state(slot);
                }
            }
        }
    }

    /// Where pools have an idle time of their own, every idle client is looked at from time to time.
    fn expire_idle_by_pool(&mut self) {
        let late = |client: &ClientConn<P::Client>| {
            let limit = self.timeouts_of(client).client_idle;
            client.state == State::Idle && limit.is_some_and(|limit| self.now - client.since >= limit)
        };
        let late: Vec<usize> = self.clients.iter().filter(|(_, client)| late(client)).map(|(slot, _)| slot).collect();
        for slot in late {
            self.refuse(slot, Refusal::IdleTimeout);
            self.refresh_state(slot);
        }
    }

    /// Clients whose request is under way without a server of their own: it waits for what another session does.
    fn expire_unserved(&mut self) {
        let late = |client: &ClientConn<P::Client>| {
            let limit = || self.timeouts_of(client).query;
            client.state == State::Active
                && matches!(client.lease, Lease::None | Lease::Shared { .. })
                && limit().is_some_and(|limit| self.now - client.since >= limit)
        };
        let late: Vec<usize> = self.clients.iter().filter(|(_, client)| late(client)).map(|(slot, _)| slot).collect();
        for slot in late {
            self.refuse(slot, Refusal::QueryTimeout);
        }
    }

    /// The time-outs of a client: its listener's, or its pool's own.
    fn timeouts_of(&self, client: &ClientConn<P::Client>) -> Timeouts {
        let timeouts = self.process.listeners[usize::from(client.listener)].timeouts();
        let pool = client.pool.and_then(|id| self.pools.known(id));
        pool.map_or(timeouts, |pool| pool.spec().timeouts.over(timeouts))
    }

    /// Clients that hold a server for too long.
    fn expire_holders(&mut self) {
        let endless =
            |times: Timeouts| times.query.is_none() && times.transaction_idle.is_none() && times.transaction.is_none();
        if !self.pools.override_held() && self.process.listeners.iter().all(|listener| endless(listener.timeouts())) {
            return;
        }
        let mut late = Vec::new();
        for (_, server) in &self.servers {
            let Some(hold) = server.usage.hold() else { continue };
            let slot = hold.client();
            let client = &self.clients[slot];
            debug_assert!(matches!(client.lease, Lease::Held { .. }));
            let timeouts = self.timeouts_of(client);
            let is_late = |limit: Option<Duration>, since| limit.is_some_and(|limit| self.now - since >= limit);
            // While the server waits for the rest of a request, the time of that goes on.
            let asked = hold.awaited_since().or((client.state == State::Active).then_some(client.since));
            if client.state == State::Transaction && is_late(timeouts.transaction_idle, client.since) {
                late.push((slot, Refusal::TransactionIdleTimeout));
            } else if asked.is_some_and(|since| is_late(timeouts.query, since)) {
                late.push((slot, Refusal::QueryTimeout));
            } else if client.state.is_busy() && is_late(timeouts.transaction, hold.transaction_began()) {
                late.push((slot, Refusal::TransactionTimeout));
            }
        }
        for (slot, why) in late {
            self.refuse(slot, why);
        }
    }

    /// Clients without work that keep servers which are to be replaced, where a pool does not wait for their sessions
    /// to end.
    fn end_outdated_sessions(&mut self) {
        if !self.pools.close_fast() {
            return;
        }
        let outdated = |server: &ServerConn<P::Server>| {
            let holder = server.usage.holder()?;
            let is_idle = self.clients[holder].state == State::Idle;
            let ends = is_idle && server.pool.spec().fast_close && server.pool.lock().pool.is_stale(server.id);
            ends.then_some(holder)
        };
        let outdated: Vec<usize> = self.servers.iter().filter_map(|(_, server)| outdated(server)).collect();
        outdated.into_iter().for_each(|slot| self.refuse(slot, Refusal::ServerReplaced));
    }

    /// Servers that are kept for an answer that does not come.
    fn expire_retained(&mut self) {
        for answer in self.server_deadlines.take_answers() {
            let AnswerDue { server: slot, id, since } = answer;
            let Some(server) = self.servers.get(slot) else { continue };
            if server.id != id || !server.usage.is_retained() || server.since != since {
                continue;
            }
            let limit = server.pool.spec().config.connect_timeout;
            if self.now - since < limit {
                self.server_deadlines.add_answer(answer);
                continue;
            }
            let message = format!("no answer to a question of Poolhouse's own within the {limit:?} of connect_time");
            self.end_server(slot, CloseReason::Error(Blame::Server, message));
        }
    }

    /// Tells servers that go on on their own account of a pool that makes its servers anew: no client gives them back.
    fn release_outdated(&mut self) {
        let outdated = |server: &ServerConn<P::Server>| {
            server.usage.is_retained() && server.pool.lock().pool.is_outdated(server.id)
        };
        let outdated: Vec<usize> =
            self.servers.iter().filter(|(_, server)| outdated(server)).map(|(slot, _)| slot).collect();
        outdated.into_iter().for_each(|slot| self.request_release(slot));
    }

    /// A server that goes on on its own account is to be given back.
    pub(super) fn request_release(&mut self, slot: usize) {
        self.call_server(slot, Source::NONE, |protocol, tag, session, out| protocol.request_release(tag, session, out));
    }
}
