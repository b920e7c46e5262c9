//! Tenants: databases and users, each of which may have limits for its clients. Each tenant has a gate, so that a flood
//! of one tenant's clients takes places, and evicts clients, of that tenant alone. Knows no listener and no session.
//!
//! A client that has logged in takes a place with its database and one with its user, both at once, or waits until
//! there are both. A place that becomes free goes to the first client that waits for it and needs no other. A tenant
//! without limits has a gate that is never full, so that its clients are counted when a reload gives it limits.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    num::NonZeroU32,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use pool::{Gate, GateConfig, Time};
use seam::Tenant;
use slab::Slab;

use crate::{
    config::TenantLimits,
    evictions::{Evictable, Rank},
    snapshot::TenantSnapshot,
};

/// Clients that may wait at a time for a place with one tenant.
const MAX_TENANT_WAITERS: usize = 256;

/// With more tenants than this, those with clients included, one that loses its last client is forgotten with its
/// counts.
const MAX_REMEMBERED_TENANTS: usize = 1024;

/// A tenant that has clients, or had some.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct TenantId(NonZeroU32);

/// The tenants that a client counts for: its database and its user.
pub(crate) type TenantIds = [Option<TenantId>; 2];

/// Names a client that waits for its places.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct TenantTicket(u64);

/// Whether a client that has logged in has its places.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Entrance {
    Inside(TenantIds),
    /// The client waits. `in_vain`: as many clients wait as may, so it is refused unless it gets its places at once.
    Awaits {
        ticket: TenantTicket,
        in_vain: bool,
    },
}

pub(crate) struct Tenants {
    table: Mutex<Table>,
    /// How many tenants have more clients than their soft limit. A tick reads this before it takes the lock.
    crowded: AtomicUsize,
    /// The number of changes of limits.
    changed: AtomicU64,
}

#[derive(Default)]
struct Table {
    ids: HashMap<Tenant, TenantId>,
    accounts: Slab<Account>,
    /// In the order in which they came.
    awaiting: BTreeMap<TenantTicket, Awaiting>,
    /// Tenants with more clients than their soft limit, and since when.
    crowded: BTreeMap<TenantId, Time>,
    last_ticket: u64,
}

/// A client that waits for its places, or has got them and was not told yet.
struct Awaiting {
    tenants: TenantIds,
    placed: bool,
}

struct Account {
    tenant: Tenant,
    gate: Gate,
    limited: bool,
    queue: BTreeSet<TenantTicket>,
    refused: u64,
    /// The clients that could be evicted first, by worker.
    evictable: HashMap<u8, Evictable>,
}

/// Limits that nothing reaches.
const NO_LIMITS: GateConfig = GateConfig { soft_limit: u32::MAX, hard_limit: u32::MAX, evict_min_idle: Duration::ZERO };

fn gate_of(limits: Option<TenantLimits>) -> GateConfig {
    limits.map_or(NO_LIMITS, |TenantLimits { soft_limit, hard_limit }| GateConfig {
        soft_limit,
        hard_limit,
        ..NO_LIMITS
    })
}

impl Tenants {
    pub(crate) fn new() -> Self {
        Self { table: Mutex::default(), crowded: AtomicUsize::new(0), changed: AtomicU64::new(0) }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the table, and publishes what ticks read without the lock.
    fn change<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = self.table();
        let result = change(&mut table);
        self.crowded.store(table.crowded.len(), Relaxed);
        result
    }

    /// A client of these tenants has logged in. `limits` returns the limits of a tenant.
    ///
    /// The client overtakes no other that could have the place: each client that waits lacks another place.
    pub(crate) fn enter(
        &self,
        tenants: [Option<Tenant>; 2],
        limits: impl Fn(&Tenant) -> Option<TenantLimits>,
        now: Time,
    ) -> Entrance {
        self.change(|table| {
            let tenants = tenants.map(|tenant| Some(table.find_or_make(tenant?, &limits)));
            if table.have_room(tenants) {
                table.take(tenants, now);
                return Entrance::Inside(tenants);
            }
            let is_full = |id: TenantId| {
                let account = &table.accounts[index(id)];
                !account.gate.has_room() && account.queue.len() >= MAX_TENANT_WAITERS
            };
            let in_vain = ids(tenants).any(is_full);
            table.last_ticket += 1;
            let ticket = TenantTicket(table.last_ticket);
            for id in ids(tenants) {
                table.of(id).queue.insert(ticket);
            }
            table.awaiting.insert(ticket, Awaiting { tenants, placed: false });
            Entrance::Awaits { ticket, in_vain }
        })
    }

    /// A client that has places has logged in again, and counts for these tenants from now on. It keeps the places that
    /// it still needs.
    ///
    /// # Errors
    /// If a tenant is full: that tenant and its hard limit. The client keeps its old places.
    pub(crate) fn move_to(
        &self,
        tenants: [Option<Tenant>; 2],
        from: TenantIds,
        limits: impl Fn(&Tenant) -> Option<TenantLimits>,
        now: Time,
    ) -> Result<TenantIds, (Tenant, u32)> {
        self.change(|table| {
            let to = tenants.map(|tenant| Some(table.find_or_make(tenant?, &limits)));
            let lacks = without(to, from);
            if let Some(id) = ids(lacks).find(|id| !table.accounts[index(*id)].gate.has_room()) {
                let full = table.refuse(id);
                ids(lacks).for_each(|id| table.drop_empty(id));
                return Err(full);
            }
            table.take(lacks, now);
            table.left(without(from, to), false, now);
            Ok(to)
        })
    }

    /// Returns the clients, among these that wait, that have got their places. They count as told.
    pub(crate) fn take_placed<T>(&self, waiting: impl Iterator<Item = (T, TenantTicket)>) -> Vec<(T, TenantIds)> {
        let mut table = self.table();
        let placed = waiting.filter_map(|(client, ticket)| {
            table.awaiting.get(&ticket).filter(|awaiting| awaiting.placed)?;
            Some((client, table.awaiting.remove(&ticket)?.tenants))
        });
        placed.collect()
    }

    /// A client waits no longer. Returns its places, if it has got them meanwhile; otherwise the tenant that is full,
    /// and its hard limit.
    pub(crate) fn give_up(&self, ticket: TenantTicket, now: Time) -> Result<TenantIds, (Tenant, u32)> {
        self.change(|table| {
            let Awaiting { tenants, placed } = table.awaiting.remove(&ticket).expect("it waits");
            if placed {
                return Ok(tenants);
            }
            let full = |id: &TenantId| !table.accounts[index(*id)].gate.has_room();
            let id = ids(tenants).find(full).expect("a client waits only where there is no room");
            let full = table.refuse(id);
            table.leave_queues(ticket, tenants, now);
            Err(full)
        })
    }

    /// A client that waits goes, or is refused for another reason.
    pub(crate) fn step_back(&self, ticket: TenantTicket, now: Time) {
        self.change(|table| {
            let Awaiting { tenants, placed } = table.awaiting.remove(&ticket).expect("it waits");
            match placed {
                true => table.left(tenants, false, now),
                false => table.leave_queues(ticket, tenants, now),
            }
        });
    }

    /// A client has gone. `leaving`: it was counted among the clients that leave.
    pub(crate) fn left(&self, tenants: TenantIds, leaving: bool, now: Time) {
        self.change(|table| table.left(tenants, leaving, now));
    }

    /// A client leaves for which [`reserve_eviction`](Self::reserve_eviction) was not called.
    pub(crate) fn note_leaving(&self, tenants: TenantIds, now: Time) {
        self.change(|table| {
            for id in ids(tenants) {
                table.of(id).gate.note_leaving();
                table.note(id, now);
            }
        });
    }

    /// Reserves an eviction, if clients of a tenant should go: one of them is about to be evicted.
    pub(crate) fn reserve_eviction(&self, id: TenantId, now: Time) -> bool {
        self.change(|table| {
            let Some(account) = table.accounts.get_mut(index(id)) else { return false };
            let reserved = account.gate.reserve_eviction();
            if reserved {
                account.gate.note_eviction();
            }
            table.note(id, now);
            reserved
        })
    }

    /// Whether any tenant has more clients than its soft limit.
    pub(crate) fn any_crowded(&self) -> bool {
        self.crowded.load(Relaxed) > 0
    }

    /// The tenants with more clients than their soft limit, and since when.
    pub(crate) fn crowded(&self) -> Vec<(TenantId, Time)> {
        self.table().crowded.iter().map(|(id, since)| (*id, *since)).collect()
    }

    /// How many clients of a tenant should go, and which clients other workers could evict that have published them
    /// within this time.
    pub(crate) fn look(&self, id: TenantId, worker: u8, within: Duration, now: Time) -> (u32, Vec<Rank>) {
        let table = self.table();
        // All its clients may have left since it was crowded.
        let Some(account) = table.accounts.get(index(id)) else { return (0, Vec::new()) };
        let others = account.evictable.iter().filter(|(other, told)| **other != worker && now - told.at <= within);
        let ranks = others.flat_map(|(_, told)| told.ranks.iter().copied()).collect();
        (account.gate.evictions_wanted(), ranks)
    }

    /// Publishes the clients of a tenant that a worker could evict.
    pub(crate) fn publish(&self, id: TenantId, worker: u8, ranks: Vec<Rank>, now: Time) {
        if let Some(account) = self.table().accounts.get_mut(index(id)) {
            account.evictable.insert(worker, Evictable { at: now, ranks });
        }
    }

    pub(crate) fn is_limited(&self, id: TenantId) -> bool {
        self.table().of(id).limited
    }

    /// A tenant, and its soft limit.
    pub(crate) fn describe(&self, id: TenantId) -> (Tenant, u32) {
        let mut table = self.table();
        let account = table.of(id);
        (account.tenant.clone(), account.gate.config().soft_limit)
    }

    /// Gives tenants other limits.
    pub(crate) fn reconfigure(&self, limits: impl Fn(&Tenant) -> Option<TenantLimits>, now: Time) {
        self.change(|table| {
            let all: Vec<TenantId> = table.ids.values().copied().collect();
            for id in &all {
                let account = table.of(*id);
                let limits = limits(&account.tenant);
                account.limited = limits.is_some();
                account.gate.reconfigure(gate_of(limits));
                table.note(*id, now);
            }
            for id in all {
                table.give_places(id, now);
                table.drop_empty(id);
            }
        });
        self.changed.fetch_add(1, Relaxed);
    }

    /// Changes whenever limits do.
    pub(crate) fn version(&self) -> u64 {
        self.changed.load(Relaxed)
    }

    /// The counts of tenants that have limits.
    pub(crate) fn snapshot(&self) -> Vec<TenantSnapshot> {
        let table = self.table();
        let limited = table.accounts.iter().filter(|(_, account)| account.limited);
        let mut all: Vec<_> = limited
            .map(|(_, account)| TenantSnapshot {
                tenant: account.tenant.clone(),
                clients: account.gate.clients(),
                waiting: account.queue.len() as u64,
                limits: (account.gate.config().soft_limit, account.gate.config().hard_limit),
                evictions: account.gate.evictions(),
                rejections: account.refused,
            })
            .collect();
        all.sort_by(|one, other| one.tenant.cmp(&other.tenant));
        all
    }
}

impl Table {
    fn of(&mut self, id: TenantId) -> &mut Account {
        &mut self.accounts[index(id)]
    }

    fn find_or_make(&mut self, tenant: Tenant, limits: &impl Fn(&Tenant) -> Option<TenantLimits>) -> TenantId {
        if let Some(id) = self.ids.get(&tenant) {
            return *id;
        }
        let limits = limits(&tenant);
        let at = self.accounts.insert(Account {
            tenant: tenant.clone(),
            gate: Gate::new(gate_of(limits)),
            limited: limits.is_some(),
            queue: BTreeSet::new(),
            refused: 0,
            evictable: HashMap::new(),
        });
        let number = u32::try_from(at + 1).ok().and_then(NonZeroU32::new);
        let id = TenantId(number.expect("there are fewer tenants than clients"));
        self.ids.insert(tenant, id);
        id
    }

    fn have_room(&self, tenants: TenantIds) -> bool {
        ids(tenants).all(|id| self.accounts[index(id)].gate.has_room())
    }

    fn take(&mut self, tenants: TenantIds, now: Time) {
        for id in ids(tenants) {
            let gate = &mut self.of(id).gate;
            assert!(gate.admit(), "a place is taken where there is one");
            gate.note_login();
            self.note(id, now);
        }
    }

    /// Counts a client that finds a tenant full. Returns the tenant, and its hard limit.
    fn refuse(&mut self, id: TenantId) -> (Tenant, u32) {
        let account = self.of(id);
        account.refused += 1;
        (account.tenant.clone(), account.gate.config().hard_limit)
    }

    fn left(&mut self, tenants: TenantIds, leaving: bool, now: Time) {
        for id in ids(tenants) {
            self.of(id).gate.left(leaving);
            self.note(id, now);
        }
        for id in ids(tenants) {
            self.give_places(id, now);
            self.drop_empty(id);
        }
    }

    fn leave_queues(&mut self, ticket: TenantTicket, tenants: TenantIds, now: Time) {
        for id in ids(tenants) {
            self.of(id).queue.remove(&ticket);
            self.note(id, now);
            self.drop_empty(id);
        }
    }

    /// Gives free places of a tenant to clients that wait for one and need no other.
    fn give_places(&mut self, id: TenantId, now: Time) {
        if !self.of(id).gate.has_room() {
            return;
        }
        for ticket in self.of(id).queue.clone() {
            if !self.of(id).gate.has_room() {
                return;
            }
            let tenants = self.awaiting[&ticket].tenants;
            if !self.have_room(tenants) {
                continue;
            }
            self.take(tenants, now);
            for id in ids(tenants) {
                self.of(id).queue.remove(&ticket);
            }
            self.awaiting.get_mut(&ticket).expect("it was just found").placed = true;
        }
    }

    /// Notes whether a tenant has more clients than its soft limit.
    fn note(&mut self, id: TenantId, now: Time) {
        match self.of(id).gate.evictions_wanted() {
            0 => drop(self.crowded.remove(&id)),
            _ => drop(self.crowded.entry(id).or_insert(now)),
        }
    }

    /// Forgets a tenant without clients, unless its counts are worth remembering.
    fn drop_empty(&mut self, id: TenantId) {
        let many = self.accounts.len() > MAX_REMEMBERED_TENANTS;
        let account = self.of(id);
        if account.gate.clients() == 0 && account.queue.is_empty() && (many || !account.limited) {
            let Account { tenant, .. } = self.accounts.remove(index(id));
            self.ids.remove(&tenant);
            self.crowded.remove(&id);
        }
    }
}

fn ids(tenants: TenantIds) -> impl Iterator<Item = TenantId> {
    tenants.into_iter().flatten()
}

/// The tenants that are not the same in the other.
fn without(tenants: TenantIds, other: TenantIds) -> TenantIds {
    std::array::from_fn(|number| tenants[number].filter(|id| other[number] != Some(*id)))
}

fn index(id: TenantId) -> usize {
    id.0.get() as usize - 1
}

#[cfg(test)]
mod tests;
