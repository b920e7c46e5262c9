//! A pool as the workers share it: the state machine and its statistics under one short mutex, which is
//! never held across a system call. Knows no protocol.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use pool::{CheckOutFailed, Clear, Closed, Grant, GrantSource, MemberId, PauseMode, Pool, PoolConfig, Time};
use seam::{PoolId, Refusal, Tenant};

use crate::{
    alarms::Alarms,
    config::{PoolSpec, Timeouts},
    listener::Listener,
    orders::Order,
    snapshot::{PoolLoad, PoolSnapshot, PoolState, PoolTimes, PoolTotals, add},
    traffic::Traffic,
};

/// The least time between two renewals of all servers because one of them takes no writes.
const MIN_RENEWAL_INTERVAL: Duration = Duration::from_secs(5);

/// The phases of making a connection, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ConnectPhase {
    Dns,
    Tcp,
    Tls,
    Auth,
    Ready,
}

pub(crate) struct SharedPool {
    pub(crate) id: PoolId,
    /// The database for which its clients count.
    pub(crate) tenant: Option<Tenant>,
    /// Its membership in the budget.
    pub(crate) member: MemberId,
    /// The clients that have logged in to the pool. Incremented under the pool's lock only.
    pub(crate) clients: AtomicU64,
    /// The pool is forgotten. Changed under the pool's lock.
    gone: AtomicBool,
    /// The budget is to be told when a server comes back that can be spared.
    pub(crate) awaits_idle: AtomicBool,
    /// The pool is drained: its clients are to go, and its servers with them.
    pub(crate) drained: AtomicBool,
    /// The pool takes no new clients.
    disabled: AtomicBool,
    /// Another process takes over, so the pool keeps no server that it does not need.
    leaving: AtomicBool,
    /// The size that the pool was given while it runs; 0: none.
    resized: AtomicU32,
    /// The index of the host that was tried last.
    pub(crate) host: AtomicUsize,
    /// How many connections were begun, where each begins with the next host.
    pub(crate) turn: AtomicUsize,
    /// When all servers were last renewed because one of them was outdated, in nanoseconds of the driver's clock; 0:
    /// never.
    renewed_at: AtomicU64,
    /// When the log last reported the database out of reach, in nanoseconds of the driver's clock; 0: it is in reach.
    pub(crate) lost_at: AtomicU64,
    /// The time of the alarm that is set, in nanoseconds of the driver's clock; `u64::MAX`: none. Changed under the
    /// pool's lock.
    alarm: AtomicU64,
    /// The configuration in force. Not read where bytes are relayed.
    spec: RwLock<Arc<PoolSpec>>,
    guarded: Mutex<Guarded>,
    last_error: Mutex<Option<Arc<str>>>,
}

pub(crate) struct Guarded {
    pub(crate) pool: Pool,
    pub(crate) stats: Stats,
    idleness: Idleness,
}

/// Since when no client has used a pool, as far as the scans have seen.
#[derive(Default)]
struct Idleness {
    /// How often clients logged in or asked for a server.
    uses: u64,
    /// That count at the last scan.
    seen: u64,
    since: Time,
}

/// What is counted of a pool beside its state machine.
#[derive(Default)]
pub(crate) struct Stats {
    pub(crate) totals: PoolTotals,
    /// Pinned servers now, by reason.
    pinned: Vec<(&'static str, u64)>,
}

impl Stats {
    pub(crate) fn on_grant(&mut self, grant: &Grant) {
        let path = match grant.source {
            GrantSource::Idle => 0,
            GrantSource::Created => 1,
            GrantSource::Queued => 2,
        };
        self.totals.checkout[path].1.record(grant.waited);
    }

    pub(crate) fn on_hold_ended(&mut self, held: Duration) {
        self.totals.transactions += 1;
        self.totals.hold.record(held);
    }

    pub(crate) fn on_traffic(&mut self, traffic: &Traffic) {
        self.totals.queries += traffic.queries;
        self.totals.query_ns += traffic.query_ns;
        self.totals.received_bytes += traffic.received_bytes;
        self.totals.sent_bytes += traffic.sent_bytes;
    }

    pub(crate) fn on_created(&mut self, last: ConnectPhase, took: Duration) {
        self.on_phase(last, took);
        self.totals.created += 1;
    }

    pub(crate) fn on_phase(&mut self, phase: ConnectPhase, took: Duration) {
        self.totals.connect[phase as usize].1.record(took);
    }

    pub(crate) fn on_closed(&mut self, reason: Closed) {
        add(&mut self.totals.closed, reason.as_str(), 1);
    }

    pub(crate) fn on_failed(&mut self, reason: CheckOutFailed) {
        add(&mut self.totals.checkout_failed, reason.as_str(), 1);
    }

    pub(crate) fn on_pinned(&mut self, reason: &'static str, by: i64) {
        match self.pinned.iter_mut().find(|(r, _)| *r == reason) {
            Some((_, n)) => *n = n.saturating_add_signed(by),
            None => self.pinned.push((reason, u64::try_from(by).unwrap_or(0))),
        }
    }

    pub(crate) fn on_pin_refused(&mut self, reason: &'static str) {
        add(&mut self.totals.pins_refused, reason, 1);
    }
}

impl SharedPool {
    pub(crate) fn new(id: PoolId, (spec, tenant): (PoolSpec, Option<Tenant>), member: MemberId, now: Time) -> Self {
        // The seed only spreads life times and back-offs; it need not be secret.
        let seed = u64::from(id.0).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ now.0;
        let pool = Pool::new(spec.config.clone(), seed, now);
        Self {
            id,
            tenant,
            member,
            clients: AtomicU64::new(0),
            gone: AtomicBool::new(false),
            awaits_idle: AtomicBool::new(false),
            drained: AtomicBool::new(false),
            disabled: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            resized: AtomicU32::new(0),
            host: AtomicUsize::new(0),
            turn: AtomicUsize::new(0),
            renewed_at: AtomicU64::new(0),
            lost_at: AtomicU64::new(0),
            alarm: AtomicU64::new(u64::MAX),
            spec: RwLock::new(Arc::new(spec)),
            guarded: Mutex::new(Guarded {
                pool,
                stats: Stats::default(),
                idleness: Idleness { since: now, ..Idleness::default() },
            }),
            last_error: Mutex::new(None),
        }
    }

    /// Sets the alarm for the pool's next deadline. Called under the pool's lock after each change.
    #[inline]
    pub(crate) fn set_alarm(&self, guarded: &Guarded, alarms: &Alarms, now: Time) {
        if self.is_gone() {
            return;
        }
        let emptied = self.drained.load(Relaxed) && guarded.pool.counts().idle > 0;
        let due = if emptied { Some(now) } else { guarded.pool.poll_deadline() };
        let before = Time(self.alarm.load(Relaxed));
        if let Some(due) = due.filter(|due| *due < before) {
            self.alarm.store(due.0, Relaxed);
            alarms.set(self.id, before, due);
        }
    }

    /// The alarm for this time has gone off. False if the alarm was set for another time since. Called under the pool's
    /// lock.
    pub(crate) fn end_alarm(&self, at: Time) -> bool {
        self.alarm.compare_exchange(at.0, u64::MAX, Relaxed, Relaxed).is_ok()
    }

    /// Sets the alarm of a new pool, which goes off at once. Called under the pool's lock.
    pub(crate) fn set_first_alarm(&self, alarms: &Alarms, now: Time) {
        self.alarm.store(now.0, Relaxed);
        alarms.set(self.id, Time::NEVER, now);
    }

    /// Whether the pool is forgotten: then no client may use it. Does not change while the pool's lock is held.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Relaxed)
    }

    /// Counts that a client logs in or asks for a server. False if the pool is forgotten. Called under the pool's lock.
    pub(crate) fn note_use(&self, guarded: &mut Guarded) -> bool {
        guarded.idleness.uses += 1;
        !self.is_gone()
    }

    /// A client has logged in to the pool. False if the pool is forgotten.
    pub(crate) fn enter(&self) -> bool {
        let mut guarded = self.lock();
        let usable = self.note_use(&mut guarded);
        if usable {
            guarded.stats.totals.logins += 1;
            self.clients.fetch_add(1, Relaxed);
        }
        usable
    }

    /// Checks whether no client has used the pool for this long. If so, it closes the servers that it can do without,
    /// and once it has none it is forgotten, if `try_forget` agrees. True if it has been forgotten just now. Called
    /// under the pool's lock, by one worker only.
    pub(crate) fn forget_if_idle(
        &self,
        guarded: &mut Guarded,
        alarms: &Alarms,
        after: Duration,
        now: Time,
        try_forget: impl FnOnce() -> bool,
    ) -> bool {
        let Guarded { pool, idleness, .. } = guarded;
        let counts = pool.counts();
        let in_use = self.clients.load(Relaxed) > 0 || counts.waiters > 0 || counts.in_use > 0;
        if in_use || idleness.seen != idleness.uses {
            (idleness.seen, idleness.since) = (idleness.uses, now);
            return false;
        }
        if now - idleness.since < after || self.is_gone() {
            return false;
        }
        if !pool.is_empty() {
            if pool.config().min_size_once_connected {
                pool.close_until_needed(now);
            }
            return false;
        }
        if !try_forget() {
            idleness.since = now;
            return false;
        }
        self.gone.store(true, Relaxed);
        alarms.remove(self.id, Time(self.alarm.swap(u64::MAX, Relaxed)));
        true
    }

    pub(crate) fn spec(&self) -> Arc<PoolSpec> {
        Arc::clone(&self.spec.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts another configuration in force. If servers would be made differently now, the present ones become stale.
    pub(crate) fn reconfigure(&self, guarded: &mut Guarded, spec: PoolSpec, now: Time) {
        let config = self.effective(&spec);
        let (revision, hosts) = (spec.revision, spec.hosts.clone());
        let old = std::mem::replace(&mut *self.spec.write().unwrap_or_else(PoisonError::into_inner), Arc::new(spec));
        if *guarded.pool.config() != config {
            guarded.pool.reconfigure(config, now);
        }
        if old.revision != revision || old.hosts != hosts {
            guarded.pool.renew(now);
        }
    }

    /// Puts the order of an operator in force.
    pub(crate) fn apply_order(&self, guarded: &mut Guarded, order: Order, now: Time) {
        self.drained.store(order.drained, Relaxed);
        self.disabled.store(order.disabled, Relaxed);
        let config = self.effective(&self.spec());
        if *guarded.pool.config() != config {
            guarded.pool.reconfigure(config, now);
        }
        match (order.paused, guarded.pool.is_paused()) {
            (true, false) => {
                guarded.pool.pause(PauseMode::HoldWaiters, now);
                // No connection is to be left to a database that is about to be restarted.
                guarded.pool.clear(Clear::default(), now);
            }
            (false, true) => guarded.pool.ready(now),
            _ => {}
        }
        if order.drained {
            guarded.pool.clear(Clear::default(), now);
        }
    }

    /// Why a client may not come in, if an operator has ordered that. `at_login`: as in [`Refusal::Drained`].
    pub(crate) fn refusal_of_newcomers(&self, at_login: bool) -> Option<Refusal> {
        if self.drained.load(Relaxed) {
            return Some(Refusal::Drained { at_login });
        }
        self.disabled.load(Relaxed).then_some(Refusal::Disabled { at_login })
    }

    /// From now on the pool keeps no server that is not in use.
    pub(crate) fn leave(&self, guarded: &mut Guarded, now: Time) {
        self.leaving.store(true, Relaxed);
        guarded.pool.reconfigure(self.effective(&self.spec()), now);
    }

    /// Gives the pool another size, if its configuration allows that.
    pub(crate) fn resize(&self, guarded: &mut Guarded, size: u32, now: Time) {
        self.resized.store(size, Relaxed);
        let config = self.effective(&self.spec());
        if *guarded.pool.config() != config {
            guarded.pool.reconfigure(config, now);
        }
    }

    /// The configuration of the state machine: that of the spec, with the size that the pool was given since, and
    /// without a minimum size if the pool is to become empty.
    fn effective(&self, spec: &PoolSpec) -> PoolConfig {
        let closing = self.drained.load(Relaxed) || self.leaving.load(Relaxed);
        let min_size = if closing { 0 } else { spec.config.min_size };
        let resized = spec.sizes.zip(Some(self.resized.load(Relaxed)).filter(|size| *size > 0));
        let max_size =
            resized.map_or(spec.config.max_size, |((least, most), size)| size.min(most).max(least).max(min_size));
        PoolConfig { min_size, max_size, ..spec.config.clone() }
    }

    /// Notes that all servers are renewed on account of what one of them said. False if that was less than
    /// [`MIN_RENEWAL_INTERVAL`] ago.
    pub(crate) fn try_begin_renewal(&self, now: Time) -> bool {
        let last = self.renewed_at.load(Relaxed);
        let may = last == 0 || now - Time(last) >= MIN_RENEWAL_INTERVAL;
        if may {
            self.renewed_at.store(now.0.max(1), Relaxed);
        }
        may
    }

    /// The state machine. If a worker has panicked while it held the lock, all workers are about to stop.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Guarded> {
        self.guarded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers why connecting failed, for clients that wait.
    pub(crate) fn set_last_error(&self, error: impl Into<Arc<str>>) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.into());
    }

    pub(crate) fn last_error(&self) -> Option<Arc<str>> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn state(&self) -> PoolState {
        let spec = self.spec();
        let guarded = self.lock();
        PoolState {
            id: self.id,
            protocol: spec.protocol,
            database: spec.database.clone(),
            user: spec.user.clone(),
            counts: guarded.pool.counts(),
            clients: self.clients.load(Relaxed),
            created: guarded.stats.totals.created,
            stale: guarded.pool.stale_servers(),
            unavailable: guarded.pool.unavailable_since().is_some(),
            paused: guarded.pool.is_paused(),
            drained: self.drained.load(Relaxed),
            disabled: self.disabled.load(Relaxed),
        }
    }

    /// The pool's servers and counts for the tuner; `None` if its size may not be changed.
    pub(crate) fn load(&self) -> Option<PoolLoad> {
        let spec = self.spec();
        spec.sizes?;
        let guarded = self.lock();
        let Guarded { pool, stats: Stats { totals, pinned }, .. } = &*guarded;
        let ordered = ["paused", "pool_closed", "pool_cleared"];
        let failed = totals.checkout_failed.iter().filter(|(reason, _)| !ordered.contains(reason));
        let lost = totals.closed.iter().filter(|(reason, _)| *reason == Closed::Error.as_str());
        let ordered = self.drained.load(Relaxed) || self.leaving.load(Relaxed) || pool.is_paused();
        Some(PoolLoad {
            id: self.id,
            protocol: spec.protocol,
            database: spec.database.clone(),
            user: spec.user.clone(),
            counts: pool.counts(),
            max_size: pool.config().max_size,
            completed: totals.transactions,
            held: Duration::from_nanos(totals.hold.sum_ns),
            granted: totals.checkout.iter().map(|(_, times)| times.count()).sum(),
            waited: totals.checkout[2].1.count(),
            errors: failed.chain(lost).map(|(_, count)| count).sum(),
            pinned: pinned.iter().map(|(_, count)| *count as u32).sum(),
            fit: !ordered && pool.unavailable_since().is_none(),
            ordered,
        })
    }

    /// The pool's servers and counts. `listeners`: the listeners by which its clients may come.
    pub(crate) fn snapshot(&self, now: Time, listeners: &[Listener]) -> PoolSnapshot {
        let spec = self.spec();
        let guarded = self.lock();
        let Guarded { pool, stats, .. } = &*guarded;
        PoolSnapshot {
            id: self.id,
            protocol: spec.protocol,
            database: spec.database.clone(),
            user: spec.user.clone(),
            address: spec.hosts.to_string(),
            counts: pool.counts(),
            config: pool.config().clone(),
            timeouts: times_in_force(&spec, listeners),
            clients: self.clients.load(Relaxed),
            totals: stats.totals.clone(),
            pinned: stats.pinned.clone(),
            oldest_hold: pool.oldest_hold(now),
            oldest_wait: pool.oldest_wait(now),
            unavailable_for: pool.unavailable_since().map(|since| now - since),
            last_error: self.last_error(),
            limited_by: None,
            paused: pool.is_paused(),
            drained: self.drained.load(Relaxed),
            disabled: self.disabled.load(Relaxed),
        }
    }
}

/// Time-outs of a pool's clients: its own, or the longest of the listeners that speak its protocol.
fn times_in_force(spec: &PoolSpec, listeners: &[Listener]) -> PoolTimes {
    let speak = listeners.iter().filter(|listener| listener.protocol == spec.protocol);
    let all: Vec<Timeouts> = speak.map(|listener| spec.timeouts.over(listener.timeouts())).collect();
    let longest = |of: fn(&Timeouts) -> Option<Duration>| {
        let known: Option<Vec<Duration>> = all.iter().map(of).collect();
        known?.into_iter().max()
    };
    PoolTimes {
        client_idle: longest(|times| times.client_idle),
        query: longest(|times| times.query),
        transaction_idle: longest(|times| times.transaction_idle),
        transaction: longest(|times| times.transaction),
    }
}
