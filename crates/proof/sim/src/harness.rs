//! Runs the product's workers in virtual time over the simulated network: the caller decides which worker takes a step.
//! It is generic over the protocol, and knows neither clients nor databases.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use driver::{
    Address, Changes, Clock, DriverConfig, Handle, ListenerSpec, Network as ProxyNetwork, NextStep, PoolSpec,
    PoolTimeouts, SteppedWorkers, TenantLimits, Timeouts, Upstreams,
};
use pool::{GateConfig, PoolConfig, Time};
use seam::{PoolId, Protocol, Tenant};

use crate::{
    network::{HostId, Network, ReactorView, Socket, VirtualReactor},
    random::Rng,
};

/// Workers, their clock and the network they see.
pub struct Harness<P: Protocol> {
    clock: Clock,
    crew: SteppedWorkers<P, VirtualReactor>,
    upstreams: Arc<Revised>,
    /// Listener settings that a reload applies.
    changes: Changes,
    views: Vec<ReactorView>,
    /// When each worker wakes if nothing happens; `None` if it is awake.
    wake_times: Vec<Option<Time>>,
}

/// The pools of a test, with the number of reloads so far as their revision.
struct Revised {
    upstreams: Arc<dyn Upstreams>,
    revision: AtomicU64,
}

impl Upstreams for Revised {
    /// Every other revision keeps idle servers for a short time only.
    fn spec(&self, pool: PoolId) -> Option<PoolSpec> {
        let mut spec = self.upstreams.spec(pool)?;
        spec.revision = self.revision.load(SeqCst);
        if spec.revision % 2 == 1 {
            spec.config.max_idle_time = Some(Duration::from_millis(3));
        }
        Some(spec)
    }

    fn try_forget(&self, pool: PoolId) -> bool {
        self.upstreams.try_forget(pool)
    }

    fn at_start(&self) -> Vec<PoolId> {
        self.upstreams.at_start()
    }

    fn tenant(&self, pool: PoolId) -> Option<Tenant> {
        self.upstreams.tenant(pool)
    }

    fn limits(&self, tenant: &Tenant) -> Option<TenantLimits> {
        self.upstreams.limits(tenant)
    }
}

pub struct Rules {
    pub driver: DriverConfig,
    pub gate: GateConfig,
    pub timeouts: Timeouts,
    /// Proxies that begin each connection with a header that names their client.
    pub proxies: Vec<ProxyNetwork>,
}

/// A pool at this host of the simulated network, without caps and time-outs.
pub fn pool_spec(protocol: &'static str, database: String, host: HostId, config: PoolConfig) -> PoolSpec {
    PoolSpec {
        protocol,
        database,
        ordered_as: None,
        user: "app".into(),
        hosts: Address::Tcp { host: "127.0.0.1".into(), port: 1 + host }.into(),
        config,
        tls: None,
        caps: Vec::new(),
        timeouts: PoolTimeouts::default(),
        sizes: None,
        forget_after: None,
        revision: 0,
        cancel_timeout: Duration::from_secs(5),
        fast_close: false,
        hidden: false,
        client_rank: driver::ClientRank::default(),
    }
}

impl<P: Protocol> Harness<P> {
    /// Workers that have taken no step yet.
    pub fn new(protocol: P, upstreams: Arc<dyn Upstreams>, rules: Rules, network: &Network, rng: &mut Rng) -> Self {
        let workers = rules.driver.workers;
        let clock = Clock::standing(Time(0));
        let listener = ListenerSpec {
            name: "virtual".into(),
            protocol: "virtual",
            sockets: vec![Socket::listener(network)],
            tcp: true,
            gate: rules.gate,
            timeouts: rules.timeouts,
            tls: None,
            proxies: rules.proxies,
        };
        let changes = Changes {
            name_failure_ttl: Duration::ZERO,
            listeners: vec![(rules.gate, rules.timeouts)],
            max_clients: rules.driver.max_clients,
            max_auth_failures: rules.driver.max_auth_failures,
            logged: rules.driver.logged,
        };
        let upstreams = Arc::new(Revised { upstreams, revision: AtomicU64::new(0) });
        let made = (0..workers).map(|_| VirtualReactor::new(network, rng.next(), rules.driver.buffer_size));
        let (reactors, views): (Vec<_>, Vec<_>) = made.unzip();
        let reactors = reactors.into_iter().map(|reactor| {
            let waker = reactor.waker();
            (reactor, waker)
        });
        let crew = SteppedWorkers::new(
            rules.driver,
            Arc::new(protocol),
            upstreams.clone(),
            vec![listener],
            reactors.collect(),
            clock.clone(),
        )
        .expect("a virtual reactor refuses nothing");
        Self { clock, crew, upstreams, changes, views, wake_times: vec![None; workers] }
    }

    /// The driver's handle: snapshots and orders.
    pub fn handle(&self) -> Handle {
        self.crew.handle()
    }

    /// Reloads a configuration in which every pool has changed, so that every server has to be replaced.
    pub fn reload_with_new_revision(&self) {
        self.upstreams.revision.fetch_add(1, SeqCst);
        self.reload();
    }

    pub fn reload(&self) {
        self.handle().reconfigure(&self.changes);
    }

    pub fn set_time(&self, now: Time) {
        self.clock.set(now);
    }

    /// Workers that have work now.
    pub fn ready(&mut self) -> Vec<usize> {
        let now = self.clock.now();
        let ready = |worker: &usize| match self.crew.next_step(*worker) {
            NextStep::Work => true,
            NextStep::Wait(_) => {
                self.wake_times[*worker].is_none_or(|until| now >= until) || self.views[*worker].has_news()
            }
            NextStep::Nothing => false,
        };
        (0..self.views.len()).filter(ready).collect()
    }

    /// Runs one step of a worker.
    pub fn step(&mut self, worker: usize) {
        let was_waiting = matches!(self.crew.next_step(worker), NextStep::Wait(_));
        self.crew.step(worker).expect("a virtual reactor does not fail");
        self.wake_times[worker] = match self.crew.next_step(worker) {
            NextStep::Wait(most) if !was_waiting => Some(self.clock.now() + most.max(Duration::from_nanos(1))),
            _ => None,
        };
    }

    /// When the next sleeping worker wakes by itself.
    pub fn next_wake(&self) -> Option<Time> {
        self.wake_times.iter().flatten().min().copied()
    }

    /// Checks that no session has panicked. The driver would end that session and go on.
    ///
    /// # Panics
    /// If one has.
    pub fn check_sessions(&self) {
        assert_eq!(self.handle().snapshot().session_panics, 0, "a session has panicked");
    }

    /// Whether all workers have ended.
    pub fn has_ended(&self) -> bool {
        (0..self.views.len()).all(|worker| self.crew.next_step(worker) == NextStep::Nothing)
    }

    /// Connections to the database, open or being made, cancel requests excluded.
    pub fn servers(&self) -> usize {
        self.views.iter().map(ReactorView::servers).sum()
    }

    /// The most bytes that have ever waited to be sent to one peer.
    pub fn most_unsent(&self) -> usize {
        self.views.iter().map(ReactorView::most_unsent).max().unwrap_or(0)
    }
}
