//! Asking pools under their locks, where their servers are on this worker, and how pools, workers and sessions are
//! named. Calls no session: what comes of a question is left as actions and work, or told to another worker.

use std::{
    collections::{VecDeque, hash_map::Entry},
    sync::Arc,
};

use pool::{Action, CheckOut, Grant, Home, ServerId, Time, WaiterId, Wish};
use seam::{ClientTag, PoolId, Protocol, ServerTag};

use super::{Work, Worker};
use crate::{
    alarms::Alarms,
    mailbox::{Mailbox, Message},
    reactor::Reactor,
    shared_pool::{Guarded, SharedPool},
};

/// The slot by which pools know a mux as a waiter; no client has it.
const MUX: u32 = (1 << (u32::BITS - seam::WORKER_BITS)) - 1;

/// Who waits under a pool's number for it.
pub(super) enum Waiter {
    /// The client in this slot, under this number of its own.
    Client(u32, u32),
    /// A mux, under this number of its own.
    Mux(u32),
}

impl From<WaiterId> for Waiter {
    fn from(id: WaiterId) -> Self {
        let (slot, number) = (ClientTag(id.0 as u32).slot() as u32, (id.0 >> 32) as u32);
        if slot == MUX { Self::Mux(number) } else { Self::Client(slot, number) }
    }
}

/// Where a pool's connection is on this worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Local {
    None,
    Dial(u32),
    Server(u32),
    /// It has been ended here, and not yet by the database.
    Farewell(u32),
}

fn operate<T>(
    pool: &Arc<SharedPool>,
    actions: &mut VecDeque<(Arc<SharedPool>, Action)>,
    alarms: &Alarms,
    now: Time,
    f: impl FnOnce(&mut Guarded) -> T,
) -> T {
    let mut guarded = pool.lock();
    let result = f(&mut guarded);
    while let Some(action) = guarded.pool.poll_action() {
        actions.push_back((Arc::clone(pool), action));
    }
    pool.set_alarm(&guarded, alarms, now);
    result
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    // ---- asking ----

    /// A client as its pool knows it: its worker and its slot there, since clients of several workers wait in one
    /// queue, and a number that is new for each wish that could be confused with another.
    pub(super) fn client_waiter(&self, slot: usize, number: u32) -> WaiterId {
        WaiterId(u64::from(number) << 32 | u64::from(self.client_tag(slot).0))
    }

    pub(super) fn mux_waiter(&self, number: u32) -> WaiterId {
        self.client_waiter(MUX as usize, number)
    }

    /// Asks a pool's state machine something under its lock, and queues what it wants done.
    pub(super) fn operate<T>(&mut self, pool: &Arc<SharedPool>, f: impl FnOnce(&mut Guarded) -> T) -> T {
        operate(pool, &mut self.actions, &self.host.registry.alarms, self.now, f)
    }

    /// The same for a pool that this worker knows. What all workers share is not counted up and down for it: that would
    /// go from core to core.
    pub(super) fn operate_known<T>(&mut self, pool: PoolId, f: impl FnOnce(&mut Guarded) -> T) -> T {
        let pool = self.pools.get(&pool).expect("it has a server, or a client that asks for one, here");
        operate(pool, &mut self.actions, &self.host.registry.alarms, self.now, f)
    }

    /// Asks a pool for a server. `None`: the pool is forgotten.
    pub(super) fn ask(&mut self, pool: PoolId, waiter: WaiterId) -> Option<CheckOut> {
        self.ask_for(pool, waiter, Wish::Any)
    }

    pub(super) fn ask_for(&mut self, pool: PoolId, waiter: WaiterId, wish: Wish) -> Option<CheckOut> {
        self.know_pool(pool)?;
        let (home, now) = (self.home(), self.now);
        let pool = self.pools.get(&pool).expect("just seen");
        operate(pool, &mut self.actions, &self.host.registry.alarms, now, |guarded| {
            if !pool.admits(guarded) {
                return None;
            }
            let outcome = guarded.pool.check_out_for(waiter, home, wish, now);
            match &outcome {
                CheckOut::Granted(grant) => guarded.stats.on_grant(grant),
                CheckOut::Failed(reason) => guarded.stats.on_failed(*reason),
                CheckOut::Queued(_) => {}
            }
            Some(outcome)
        })
    }

    /// A grant of a server: brings it and its client together, wherever they live.
    pub(super) fn deliver(&mut self, pool: PoolId, grant: Grant) {
        match (grant.home == self.home(), grant.waiter_home == self.home()) {
            (true, true) => self.work.push_back(Work::Granted(pool, grant)),
            // Not before the outbox at hand is done: it may yet close the server.
            (true, false) => self.work.push_back(Work::Bring(pool, grant)),
            (false, _) => self.mailbox(grant.home).send(Message::Bring(pool, grant)),
        }
    }

    // ---- where servers are ----

    pub(super) fn whereabouts(&self, pool: PoolId, server: ServerId) -> Local {
        let here = self.local.get(&pool).and_then(|slots| slots.get(server.slot())).copied();
        match here {
            Some(Local::Server(slot)) if self.servers.get(slot as usize).is_some_and(|s| s.id == server) => {
                Local::Server(slot)
            }
            Some(Local::Dial(slot)) if self.dials.get(slot as usize).is_some_and(|d| d.id == server) => {
                Local::Dial(slot)
            }
            Some(Local::Farewell(slot)) if self.farewells.get(slot as usize).is_some_and(|f| f.is_of(pool, server)) => {
                Local::Farewell(slot)
            }
            _ => Local::None,
        }
    }

    pub(super) fn set_whereabouts(&mut self, pool: PoolId, server: ServerId, place: Local) {
        if place == Local::None {
            // The pool may be forgotten.
            if let Some(slot) = self.local.get_mut(&pool).and_then(|slots| slots.get_mut(server.slot())) {
                *slot = place;
            }
            return;
        }
        let slots = self.local.entry(pool).or_default();
        if server.slot() >= slots.len() {
            slots.resize(server.slot() + 1, Local::None);
        }
        slots[server.slot()] = place;
    }

    pub(super) fn server_here(&self, pool: PoolId, server: ServerId) -> Option<usize> {
        match self.whereabouts(pool, server) {
            Local::Server(slot) => Some(slot as usize),
            Local::Dial(_) | Local::Farewell(_) | Local::None => None,
        }
    }

    /// Whether a server lives here and its end has not been seen.
    pub(super) fn server_usable(&self, pool: PoolId, server: ServerId) -> bool {
        self.server_here(pool, server).is_some_and(|slot| !self.servers[slot].ending)
    }

    // ---- names ----

    pub(super) fn home(&self) -> Home {
        Home(self.number)
    }

    pub(super) fn client_tag(&self, slot: usize) -> ClientTag {
        ClientTag::new(self.number, slot)
    }

    pub(super) fn server_tag(&self, slot: usize) -> ServerTag {
        ServerTag::new(self.number, slot)
    }

    pub(super) fn mailbox(&self, home: Home) -> &Mailbox<P, R> {
        &self.shared.mailboxes[usize::from(home.0)]
    }

    /// The pool behind an id, from this worker's own list; `None` if it is forgotten.
    pub(super) fn pool(&mut self, id: PoolId) -> Option<Arc<SharedPool>> {
        self.know_pool(id).cloned()
    }

    /// Enters a pool in this worker's own list if that does not have it.
    pub(super) fn know_pool(&mut self, id: PoolId) -> Option<&Arc<SharedPool>> {
        match self.pools.entry(id) {
            Entry::Occupied(known) => Some(known.into_mut()),
            Entry::Vacant(place) => {
                let pool = self.host.registry.pool(id, self.now).filter(|pool| !pool.is_gone())?;
                self.own_times.note(&pool.spec().timeouts);
                Some(place.insert(pool))
            }
        }
    }

    /// A connection of this pool is about to be here.
    pub(super) fn enter_pool(&mut self, pool: &Arc<SharedPool>) {
        if let Entry::Vacant(place) = self.pools.entry(pool.id) {
            self.own_times.note(&pool.spec().timeouts);
            place.insert(Arc::clone(pool));
        }
    }

    /// A pool is forgotten, and nothing of it is here. (A mux that waits for its answer gets that, and goes by itself.)
    pub(super) fn forget_pool(&mut self, id: PoolId) {
        self.pools.remove(&id);
        self.local.remove(&id);
        self.round_trips.forget(id);
    }
}
