//! A pool as the workers share it: the state machine and its statistics under one short mutex, which is
//! never held across a system call. Knows no protocol.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use pool::{CheckOutFailed, Clear, Closed, Grant, MemberId, Path, PauseMode, Pool, PoolConfig, Time};
use seam::{PoolId, Tenant};

use crate::{
    alarms::Alarms,
    config::{PoolSpec, Timeouts},
    listener::Listener,
    orders::Wish,
    snapshot::{DurationHistogram, ForgottenPools, PoolLoad, PoolSnapshot, PoolState, PoolTimes, add},
};

/// Between two times that all servers are made anew because one of them takes no writes.
const MIN_RENEWAL_INTERVAL: Duration = Duration::from_secs(5);

/// The phases of making a connection, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Phase {
    Dns,
    Tcp,
    Tls,
    Auth,
    Ready,
}

pub(crate) struct SharedPool {
    pub(crate) id: PoolId,
    /// The database that its clients count for.
    pub(crate) tenant: Option<Tenant>,
    /// Its seat in the budget.
    pub(crate) member: MemberId,
    /// Clients logged in to it. Goes up under its lock only.
    pub(crate) clients: AtomicU64,
    /// It is forgotten. Changed under its lock.
    gone: AtomicBool,
    /// The budget wants to hear when a server comes back that can be spared.
    pub(crate) awaits_idle: AtomicBool,
    /// Its clients are to go, and its servers with them.
    pub(crate) drained: AtomicBool,
    /// Another process is to have what is not needed here.
    leaving: AtomicBool,
    /// The size that it was given while it runs, if its spec lets it; 0 is none.
    resized: AtomicU32,
    /// The place of the host in its list that was tried last.
    pub(crate) host: AtomicUsize,
    /// When its servers were last found to be of no use any more, in nanoseconds of the driver's clock; 0 is never.
    renewed: AtomicU64,
    /// Since when the log has it out of reach, in nanoseconds of the driver's clock; 0: it is not.
    pub(crate) lost: AtomicU64,
    /// For when it has set an alarm that has not rung, in nanoseconds of the driver's clock; `u64::MAX` is none.
    /// Changed under its lock.
    alarm: AtomicU64,
    /// What it is, until a reload says otherwise. Not read where bytes are relayed.
    spec: RwLock<Arc<PoolSpec>>,
    guarded: Mutex<Guarded>,
    last_error: Mutex<Option<Arc<str>>>,
}

pub(crate) struct Guarded {
    pub(crate) pool: Pool,
    pub(crate) stats: Stats,
    unused: Unused,
}

/// Since when a pool is unused, as far as has been seen.
#[derive(Default)]
struct Unused {
    /// How often clients logged in or asked for a server.
    uses: u64,
    /// How often they had when it was last looked at.
    seen: u64,
    since: Time,
}

/// Counted since the start.
#[derive(Clone, Default)]
pub(crate) struct Stats {
    pub(crate) created: u64,
    pub(crate) transactions: u64,
    closed: Vec<(&'static str, u64)>,
    failed: Vec<(&'static str, u64)>,
    pinned: Vec<(&'static str, u64)>,
    pins_refused: Vec<(&'static str, u64)>,
    checkout: [DurationHistogram; 3],
    connect: [DurationHistogram; 5],
    hold: DurationHistogram,
}

impl Stats {
    pub(crate) fn on_grant(&mut self, grant: &Grant) {
        let path = match grant.path {
            Path::Idle => 0,
            Path::Created => 1,
            Path::Queued => 2,
        };
        self.checkout[path].record(grant.waited);
    }

    pub(crate) fn on_hold_ended(&mut self, held: Duration) {
        self.transactions += 1;
        self.hold.record(held);
    }

    pub(crate) fn on_created(&mut self, last: Phase, took: Duration) {
        self.on_phase(last, took);
        self.created += 1;
    }

    pub(crate) fn on_phase(&mut self, phase: Phase, took: Duration) {
        self.connect[phase as usize].record(took);
    }

    /// Adds what does not belong to a present server.
    pub(crate) fn add_to(&self, sum: &mut ForgottenPools) {
        sum.created += self.created;
        sum.transactions += self.transactions;
        self.closed.iter().for_each(|(reason, count)| add(&mut sum.closed, reason, *count));
        self.failed.iter().for_each(|(reason, count)| add(&mut sum.checkout_failed, reason, *count));
        self.pins_refused.iter().for_each(|(reason, count)| add(&mut sum.pins_refused, reason, *count));
        sum.checkout.iter_mut().zip(&self.checkout).for_each(|(sum, times)| sum.add(times));
        sum.connect.iter_mut().zip(&self.connect).for_each(|(sum, times)| sum.add(times));
        sum.hold.add(&self.hold);
    }

    pub(crate) fn on_closed(&mut self, reason: Closed) {
        count(&mut self.closed, reason.as_str(), 1);
    }

    pub(crate) fn on_failed(&mut self, reason: CheckOutFailed) {
        count(&mut self.failed, reason.as_str(), 1);
    }

    pub(crate) fn on_pinned(&mut self, reason: &'static str, by: i64) {
        count(&mut self.pinned, reason, by);
    }

    pub(crate) fn on_pin_refused(&mut self, reason: &'static str) {
        count(&mut self.pins_refused, reason, 1);
    }
}

/// Adds to the count of a reason. The reasons are few and fixed, so a list is the fastest map.
fn count(counts: &mut Vec<(&'static str, u64)>, reason: &'static str, by: i64) {
    match counts.iter_mut().find(|(r, _)| *r == reason) {
        Some((_, n)) => *n = n.saturating_add_signed(by),
        None => counts.push((reason, u64::try_from(by).unwrap_or(0))),
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
            leaving: AtomicBool::new(false),
            resized: AtomicU32::new(0),
            host: AtomicUsize::new(0),
            renewed: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            alarm: AtomicU64::new(u64::MAX),
            spec: RwLock::new(Arc::new(spec)),
            guarded: Mutex::new(Guarded {
                pool,
                stats: Stats::default(),
                unused: Unused { since: now, ..Unused::default() },
            }),
            last_error: Mutex::new(None),
        }
    }

    /// Something has changed, or was due: sets the alarm for what is due next. To be called under its lock.
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

    /// The alarm for then has rung. False if it was set for another time since. To be called under its lock.
    pub(crate) fn end_alarm(&self, at: Time) -> bool {
        self.alarm.compare_exchange(at.0, u64::MAX, Relaxed, Relaxed).is_ok()
    }

    /// It is new: has it looked at as soon as can be. To be called under its lock.
    pub(crate) fn set_first_alarm(&self, alarms: &Alarms, now: Time) {
        self.alarm.store(now.0, Relaxed);
        alarms.set(self.id, Time::NEVER, now);
    }

    /// Whether it is forgotten: then no client may come to it. Under its lock that stays as it is.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Relaxed)
    }

    /// A client comes to it; false if it is forgotten. To be called under its lock.
    pub(crate) fn admits(&self, guarded: &mut Guarded) -> bool {
        guarded.unused.uses += 1;
        !self.is_gone()
    }

    /// A client comes to it to stay; false if it is forgotten.
    pub(crate) fn enter(&self) -> bool {
        let mut guarded = self.lock();
        let admits = self.admits(&mut guarded);
        if admits {
            self.clients.fetch_add(1, Relaxed);
        }
        admits
    }

    /// Looks whether it is unused for this long. Then its servers are closed if it can do without, and as soon as it
    /// has none it is forgotten, if that `may` be; true if it is, just now. To be called under its lock, and by one
    /// worker.
    pub(crate) fn look_whether_unused(
        &self,
        guarded: &mut Guarded,
        alarms: &Alarms,
        after: Duration,
        now: Time,
        may: impl FnOnce() -> bool,
    ) -> bool {
        let Guarded { pool, unused, .. } = guarded;
        let counts = pool.counts();
        let in_use = self.clients.load(Relaxed) > 0 || counts.waiters > 0 || counts.in_use > 0;
        if in_use || unused.seen != unused.uses {
            (unused.seen, unused.since) = (unused.uses, now);
            return false;
        }
        if now - unused.since < after || self.is_gone() {
            return false;
        }
        if !pool.is_empty() {
            if pool.config().on_proof {
                pool.close_idle(now);
            }
            return false;
        }
        if !may() {
            unused.since = now;
            return false;
        }
        self.gone.store(true, Relaxed);
        alarms.remove(self.id, Time(self.alarm.swap(u64::MAX, Relaxed)));
        true
    }

    pub(crate) fn spec(&self) -> Arc<PoolSpec> {
        Arc::clone(&self.spec.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts other rules in force. Where its servers would be made differently, the present ones become stale.
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

    /// Does what an operator wishes.
    pub(crate) fn follow(&self, guarded: &mut Guarded, wish: Wish, now: Time) {
        self.drained.store(wish.drained, Relaxed);
        let config = self.effective(&self.spec());
        if *guarded.pool.config() != config {
            guarded.pool.reconfigure(config, now);
        }
        match (wish.paused, guarded.pool.is_paused()) {
            (true, false) => {
                guarded.pool.pause(PauseMode::HoldWaiters, now);
                // No connection is to be left to a database that is about to be restarted.
                guarded.pool.clear(Clear::default(), now);
            }
            (false, true) => guarded.pool.ready(now),
            _ => {}
        }
        if wish.drained {
            guarded.pool.clear(Clear::default(), now);
        }
    }

    /// From now on the pool keeps no server that is not in use.
    pub(crate) fn leave(&self, guarded: &mut Guarded, now: Time) {
        self.leaving.store(true, Relaxed);
        guarded.pool.reconfigure(self.effective(&self.spec()), now);
    }

    /// Gives it another size, if its spec lets it.
    pub(crate) fn resize(&self, guarded: &mut Guarded, size: u32, now: Time) {
        self.resized.store(size, Relaxed);
        let config = self.effective(&self.spec());
        if *guarded.pool.config() != config {
            guarded.pool.reconfigure(config, now);
        }
    }

    /// The rules of a spec, but for the size that it was given since, and that a pool which is to become empty keeps
    /// nothing for its own sake.
    fn effective(&self, spec: &PoolSpec) -> PoolConfig {
        let closing = self.drained.load(Relaxed) || self.leaving.load(Relaxed);
        let min_size = if closing { 0 } else { spec.config.min_size };
        let resized = spec.sizes.zip(Some(self.resized.load(Relaxed)).filter(|size| *size > 0));
        let max_size =
            resized.map_or(spec.config.max_size, |((least, most), size)| size.min(most).max(least).max(min_size));
        PoolConfig { min_size, max_size, ..spec.config.clone() }
    }

    /// Whether its servers may be made anew on account of what one of them said: not for the second time within
    /// [`MIN_RENEWAL_INTERVAL`].
    pub(crate) fn may_renew(&self, now: Time) -> bool {
        let last = self.renewed.load(Relaxed);
        let may = last == 0 || now - Time(last) >= MIN_RENEWAL_INTERVAL;
        if may {
            self.renewed.store(now.0.max(1), Relaxed);
        }
        may
    }

    /// The state machine. A panic of one worker while it held the lock is a defect of ours that has been
    /// reported; the others go on.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Guarded> {
        self.guarded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers why connecting failed, for those who wait.
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
            created: guarded.stats.created,
            unavailable: guarded.pool.unavailable_since().is_some(),
            paused: guarded.pool.is_paused(),
            drained: self.drained.load(Relaxed),
        }
    }

    /// What it holds now, and what was counted of its work; `None`: its size may not be changed.
    pub(crate) fn load(&self) -> Option<PoolLoad> {
        let spec = self.spec();
        spec.sizes?;
        let guarded = self.lock();
        let Guarded { pool, stats, .. } = &*guarded;
        let ordered = ["paused", "pool_closed", "pool_cleared"];
        let failed = stats.failed.iter().filter(|(reason, _)| !ordered.contains(reason));
        let lost = stats.closed.iter().filter(|(reason, _)| *reason == Closed::Error.as_str());
        let ordered = self.drained.load(Relaxed) || self.leaving.load(Relaxed) || pool.is_paused();
        Some(PoolLoad {
            id: self.id,
            protocol: spec.protocol,
            database: spec.database.clone(),
            user: spec.user.clone(),
            counts: pool.counts(),
            max_size: pool.config().max_size,
            completed: stats.transactions,
            held: Duration::from_nanos(stats.hold.sum_ns),
            granted: stats.checkout.iter().map(DurationHistogram::count).sum(),
            waited: stats.checkout[2].count(),
            errors: failed.chain(lost).map(|(_, count)| count).sum(),
            pinned: stats.pinned.iter().map(|(_, count)| *count as u32).sum(),
            fit: !ordered && pool.unavailable_since().is_none(),
            ordered,
        })
    }

    /// What it holds now, and what was counted.
    /// `listeners`: where its clients may come in.
    pub(crate) fn snapshot(&self, now: Time, listeners: &[Listener]) -> PoolSnapshot {
        let spec = self.spec();
        let guarded = self.lock();
        let Guarded { pool, stats, .. } = &*guarded;
        let [idle, created, queued] = stats.checkout.clone();
        let [dns, tcp, tls, auth, ready] = stats.connect.clone();
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
            created: stats.created,
            closed: stats.closed.clone(),
            checkout_failed: stats.failed.clone(),
            pinned: stats.pinned.clone(),
            pins_refused: stats.pins_refused.clone(),
            transactions: stats.transactions,
            checkout: [("idle", idle), ("created", created), ("queued", queued)],
            connect: [("dns", dns), ("tcp", tcp), ("tls", tls), ("auth", auth), ("ready", ready)],
            hold: stats.hold.clone(),
            oldest_hold: pool.oldest_hold(now),
            oldest_wait: pool.oldest_wait(now),
            unavailable_for: pool.unavailable_since().map(|since| now - since),
            last_error: self.last_error(),
            limited_by: None,
            paused: pool.is_paused(),
            drained: self.drained.load(Relaxed),
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
    }
}
