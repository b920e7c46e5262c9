//! All pools of the process and the budget they share. Knows no protocol.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, RwLock, atomic::Ordering::Relaxed},
};

use pool::{Budget, BudgetAction, MemberId, Permit, ScopeId, Time};
use protocol::PoolId;

use crate::{config::Upstreams, shared_pool::SharedPool};

/// See the file's head.
pub(crate) struct Registry {
    upstreams: Arc<dyn Upstreams>,
    pools: RwLock<HashMap<PoolId, Arc<SharedPool>>>,
    purse: Mutex<Purse>,
}

/// The budget, and whose seat is whose.
struct Purse {
    budget: Budget,
    scopes: HashMap<String, ScopeId>,
    seats: HashMap<MemberId, Seat>,
}

/// A pool's seat in the budget.
struct Seat {
    pool: Arc<SharedPool>,
    /// Permits on their way to it that it withdrew too late. The next connection it asks for takes one of them, or else it declines it.
    ///
    /// Below zero: so many were declined before their withdrawal arrived here, because actions are taken under the
    /// pool's lock but performed later.
    unasked: i32,
}

/// What the budget wants of a pool, after something changed.
pub(crate) enum Demand {
    /// The pool may make one more connection.
    Permit(Arc<SharedPool>),
    /// The pool is asked to give up an idle server.
    Reclaim(Arc<SharedPool>),
}

impl Registry {
    pub(crate) fn new(upstreams: Arc<dyn Upstreams>) -> Self {
        let purse = Purse { budget: Budget::new(), scopes: HashMap::new(), seats: HashMap::new() };
        Self { upstreams, pools: RwLock::default(), purse: Mutex::new(purse) }
    }

    /// Makes the pools that exist from the start. What they want done is done at the workers' first tick.
    pub(crate) fn open_at_start(&self, now: Time) {
        for id in self.upstreams.at_start() {
            self.pool(id, now);
        }
    }

    /// The pool behind an id; made when it is first asked for.
    pub(crate) fn pool(&self, id: PoolId, now: Time) -> Arc<SharedPool> {
        if let Some(pool) = self.pools.read().unwrap_or_else(PoisonError::into_inner).get(&id) {
            return Arc::clone(pool);
        }
        let spec = self.upstreams.spec(id);
        let mut pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = pools.get(&id) {
            return Arc::clone(pool);
        }
        let mut purse = self.purse.lock().unwrap_or_else(PoisonError::into_inner);
        let Purse { budget, scopes, seats } = &mut *purse;
        let caps: Vec<ScopeId> = spec
            .caps
            .iter()
            .map(|(name, limit)| *scopes.entry(name.clone()).or_insert_with(|| budget.add_scope(*limit)))
            .collect();
        let member = budget.add_member(&caps);
        let pool = Arc::new(SharedPool::new(id, spec, member, now));
        seats.insert(member, Seat { pool: Arc::clone(&pool), unasked: 0 });
        pools.insert(id, Arc::clone(&pool));
        pool
    }

    /// All pools, in order of their ids.
    pub(crate) fn all(&self) -> Vec<Arc<SharedPool>> {
        let pools = self.pools.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = pools.values().cloned().collect();
        all.sort_by_key(|pool| pool.id);
        all
    }

    /// A pool asks for one more connection.
    pub(crate) fn request(&self, member: MemberId, demands: &mut Vec<Demand>) {
        self.with_budget(demands, |budget, seats, demands| {
            let seat = seats.get_mut(&member).expect("a member has a seat");
            if seat.unasked > 0 {
                seat.unasked -= 1;
            } else if budget.request(member) == Permit::Granted {
                demands.push(Demand::Permit(Arc::clone(&seat.pool)));
            }
        });
    }

    /// A pool wants one connection fewer than it asked for.
    pub(crate) fn withdraw(&self, member: MemberId, demands: &mut Vec<Demand>) {
        self.with_budget(demands, |budget, seats, _| {
            let seat = seats.get_mut(&member).expect("a member has a seat");
            if seat.unasked < 0 || !budget.withdraw(member) {
                seat.unasked += 1;
            }
        });
    }

    /// A permit came that the pool wants no more.
    pub(crate) fn decline(&self, member: MemberId, demands: &mut Vec<Demand>) {
        self.with_budget(demands, |budget, seats, _| {
            seats.get_mut(&member).expect("a member has a seat").unasked -= 1;
            budget.release(member);
        });
    }

    /// A pool's connection is gone.
    pub(crate) fn release(&self, member: MemberId, demands: &mut Vec<Demand>) {
        self.with_budget(demands, |budget, _, _| budget.release(member));
    }

    /// A pool had no idle server to give up.
    pub(crate) fn reclaim_failed(&self, member: MemberId, demands: &mut Vec<Demand>) {
        self.with_budget(demands, |budget, seats, _| {
            budget.reclaim_failed(member);
            seats[&member].pool.awaits_idle.store(budget.awaits_idle(member), Relaxed);
        });
    }

    /// A pool that could give up nothing before has an idle server now.
    pub(crate) fn has_idle(&self, member: MemberId, demands: &mut Vec<Demand>) {
        self.with_budget(demands, |budget, _, _| budget.has_idle(member));
    }

    fn with_budget(
        &self,
        demands: &mut Vec<Demand>,
        f: impl FnOnce(&mut Budget, &mut HashMap<MemberId, Seat>, &mut Vec<Demand>),
    ) {
        let mut purse = self.purse.lock().unwrap_or_else(PoisonError::into_inner);
        let Purse { budget, seats, .. } = &mut *purse;
        f(budget, seats, demands);
        while let Some(action) = budget.poll_action() {
            demands.push(match action {
                BudgetAction::Grant(member) => Demand::Permit(Arc::clone(&seats[&member].pool)),
                BudgetAction::Reclaim(member) => Demand::Reclaim(Arc::clone(&seats[&member].pool)),
            });
        }
    }
}
