//! Unused pools are forgotten, with all that is kept of them, as if they had never been: what a client may make up has
//! no other end. The first worker looks at all of them, a few at a time.
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
    shared_pool::SharedPool,
};

/// Most pools that are looked at in one tick: 3,200 a second.
const MAX_LOOKS_A_TICK: usize = 64;

/// All pools are looked at no more often than that, unless one of them is to be forgotten sooner.
const LAP: Duration = Duration::from_secs(1);

/// How far a look has come.
#[derive(Default)]
pub(super) struct Look {
    from: PoolId,
    /// When the next one may begin at the first pool.
    again: Time,
    /// The shortest time after which a pool that was looked at is to be forgotten.
    shortest: Option<Duration>,
    /// The pools at hand; empty between looks.
    some: Vec<Arc<SharedPool>>,
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// Goes on looking for pools to forget.
    pub(super) fn look_for_unused_pools(&mut self) {
        if self.number != 0 || (self.unused_pools.from == PoolId::default() && self.now < self.unused_pools.again) {
            return;
        }
        let mut some = std::mem::take(&mut self.unused_pools.some);
        self.host.registry.some_from(self.unused_pools.from, MAX_LOOKS_A_TICK, &mut some);
        let look = &mut self.unused_pools;
        match some.last().filter(|_| some.len() == MAX_LOOKS_A_TICK) {
            Some(last) => look.from = PoolId(last.id.0 + 1),
            None => {
                look.from = PoolId::default();
                look.again = self.now + LAP.min(look.shortest.take().unwrap_or(LAP));
            }
        }
        for pool in some.drain(..) {
            if let Some(after) = pool.spec().unused_after {
                let shortest = &mut self.unused_pools.shortest;
                *shortest = Some(shortest.map_or(after, |shortest| shortest.min(after)));
                self.look_whether_unused(&pool, after);
            }
        }
        self.unused_pools.some = some;
    }

    fn look_whether_unused(&mut self, pool: &Arc<SharedPool>, after: Duration) {
        let (host, now) = (Arc::clone(&self.host), self.now);
        let counted = self.operate(pool, |guarded| {
            let may = || host.registry.may_forget(pool.id);
            let gone = pool.look_whether_unused(guarded, &host.registry.alarms, after, now, may);
            gone.then(|| guarded.stats.clone())
        });
        let Some(counted) = counted else { return };
        host.registry.forget(pool, &counted, &mut self.demands);
        let _ = call(|| self.shared.protocol.pool_forgotten(pool.id));
        for mailbox in &self.shared.mailboxes {
            mailbox.send(Message::Command(Command::Forget(pool.id)));
        }
        let spec = pool.spec();
        tracing::debug!(database = %spec.database, user = %spec.user, "this pool was unused for {after:?}: it is forgotten");
    }
}
