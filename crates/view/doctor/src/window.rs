//! Looks at a running pooler over some time, and what they tell of each pool. Of each look only what is needed is kept.
//! Judges nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use admin_api::{Change, Client, Look, Observation, Pool, PoolChange, Pooler, Times, Work};

use crate::{
    course::Course,
    finding::{Key, Setting, setting_time},
};

/// Pools whose steps are kept. Beyond that, pools that are gone are forgotten, and further ones are left out.
pub(crate) const MAX_POOLS: usize = 1_000;

/// Steps of all pools together: each is kept until the end.
pub(crate) const MAX_STEPS: usize = 500_000;
/// Holders of servers that take as much room as a step.
const HOLDERS_PER_STEP: usize = 16;

/// All looks at one process, in order.
#[derive(Clone, Debug, Default)]
pub struct Window {
    course: Course<Look>,
    /// By pool, between two looks each.
    steps: BTreeMap<u64, Vec<Step>>,
    /// Transactions that ended, in pools that are gone by now, too.
    transactions: u64,
    /// How many these are, and what they hold in as many.
    kept: usize,
    /// Pools of the last look that are too many.
    left_out: usize,
    /// `/api/clients` at the end, as many as were asked for.
    pub clients: Vec<Client>,
}

/// A pool over the window.
pub(crate) struct PoolWindow<'w> {
    pub(crate) last: &'w Pool,
    /// What happened in it over the whole window.
    pub(crate) change: PoolChange,
    /// Those at which it was neither paused nor drained, and its database could be reached.
    pub(crate) steps: Vec<&'w Step>,
    pub(crate) course: &'w [Step],
    pub(crate) bounds: &'w [f64],
    pub(crate) lasts: Duration,
    /// How long the process has run.
    pub(crate) uptime: Duration,
    pub(crate) pooler: Pooler,
    /// That one does not tell when all pools are paused.
    pub(crate) hides_pause: bool,
}

/// What happened in a pool between two looks.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// When it ended, from the beginning of the window.
    pub(crate) at: Duration,
    pub(crate) lasts: Duration,
    pub(crate) clients: u64,
    pub(crate) waiters: u64,
    pub(crate) in_use: u64,
    pub(crate) connecting: u64,
    /// Servers that are cleaned, checked or closed: these are not free, either.
    pub(crate) cleaned: u64,
    /// Servers in whatever state.
    pub(crate) open: u64,
    pub(crate) max_size: u64,
    /// Connections made in it, and how long all of them took together to make, in milliseconds.
    pub(crate) created: u64,
    pub(crate) making_ms: f64,
    /// Its database could not be reached.
    pub(crate) is_down: bool,
    stands_still: bool,
    /// How long clients waited for a server, whichever way they got one; kept only where some wait at its end.
    pub(crate) waited: Times,
    /// How long servers were held, of leases that ended.
    pub(crate) hold: Times,
    /// Who had a server at its end.
    pub(crate) holders: Vec<Holder>,
    /// What the servers did at its end, where the database was asked, too.
    pub(crate) work: Option<Work>,
}

/// A client that has a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder {
    pub(crate) id: u64,
    pub(crate) stands: Stands,
    /// For how long it has stood there.
    pub(crate) ms: f64,
}

/// What a holder does with its server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stands {
    /// It waits for an answer.
    Working,
    /// It is its turn, within a transaction.
    InTransaction,
    /// Nothing is in progress.
    Idle,
    Unknown,
}

impl Window {
    /// False if this look is at another process than those before: then the window begins anew with it.
    pub fn add(&mut self, observation: Observation) -> bool {
        let Observation { at, look, holders: clients } = observation;
        let change =
            self.course.last().and_then(|(before, last)| Change::between(last, &look, at.saturating_sub(before)));
        let is_another = self.looks() > 0 && change.is_none();
        if is_another {
            *self = Self::default();
        }
        let have_come = change.as_ref().is_some_and(|change| change.logins > 0);
        if let Some(mut change) = change {
            let ids = |look: &Look| look.pools.iter().map(|pool| pool.id).collect::<BTreeSet<u64>>();
            let (first, before) = self.ends().map(|(first, last)| (ids(first), ids(last))).unwrap_or_default();
            // One that the look before lacked, and an earlier one did not, is not new: what it did is of more than this
            // step.
            change.pools.retain(|id, _| before.contains(id) || !(first.contains(id) || self.steps.contains_key(id)));
            let mut holders: BTreeMap<u64, Vec<Holder>> = BTreeMap::new();
            for (pool, holder) in clients.iter().filter_map(holder) {
                holders.entry(pool).or_default().push(holder);
            }
            let ended = admin_api::sum(change.pools.values().map(|pool| &pool.transactions));
            self.transactions = self.transactions.saturating_add(ended);
            self.make_room(&look);
            self.left_out = usize::try_from(look.pools_left_out).unwrap_or(usize::MAX);
            for pool in &look.pools {
                let Some(own) = change.pools.get(&pool.id) else { continue };
                if self.steps.len() >= MAX_POOLS && !self.steps.contains_key(&pool.id) {
                    self.left_out = self.left_out.saturating_add(1);
                    continue;
                }
                let step = Step::new(at, change.since.0, pool, own, holders.remove(&pool.id).unwrap_or_default());
                self.kept += step.room();
                self.steps.entry(pool.id).or_default().push(step);
            }
        }
        self.course.add(at, look, have_come);
        !is_another
    }

    /// Forgets pools that are gone, if there are many.
    fn make_room(&mut self, look: &Look) {
        let new = look.pools.iter().filter(|pool| !self.steps.contains_key(&pool.id)).count();
        if self.steps.len() + new > MAX_POOLS {
            let here: BTreeSet<u64> = look.pools.iter().map(|pool| pool.id).collect();
            self.steps.retain(|id, _| here.contains(id));
            self.kept = self.steps.values().flatten().map(Step::room).sum();
        }
    }

    /// No more looks can be kept.
    pub fn is_full(&self) -> bool {
        self.kept >= MAX_STEPS
    }

    /// Pools beyond those that are looked at.
    pub(crate) fn left_out(&self) -> usize {
        self.left_out
    }

    pub fn looks(&self) -> usize {
        self.course.looks()
    }

    /// From the first look to the last.
    pub fn lasts(&self) -> Duration {
        self.course.lasts()
    }

    /// What was looked at; `None` before the first look.
    pub(crate) fn look(&self) -> Option<&Look> {
        self.course.last().map(|(_, look)| look)
    }

    /// The share of looks at which there were clients that came since the one before.
    pub(crate) fn arrivals(&self) -> f64 {
        self.course.arrivals()
    }

    /// Transactions that ended, in whatever pool.
    pub(crate) fn transactions(&self) -> u64 {
        self.transactions
    }

    /// Nothing was asked of any pool.
    pub(crate) fn is_quiet(&self) -> bool {
        let is_idle = |step: &Step| step.in_use == 0 && step.waiters == 0;
        self.transactions == 0 && self.steps.values().flatten().all(is_idle)
    }

    /// The first look and the last.
    pub(crate) fn ends(&self) -> Option<(&Look, &Look)> {
        self.course.ends()
    }

    /// What happened over all of it.
    pub(crate) fn change(&self) -> Option<Change> {
        let (first, last) = self.ends()?;
        Change::between(first, last, self.lasts())
    }

    pub(crate) fn pools(&self) -> Vec<PoolWindow<'_>> {
        let (Some(mut whole), Some(last)) = (self.change(), self.look()) else { return Vec::new() };
        let pools = last.pools.iter().filter_map(|pool| {
            Some(PoolWindow {
                change: whole.pools.remove(&pool.id)?,
                last: pool,
                steps: self.steps.get(&pool.id)?.iter().filter(|step| !step.stands_still && !step.is_down).collect(),
                course: self.steps.get(&pool.id)?,
                bounds: &last.bucket_bounds_ms,
                lasts: self.lasts(),
                uptime: Duration::try_from_secs_f64(last.uptime_ms / 1e3).unwrap_or_default(),
                pooler: last.pooler,
                hides_pause: last.hides_pause,
            })
        });
        pools.collect()
    }
}

fn holder(client: &Client) -> Option<(u64, Holder)> {
    let stands = match client.state.as_str() {
        "waiting" => return None,
        "transaction" => Stands::InTransaction,
        "idle" => Stands::Idle,
        "held" => Stands::Unknown,
        _ => Stands::Working,
    };
    Some((client.pool?, Holder { id: client.id, stands, ms: client.state_ms }))
}

impl Step {
    fn new(at: Duration, lasts: Duration, pool: &Pool, change: &PoolChange, holders: Vec<Holder>) -> Self {
        let mut waited = Times::default();
        if pool.waiters > 0 {
            change.checkout.values().for_each(|times| waited.add(times));
        }
        Self {
            at,
            lasts,
            clients: pool.clients,
            waiters: pool.waiters,
            in_use: pool.servers.in_use,
            connecting: pool.servers.connecting,
            cleaned: pool.servers.checking.saturating_add(pool.servers.closing),
            open: pool.servers.total,
            created: change.created,
            making_ms: change.connect.values().map(|times| times.sum_ms).sum(),
            is_down: pool.unavailable_ms.is_some(),
            max_size: pool.max_size,
            stands_still: pool.paused || pool.drained,
            waited,
            hold: change.hold.clone(),
            holders,
            work: pool.work,
        }
    }

    /// How many steps without holders take as much.
    fn room(&self) -> usize {
        1 + self.holders.len() / HOLDERS_PER_STEP
    }

    /// Servers that are with a client, or have just been and are not free yet.
    pub(crate) fn taken(&self) -> u64 {
        self.in_use.saturating_add(self.cleaned)
    }

    /// True if all servers are taken and clients wait.
    pub(crate) fn is_full(&self) -> bool {
        self.waiters > 0 && self.taken() >= self.max_size
    }

    /// True if the source does not tell what some of the servers do.
    pub(crate) fn is_of_unknown_work(&self) -> bool {
        self.holders.iter().any(|holder| holder.stands == Stands::Unknown)
    }

    /// Of the holders, the share that stands so, at least: where too many are there to be listed, those who have stood
    /// longest are.
    pub(crate) fn share_of(&self, stands: Stands) -> Option<f64> {
        let some = self.holders.iter().filter(|holder| holder.stands == stands).count();
        let all = (self.holders.len() as u64).max(self.in_use);
        (!self.holders.is_empty()).then(|| some as f64 / all as f64)
    }
}

/// What people call a database. In the label that a Poolhouse has for a pool of Redis, the version of the protocol
/// stands behind it.
pub(crate) fn database_of(protocol: &str, label: &str) -> String {
    match label.strip_suffix("/resp3").filter(|_| protocol == "redis") {
        Some(number) => format!("{number} (RESP3)"),
        None => label.to_owned(),
    }
}

impl PoolWindow<'_> {
    pub(crate) fn name(&self) -> String {
        let database = database_of(&self.last.protocol, &self.last.database);
        match self.last.user.as_str() {
            "" => database,
            user => format!("{database} as {user}"),
        }
    }

    /// A time-out of its clients that is in force, in milliseconds, if it is told and not off.
    pub(crate) fn in_force(&self, key: Key) -> Option<f64> {
        match key {
            Key::TransactionIdleTime => self.last.settings.transaction_idle_time,
            Key::ClientIdleTime => self.last.settings.client_idle_time,
            Key::MaxIdleTime => self.last.settings.max_idle_time,
            Key::MaxSize | Key::MinSize => None,
        }
    }

    /// A time-out of its clients that is proposed; `None` if one that is as short is in force.
    pub(crate) fn shorter(&self, key: Key, to_ms: f64) -> Option<Setting> {
        let from = self.in_force(key);
        let shorter = from.is_none_or(|ms| ms > to_ms);
        shorter.then(|| Setting { key: self.key(key), from: from.map(setting_time), to: setting_time(to_ms) })
    }

    /// Most servers; of a pool that does not tell it, the most that were seen.
    pub(crate) fn size(&self) -> u64 {
        match self.last.max_size {
            0 => self.steps.iter().map(|step| step.open.max(step.in_use)).max().unwrap_or(0),
            most => most,
        }
    }

    /// The share of looks of which this holds, from 0 to 1.
    pub(crate) fn share(&self, holds: impl Fn(&Step) -> bool) -> f64 {
        let held = self.steps.iter().filter(|step| holds(step)).count();
        held as f64 / self.steps.len().max(1) as f64
    }

    /// The mean of something over the looks at which it is known.
    pub(crate) fn mean(&self, of: impl Fn(&Step) -> Option<f64>) -> Option<f64> {
        let known: Vec<f64> = self.steps.iter().filter_map(|step| of(step)).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    }

    /// The pooler's own name of a setting.
    pub(crate) fn key(&self, key: Key) -> &'static str {
        key.of(self.pooler)
    }

    /// By up to so much less than it took a hold is told, in milliseconds: HikariCP counts whole ones.
    pub(crate) fn coarse_ms(&self) -> f64 {
        if self.pooler == Pooler::HikariCp { 1.0 } else { 0.0 }
    }

    /// Transactions a second.
    pub(crate) fn rate(&self) -> f64 {
        self.change.transactions as f64 / self.lasts.as_secs_f64().max(1e-3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_that_are_new_at_each_look_are_bounded() {
        let mut window = Window::default();
        for n in 0..20u64 {
            let pool = |id| Pool { id, ..Pool::default() };
            let pools = (n * 300..n * 300 + 300).chain([u64::MAX]).map(pool).collect();
            let look = Look { pools, ..Look::default() };
            window.add(Observation { at: Duration::from_secs(n), look, holders: Vec::new() });
        }
        assert!(window.steps.len() <= MAX_POOLS, "{}", window.steps.len());
        assert_eq!((window.steps[&u64::MAX].len(), window.left_out()), (19, 0), "what stays is remembered");
    }

    #[test]
    fn a_pool_that_one_look_lacks_has_not_done_everything_anew_when_it_is_back() {
        let mut window = Window::default();
        for (n, done) in [Some(100), None, Some(150), Some(160), None, Some(170), Some(175)].into_iter().enumerate() {
            let pool = |done: u64| {
                let hold = Times { buckets: vec![done], sum_ms: done as f64 };
                Pool { id: 3, transactions: done, hold, ..Pool::default() }
            };
            let look = Look { pools: done.map(pool).into_iter().collect(), ..Look::default() };
            window.add(Observation { at: Duration::from_secs(n as u64), look, holders: Vec::new() });
        }
        let done: Vec<u64> = window.steps[&3].iter().map(|step| step.hold.count()).collect();
        assert_eq!((done, window.transactions()), (vec![10, 5], 15));
        assert_eq!(window.pools()[0].change.transactions, 75, "the first look and the last tell all of it");
    }

    #[test]
    fn looks_at_many_pools_come_to_an_end() {
        let mut window = Window::default();
        for n in 0..5 {
            let look = Look { pools: (0..9).map(|id| Pool { id, ..Pool::default() }).collect(), ..Look::default() };
            let holders = vec![Client { pool: Some(3), ..Client::default() }; 2 * HOLDERS_PER_STEP];
            window.add(Observation { at: Duration::from_secs(n), look, holders });
        }
        assert_eq!((window.kept, window.is_full()), (4 * (9 + 2), false));
        window.kept += MAX_STEPS - window.kept;
        assert!(window.is_full());
    }

    #[test]
    fn a_database_of_redis_is_called_by_its_number() {
        let called = |protocol| database_of(protocol, "3/resp3");
        assert_eq!((called("redis"), called("postgres")), ("3 (RESP3)".to_owned(), "3/resp3".to_owned()));
        assert_eq!(database_of("redis", "3"), "3");
    }

    #[test]
    fn too_many_pools_at_once_are_counted() {
        let mut window = Window::default();
        for n in 0..3 {
            let pools = (0..MAX_POOLS as u64 + 7).map(|id| Pool { id, ..Pool::default() }).collect();
            let look = Look { pools, ..Look::default() };
            window.add(Observation { at: Duration::from_secs(n), look, holders: Vec::new() });
        }
        assert_eq!((window.steps.len(), window.left_out(), window.pools().len()), (MAX_POOLS, 7, MAX_POOLS));
    }
}
