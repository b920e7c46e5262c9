//! All pools of the process and the budget they share. Knows no protocol.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use pool::{Budget, BudgetAction, CapId, Claim, MemberId, Permit, Time};
use seam::{PoolId, Tenant};

use crate::{
    alarms::Alarms,
    config::{PoolSpec, TenantLimits, Upstreams},
    orders::{DatabaseName, Order, Orders},
    outages::Outages,
    shared_pool::SharedPool,
    snapshot::{CapUsage, ForgottenPools, PoolTotals},
};

pub(crate) struct Registry {
    upstreams: Arc<dyn Upstreams>,
    /// Locked before a pool and `budget_state`, if it is locked for a change.
    pools: RwLock<PoolTable>,
    /// May be locked while a pool is locked. No pool may be locked while this is.
    budget_state: Mutex<BudgetState>,
    pub(crate) alarms: Alarms,
    /// The number of times that pools were configured anew.
    pub(crate) configured: AtomicU64,
    pub(crate) outages: Outages,
    pub(crate) orders: Mutex<Orders>,
}

#[derive(Default)]
struct PoolTable {
    by_id: BTreeMap<PoolId, Arc<SharedPool>>,
    databases: HashMap<DatabaseName, Database>,
}

/// The pools of one database.
#[derive(Default)]
struct Database {
    pools: usize,
    /// The counts of pools that were forgotten while others remained.
    forgotten: Option<Box<ForgottenPools>>,
}

/// The budget with its caps, and the pools that have memberships in it.
struct BudgetState {
    budget: Budget,
    caps: BTreeMap<String, Cap>,
    memberships: HashMap<MemberId, Membership>,
    /// How much of each cap is left to another process, by the name of the cap.
    reserved: HashMap<String, u32>,
}

/// A cap as configured, and in the budget.
struct Cap {
    id: CapId,
    limit: u32,
}

/// A pool's membership in the budget.
struct Membership {
    pool: Arc<SharedPool>,
    caps: Vec<String>,
    /// Permits on their way to the pool that it withdrew too late. The next connection that it asks for takes one of
    /// them; otherwise it declines them.
    ///
    /// Below zero: the number of permits that were declined before their withdrawal arrived here, because actions are
    /// taken under the pool's lock but performed later.
    unasked: i32,
}

/// What the budget asks of a pool.
pub(crate) enum Demand {
    /// The pool may make one more connection.
    Permit(Arc<SharedPool>),
    /// The pool is asked to give up such an idle server.
    Reclaim(Arc<SharedPool>, Claim),
}

impl Registry {
    /// `workers`: the number of workers that tend the pools. `reserved` of each cap is left to another process.
    pub(crate) fn new(upstreams: Arc<dyn Upstreams>, workers: usize, reserved: HashMap<String, u32>) -> Self {
        let budget_state =
            BudgetState { budget: Budget::new(), caps: BTreeMap::new(), memberships: HashMap::new(), reserved };
        Self {
            upstreams,
            pools: RwLock::default(),
            budget_state: Mutex::new(budget_state),
            alarms: Alarms::new(workers),
            configured: AtomicU64::new(0),
            outages: Outages::default(),
            orders: Mutex::default(),
        }
    }

    /// A pool by the configuration in force; `None` if it is forgotten.
    pub(crate) fn spec(&self, id: PoolId) -> Option<PoolSpec> {
        self.upstreams.spec(id)
    }

    /// The limits of a database or a user by the configuration in force.
    pub(crate) fn limits(&self, tenant: &Tenant) -> Option<TenantLimits> {
        self.upstreams.limits(tenant)
    }

    /// Makes the pools that exist from the start. What they want done is done at the workers' first tick.
    pub(crate) fn open_at_start(&self, now: Time) {
        for id in self.upstreams.at_start() {
            self.find_or_make(id, now);
        }
    }

    /// The pool behind an id, made when it is first asked for; `None` if it is forgotten.
    pub(crate) fn find_or_make(&self, id: PoolId, now: Time) -> Option<Arc<SharedPool>> {
        if let Some(pool) = self.known(id) {
            return Some(pool);
        }
        let mut pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = pools.by_id.get(&id) {
            return Some(Arc::clone(pool));
        }
        // Under the lock: a reload that comes after this answer finds the pool in the list and configures it.
        let spec = self.upstreams.spec(id)?;
        let labels = spec.name_in_metrics();
        let order = match spec.hidden {
            true => Order::default(),
            false => self.orders.lock().unwrap_or_else(PoisonError::into_inner).order_for(&spec.name_in_orders()),
        };
        let mut budget_state = self.budget_state.lock().unwrap_or_else(PoisonError::into_inner);
        let ids = budget_state.find_or_add_caps(&spec.caps);
        let (caps, shared_limit) =
            (names(&spec.caps), budget_state.smallest_limit(spec.caps.iter().map(|(name, _)| name)));
        let member = budget_state.budget.add_member(&ids);
        let pool = Arc::new(SharedPool::new(id, (spec, self.upstreams.tenant(id)), member, now));
        {
            // What the pool wants done already it is asked for later. It can be locked here, since no worker knows it
            // yet.
            let mut guarded = pool.lock();
            guarded.pool.set_shared_limit(shared_limit);
            pool.apply_order(&mut guarded, order, now);
            pool.set_first_alarm(&self.alarms, now);
        }
        budget_state.memberships.insert(member, Membership { pool: Arc::clone(&pool), caps, unasked: 0 });
        pools.by_id.insert(id, Arc::clone(&pool));
        pools.databases.entry(labels).or_default().pools += 1;
        Some(pool)
    }

    /// The pool behind an id, if it was ever asked for and is not forgotten.
    pub(crate) fn known(&self, id: PoolId) -> Option<Arc<SharedPool>> {
        self.pools.read().unwrap_or_else(PoisonError::into_inner).by_id.get(&id).cloned()
    }

    /// Up to `count` pools in the order of their ids, from this id on.
    pub(crate) fn some_from(&self, id: PoolId, count: usize, some: &mut Vec<Arc<SharedPool>>) {
        let pools = self.pools.read().unwrap_or_else(PoisonError::into_inner);
        some.extend(pools.by_id.range(id..).take(count).map(|(_, pool)| Arc::clone(pool)));
    }

    /// Has the source of pool ids forget a pool without clients. False if it refuses.
    pub(crate) fn try_forget(&self, id: PoolId) -> bool {
        self.upstreams.try_forget(id)
    }

    /// Forgets a pool that is [gone](SharedPool::is_gone). Requests that are under way for it find no membership any
    /// more, and need none.
    pub(crate) fn forget(&self, pool: &SharedPool, counted: &PoolTotals, demands: &mut Vec<Demand>) {
        {
            let mut pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
            pools.by_id.remove(&pool.id);
            pools.leave(&pool.spec().name_in_metrics(), counted);
        }
        self.outages.forget(pool.id);
        let mut budget_state = self.budget_state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(membership) = budget_state.remove_membership(pool) {
            budget_state.budget.remove_member(pool.member);
            budget_state.drop_empty(&membership.caps);
        }
        budget_state.drain_actions(demands);
    }

    /// Puts a pool under the caps of its spec, and these at their limits.
    pub(crate) fn recap(&self, pool: &SharedPool, caps: &[(String, u32)], demands: &mut Vec<Demand>) {
        let mut budget_state = self.budget_state.lock().unwrap_or_else(PoisonError::into_inner);
        if budget_state.membership(pool).is_none() {
            return;
        }
        for (name, limit) in caps {
            budget_state.set_cap_limit(name, *limit);
        }
        let ids = budget_state.find_or_add_caps(caps);
        budget_state.budget.set_caps(pool.member, &ids);
        let membership = budget_state.membership(pool).expect("just seen");
        let before = std::mem::replace(&mut membership.caps, names(caps));
        budget_state.drop_empty(&before);
        budget_state.drain_actions(demands);
    }

    /// Leaves `reserved` of each cap to other processes. False if it does already.
    pub(crate) fn reserve(&self, reserved: HashMap<String, u32>, demands: &mut Vec<Demand>) -> bool {
        let mut budget_state = self.budget_state.lock().unwrap_or_else(PoisonError::into_inner);
        if budget_state.reserved == reserved {
            return false;
        }
        budget_state.reserved = reserved;
        let caps: Vec<_> = budget_state.caps.iter().map(|(name, cap)| (name.clone(), cap.limit)).collect();
        for (name, limit) in caps {
            budget_state.set_cap_limit(&name, limit);
        }
        budget_state.drain_actions(demands);
        true
    }

    /// How many servers a pool can have under its caps, if no other pool has any; `u32::MAX`: any number.
    pub(crate) fn smallest_limit(&self, pool: &SharedPool) -> u32 {
        let mut budget_state = self.budget_state.lock().unwrap_or_else(PoisonError::into_inner);
        let caps = budget_state.membership(pool).map(|membership| membership.caps.clone()).unwrap_or_default();
        budget_state.smallest_limit(caps.iter())
    }

    /// How much of each cap is used here.
    pub(crate) fn caps(&self) -> Vec<CapUsage> {
        let budget_state = self.budget_state.lock().unwrap_or_else(PoisonError::into_inner);
        let usage = |(name, cap): (&String, &Cap)| CapUsage {
            name: name.clone(),
            used: budget_state.budget.usage(cap.id).0,
            limit: cap.limit,
        };
        budget_state.caps.iter().map(usage).collect()
    }

    /// How many pools there are.
    pub(crate) fn count(&self) -> usize {
        self.pools.read().unwrap_or_else(PoisonError::into_inner).by_id.len()
    }

    /// All pools, in order of their ids, and what forgotten ones have counted.
    pub(crate) fn all_that_counted(&self) -> (Vec<Arc<SharedPool>>, Vec<ForgottenPools>) {
        let pools = self.pools.read().unwrap_or_else(PoisonError::into_inner);
        let forgotten = pools.databases.values().filter_map(|database| database.forgotten.as_deref().cloned());
        (pools.by_id.values().cloned().collect(), forgotten.collect())
    }

    /// All pools, in order of their ids.
    pub(crate) fn all(&self) -> Vec<Arc<SharedPool>> {
        let pools = self.pools.read().unwrap_or_else(PoisonError::into_inner);
        pools.by_id.values().cloned().collect()
    }

    /// A pool asks for one more connection.
    pub(crate) fn request(&self, pool: &SharedPool, demands: &mut Vec<Demand>) {
        self.with_membership(pool, demands, |budget, membership, demands| {
            if membership.unasked > 0 {
                membership.unasked -= 1;
            } else if budget.request(pool.member) == Permit::Granted {
                demands.push(Demand::Permit(Arc::clone(&membership.pool)));
            }
        });
    }

    /// A pool wants one connection fewer than it asked for.
    pub(crate) fn withdraw(&self, pool: &SharedPool, demands: &mut Vec<Demand>) {
        self.with_membership(pool, demands, |budget, membership, _| {
            if membership.unasked < 0 || !budget.withdraw(pool.member) {
                membership.unasked += 1;
            }
        });
    }

    /// A permit came that the pool wants no more.
    pub(crate) fn decline(&self, pool: &SharedPool, demands: &mut Vec<Demand>) {
        self.with_membership(pool, demands, |budget, membership, _| {
            membership.unasked -= 1;
            budget.release(pool.member);
        });
    }

    /// A pool's connection is gone.
    pub(crate) fn release(&self, pool: &SharedPool, demands: &mut Vec<Demand>) {
        self.with_membership(pool, demands, |budget, _, _| budget.release(pool.member));
    }

    /// A pool had no such idle server to give up.
    pub(crate) fn reclaim_failed(&self, pool: &SharedPool, claim: Claim, demands: &mut Vec<Demand>) {
        self.with_membership(pool, demands, |budget, _, _| {
            budget.reclaim_failed(pool.member, claim);
            pool.awaits_idle.store(budget.lacks_spare(pool.member), Relaxed);
        });
    }

    /// Clients have waited for long in this pool, though its servers become free.
    pub(crate) fn report_congestion(&self, pool: &SharedPool, demands: &mut Vec<Demand>) {
        self.with_membership(pool, demands, |budget, _, _| budget.report_congestion(pool.member));
    }

    /// A client has waited for long in this pool, and none of its servers becomes free.
    pub(crate) fn report_starvation(&self, pool: &SharedPool, demands: &mut Vec<Demand>) {
        self.with_membership(pool, demands, |budget, _, _| budget.report_starvation(pool.member));
    }

    /// A pool that could give up no server before gets one back. Returns whether that is to be closed for another pool.
    pub(crate) fn offer_returning(&self, pool: &SharedPool, demands: &mut Vec<Demand>) -> bool {
        let mut taken = false;
        self.with_membership(pool, demands, |budget, _, _| taken = budget.offer_returning(pool.member));
        taken
    }

    /// The setting because of which a pool gets no more servers for now, if it is not its own size.
    pub(crate) fn limiting_setting(&self, pool: &SharedPool) -> Option<&'static str> {
        let mut budget_state = self.budget_state.lock().unwrap_or_else(PoisonError::into_inner);
        budget_state.membership(pool)?;
        let full = budget_state.budget.full_cap(pool.member)?;
        budget_state.caps.iter().find(|(_, cap)| cap.id == full).map(|(name, _)| setting_of(name))
    }

    /// The setting that leaves a pool the least room.
    pub(crate) fn narrowest_setting(&self, pool: &SharedPool) -> Option<&'static str> {
        let mut budget_state = self.budget_state.lock().unwrap_or_else(PoisonError::into_inner);
        let caps = budget_state.membership(pool)?.caps.clone();
        let limits =
            caps.iter().filter_map(|name| Some((budget_state.allowed(name, budget_state.caps.get(name)?.limit), name)));
        limits.filter(|(limit, _)| *limit > 0).min_by_key(|(limit, _)| *limit).map(|(_, name)| setting_of(name))
    }

    /// A pool that could not give up the server that it was asked for may do so now.
    pub(crate) fn report_spare(&self, pool: &SharedPool, demands: &mut Vec<Demand>) {
        self.with_membership(pool, demands, |budget, _, _| budget.report_spare(pool.member));
    }

    /// Does nothing for a pool that is forgotten: what it had, the budget has got back.
    fn with_membership(
        &self,
        pool: &SharedPool,
        demands: &mut Vec<Demand>,
        f: impl FnOnce(&mut Budget, &mut Membership, &mut Vec<Demand>),
    ) {
        let mut budget_state = self.budget_state.lock().unwrap_or_else(PoisonError::into_inner);
        let BudgetState { budget, memberships, .. } = &mut *budget_state;
        if let Some(membership) = memberships.get_mut(&pool.member).filter(|membership| membership.pool.id == pool.id) {
            f(budget, membership, demands);
        }
        budget_state.drain_actions(demands);
    }
}

fn names(caps: &[(String, u32)]) -> Vec<String> {
    caps.iter().map(|(name, _)| name.clone()).collect()
}

/// The setting that a cap is from, by the cap's name.
fn setting_of(cap: &str) -> &'static str {
    match cap.split_once(' ') {
        Some(("database", _)) => "max_connections",
        Some(("user", user)) if user.contains(" of database ") => "max_size",
        Some(("user", _)) => "max_user_connections",
        Some(("replication", _)) => "max_replication_size",
        _ => "max_server_connections",
    }
}

impl PoolTable {
    /// A pool of this database is forgotten. Its counts are kept as long as the database has other pools.
    fn leave(&mut self, name: &DatabaseName, counted: &PoolTotals) {
        let Some(database) = self.databases.get_mut(name) else { return };
        database.pools -= 1;
        if database.pools == 0 {
            self.databases.remove(name);
            return;
        }
        let new = || ForgottenPools { protocol: name.protocol, database: name.database.clone(), ..Default::default() };
        database.forgotten.get_or_insert_with(|| Box::new(new())).totals.add(counted);
    }
}

impl BudgetState {
    /// The membership of a pool; `None` if it is forgotten. Another pool may have its number in the budget by now.
    fn membership(&mut self, pool: &SharedPool) -> Option<&mut Membership> {
        self.memberships.get_mut(&pool.member).filter(|membership| membership.pool.id == pool.id)
    }

    fn remove_membership(&mut self, pool: &SharedPool) -> Option<Membership> {
        self.membership(pool)?;
        self.memberships.remove(&pool.member)
    }

    /// Drops those of these caps that no pool is under any more.
    fn drop_empty(&mut self, names: &[String]) {
        let Self { budget, caps, .. } = self;
        for name in names {
            if caps.get(name).is_some_and(|cap| budget.remove_empty_cap(cap.id)) {
                caps.remove(name);
            }
        }
    }

    /// The ids of these caps. New ones are added to the budget.
    fn find_or_add_caps(&mut self, caps: &[(String, u32)]) -> Vec<CapId> {
        let mut ids = Vec::with_capacity(caps.len());
        for (name, limit) in caps {
            let allowed = self.allowed(name, *limit);
            let Self { budget, caps, .. } = self;
            let cap = caps.entry(name.clone());
            ids.push(cap.or_insert_with(|| Cap { id: budget.add_cap(allowed), limit: *limit }).id);
        }
        ids
    }

    /// Sets a cap that exists to this limit.
    fn set_cap_limit(&mut self, name: &str, limit: u32) {
        let allowed = self.allowed(name, limit);
        let Some(cap) = self.caps.get_mut(name) else { return };
        cap.limit = limit;
        if self.budget.usage(cap.id).1 != allowed {
            self.budget.set_limit(cap.id, allowed);
        }
    }

    /// The rest of a limit; at least 1, since 0 would mean no limit at all.
    fn allowed(&self, name: &str, limit: u32) -> u32 {
        match (limit, self.reserved.get(name)) {
            (0, _) | (_, None) => limit,
            (limit, Some(reserved)) => limit.saturating_sub(*reserved).max(1),
        }
    }

    /// The smallest of the limits of these caps; `u32::MAX` without any.
    fn smallest_limit<'a>(&self, names: impl Iterator<Item = &'a String>) -> u32 {
        let limits = names.filter_map(|name| Some(self.allowed(name, self.caps.get(name)?.limit)));
        limits.filter(|limit| *limit > 0).min().unwrap_or(u32::MAX)
    }

    fn drain_actions(&mut self, demands: &mut Vec<Demand>) {
        while let Some(action) = self.budget.poll_action() {
            let pool = Arc::clone(&self.memberships[&action.member()].pool);
            demands.push(match action {
                BudgetAction::Grant(_) => Demand::Permit(pool),
                BudgetAction::Reclaim(_, claim) => Demand::Reclaim(pool, claim),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nowhere;

    impl Upstreams for Nowhere {
        fn spec(&self, _: PoolId) -> Option<PoolSpec> {
            None
        }

        fn at_start(&self) -> Vec<PoolId> {
            Vec::new()
        }
    }

    #[test]
    fn what_is_reserved_already_is_not_reserved_again() {
        let of = |held| HashMap::from([("all".to_owned(), held)]);
        let registry = Registry::new(Arc::new(Nowhere), 1, of(2));
        let changes = [2, 3, 3, 2].map(|held| registry.reserve(of(held), &mut Vec::new()));
        assert_eq!(changes, [false, true, false, true]);
    }
}
