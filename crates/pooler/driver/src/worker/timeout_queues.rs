//! Where clients queue for what time brings: those that log in for the end of their login time, idle ones for the end
//! of their idle time and for eviction. Each listener has queues, and so has each database and user that has limits.
//! Knows no time-out and no limit.

use std::collections::HashMap;

use pool::{IdleQueue, IdleTicket, Time};

use crate::tenants::{TenantId, TenantIds};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Queue {
    Login,
    Idle,
    /// Nothing is in progress, and the client holds a server: what it has there would be lost, so it is evicted last.
    Pinned,
}

/// A client's place in a queue.
#[derive(Clone, Copy, Debug)]
struct Queued {
    queue: Queue,
    ticket: IdleTicket,
}

/// A client's places in the queues of its listener and its tenants.
#[derive(Default)]
pub(super) struct QueueEntries {
    listener: Option<Queued>,
    /// In the queues of its database and its user, if these have limits.
    tenants: [Option<Queued>; 2],
}

impl QueueEntries {
    /// The queue of the listener in which the client waits.
    pub(super) fn queue(&self) -> Option<Queue> {
        self.listener.map(|queued| queued.queue)
    }

    /// The queues of the tenants are gone.
    pub(super) fn forget_tenants(&mut self) {
        self.tenants = [None; 2];
    }
}

/// The queues of one listener, or of one tenant. In each the first client has waited longest.
#[derive(Default)]
pub(super) struct Queues {
    login: IdleQueue,
    idle: IdleQueue,
    pinned: IdleQueue,
}

impl Queues {
    fn join(&mut self, queue: Queue, slot: usize, now: Time) -> Queued {
        Queued { queue, ticket: self.queue_mut(queue).push(slot as u32, now) }
    }

    fn leave(&mut self, entry: Queued) {
        self.queue_mut(entry.queue).remove(entry.ticket);
    }

    /// The first in a queue, and since when it waits there.
    pub(super) fn first(&self, queue: Queue) -> Option<(usize, Time)> {
        let (slot, since) = self.queue(queue).oldest()?;
        Some((slot as usize, since))
    }

    /// The clients in a queue, and since when they wait there, in order.
    pub(super) fn all(&self, queue: Queue) -> impl Iterator<Item = (usize, Time)> {
        self.queue(queue).iter().map(|(slot, since)| (slot as usize, since))
    }

    fn queue(&self, queue: Queue) -> &IdleQueue {
        match queue {
            Queue::Login => &self.login,
            Queue::Idle => &self.idle,
            Queue::Pinned => &self.pinned,
        }
    }

    fn queue_mut(&mut self, queue: Queue) -> &mut IdleQueue {
        match queue {
            Queue::Login => &mut self.login,
            Queue::Idle => &mut self.idle,
            Queue::Pinned => &mut self.pinned,
        }
    }
}

/// The queues of all listeners and tenants.
pub(super) struct TimeoutQueues {
    by_listener: Vec<Queues>,
    /// Of tenants that have limits.
    by_tenant: HashMap<TenantId, Queues>,
    /// The version of the limits by which `by_tenant` was made.
    limits_version: u64,
}

impl TimeoutQueues {
    pub(super) fn new(listeners: usize) -> Self {
        Self {
            by_listener: (0..listeners).map(|_| Queues::default()).collect(),
            by_tenant: HashMap::new(),
            limits_version: 0,
        }
    }

    pub(super) fn of_listener(&self, listener: usize) -> &Queues {
        &self.by_listener[listener]
    }

    /// The queues of a tenant; `None` if it has no limits, or no client here.
    pub(super) fn of_tenant(&self, tenant: TenantId) -> Option<&Queues> {
        self.by_tenant.get(&tenant)
    }

    pub(super) fn join(&mut self, listener: u16, entries: &mut QueueEntries, queue: Queue, slot: usize, now: Time) {
        entries.listener = Some(self.by_listener[usize::from(listener)].join(queue, slot, now));
    }

    /// A client leaves the queue of its listener in which it waits, if any.
    pub(super) fn leave(&mut self, listener: u16, entries: &mut QueueEntries) {
        if let Some(entry) = entries.listener.take() {
            self.by_listener[usize::from(listener)].leave(entry);
        }
    }

    // ---- tenants ----

    pub(super) fn has_tenants(&self) -> bool {
        !self.by_tenant.is_empty()
    }

    /// Makes queues for a tenant that has limits.
    pub(super) fn add_tenant(&mut self, tenant: TenantId) {
        self.by_tenant.entry(tenant).or_default();
    }

    /// Drops the queues of all tenants if their limits have changed. Returns whether they have: then the queues of
    /// tenants with limits are to be made anew, and their clients to join them.
    pub(super) fn drop_outdated(&mut self, limits_version: u64) -> bool {
        let is_outdated = std::mem::replace(&mut self.limits_version, limits_version) != limits_version;
        if is_outdated {
            self.by_tenant.clear();
        }
        is_outdated
    }

    /// A client joins the queues of its tenants, as far as these have limits.
    pub(super) fn join_tenants(
        &mut self,
        tenants: TenantIds,
        entries: &mut QueueEntries,
        queue: Queue,
        slot: usize,
        since: Time,
    ) {
        for (id, entry) in tenants.into_iter().zip(&mut entries.tenants) {
            if let Some(queues) = id.and_then(|id| self.by_tenant.get_mut(&id)) {
                *entry = Some(queues.join(queue, slot, since));
            }
        }
    }

    pub(super) fn leave_tenants(&mut self, tenants: TenantIds, entries: &mut QueueEntries) {
        for (id, entry) in tenants.into_iter().zip(&mut entries.tenants) {
            if let Some(entry) = entry.take() {
                let queues = id.and_then(|id| self.by_tenant.get_mut(&id));
                queues.expect("the queue of a tenant outlives its clients' entries").leave(entry);
            }
        }
    }
}
