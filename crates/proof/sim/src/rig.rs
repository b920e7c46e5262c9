//! A test rig: real workers (mostly one) with real sessions on the simulated network, between clients and servers that
//! send what a test or a fuzzer dictates. A test sees what they receive, which connections end, and what the driver
//! counts. Nothing is random, and no protocol is known.

pub mod postgres;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use driver::{
    DriverConfig, ListenerSnapshot, Network as ProxyNetwork, PoolSpec, PoolTimeouts, TenantLimits, Timeouts, Upstreams,
};
use pool::{Counts, GateConfig, PoolConfig, Time};
use seam::{PoolId, Protocol, Tenant};

use crate::{
    harness::{Harness, Rules, pool_spec},
    network::{Conditions, EndId, HostBehaviour, Network},
    random::Rng,
};

pub const POOL: PoolId = PoolId(0);
/// Steps by which the workers must be at rest.
const MAX_STEPS: u32 = 1_000_000;

/// How sent bytes are split on their way.
#[derive(Clone, Copy, Debug)]
pub enum Pieces {
    Whole,
    SplitAt(usize),
    Of(usize),
}

impl Pieces {
    fn split(self, bytes: &[u8]) -> Vec<&[u8]> {
        match self {
            Self::SplitAt(at) if at < bytes.len() => vec![&bytes[..at], &bytes[at..]],
            Self::Whole | Self::SplitAt(_) => vec![bytes],
            Self::Of(size) => bytes.chunks(size).collect(),
        }
    }
}

/// The settings of the only pool and its database, which a test may change.
#[derive(Clone)]
struct PoolSettings {
    config: PoolConfig,
    timeouts: PoolTimeouts,
    limits: Option<TenantLimits>,
}

struct OnePool(Mutex<PoolSettings>);

impl OnePool {
    fn settings(&self) -> MutexGuard<'_, PoolSettings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Upstreams for OnePool {
    fn spec(&self, _: PoolId) -> Option<PoolSpec> {
        let PoolSettings { config, timeouts, .. } = self.settings().clone();
        Some(PoolSpec { timeouts, ..pool_spec("rig", "db".into(), 0, config) })
    }

    fn at_start(&self) -> Vec<PoolId> {
        vec![POOL]
    }

    fn tenant(&self, _: PoolId) -> Option<Tenant> {
        Some(Tenant::Database { protocol: "rig", name: "db".into() })
    }

    fn limits(&self, tenant: &Tenant) -> Option<TenantLimits> {
        self.settings().limits.filter(|_| matches!(tenant, Tenant::Database { .. }))
    }
}

/// `max_held`: bytes of input held for a connection.
fn driver_config(workers: usize, max_held: usize) -> DriverConfig {
    let buffer_size = DriverConfig::default().buffer_size.min(max_held);
    DriverConfig { workers, max_buffered_input: max_held, buffer_size, ..DriverConfig::default() }
}

pub struct Rig<P: Protocol> {
    harness: Harness<P>,
    network: Network,
    now: Time,
    pool: Arc<OnePool>,
    /// Server connections that no test has taken yet.
    new_servers: VecDeque<EndId>,
    /// All server connections so far.
    servers: BTreeSet<EndId>,
    /// Server connections that both sides have closed: what a test sends there is dropped.
    closed_servers: BTreeSet<EndId>,
    received: BTreeMap<EndId, Vec<u8>>,
    pub pieces: Pieces,
    /// A worker that takes no step.
    halted: Option<usize>,
}

impl<P: Protocol> Rig<P> {
    /// A rig with one worker, whose pool may have one server. `max_held`: bytes of input held for a connection.
    pub fn new(protocol: P, max_held: usize) -> Self {
        Self::with_workers(1, protocol, max_held)
    }

    pub fn with_workers(workers: usize, protocol: P, max_held: usize) -> Self {
        let gate = GateConfig { soft_limit: 100, hard_limit: 100, evict_min_idle: Duration::from_secs(60) };
        Self::with_gate(gate, Timeouts::default(), workers, protocol, max_held)
    }

    pub fn with_gate(gate: GateConfig, timeouts: Timeouts, workers: usize, protocol: P, max_held: usize) -> Self {
        Self::made(Rules { driver: driver_config(workers, max_held), gate, timeouts, proxies: Vec::new() }, protocol)
    }

    /// A rig to whose clients a proxy speaks for others: each connection begins with a header of the proxy's.
    pub fn behind_proxies(protocol: P, max_held: usize) -> Self {
        let proxies = ["0.0.0.0/0", "::/0"].map(|all| ProxyNetwork::parse(all).expect("a network"));
        let gate = GateConfig { soft_limit: 100, hard_limit: 100, evict_min_idle: Duration::from_secs(60) };
        let (driver, timeouts) = (driver_config(1, max_held), Timeouts::default());
        Self::made(Rules { driver, gate, timeouts, proxies: proxies.into() }, protocol)
    }

    fn made(rules: Rules, protocol: P) -> Self {
        let mut rng = Rng::new(1);
        let conditions = Conditions { delay: Duration::ZERO, pieces: 0, window: 1 << 30, short_reads: 0 };
        let network = Network::new(rng.next(), conditions);
        let config = PoolConfig {
            max_size: 1,
            max_connecting: 100,
            max_idle_time: None,
            max_life_time: None,
            connect_timeout: Duration::from_secs(60),
            ..PoolConfig::default()
        };
        let settings = PoolSettings { config, timeouts: PoolTimeouts::default(), limits: None };
        let pool = Arc::new(OnePool(Mutex::new(settings)));
        let harness = Harness::new(protocol, pool.clone(), rules, &network, &mut rng);
        let mut rig = Self {
            harness,
            network,
            now: Time(0),
            pool,
            new_servers: VecDeque::new(),
            servers: BTreeSet::new(),
            closed_servers: BTreeSet::new(),
            received: BTreeMap::new(),
            pieces: Pieces::Whole,
            halted: None,
        };
        rig.settle();
        rig
    }

    /// Changes the configuration of the pool.
    pub fn configure(&mut self, change: impl FnOnce(&mut PoolConfig)) {
        self.change(|settings| change(&mut settings.config));
    }

    pub fn set_timeouts(&mut self, timeouts: PoolTimeouts) {
        self.change(|settings| settings.timeouts = timeouts);
    }

    /// Limits the number of clients of the database.
    pub fn limit_clients(&mut self, limits: TenantLimits) {
        self.change(|settings| settings.limits = Some(limits));
    }

    fn change(&mut self, change: impl FnOnce(&mut PoolSettings)) {
        change(&mut self.pool.settings());
        self.harness.reload();
        self.settle();
    }

    /// Connects a client.
    pub fn connect_client(&mut self) -> EndId {
        let end = self.network.connect();
        self.received.insert(end, Vec::new());
        self.settle();
        end
    }

    /// The next new server connection. If there is none, the pool has to make one more.
    pub fn next_server(&mut self) -> EndId {
        if self.new_servers.is_empty() {
            let Counts { total, .. } = self.server_counts();
            self.configure(|pool| (pool.min_size, pool.max_size) = (total + 1, total + 1));
        }
        self.take_new_server().expect("the pool makes a server")
    }

    /// The next new server connection, if there is one.
    pub fn take_new_server(&mut self) -> Option<EndId> {
        self.new_servers.pop_front()
    }

    /// Sends bytes from this end. Workers come to rest between pieces.
    pub fn send(&mut self, end: EndId, bytes: &[u8]) {
        for piece in self.pieces.split(bytes) {
            if self.closed_servers.contains(&end) {
                return;
            }
            assert_eq!(self.network.send(end, piece), piece.len(), "the window is wide");
            self.settle();
        }
    }

    /// Takes what this end has received.
    pub fn take_received(&mut self, end: EndId) -> Vec<u8> {
        std::mem::take(self.received.get_mut(&end).expect("an end"))
    }

    /// Whether Poolhouse has closed this connection.
    pub fn is_closed(&self, end: EndId) -> bool {
        self.network.has_input_ended(end)
    }

    pub fn close(&mut self, end: EndId) {
        self.network.close(end);
        self.settle();
    }

    /// Makes the database reachable, or not.
    pub fn set_database(&mut self, behaviour: HostBehaviour) {
        self.network.set_host(0, behaviour);
    }

    /// The workers accept no further clients, and end when all have left. With `drain`, idle clients are disconnected.
    pub fn stop(&mut self, drain: bool) {
        let handle = self.harness.handle();
        if drain {
            handle.drain()
        } else {
            handle.leave()
        }
        self.settle();
    }

    /// Whether all workers have ended.
    pub fn has_ended(&self) -> bool {
        self.harness.has_ended()
    }

    pub fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        self.settle();
        while let Some(next) = self.harness.next_wake().filter(|next| *next < until) {
            self.set_time(next);
            self.settle();
        }
        self.set_time(until);
        self.settle();
    }

    /// Runs `act` while a worker takes no step, as if its thread did not run.
    pub fn while_halted(&mut self, worker: usize, act: impl FnOnce(&mut Self)) {
        self.halted = Some(worker);
        act(self);
        self.halted = None;
        self.settle();
    }

    pub fn server_counts(&self) -> Counts {
        self.harness.handle().pools(None)[0].counts
    }

    /// The listener's counts of clients.
    pub fn client_counts(&self) -> ListenerSnapshot {
        self.harness.handle().snapshot().listeners.remove(0)
    }

    /// Number of failed logins.
    pub fn auth_failures(&self) -> u64 {
        self.harness.handle().snapshot().auth_failures
    }

    /// Runs the workers until only the clock can give them work.
    fn settle(&mut self) {
        for _ in 0..MAX_STEPS {
            while let Some((end, _)) = self.network.accept() {
                self.received.insert(end, Vec::new());
                self.servers.insert(end);
                self.new_servers.push_back(end);
            }
            let ready = self.harness.ready();
            if let Some(worker) = ready.into_iter().find(|worker| Some(*worker) != self.halted) {
                self.harness.step(worker);
            } else if let Some(at) = self.network.next_at() {
                self.set_time(at.max(self.now));
            } else {
                return self.harness.check_sessions();
            }
            for end in self.network.take_changed() {
                if let Some(received) = self.received.get_mut(&end) {
                    received.extend(self.network.receive(end, usize::MAX));
                }
                if self.servers.contains(&end) && self.network.has_input_ended(end) && self.closed_servers.insert(end) {
                    self.network.close(end);
                }
            }
        }
        panic!("the workers do not come to rest");
    }

    fn set_time(&mut self, to: Time) {
        self.now = to;
        self.harness.set_time(to);
        self.network.advance(to);
    }
}
