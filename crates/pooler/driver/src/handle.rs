//! Watching and steering a driver from any thread. Questions and orders for workers go through their mailboxes. Pools
//! are changed right here, under their own locks, and workers do what follows from that.

use std::{
    cmp::Reverse,
    collections::HashMap,
    sync::{
        Arc, PoisonError,
        atomic::Ordering::{Relaxed, SeqCst},
        mpsc::{SyncSender, sync_channel},
    },
    time::{Duration, Instant},
};

use pool::Clear;
use seam::PoolId;

use crate::{
    config::{Address, Changes},
    mailbox::{Command, Workers},
    orders::{DatabaseName, Order},
    process::Process,
    registry::Demand,
    shared_pool::{Guarded, SharedPool},
    snapshot::{CapUsage, ClientFilter, ClientInfo, PoolLoad, PoolState, ServerInfo, Snapshot},
};

/// How long a call waits for the answer of a worker.
const REPLY_TIMEOUT: Duration = Duration::from_millis(200);

/// Watches and steers a driver from any thread.
#[derive(Clone)]
pub struct Handle {
    process: Arc<Process>,
    workers: Arc<dyn Workers>,
}

impl Handle {
    pub(crate) fn new(process: Arc<Process>, workers: Arc<dyn Workers>) -> Self {
        Self { process, workers }
    }

    pub fn snapshot(&self) -> Snapshot {
        self.process.snapshot()
    }

    /// How many pools there are.
    pub fn pool_count(&self) -> usize {
        self.process.registry.count()
    }

    /// Whether it is shutting down, and accepts no new clients.
    pub fn is_ending(&self) -> bool {
        self.process.is_ending()
    }

    /// The state of the pools of a database, or of all pools.
    pub fn pools(&self, database: Option<&DatabaseName>) -> Vec<PoolState> {
        self.process.pools(database).iter().map(|pool| pool.state()).collect()
    }

    /// Up to `limit` of these clients. Waits for the workers for up to 200 ms each.
    pub fn clients(&self, which: ClientFilter, limit: usize) -> Vec<ClientInfo> {
        let mut all = self.ask_all(|reply| Command::Clients { which, limit, reply });
        if which != ClientFilter::All {
            all.sort_by_key(|client| Reverse(client.state_for));
        }
        all.truncate(limit);
        all
    }

    /// Has [`Self::snapshot`] count all requests up to now, which it may do half a second late. Waits for each worker
    /// for up to 200 ms.
    pub fn publish_traffic(&self) {
        self.ask_all(|reply| Command::PublishTraffic { reply });
    }

    /// Up to `limit` servers. Waits for the workers for up to 200 ms each.
    pub fn servers(&self, limit: usize) -> Vec<ServerInfo> {
        let mut all = self.ask_all(|reply| Command::Servers { limit, reply });
        all.truncate(limit);
        all
    }

    /// Whether every worker that has not ended answers within this time.
    pub fn answers(&self, timeout: Duration) -> bool {
        let (reply, answers) = sync_channel(self.process.boards.len());
        let asked = self.ask(|| Command::Servers { limit: 0, reply: reply.clone() });
        let (until, mut answered) = (Instant::now() + timeout, 0);
        while answered < asked {
            let left = until.saturating_duration_since(Instant::now());
            match answers.recv_timeout(left.min(REPLY_TIMEOUT)) {
                Ok(_) => answered += 1,
                // They may have ended instead.
                Err(_) if self.is_over() => return true,
                Err(_) if left.is_zero() => return false,
                Err(_) => {}
            }
        }
        true
    }

    /// Puts another configuration in force, also for pools that exist. Clients stay. Servers that would be made
    /// differently now are replaced when they are next free.
    pub fn reconfigure(&self, changes: &Changes) {
        let process = &self.process;
        assert_eq!(changes.listeners.len(), process.listeners.len(), "each listener has its rules");
        for (listener, (limits, timeouts)) in process.listeners.iter().zip(&changes.listeners) {
            listener.reconfigure(*limits, *timeouts);
        }
        process.total.set_limit(changes.max_clients);
        process.tenants.reconfigure(|tenant| process.registry.limits(tenant), process.clock.now());
        process.throttle.set_max_failures(changes.max_auth_failures);
        process.resolver.set_failure_ttl(changes.name_failure_ttl);
        process.logged.set(changes.logged);
        let mut demands = Vec::new();
        for pool in process.registry.all() {
            let Some(spec) = process.registry.spec(pool.id) else { continue };
            process.registry.recap(&pool, &spec.caps, &mut demands);
            let now = process.clock.now();
            self.operate(&pool, |guarded| {
                guarded.pool.set_shared_limit(process.registry.smallest_limit(&pool));
                pool.reconfigure(guarded, spec, now);
                guarded.pool.handle_timeout(now);
            });
        }
        process.registry.open_at_start(process.clock.now());
        // From here on a worker that reads the count sees the whole configuration.
        process.registry.configured.fetch_add(1, Relaxed);
        self.meet(demands);
    }

    /// Pauses a database, or all: clients wait for servers, and servers are closed as they become free. False if too
    /// many databases have orders of their own to remember another one; so for the following two.
    pub fn pause(&self, database: Option<&DatabaseName>) -> bool {
        self.order(database, |order| order.paused = true)
    }

    /// Ends a pause and a drain.
    pub fn resume(&self, database: Option<&DatabaseName>) -> bool {
        self.order(database, Order::resume)
    }

    /// Refuses new clients of a database, or of all. Present ones stay.
    pub fn disable(&self, database: Option<&DatabaseName>) -> bool {
        self.order(database, |order| order.disabled = true)
    }

    /// Ends what [`Handle::disable`] began.
    pub fn enable(&self, database: Option<&DatabaseName>) -> bool {
        self.order(database, |order| order.disabled = false)
    }

    /// Closes all clients and servers of a database, or of all, at once. New clients wait until it is resumed.
    pub fn kill_database(&self, database: Option<&DatabaseName>) -> bool {
        if !self.pause(database) {
            return false;
        }
        self.close_all_of(database);
        true
    }

    /// Closes all clients and servers of a database, or of all, at once.
    pub fn close_all_of(&self, database: Option<&DatabaseName>) {
        // The clients first: otherwise they would be told that they have lost their servers.
        self.broadcast(|| Command::KillClientsOf(database.cloned()));
        for pool in self.process.pools(database) {
            let now = self.process.clock.now();
            self.operate(&pool, |guarded| guarded.pool.clear(Clear { interrupt: true, ..Clear::default() }, now));
        }
    }

    /// Drains a database: its clients are sent away at the end of their transactions, new ones are refused, and it
    /// keeps no server.
    pub fn drain_database(&self, database: &DatabaseName) -> bool {
        self.order(Some(database), |order| order.drained = true)
    }

    /// The order for a database, which need not have a pool.
    pub fn order_for(&self, database: &DatabaseName) -> Order {
        self.process.registry.orders.lock().unwrap_or_else(PoisonError::into_inner).order_for(database)
    }

    /// Whether a database has an order by its name, or was left out of what holds for all. It need not have a
    /// pool.
    pub fn is_ordered(&self, database: &DatabaseName) -> bool {
        self.process.registry.orders.lock().unwrap_or_else(PoisonError::into_inner).has(database)
    }

    /// Whether all databases are paused by one order.
    pub fn are_all_paused(&self) -> bool {
        self.process.registry.orders.lock().unwrap_or_else(PoisonError::into_inner).are_all_paused()
    }

    /// Makes all present servers of a database, or of all, stale: idle ones close now, the others when they are free.
    pub fn reconnect(&self, database: Option<&DatabaseName>) {
        for pool in self.process.pools(database) {
            let now = self.process.clock.now();
            self.operate(&pool, |guarded| guarded.pool.renew(now));
        }
    }

    /// Closes a client, by the id that [`Handle::clients`] lists. False if there is none. Waits up to 200 ms.
    pub fn kill(&self, client: u64) -> bool {
        // The id says which worker it is of: see `Worker::client_id`.
        let worker = (client % self.process.boards.len() as u64) as usize;
        let (reply, answer) = sync_channel(1);
        self.workers.command(worker, Command::Kill { client, reply });
        answer.recv_timeout(REPLY_TIMEOUT).unwrap_or(false)
    }

    /// The pools whose size may be changed.
    pub fn loads(&self) -> Vec<PoolLoad> {
        self.process.pools(None).iter().filter_map(|pool| pool.load()).collect()
    }

    /// Gives a pool another size, within the `sizes` of its spec. The pool keeps that size until it is given another,
    /// whatever `max_size` a reload brings. Servers beyond a smaller size close as they become free.
    pub fn resize(&self, pool: PoolId, size: u32) {
        let Some(pool) = self.process.registry.known(pool) else { return };
        let now = self.process.clock.now();
        self.operate(&pool, |guarded| pool.resize(guarded, size, now));
    }

    /// How much of each cap is used.
    pub fn caps(&self) -> Vec<CapUsage> {
        self.process.registry.caps()
    }

    /// Leaves `reserved` of each cap to other processes, in place of the amounts given before. At least one connection
    /// remains. A call with the same amounts costs little.
    pub fn reserve(&self, reserved: HashMap<String, u32>) {
        let mut demands = Vec::new();
        if !self.process.registry.reserve(reserved, &mut demands) {
            return;
        }
        for pool in self.process.registry.all() {
            let now = self.process.clock.now();
            self.operate(&pool, |guarded| {
                // Read under the pool's lock: of two changes at once, the one that comes to the pool last knows both.
                guarded.pool.set_shared_limit(self.process.registry.smallest_limit(&pool));
                guarded.pool.handle_timeout(now);
            });
        }
        self.meet(demands);
    }

    /// Accepts no more clients. Clients that are here stay, and when the last has gone the workers end. No connection
    /// that waits to be accepted is lost if another process listens on the same sockets.
    pub fn leave(&self) {
        self.process.leaving.store(true, SeqCst);
        self.broadcast(|| Command::Leave);
        for pool in self.process.registry.all() {
            let now = self.process.clock.now();
            self.operate(&pool, |guarded| pool.leave(guarded, now));
        }
    }

    /// Sends all clients away, one after the other, each at the end of its transaction, and the last of them after this
    /// time. New clients are accepted meanwhile, and sent away as well. [`Handle::drain`] is to follow.
    pub fn drain_over(&self, over: Duration) {
        self.broadcast(|| Command::DrainOver(over));
    }

    /// Makes all servers stale whose host has this name: idle ones close now, the others when they are free. Returns
    /// the number of pools that have the host.
    pub fn reconnect_host(&self, name: &str) -> usize {
        let is_meant = |address: &Address| matches!(address, Address::Tcp { host, .. } if host == name);
        let mut pools = self.process.registry.all();
        pools.retain(|pool| pool.spec().hosts.addresses.iter().any(is_meant));
        for pool in &pools {
            let now = self.process.clock.now();
            self.operate(pool, |guarded| guarded.pool.renew(now));
        }
        pools.len()
    }

    /// Accepts no more clients, sends idle clients away, and lets transactions end; then the workers end.
    pub fn drain(&self) {
        self.process.draining.store(true, SeqCst);
        self.broadcast(|| Command::Drain);
    }

    /// Sends all clients away and has the workers end, within two seconds at most.
    pub fn stop(&self) {
        self.broadcast(|| Command::Stop);
    }

    /// Whether all workers have ended.
    pub fn is_over(&self) -> bool {
        self.process.is_over()
    }
}

impl Handle {
    fn broadcast(&self, command: impl Fn() -> Command) {
        for worker in 0..self.process.boards.len() {
            self.workers.command(worker, command());
        }
    }

    /// Asks the workers that have not ended. Returns their number.
    fn ask(&self, question: impl Fn() -> Command) -> usize {
        let present = self.process.boards.iter().enumerate().filter(|(_, board)| !board.ended.load(SeqCst));
        present.map(|(worker, _)| self.workers.command(worker, question())).count()
    }

    fn ask_all<T>(&self, question: impl Fn(SyncSender<Vec<T>>) -> Command) -> Vec<T> {
        let (reply, answers) = sync_channel(self.process.boards.len());
        let asked = self.ask(|| question(reply.clone()));
        let mut all = Vec::new();
        for _ in 0..asked {
            match answers.recv_timeout(REPLY_TIMEOUT) {
                Ok(answer) => all.extend(answer),
                Err(_) => break,
            }
        }
        all
    }

    /// Changes the orders for a database, or for all. False if there are too many orders.
    fn order(&self, database: Option<&DatabaseName>, change: impl Fn(&mut Order)) -> bool {
        let orders = || self.process.registry.orders.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut orders = orders();
            if !orders.change(database, change) {
                return false;
            }
            self.process.any_drained.store(orders.any_drained(), Relaxed);
        }
        // A pool that is made from here on follows the order; the others are told.
        for pool in self.process.pools(database) {
            let (spec, now) = (pool.spec(), self.process.clock.now());
            self.operate(&pool, |guarded| {
                // Read under the pool's lock: of two orders at once, the one that comes to the pool last knows both.
                let order = orders().order_for(&spec.name_in_orders());
                pool.apply_order(guarded, order, now);
            });
        }
        true
    }

    /// Changes a pool from outside. The worker of the pool does what the pool then wants done.
    fn operate<T>(&self, pool: &Arc<SharedPool>, f: impl FnOnce(&mut Guarded) -> T) -> T {
        let alarms = &self.process.registry.alarms;
        let mut guarded = pool.lock();
        let result = f(&mut guarded);
        while let Some(action) = guarded.pool.poll_action() {
            self.workers.command(alarms.keeper(pool.id), Command::Act(Arc::clone(pool), action));
        }
        pool.set_alarm(&guarded, alarms, self.process.clock.now());
        result
    }

    fn meet(&self, demands: Vec<Demand>) {
        for demand in demands {
            self.workers.command(0, Command::Meet(demand));
        }
    }
}
