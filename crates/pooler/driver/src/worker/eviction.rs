//! Clients that are evicted because there are more than a soft limit, of the listener, of their database or of their
//! user. As long as that is so, clients go that have been idle for longer than `evict_min_idle`: the longest idle
//! first, on whatever worker they live. Clients that hold a server go last.
//!
//! Each worker publishes at each tick which of its clients could go. It evicts its own clients that are among the first
//! of all, and reserves each eviction at the gate, so that the workers together never evict too many.

use std::{sync::Arc, time::Duration};

use pool::Time;
use seam::{Protocol, Refusal};

use super::{
    Worker,
    event_loop::TICK,
    timeout_queues::{Queue, Queues},
};
use crate::{
    client_state::State,
    evictions::{MAX_YOUNG_AGE, Rank},
    reactor::Reactor,
    tenants::TenantId,
};

/// The most clients of a listener, or of a tenant, that are evicted in one tick.
const MAX_EVICTIONS_A_TICK: usize = 64;

/// A worker that has published nothing for this number of ticks is stalled, and its clients no longer count.
const TICKS_UNTIL_SILENT: u32 = 5;

/// In this number of ticks all workers have published which clients of a tenant could go that has just got more than
/// its soft limit.
const TICKS_UNTIL_KNOWN: u32 = 2;

/// The group of clients that has more than its soft limit.
#[derive(Clone, Copy)]
enum Group {
    Listener,
    Tenant(TenantId),
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// Sends clients away as long as there are more than the soft limit.
    pub(super) fn evict(&mut self) {
        // Tenants first: a client that goes for its tenant makes room at its listener, too.
        if self.process.tenants.any_crowded() {
            for (tenant, since) in self.process.tenants.crowded() {
                self.evict_of(tenant, since);
            }
        }
        for listener in 0..self.process.listeners.len() {
            self.evict_at(listener);
        }
    }

    fn evict_at(&mut self, listener: usize) {
        let process = Arc::clone(&self.process);
        let rules = &process.listeners[listener];
        for _ in 0..MAX_EVICTIONS_A_TICK {
            let Some(displaced) = rules.displace_slow(self.now) else { break };
            self.notify_displaced(displaced);
        }
        let mut own = self.evictable(self.queues.of_listener(listener));
        let most = rules.evictions_wanted();
        if most > 0 {
            self.evict_first(&mut own, self.evictable_elsewhere(listener), most, Group::Listener);
        }
        let mut published = process.boards[usize::from(self.number)].evictable(listener);
        published.at = self.now;
        published.ranks.clear();
        published.ranks.extend(own.iter().map(|(rank, _)| *rank));
    }

    /// The same among the clients of a database or a user, which has more than its soft limit since then.
    fn evict_of(&mut self, tenant: TenantId, since: Time) {
        let process = Arc::clone(&self.process);
        let mut own = self.queues.of_tenant(tenant).map_or_else(Vec::new, |queues| self.evictable(queues));
        if self.now - since >= TICK * TICKS_UNTIL_KNOWN {
            let (most, elsewhere) = process.tenants.look(tenant, self.number, TICK * TICKS_UNTIL_SILENT, self.now);
            self.evict_first(&mut own, elsewhere, most, Group::Tenant(tenant));
        }
        process.tenants.publish(tenant, self.number, own.into_iter().map(|(rank, _)| rank).collect(), self.now);
    }

    /// Evicts the clients of this worker that are among the first of all, and takes them out of `own`.
    fn evict_first(&mut self, own: &mut Vec<(Rank, usize)>, mut all: Vec<Rank>, most: u32, group: Group) {
        let most = (most as usize).min(MAX_EVICTIONS_A_TICK);
        if most == 0 || own.is_empty() {
            return;
        }
        all.extend(own.iter().map(|(rank, _)| *rank));
        all.sort_unstable();
        let last = all[most.min(all.len()) - 1];
        let mine = own.partition_point(|(rank, _)| *rank <= last);
        for (_, slot) in own.drain(..mine) {
            self.evict_one(slot, group);
        }
    }

    /// Clients in these queues that have been idle for long enough, in the order in which they are evicted.
    fn evictable(&self, queues: &Queues) -> Vec<(Rank, usize)> {
        let time = |listener: usize| self.process.listeners[listener].limits().evict_min_idle;
        let times: Vec<Duration> = (0..self.process.listeners.len()).map(time).collect();
        let least = times.iter().min().copied().unwrap_or_default();
        let now = self.now;
        let of = |queue, holds| {
            let long = queues.all(queue).take_while(move |(_, since)| now - *since >= least);
            let may_go = |(slot, since): &(usize, Time)| {
                let client = &self.clients[*slot];
                // A client that is only told that there is no room has no place that another could get.
                client.places.is_admitted() && now - *since >= times[usize::from(client.listener)]
            };
            long.filter(may_go).map(move |(slot, since)| ((holds, since), slot))
        };
        of(Queue::Idle, false).chain(of(Queue::Pinned, true)).take(MAX_EVICTIONS_A_TICK).collect()
    }

    /// What other workers could evict at a listener.
    fn evictable_elsewhere(&self, listener: usize) -> Vec<Rank> {
        let mut all = Vec::new();
        for (number, board) in self.process.boards.iter().enumerate() {
            if number != usize::from(self.number) {
                let published = board.evictable(listener);
                if self.now - published.at <= TICK * TICKS_UNTIL_SILENT {
                    all.extend_from_slice(&published.ranks);
                }
            }
        }
        all
    }

    fn evict_one(&mut self, slot: usize, group: Group) {
        let Some(client) =
            self.clients.get(slot).filter(|client| !client.life.is_closing() && client.state == State::Idle)
        else {
            return;
        };
        let process = Arc::clone(&self.process);
        let (tenants, rules) = (client.places.tenants(), &process.listeners[usize::from(client.listener)]);
        let others = |tenant: TenantId| tenants.map(|id| id.filter(|id| *id != tenant));
        if client.places.is_leaving() {
            return;
        }
        match group {
            Group::Listener if rules.reserve_eviction() => process.tenants.note_leaving(tenants, self.now),
            Group::Tenant(tenant) if process.tenants.reserve_eviction(tenant, self.now) => {
                process.tenants.note_leaving(others(tenant), self.now);
                rules.note_leaving();
            }
            _ => return,
        }
        self.clients[slot].places.begin_leaving();
        self.note_eviction(slot, group);
        self.refuse(slot, Refusal::Evicted);
        self.refresh_state(slot);
    }

    /// Tells the log if clients come back as fast as they are evicted.
    fn note_eviction(&self, slot: usize, group: Group) {
        let client = &self.clients[slot];
        let rules = &self.process.listeners[usize::from(client.listener)];
        if !rules.record_eviction(self.now - client.born, self.now) {
            return;
        }
        let (of, soft_limit) = match group {
            Group::Listener => (format!("the listener at {}", rules.name), rules.limits().soft_limit),
            Group::Tenant(tenant) => {
                let (tenant, soft_limit) = self.process.tenants.describe(tenant);
                (tenant.to_string(), soft_limit)
            }
        };
        tracing::warn!(
            listener = %rules.name, soft_limit,
            "clients come back as fast as they are evicted: most of them had been here for less than {} s. \
             More of them live than soft_limit of {of} allows: raise it, or see to it that clients share connections",
            MAX_YOUNG_AGE.as_secs()
        );
    }
}
