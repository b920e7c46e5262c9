//! A stage: real workers (mostly one) with real sessions on the simulated network, between clients and servers that
//! send what a test or a fuzzer dictates. A test sees what they receive, which connections end, and what the driver
//! counts. Nothing is random, and no protocol is known.

pub mod postgres;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use driver::{Address, DriverConfig, ListenerSnapshot, PoolSpec, PoolTimeouts, TenantLimits, Timeouts, Upstreams};
use pool::{Counts, GateConfig, PoolConfig, Time};
use seam::{PoolId, Protocol, Tenant};

use crate::{
    harness::{Harness, Rules},
    network::{Conditions, EndId, Host, Network},
    random::Rng,
};

pub const POOL: PoolId = PoolId(0);
/// Steps after which workers count as never at rest.
const MAX_STEPS: u32 = 1_000_000;

/// How a message is split on its way.
#[derive(Clone, Copy, Debug)]
pub enum Pieces {
    Whole,
    SplitAt(usize),
    Of(usize),
}

impl Pieces {
    fn cut(self, bytes: &[u8]) -> Vec<&[u8]> {
        match self {
            Self::SplitAt(at) if at < bytes.len() => vec![&bytes[..at], &bytes[at..]],
            Self::Whole | Self::SplitAt(_) => vec![bytes],
            Self::Of(size) => bytes.chunks(size).collect(),
        }
    }
}

/// What the pool may have now.
struct Supply(Mutex<PoolConfig>, Mutex<PoolTimeouts>, Mutex<Option<TenantLimits>>);

impl Supply {
    fn change(&self, change: impl FnOnce(&mut PoolConfig)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Upstreams for Supply {
    fn spec(&self, _: PoolId) -> Option<PoolSpec> {
        Some(PoolSpec {
            protocol: "stage",
            database: "db".into(),
            ordered_as: None,
            user: "app".into(),
            hosts: Address::Tcp { host: "127.0.0.1".into(), port: 1 }.into(),
            config: self.0.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            tls: None,
            caps: Vec::new(),
            timeouts: *self.1.lock().unwrap_or_else(PoisonError::into_inner),
            sizes: None,
            unused_after: None,
            revision: 0,
        })
    }

    fn at_start(&self) -> Vec<PoolId> {
        vec![POOL]
    }

    fn tenant(&self, _: PoolId) -> Option<Tenant> {
        Some(Tenant::Database { protocol: "stage", name: "db".into() })
    }

    fn limits(&self, tenant: &Tenant) -> Option<TenantLimits> {
        let limits = *self.2.lock().unwrap_or_else(PoisonError::into_inner);
        limits.filter(|_| matches!(tenant, Tenant::Database { .. }))
    }
}

pub struct Stage<P: Protocol> {
    harness: Harness<P>,
    network: Network,
    now: Time,
    supply: Arc<Supply>,
    /// Connections that Poolhouse has made and no test has taken yet.
    arrivals: VecDeque<EndId>,
    /// All connections that Poolhouse has made.
    servers: BTreeSet<EndId>,
    /// Those that have ended on both sides: what servers would say there is not heard.
    ended: BTreeSet<EndId>,
    /// Whether servers end no connection though Poolhouse has ended it; else they do so at once.
    pub lasting: bool,
    /// What has come to each end and was not asked for.
    heard: BTreeMap<EndId, Vec<u8>>,
    /// How all that is said arrives.
    pub pieces: Pieces,
    /// This worker does nothing, whatever comes for it.
    halted: Option<usize>,
}

impl<P: Protocol> Stage<P> {
    /// An empty one: one server may be made, when somebody needs it. `max_held`: bytes of input that is held for a
    /// connection.
    pub fn new(protocol: P, max_held: usize) -> Self {
        Self::with_workers(1, protocol, max_held)
    }

    /// The same with several workers.
    pub fn with_workers(workers: usize, protocol: P, max_held: usize) -> Self {
        let gate = GateConfig { soft_limit: 100, hard_limit: 100, evict_min_idle: Duration::from_secs(60) };
        Self::with_gate(gate, Timeouts::default(), workers, protocol, max_held)
    }

    /// The same with these limits and time-outs of clients.
    pub fn with_gate(gate: GateConfig, timeouts: Timeouts, workers: usize, protocol: P, max_held: usize) -> Self {
        let mut rng = Rng::new(1);
        let conditions = Conditions { delay: Duration::ZERO, pieces: 0, window: 1 << 30, short_reads: 0 };
        let network = Network::new(rng.next(), conditions);
        let supply = Arc::new(Supply(
            Mutex::new(PoolConfig {
                max_size: 1,
                max_connecting: 100,
                max_idle_time: None,
                max_life_time: None,
                connect_timeout: Duration::from_secs(60),
                ..PoolConfig::default()
            }),
            Mutex::default(),
            Mutex::default(),
        ));
        let buffer_size = DriverConfig::default().buffer_size.min(max_held);
        let rules = Rules {
            driver: DriverConfig { workers, max_held_input: max_held, buffer_size, ..DriverConfig::default() },
            gate,
            timeouts,
        };
        let harness = Harness::new(protocol, supply.clone(), rules, &network, &mut rng);
        let (arrivals, heard) = (VecDeque::new(), BTreeMap::new());
        let (now, pieces, halted) = (Time(0), Pieces::Whole, None);
        let (servers, ended, lasting) = (BTreeSet::new(), BTreeSet::new(), false);
        let mut stage =
            Self { harness, network, now, supply, arrivals, servers, ended, lasting, heard, pieces, halted };
        stage.settle();
        stage
    }

    /// The configuration of the pool is another from now on.
    pub fn configure(&mut self, change: impl FnOnce(&mut PoolConfig)) {
        self.supply.change(change);
        self.harness.read_again();
        self.settle();
    }

    /// The pool has these time-outs from now on.
    pub fn limit(&mut self, timeouts: PoolTimeouts) {
        *self.supply.1.lock().unwrap_or_else(PoisonError::into_inner) = timeouts;
        self.harness.read_again();
        self.settle();
    }

    /// The database may have this number of clients from now on.
    pub fn limit_clients(&mut self, limits: TenantLimits) {
        *self.supply.2.lock().unwrap_or_else(PoisonError::into_inner) = Some(limits);
        self.harness.read_again();
        self.settle();
    }

    pub fn client(&mut self) -> EndId {
        let end = self.network.connect();
        self.heard.insert(end, Vec::new());
        self.settle();
        end
    }

    /// The server at the next connection that Poolhouse has made; if there is none, it may and must make one more.
    pub fn server(&mut self) -> EndId {
        if self.arrivals.is_empty() {
            let Counts { total, .. } = self.servers();
            self.configure(|pool| (pool.min_size, pool.max_size) = (total + 1, total + 1));
        }
        self.arrival().expect("a server is made")
    }

    /// The next connection that Poolhouse has made.
    pub fn arrival(&mut self) -> Option<EndId> {
        self.arrivals.pop_front()
    }

    /// Sends bytes from this end. Workers come to rest between pieces.
    pub fn says(&mut self, end: EndId, bytes: &[u8]) {
        for piece in self.pieces.cut(bytes) {
            if self.ended.contains(&end) {
                return;
            }
            assert_eq!(self.network.send(end, piece), piece.len(), "the window is wide");
            self.settle();
        }
    }

    /// Takes what this end has received.
    pub fn got(&mut self, end: EndId) -> Vec<u8> {
        std::mem::take(self.heard.get_mut(&end).expect("an end"))
    }

    /// Whether Poolhouse has closed this connection.
    pub fn is_over(&self, end: EndId) -> bool {
        self.network.is_over(end)
    }

    /// Closes this end.
    pub fn leaves(&mut self, end: EndId) {
        self.network.close(end);
        self.settle();
    }

    /// From now on the database can be reached, or not.
    pub fn set_database(&mut self, host: Host) {
        self.network.set_host(0, host);
    }

    /// The workers are to accept no client any more, and to end when all have gone: with `drain`, idle ones are sent
    /// away.
    pub fn end(&mut self, drain: bool) {
        let handle = self.harness.handle();
        if drain {
            handle.drain()
        } else {
            handle.leave()
        }
        self.settle();
    }

    /// All workers have ended.
    pub fn has_ended(&self) -> bool {
        self.harness.has_ended()
    }

    pub fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        self.settle();
        while let Some(next) = self.harness.next_at().filter(|next| *next < until) {
            self.pass(next);
            self.settle();
        }
        self.pass(until);
        self.settle();
    }

    /// A worker does nothing meanwhile, as if its thread did not run.
    pub fn while_halted(&mut self, worker: usize, act: impl FnOnce(&mut Self)) {
        self.halted = Some(worker);
        act(self);
        self.halted = None;
        self.settle();
    }

    pub fn servers(&self) -> Counts {
        self.harness.handle().pools(None)[0].counts
    }

    /// What clients are counted as.
    pub fn clients(&self) -> ListenerSnapshot {
        self.harness.handle().snapshot().listeners.remove(0)
    }

    /// Logins that have failed.
    pub fn auth_failures(&self) -> u64 {
        self.harness.handle().snapshot().auth_failures
    }

    /// Has everything come to rest that needs no time.
    fn settle(&mut self) {
        for _ in 0..MAX_STEPS {
            while let Some((end, _)) = self.network.accept() {
                self.heard.insert(end, Vec::new());
                self.servers.insert(end);
                self.arrivals.push_back(end);
            }
            let ready = self.harness.ready();
            if let Some(worker) = ready.into_iter().find(|worker| Some(*worker) != self.halted) {
                self.harness.step(worker);
            } else if let Some(at) = self.network.next_at() {
                self.pass(at.max(self.now));
            } else {
                return self.harness.check_sessions();
            }
            for end in self.network.take_news() {
                if let Some(heard) = self.heard.get_mut(&end) {
                    heard.extend(self.network.receive(end, usize::MAX));
                }
                if !self.lasting && self.servers.contains(&end) && self.network.is_over(end) && self.ended.insert(end) {
                    self.network.close(end);
                }
            }
        }
        panic!("it does not come to rest");
    }

    fn pass(&mut self, to: Time) {
        self.now = to;
        self.harness.set_time(to);
        self.network.advance(to);
    }
}
