//! The pools that a worker uses: which it knows, where their connections are on this worker, and what they want done.
//! Calls no session and sends nothing: an answer to the caller, an action or a demand is all that comes of a question.

use std::{
    collections::{VecDeque, hash_map::Entry},
    sync::{Arc, atomic::Ordering::Relaxed},
};

use pool::{Action, CheckOut, Clear, Home, Need, ServerId, Time, WaiterId};
use seam::PoolId;

use crate::{
    alarms::Alarms,
    by_pool::ByPool,
    config::{PoolSpec, PoolTimeouts},
    process::Process,
    registry::{Demand, Registry},
    shared_pool::{Guarded, SharedPool},
};

/// Where a pool's connection is on this worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Location {
    None,
    Dial(u32),
    Server(u32),
    /// The worker has ended the connection, and the database has not.
    Closing(u32),
}

/// What at least one known pool has otherwise than its listeners: time-outs, and how sessions end.
#[derive(Default)]
struct Overrides {
    client_idle: bool,
    /// The time-outs of clients that hold a server.
    held: bool,
    /// Sessions of some pool end when their servers are to be replaced.
    fast_close: bool,
}

impl Overrides {
    fn add(&mut self, spec: &PoolSpec) {
        let PoolTimeouts { client_idle, query, transaction_idle, transaction } = spec.timeouts;
        self.client_idle |= client_idle.is_some();
        self.held |= query.is_some() || transaction_idle.is_some() || transaction.is_some();
        self.fast_close |= spec.fast_close;
    }
}

pub(super) struct Pools {
    process: Arc<Process>,
    home: Home,
    /// The pools that the worker has used, so that it need not ask the registry again.
    known: ByPool<Arc<SharedPool>>,
    /// By slot of the pool.
    locations: ByPool<Vec<Location>>,
    actions: VecDeque<(Arc<SharedPool>, Action)>,
    demands: Vec<Demand>,
    overrides: Overrides,
    /// The count of configurations for which `overrides` holds.
    configured: u64,
    /// Empty between calls of `handle_alarms`.
    due: Vec<(PoolId, Time)>,
}

impl Pools {
    pub(super) fn new(process: Arc<Process>, home: Home) -> Self {
        Self {
            process,
            home,
            known: ByPool::default(),
            locations: ByPool::default(),
            actions: VecDeque::new(),
            demands: Vec::new(),
            overrides: Overrides::default(),
            configured: 0,
            due: Vec::new(),
        }
    }

    // ---- which are known ----

    /// The pool behind an id, made if it is new; `None` if it is forgotten.
    pub(super) fn find_or_make(&mut self, id: PoolId, now: Time) -> Option<Arc<SharedPool>> {
        self.learn(id, now).cloned()
    }

    /// The pool of a client or a server of this worker.
    pub(super) fn used(&self, id: PoolId) -> &Arc<SharedPool> {
        self.known.get(&id).expect("a pool that has a client or a server here is known")
    }

    /// The pool behind an id, if this worker has used it.
    pub(super) fn known(&self, id: PoolId) -> Option<&Arc<SharedPool>> {
        self.known.get(&id)
    }

    fn learn(&mut self, id: PoolId, now: Time) -> Option<&Arc<SharedPool>> {
        match self.known.entry(id) {
            Entry::Occupied(known) => Some(known.into_mut()),
            Entry::Vacant(entry) => {
                let pool = self.process.registry.find_or_make(id, now).filter(|pool| !pool.is_gone())?;
                self.overrides.add(&pool.spec());
                Some(entry.insert(pool))
            }
        }
    }

    /// Notes a pool of which a connection is about to be here.
    pub(super) fn enter(&mut self, pool: &Arc<SharedPool>) {
        if let Entry::Vacant(entry) = self.known.entry(pool.id) {
            self.overrides.add(&pool.spec());
            entry.insert(Arc::clone(pool));
        }
    }

    /// Forgets a pool that has no connection here.
    pub(super) fn forget(&mut self, id: PoolId) {
        self.known.remove(&id);
        self.locations.remove(&id);
    }

    // ---- asking them ----

    /// Asks a pool's state machine something under its lock, and queues what it wants done.
    pub(super) fn operate<T>(&mut self, pool: &Arc<SharedPool>, now: Time, f: impl FnOnce(&mut Guarded) -> T) -> T {
        operate(pool, &mut self.actions, &self.process.registry.alarms, now, f)
    }

    /// As [`operate`](Self::operate), for a pool that this worker knows. Does not touch the reference count, which all
    /// workers share and would pass from core to core.
    pub(super) fn operate_used<T>(&mut self, pool: PoolId, now: Time, f: impl FnOnce(&mut Guarded) -> T) -> T {
        let pool = self.known.get(&pool).expect("a pool that has a client or a server here is known");
        operate(pool, &mut self.actions, &self.process.registry.alarms, now, f)
    }

    /// Asks a pool for a server. `None`: the pool is forgotten.
    pub(super) fn check_out(&mut self, pool: PoolId, waiter: WaiterId, need: Need, now: Time) -> Option<CheckOut> {
        self.learn(pool, now)?;
        let (home, pool) = (self.home, self.known.get(&pool).expect("just learnt"));
        operate(pool, &mut self.actions, &self.process.registry.alarms, now, |guarded| {
            if !pool.note_use(guarded) {
                return None;
            }
            let outcome = guarded.pool.check_out_for(waiter, home, need, now);
            match &outcome {
                CheckOut::Granted(grant) => guarded.stats.on_grant(grant),
                CheckOut::Failed(reason) => guarded.stats.on_failed(*reason),
                CheckOut::Queued(_) => {}
            }
            Some(outcome)
        })
    }

    /// Has the pools whose alarms have gone off handle their deadlines.
    pub(super) fn handle_alarms(&mut self, now: Time) {
        let mut due = std::mem::take(&mut self.due);
        self.process.registry.alarms.take_due(usize::from(self.home.0), now, &mut due);
        for (pool, at) in due.drain(..) {
            if let Some(pool) = self.find_or_make(pool, now) {
                self.handle_alarm(&pool, at, now);
            }
        }
        self.due = due;
    }

    fn handle_alarm(&mut self, pool: &Arc<SharedPool>, at: Time, now: Time) {
        let drained = pool.drained.load(Relaxed);
        self.operate(pool, now, |guarded| {
            if !pool.end_alarm(at) {
                return;
            }
            if drained && guarded.pool.counts().idle > 0 {
                guarded.pool.clear(Clear::default(), now);
            }
            if guarded.pool.poll_deadline().is_some_and(|deadline| deadline <= now) {
                guarded.pool.handle_timeout(now);
            }
        });
    }

    // ---- what they and their budget want done ----

    /// An action that another worker has passed on.
    pub(super) fn push_action(&mut self, pool: Arc<SharedPool>, action: Action) {
        self.actions.push_back((pool, action));
    }

    pub(super) fn next_action(&mut self) -> Option<(Arc<SharedPool>, Action)> {
        self.actions.pop_front()
    }

    /// Calls the budget, which leaves demands on pools.
    pub(super) fn budget<T>(&mut self, f: impl FnOnce(&Registry, &mut Vec<Demand>) -> T) -> T {
        f(&self.process.registry, &mut self.demands)
    }

    /// Calls a pool's state machine under its lock, and the budget under that lock, too: another worker cannot report a
    /// spare server in between, before the budget knows that it lacks one.
    pub(super) fn operate_with_budget(
        &mut self,
        pool: &Arc<SharedPool>,
        now: Time,
        f: impl FnOnce(&mut Guarded, &Registry, &mut Vec<Demand>),
    ) {
        let (registry, demands) = (&self.process.registry, &mut self.demands);
        operate(pool, &mut self.actions, &registry.alarms, now, |guarded| f(guarded, registry, demands));
    }

    pub(super) fn push_demand(&mut self, demand: Demand) {
        self.demands.push(demand);
    }

    pub(super) fn next_demand(&mut self) -> Option<Demand> {
        self.demands.pop()
    }

    // ---- where their connections are ----

    /// Where a connection was noted to be. It may have ended since, and another one have its place.
    pub(super) fn location(&self, pool: PoolId, server: ServerId) -> Location {
        let slots = self.locations.get(&pool);
        slots.and_then(|slots| slots.get(server.slot())).copied().unwrap_or(Location::None)
    }

    pub(super) fn set_location(&mut self, pool: PoolId, server: ServerId, location: Location) {
        if location == Location::None {
            // The pool may be forgotten.
            if let Some(slot) = self.locations.get_mut(&pool).and_then(|slots| slots.get_mut(server.slot())) {
                *slot = location;
            }
            return;
        }
        let slots = self.locations.entry(pool).or_default();
        if server.slot() >= slots.len() {
            slots.resize(server.slot() + 1, Location::None);
        }
        slots[server.slot()] = location;
    }

    // ---- which time-outs they override ----

    /// Looks which time-outs the known pools override, if any pool has been configured anew.
    pub(super) fn refresh_overrides(&mut self) {
        let configured = self.process.registry.configured.load(Relaxed);
        if std::mem::replace(&mut self.configured, configured) != configured {
            self.overrides = Overrides::default();
            self.known.values().for_each(|pool| self.overrides.add(&pool.spec()));
        }
    }

    /// Whether a pool overrides the idle time of its clients.
    pub(super) fn override_client_idle(&self) -> bool {
        self.overrides.client_idle
    }

    /// Whether sessions of a pool end when their servers are to be replaced.
    pub(super) fn close_fast(&self) -> bool {
        self.overrides.fast_close
    }

    /// Whether a pool overrides a time-out of clients that hold a server.
    pub(super) fn override_held(&self) -> bool {
        self.overrides.held
    }
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
