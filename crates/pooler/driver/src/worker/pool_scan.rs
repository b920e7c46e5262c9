//! Pools that no client has used for long are forgotten with all their state. Names of databases and users may be
//! invented by clients, so nothing else ends such pools. The first worker looks at all of them, a few at a time.
//!
//! A pool is forgotten under its lock, so a client that comes at that moment is either seen, and the pool stays, or
//! finds it [gone](SharedPool::is_gone), and its session asks for the pool's id anew.

use std::{sync::Arc, time::Duration};

use pool::Time;
use seam::{PoolId, Protocol};

use super::{Worker, calls::call};
use crate::{
    mailbox::{Command, Message},
    reactor::Reactor,
    registry::Registry,
    shared_pool::SharedPool,
};

/// Most pools that are examined in one tick: 3,200 a second.
const MAX_EXAMINED_A_TICK: usize = 64;

/// The worker examines all pools no more often than this, unless one of them is to be forgotten sooner.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);

/// A scan over all pools of the process, a few at a time.
#[derive(Default)]
pub(super) struct PoolScan {
    /// The first pool that the scan has yet to examine.
    from: PoolId,
    /// When the next scan may begin.
    next_scan: Time,
    /// The shortest `forget_after` of the pools in this scan.
    shortest: Option<Duration>,
    /// Empty between calls.
    batch: Vec<Arc<SharedPool>>,
}

impl PoolScan {
    fn is_due(&self, now: Time) -> bool {
        self.from != PoolId::default() || now >= self.next_scan
    }

    /// The next pools to examine.
    fn next_batch(&mut self, registry: &Registry, now: Time) -> Vec<Arc<SharedPool>> {
        let mut batch = std::mem::take(&mut self.batch);
        registry.some_from(self.from, MAX_EXAMINED_A_TICK, &mut batch);
        match batch.last().filter(|_| batch.len() == MAX_EXAMINED_A_TICK) {
            Some(last) => self.from = PoolId(last.id.0 + 1),
            None => {
                self.from = PoolId::default();
                self.next_scan = now + SCAN_INTERVAL.min(self.shortest.take().unwrap_or(SCAN_INTERVAL));
            }
        }
        batch
    }

    fn note_forget_after(&mut self, after: Duration) {
        self.shortest = Some(self.shortest.map_or(after, |shortest| shortest.min(after)));
    }
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// Goes on with the scan over all pools.
    pub(super) fn forget_idle_pools(&mut self) {
        if self.number != 0 || !self.pool_scan.is_due(self.now) {
            return;
        }
        let mut batch = self.pool_scan.next_batch(&self.process.registry, self.now);
        for pool in batch.drain(..) {
            if let Some(after) = pool.spec().forget_after {
                self.pool_scan.note_forget_after(after);
                self.forget_if_idle(&pool, after);
            }
        }
        self.pool_scan.batch = batch;
    }

    fn forget_if_idle(&mut self, pool: &Arc<SharedPool>, after: Duration) {
        let (process, now) = (Arc::clone(&self.process), self.now);
        let counted = self.pools.operate(pool, now, |guarded| {
            let try_forget = || process.registry.try_forget(pool.id);
            let gone = pool.forget_if_idle(guarded, &process.registry.alarms, after, now, try_forget);
            gone.then(|| guarded.stats.totals.clone())
        });
        let Some(counted) = counted else { return };
        self.pools.budget(|registry, demands| registry.forget(pool, &counted, demands));
        let _ = call(|| self.shared.protocol.pool_forgotten(pool.id));
        for mailbox in &self.shared.mailboxes {
            mailbox.send(Message::Command(Command::Forget(pool.id)));
        }
        let spec = pool.spec();
        let (database, user) = (&spec.database, &spec.user);
        tracing::debug!(%database, %user, "this pool was unused for {after:?}: it is forgotten");
    }
}
