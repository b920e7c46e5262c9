//! Watching and steering a driver from any thread. What is asked of workers goes through their mailboxes; pools are
//! changed right here, under their own locks, and what follows from that is done by workers.

use std::{
    collections::HashMap,
    sync::{
        Arc, PoisonError,
        atomic::Ordering::{Relaxed, SeqCst},
        mpsc::{SyncSender, sync_channel},
    },
    time::{Duration, Instant},
};

use pool::Clear;
use protocol::Protocol;

use crate::{
    config::Changes,
    mailbox::Message,
    orders::{DatabaseName, Wish},
    reactor::Reactor,
    registry::Demand,
    shared::{Board, Shared},
    shared_pool::{Guarded, SharedPool},
    snapshot::{CapUsage, ClientInfo, PoolState, ServerInfo, Snapshot, WorkerSnapshot},
};

/// How long an answer of a worker is waited for.
const PATIENCE: Duration = Duration::from_millis(200);

/// Watches and steers a driver from any thread.
#[derive(Clone)]
pub struct Handle(Arc<dyn Steering>);

impl Handle {
    pub(crate) fn new<P: Protocol, R: Reactor>(shared: Arc<Shared<P, R>>) -> Self {
        Self(shared)
    }

    /// Everything that is counted.
    pub fn snapshot(&self) -> Snapshot {
        self.0.snapshot()
    }

    /// What the pools of a database hold now, or all pools.
    pub fn pools(&self, database: Option<&DatabaseName>) -> Vec<PoolState> {
        self.0.pools(database)
    }

    /// Up to `limit` clients. Waits for the workers for up to 200 ms each.
    pub fn clients(&self, limit: usize) -> Vec<ClientInfo> {
        self.0.clients(limit)
    }

    /// Up to `limit` servers. Waits for the workers for up to 200 ms each.
    pub fn servers(&self, limit: usize) -> Vec<ServerInfo> {
        self.0.servers(limit)
    }

    /// Whether every worker that has not ended answers within this time.
    pub fn answers(&self, patience: Duration) -> bool {
        self.0.answers(patience)
    }

    /// Puts other rules in force, and asks what each pool is now. Clients stay; servers that would be made differently
    /// now are replaced when they are next free.
    pub fn reconfigure(&self, changes: &Changes) {
        self.0.reconfigure(changes);
    }

    /// Holds back whoever wants a server of this database, or of all, and closes servers as they become free. False if
    /// more databases than can be remembered are under orders of their own; so for the following two.
    pub fn pause(&self, database: Option<&DatabaseName>) -> bool {
        self.0.order(database, &|wish| wish.paused = true)
    }

    /// Ends a pause, and a draining.
    pub fn resume(&self, database: Option<&DatabaseName>) -> bool {
        self.0.order(database, &|wish| *wish = Wish::default())
    }

    /// Lets the clients of this database go at the end of their transactions, turns new ones away, and keeps no server.
    pub fn drain_database(&self, database: &DatabaseName) -> bool {
        self.0.order(Some(database), &|wish| wish.drained = true)
    }

    /// Makes all present servers of a database, or of all, stale: idle ones close now, the others when they are free.
    pub fn reconnect(&self, database: Option<&DatabaseName>) {
        self.0.reconnect(database);
    }

    /// Closes a client, by the id that [`Handle::clients`] tells. False if there is none. Waits up to 200 ms.
    pub fn kill(&self, client: u64) -> bool {
        self.0.kill(client)
    }

    /// How much of each cap is used.
    pub fn caps(&self) -> Vec<CapUsage> {
        self.0.caps()
    }

    /// Leaves so much of each cap to another process, instead of what was said before. At least one remains.
    pub fn reserve(&self, reserved: HashMap<String, u32>) {
        self.0.reserve(reserved);
    }

    /// Accepts nobody any more; whoever is here stays, and when the last has gone the workers end. No connection that
    /// waits to be accepted is lost if another process listens on the same sockets.
    pub fn leave(&self) {
        self.0.leave();
    }

    /// Accepts nobody any more, sends idle clients away, lets transactions end; then the workers end.
    pub fn drain(&self) {
        self.0.drain();
    }

    /// Ends the workers at once.
    pub fn stop(&self) {
        self.0.stop();
    }

    /// Whether all workers have ended.
    pub fn is_drained(&self) -> bool {
        self.0.is_drained()
    }
}

/// What a handle can do, whatever the protocol.
trait Steering: Send + Sync {
    fn snapshot(&self) -> Snapshot;
    fn pools(&self, database: Option<&DatabaseName>) -> Vec<PoolState>;
    fn clients(&self, limit: usize) -> Vec<ClientInfo>;
    fn servers(&self, limit: usize) -> Vec<ServerInfo>;
    fn answers(&self, patience: Duration) -> bool;
    fn reconfigure(&self, changes: &Changes);
    fn order(&self, database: Option<&DatabaseName>, change: &dyn Fn(&mut Wish)) -> bool;
    fn reconnect(&self, database: Option<&DatabaseName>);
    fn kill(&self, client: u64) -> bool;
    fn caps(&self) -> Vec<CapUsage>;
    fn reserve(&self, reserved: HashMap<String, u32>);
    fn leave(&self);
    fn drain(&self);
    fn stop(&self);
    fn is_drained(&self) -> bool;
}

impl<P: Protocol, R: Reactor> Shared<P, R> {
    pub(crate) fn tell_all(&self, message: impl Fn() -> Message<P, R>) {
        for mailbox in &self.mailboxes {
            mailbox.send(message());
        }
    }

    /// Asks the workers that have not ended, and says how many these are.
    fn ask(&self, question: &dyn Fn() -> Message<P, R>) -> usize {
        let present = self.mailboxes.iter().zip(&self.board).filter(|(_, board)| !board.ended.load(SeqCst));
        present.map(|(mailbox, _)| mailbox.send(question())).count()
    }

    fn ask_all<T>(&self, limit: usize, question: impl Fn(SyncSender<Vec<T>>) -> Message<P, R>) -> Vec<T> {
        let (reply, answers) = sync_channel(self.mailboxes.len());
        let asked = self.ask(&|| question(reply.clone()));
        let mut all = Vec::new();
        for _ in 0..asked {
            match answers.recv_timeout(PATIENCE) {
                Ok(answer) => all.extend(answer),
                Err(_) => break,
            }
        }
        all.truncate(limit);
        all
    }

    /// The pools of a database, or all.
    fn chosen(&self, database: Option<&DatabaseName>) -> Vec<Arc<SharedPool>> {
        let mut pools = self.registry.all();
        pools.retain(|pool| database.is_none_or(|name| pool.spec().is(name)));
        pools
    }

    /// Changes a pool from outside. What it then wants done is left to the worker that looks after it.
    fn operate<T>(&self, pool: &Arc<SharedPool>, f: impl FnOnce(&mut Guarded) -> T) -> T {
        let mailbox = &self.mailboxes[self.registry.alarms.keeper(pool.id)];
        let mut guarded = pool.lock();
        let result = f(&mut guarded);
        while let Some(action) = guarded.pool.poll_action() {
            mailbox.send(Message::Act(pool.id, action));
        }
        pool.set_alarm(&guarded, &self.registry.alarms, self.clock.now());
        result
    }

    fn meet(&self, demands: Vec<Demand>) {
        for demand in demands {
            self.mailboxes[0].send(Message::Meet(demand));
        }
    }
}

impl<P: Protocol, R: Reactor> Steering for Shared<P, R> {
    fn snapshot(&self) -> Snapshot {
        let now = self.clock.now();
        let listeners = self.listeners.iter().enumerate().map(|(i, listener)| {
            let sum = |states: &[usize]| -> u64 {
                let of = |board: &Board| states.iter().map(|s| board.states[i][*s].load(Relaxed)).sum::<u64>();
                self.board.iter().map(of).sum()
            };
            let mut snapshot = listener.snapshot();
            snapshot.login = sum(&[0]);
            snapshot.idle = sum(&[1]);
            snapshot.waiting = sum(&[2]);
            snapshot.active = sum(&[3, 4]);
            snapshot.subscribed = sum(&[5]);
            snapshot
        });
        let workers = self.board.iter().map(|board| WorkerSnapshot {
            cpu: Duration::from_nanos(board.cpu_ns.load(Relaxed)),
            clients: board.clients.load(Relaxed),
            transactions: board.transactions.load(Relaxed),
            moves: board.moves.load(Relaxed),
        });
        Snapshot {
            listeners: listeners.collect(),
            pools: self.registry.all().iter().map(|pool| pool.snapshot(now)).collect(),
            workers: workers.collect(),
            auth_failures: self.throttle.failures(),
            session_panics: self.panics.load(Relaxed),
            reactor: R::NAME,
            draining: self.draining.load(Relaxed) || self.leaving.load(Relaxed),
        }
    }

    fn pools(&self, database: Option<&DatabaseName>) -> Vec<PoolState> {
        let state = |pool: Arc<SharedPool>| {
            let spec = pool.spec();
            let guarded = pool.lock();
            PoolState {
                id: pool.id,
                protocol: spec.protocol,
                database: spec.database.clone(),
                user: spec.user.clone(),
                counts: guarded.pool.counts(),
                clients: pool.clients.load(Relaxed),
                paused: guarded.pool.is_paused(),
                drained: pool.drained.load(Relaxed),
            }
        };
        self.chosen(database).into_iter().map(state).collect()
    }

    fn clients(&self, limit: usize) -> Vec<ClientInfo> {
        self.ask_all(limit, |reply| Message::Clients { limit, reply })
    }

    fn servers(&self, limit: usize) -> Vec<ServerInfo> {
        self.ask_all(limit, |reply| Message::Servers { limit, reply })
    }

    fn answers(&self, patience: Duration) -> bool {
        let (reply, answers) = sync_channel(self.mailboxes.len());
        let asked = self.ask(&|| Message::Servers { limit: 0, reply: reply.clone() });
        let (until, mut answered) = (Instant::now() + patience, 0);
        while answered < asked {
            let left = until.saturating_duration_since(Instant::now());
            match answers.recv_timeout(left.min(PATIENCE)) {
                Ok(_) => answered += 1,
                // They may have ended instead.
                Err(_) if self.is_drained() => return true,
                Err(_) if left.is_zero() => return false,
                Err(_) => {}
            }
        }
        true
    }

    fn reconfigure(&self, changes: &Changes) {
        assert_eq!(changes.listeners.len(), self.listeners.len(), "each listener has its rules");
        for (listener, (limits, timeouts)) in self.listeners.iter().zip(&changes.listeners) {
            listener.reconfigure(*limits, *timeouts);
        }
        self.throttle.set_max_failures(changes.max_auth_failures);
        let mut demands = Vec::new();
        for pool in self.registry.all() {
            let spec = self.registry.spec(pool.id);
            self.registry.recap(pool.member, &spec.caps, &mut demands);
            let now = self.clock.now();
            self.operate(&pool, |guarded| pool.reconfigure(guarded, spec, now));
        }
        self.registry.open_at_start(self.clock.now());
        // From here on workers that look know all that is new.
        self.registry.configured.fetch_add(1, Relaxed);
        self.meet(demands);
    }

    fn order(&self, database: Option<&DatabaseName>, change: &dyn Fn(&mut Wish)) -> bool {
        {
            let mut orders = self.registry.orders.lock().unwrap_or_else(PoisonError::into_inner);
            if !orders.change(database, change) {
                return false;
            }
            self.any_drained.store(orders.any_drained(), Relaxed);
        }
        // A pool that is made from here on sees the wish; the others are told.
        for pool in self.chosen(database) {
            let (spec, now) = (pool.spec(), self.clock.now());
            self.operate(&pool, |guarded| {
                // Read under the pool's lock: of two orders at once, the one that comes to the pool last knows both.
                let wish = self.registry.orders.lock().unwrap_or_else(PoisonError::into_inner).wish(&spec.name());
                pool.follow(guarded, wish, now);
            });
        }
        true
    }

    fn reconnect(&self, database: Option<&DatabaseName>) {
        for pool in self.chosen(database) {
            let now = self.clock.now();
            self.operate(&pool, |guarded| guarded.pool.clear(Clear::default(), now));
        }
    }

    fn kill(&self, client: u64) -> bool {
        // The id says which worker it is of: see `Worker::client_id`.
        let worker = (client % self.mailboxes.len() as u64) as usize;
        let (reply, answer) = sync_channel(1);
        self.mailboxes[worker].send(Message::Kill { client, reply });
        answer.recv_timeout(PATIENCE).unwrap_or(false)
    }

    fn caps(&self) -> Vec<CapUsage> {
        self.registry.caps()
    }

    fn reserve(&self, reserved: HashMap<String, u32>) {
        let mut demands = Vec::new();
        self.registry.reserve(reserved, &mut demands);
        self.meet(demands);
    }

    fn leave(&self) {
        self.leaving.store(true, SeqCst);
        self.tell_all(|| Message::Leave);
        for pool in self.registry.all() {
            let now = self.clock.now();
            self.operate(&pool, |guarded| pool.leave(guarded, now));
        }
    }

    fn drain(&self) {
        self.draining.store(true, SeqCst);
        self.tell_all(|| Message::Drain);
    }

    fn stop(&self) {
        self.tell_all(|| Message::Stop);
    }

    fn is_drained(&self) -> bool {
        self.board.iter().all(|board| board.ended.load(SeqCst))
    }
}
