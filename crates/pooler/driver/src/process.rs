//! What the process has once, whatever protocols it serves: pools and their budget, listeners, the throttle, the
//! resolver, the clock, and what workers publish. Knows no protocol and no reactor.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use pool::Time;

use crate::{
    client_state::{STATES, State},
    client_total::ClientTotal,
    clock::Clock,
    config::{DriverConfig, Upstreams},
    evictions::Evictable,
    kept_places::KeptPlaces,
    listener::Listener,
    log_switches::LogSwitches,
    orders::DatabaseName,
    registry::Registry,
    resolver::Resolver,
    shared_pool::SharedPool,
    snapshot::{ListenerSnapshot, PoolSnapshot, Snapshot, WorkerSnapshot},
    tenants::Tenants,
    throttle::Throttle,
};

pub(crate) struct Process {
    pub(crate) config: DriverConfig,
    pub(crate) listeners: Vec<Listener>,
    /// The clients of all listeners.
    pub(crate) total: Arc<ClientTotal>,
    pub(crate) kept_places: KeptPlaces,
    pub(crate) registry: Registry,
    pub(crate) tenants: Tenants,
    pub(crate) boards: Vec<Board>,
    pub(crate) throttle: Throttle,
    pub(crate) logged: LogSwitches,
    pub(crate) resolver: Resolver,
    pub(crate) clock: Clock,
    /// What the workers' reactors are called.
    reactor: &'static str,
    pub(crate) draining: AtomicBool,
    /// Another process listens now.
    pub(crate) leaving: AtomicBool,
    /// Sockets that a worker still accepts from: until there is none, each worker may get clients.
    pub(crate) listening: AtomicUsize,
    /// The clients of some database are to go.
    pub(crate) any_drained: AtomicBool,
    /// Calls into sessions that panicked.
    pub(crate) panics: AtomicU64,
}

impl Process {
    /// One that has these listeners with that number of sockets, and has made the pools that exist from the start.
    pub(crate) fn new(
        config: DriverConfig,
        upstreams: Arc<dyn Upstreams>,
        (listeners, total): (Vec<Listener>, Arc<ClientTotal>),
        sockets: usize,
        clock: Clock,
        reactor: &'static str,
    ) -> Self {
        let process = Self {
            boards: (0..config.workers).map(|_| Board::new(listeners.len())).collect(),
            throttle: Throttle::new(config.max_auth_failures),
            logged: LogSwitches::new(config.logged),
            listening: AtomicUsize::new(sockets),
            listeners,
            total,
            kept_places: KeptPlaces::default(),
            tenants: Tenants::new(),
            registry: Registry::new(upstreams, config.workers, config.reserved.clone()),
            resolver: Resolver::start(),
            clock,
            reactor,
            draining: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            any_drained: AtomicBool::new(false),
            panics: AtomicU64::new(0),
            config,
        };
        process.resolver.set_failure_ttl(process.config.name_failure_ttl);
        process.registry.open_at_start(process.clock.now());
        process
    }

    /// Whether the workers are to end when the last client has gone.
    pub(crate) fn is_ending(&self) -> bool {
        self.draining.load(SeqCst) || self.leaving.load(SeqCst)
    }

    /// Whether all workers have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.boards.iter().all(|board| board.ended.load(SeqCst))
    }

    /// The pools of a database, or all that are shown.
    pub(crate) fn pools(&self, database: Option<&DatabaseName>) -> Vec<Arc<SharedPool>> {
        let mut pools = self.registry.all();
        pools.retain(|pool| {
            let spec = pool.spec();
            !spec.hidden && database.is_none_or(|name| spec.is_called(name))
        });
        pools
    }

    /// Everything that is counted.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let now = self.clock.now();
        let workers = self.boards.iter().map(|board| WorkerSnapshot {
            cpu: Duration::from_nanos(board.cpu_ns.load(Relaxed)),
            clients: board.clients.load(Relaxed),
            transactions: board.transactions.load(Relaxed),
            moves: board.moves.load(Relaxed),
        });
        let (mut pools, forgotten) = self.registry.all_that_counted();
        pools.retain(|pool| !pool.spec().hidden);
        Snapshot {
            listeners: (0..self.listeners.len()).map(|listener| self.listener_snapshot(listener)).collect(),
            pools: pools.iter().map(|pool| self.pool_snapshot(pool, now)).collect(),
            forgotten,
            tenants: self.tenants.snapshot(),
            workers: workers.collect(),
            auth_failures: self.throttle.failures(),
            session_panics: self.panics.load(Relaxed),
            reactor: self.reactor,
            draining: self.is_ending(),
        }
    }

    fn pool_snapshot(&self, pool: &SharedPool, now: Time) -> PoolSnapshot {
        let told = pool.snapshot(now, &self.listeners);
        let limited_by = if told.counts.waiters > 0 { self.registry.limiting_setting(pool) } else { None };
        PoolSnapshot { limited_by, ..told }
    }

    fn listener_snapshot(&self, listener: usize) -> ListenerSnapshot {
        let sum = |states: &[State]| -> u64 {
            let of =
                |board: &Board| states.iter().map(|s| board.states[listener][*s as usize].load(Relaxed)).sum::<u64>();
            self.boards.iter().map(of).sum()
        };
        ListenerSnapshot {
            login: sum(&[State::Login]),
            idle: sum(&[State::Idle]),
            waiting: sum(&[State::Waiting]),
            active: sum(&[State::Active, State::Transaction]),
            subscribed: sum(&[State::Subscribed]),
            ..self.listeners[listener].snapshot()
        }
    }
}

/// What one worker publishes for all threads. Only that worker writes it, once per turn of its loop.
pub(crate) struct Board {
    /// Clients it serves or will serve; the acceptor adds, the worker subtracts.
    pub(crate) clients: AtomicU64,
    pub(crate) transactions: AtomicU64,
    pub(crate) moves: AtomicU64,
    pub(crate) cpu_ns: AtomicU64,
    /// Per listener: clients by state.
    pub(crate) states: Vec<[AtomicU64; STATES]>,
    /// Per listener: its clients that could be evicted first.
    evictable: Vec<Mutex<Evictable>>,
    pub(crate) ended: AtomicBool,
}

impl Board {
    fn new(listeners: usize) -> Self {
        Self {
            clients: AtomicU64::new(0),
            transactions: AtomicU64::new(0),
            moves: AtomicU64::new(0),
            cpu_ns: AtomicU64::new(0),
            states: (0..listeners).map(|_| Default::default()).collect(),
            evictable: (0..listeners).map(|_| Mutex::default()).collect(),
            ended: AtomicBool::new(false),
        }
    }

    /// To be held for one look.
    pub(crate) fn evictable(&self, listener: usize) -> MutexGuard<'_, Evictable> {
        self.evictable[listener].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
