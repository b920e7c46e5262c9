//! What happens because time passes. Called once per tick; looks only at heads of queues, except
//! for the servers that are held, which are few.

use std::sync::atomic::Ordering::Relaxed;

use protocol::{Protocol, Refusal};

use super::{Worker, clients::State, leases::Lease};
use crate::config::Timeouts;

impl<P: Protocol> Worker<P> {
    pub(super) fn upkeep(&mut self) {
        for conn in std::mem::take(&mut self.accept_later) {
            self.reactor.resume_accept(conn);
        }
        self.answer_delayed();
        self.end_lingering();
        self.end_slow_sides();
        self.try_next_addresses();
        self.expire_queues();
        self.expire_holders();
        if self.draining {
            self.send_idle_away();
        }
        if self.shared.any_drained.load(Relaxed) {
            self.send_drained_away();
        }
        for pool in self.shared.registry.all() {
            if self.looks_after(pool.id) {
                self.pool_upkeep(&pool);
            }
        }
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let board = &self.shared.board[usize::from(self.number)];
        let ns = cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64;
        board.cpu_ns.store(ns, Relaxed);
    }

    /// Clients that take too long to log in, or have been idle too long.
    fn expire_queues(&mut self) {
        for listener in 0..self.shared.listeners.len() {
            let timeouts = self.shared.listeners[listener].timeouts();
            if let Some(limit) = timeouts.login {
                while let Some((slot, since)) = self.login_queues[listener].oldest() {
                    if self.now - since < limit {
                        break;
                    }
                    self.refuse(slot as usize, Refusal::LoginTimeout);
                    self.refresh_state(slot as usize);
                }
            }
            if let Some(limit) = timeouts.client_idle {
                while let Some((slot, since)) = self.idle_queues[listener].oldest() {
                    if self.now - since < limit {
                        break;
                    }
                    self.refuse(slot as usize, Refusal::IdleTimeout);
                    self.refresh_state(slot as usize);
                }
            }
        }
    }

    /// Clients that hold a server for too long.
    fn expire_holders(&mut self) {
        let endless = |times: Timeouts| times.query.is_none() && times.transaction_idle.is_none();
        if self.shared.listeners.iter().all(|listener| endless(listener.timeouts())) {
            return;
        }
        let mut late = Vec::new();
        for (_, server) in &self.servers {
            let Some(slot) = server.holder else { continue };
            let client = &self.clients[slot as usize];
            debug_assert!(matches!(client.lease, Lease::Held { .. }));
            let timeouts = self.shared.listeners[usize::from(client.listener)].timeouts();
            let (limit, why) = match client.state {
                State::Active => (timeouts.query, Refusal::QueryTimeout),
                State::Transaction => (timeouts.transaction_idle, Refusal::TransactionIdleTimeout),
                _ => continue,
            };
            if limit.is_some_and(|limit| self.now - client.since >= limit) {
                late.push((slot, why));
            }
        }
        for (slot, why) in late {
            self.refuse(slot as usize, why);
        }
    }
}
