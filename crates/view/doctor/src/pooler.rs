//! What looks at a running pooler tell of each pool. Of each look only what is needed is kept. Judges nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use admin_api::{Change, Client, Look, Observation, Pool, PoolChange, Pooler, Times, Work};

use crate::{
    finding::{Key, Setting},
    series::Series,
};

/// Pools whose steps are kept. Beyond that, pools that are gone are forgotten, and further ones are left out.
pub(crate) const MAX_POOLS: usize = 1_000;
/// Steps of all pools together: each is kept until the end.
pub(crate) const MAX_STEPS: usize = 500_000;
/// Holders of servers that take as much memory as a step.
const HOLDERS_PER_STEP: usize = 16;

/// All looks at one process, in order.
#[derive(Clone, Debug, Default)]
pub struct PoolerWindow {
    series: Series<Look>,
    /// By pool, one between two looks each.
    steps: BTreeMap<u64, Vec<Step>>,
    /// The memory of all steps, in steps without holders.
    memory_steps: usize,
    /// Transactions that ended in all pools, also in those that are gone.
    transactions: u64,
    /// Pools of the last look beyond [`MAX_POOLS`].
    left_out: usize,
    /// `/api/clients` at the end.
    pub clients: Vec<Client>,
}

/// A pool over the window.
pub(crate) struct PoolWindow<'w> {
    pub(crate) last: &'w Pool,
    /// What happened in the pool over the whole window.
    pub(crate) change: PoolChange,
    /// Steps at which the pool was neither paused nor drained, and its database could be reached.
    pub(crate) steps: Vec<&'w Step>,
    pub(crate) all_steps: &'w [Step],
    pub(crate) bounds_ms: &'w [f64],
    pub(crate) duration: Duration,
    /// How long the process has run.
    pub(crate) uptime: Duration,
    pub(crate) pooler: Pooler,
    /// The pooler does not tell when all pools are paused.
    pub(crate) hides_pause: bool,
}

/// What happened in a pool between two looks.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// The end, from the beginning of the window.
    pub(crate) at: Duration,
    pub(crate) duration: Duration,
    pub(crate) clients: u64,
    pub(crate) waiters: u64,
    pub(crate) in_use: u64,
    pub(crate) connecting: u64,
    /// Servers that are cleaned, checked or being closed: they are taken, too.
    pub(crate) cleaned: u64,
    /// Servers in every state.
    pub(crate) open: u64,
    pub(crate) max_size: u64,
    /// Connections made.
    pub(crate) created: u64,
    /// The time that making them took, all together.
    pub(crate) connect_ms: f64,
    /// The database could not be reached.
    pub(crate) is_down: bool,
    /// The pool was paused or drained.
    is_stopped: bool,
    /// How long clients waited for a server, by whichever path; kept only where some wait at the end.
    pub(crate) waited: Times,
    /// How long servers were held, of leases that ended.
    pub(crate) hold: Times,
    /// Clients that had a server at the end.
    pub(crate) holders: Vec<Holder>,
    /// What the servers did at the end, if the database was looked at, too.
    pub(crate) work: Option<Work>,
}

/// A client that has a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder {
    pub(crate) id: u64,
    pub(crate) state: HolderState,
    /// How long the client has been in that state.
    pub(crate) state_ms: f64,
}

/// What a client that has a server does with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HolderState {
    /// The client waits for an answer.
    Working,
    /// The client is in a transaction, and no statement is under way.
    InTransaction,
    /// Nothing is in progress.
    Idle,
    Unknown,
}

impl PoolerWindow {
    /// Adds the next look. False if it is at another process than those before: then the window begins anew with it.
    pub fn add(&mut self, observation: Observation) -> bool {
        let Observation { at, look, holders } = observation;
        let before = self.series.last_time().zip(self.series.last());
        let change = before.and_then(|(before, last)| Change::between(last, &look, at.saturating_sub(before)));
        let is_another = self.looks() > 0 && change.is_none();
        if is_another {
            *self = Self::default();
        }
        let have_come = change.as_ref().is_some_and(|change| change.logins > 0);
        if let Some(change) = change {
            self.add_steps(at, &look, change, &holders);
        }
        self.series.add(at, look, have_come);
        !is_another
    }

    fn add_steps(&mut self, at: Duration, look: &Look, mut change: Change, clients: &[Client]) {
        let ids = |look: &Look| look.pools.iter().map(|pool| pool.id).collect::<BTreeSet<u64>>();
        let (first, before) = self.first_and_last().map(|(first, last)| (ids(first), ids(last))).unwrap_or_default();
        // A pool that the look before lacked, and an earlier one had, is not new: its counters grew over more than this
        // step.
        change.pools.retain(|id, _| before.contains(id) || !(first.contains(id) || self.steps.contains_key(id)));
        let mut holders: BTreeMap<u64, Vec<Holder>> = BTreeMap::new();
        for (pool, holder) in clients.iter().filter_map(read_holder) {
            holders.entry(pool).or_default().push(holder);
        }
        let ended = admin_api::sum(change.pools.values().map(|pool| &pool.transactions));
        self.transactions = self.transactions.saturating_add(ended);
        self.forget_gone_pools(look);
        self.left_out = usize::try_from(look.pools_left_out).unwrap_or(usize::MAX);
        for pool in &look.pools {
            let Some(own) = change.pools.get(&pool.id) else { continue };
            if self.steps.len() >= MAX_POOLS && !self.steps.contains_key(&pool.id) {
                self.left_out = self.left_out.saturating_add(1);
                continue;
            }
            let step = Step::new(at, change.duration, pool, own, holders.remove(&pool.id).unwrap_or_default());
            self.memory_steps += step.memory_steps();
            self.steps.entry(pool.id).or_default().push(step);
        }
    }

    /// Forgets pools that are gone, if there are many.
    fn forget_gone_pools(&mut self, look: &Look) {
        let new = look.pools.iter().filter(|pool| !self.steps.contains_key(&pool.id)).count();
        if self.steps.len() + new > MAX_POOLS {
            let here: BTreeSet<u64> = look.pools.iter().map(|pool| pool.id).collect();
            self.steps.retain(|id, _| here.contains(id));
            self.memory_steps = self.steps.values().flatten().map(Step::memory_steps).sum();
        }
    }

    /// No more looks can be kept.
    pub fn is_at_memory_limit(&self) -> bool {
        self.memory_steps >= MAX_STEPS
    }

    /// Pools beyond those of which steps are kept.
    pub(crate) fn left_out(&self) -> usize {
        self.left_out
    }

    pub fn looks(&self) -> usize {
        self.series.looks()
    }

    /// The time from the first look to the last.
    pub fn duration(&self) -> Duration {
        self.series.duration()
    }

    pub(crate) fn last(&self) -> Option<&Look> {
        self.series.last()
    }

    /// The share of looks before which clients had come.
    pub(crate) fn arrival_share(&self) -> f64 {
        self.series.arrival_share()
    }

    /// Transactions that ended in all pools.
    pub(crate) fn transactions(&self) -> u64 {
        self.transactions
    }

    /// No pool had anything to do.
    pub(crate) fn is_quiet(&self) -> bool {
        let is_idle = |step: &Step| step.in_use == 0 && step.waiters == 0;
        self.transactions == 0 && self.steps.values().flatten().all(is_idle)
    }

    pub(crate) fn first_and_last(&self) -> Option<(&Look, &Look)> {
        self.series.first_and_last()
    }

    /// What happened from the first look to the last.
    pub(crate) fn change(&self) -> Option<Change> {
        let (first, last) = self.first_and_last()?;
        Change::between(first, last, self.duration())
    }

    pub(crate) fn pools(&self) -> Vec<PoolWindow<'_>> {
        let (Some(mut whole), Some(last)) = (self.change(), self.last()) else { return Vec::new() };
        let pools = last.pools.iter().filter_map(|pool| {
            let all_steps = self.steps.get(&pool.id)?;
            Some(PoolWindow {
                change: whole.pools.remove(&pool.id)?,
                last: pool,
                steps: all_steps.iter().filter(|step| !step.is_stopped && !step.is_down).collect(),
                all_steps,
                bounds_ms: &last.bucket_bounds_ms,
                duration: self.duration(),
                uptime: Duration::try_from_secs_f64(last.uptime_ms / 1e3).unwrap_or_default(),
                pooler: last.pooler,
                hides_pause: last.hides_pause,
            })
        });
        pools.collect()
    }
}

/// The pool of a client that has a server, and what the client does; `None` if it has none.
fn read_holder(client: &Client) -> Option<(u64, Holder)> {
    let state = match client.state.as_str() {
        "waiting" => return None,
        "transaction" => HolderState::InTransaction,
        "idle" => HolderState::Idle,
        "held" => HolderState::Unknown,
        _ => HolderState::Working,
    };
    Some((client.pool?, Holder { id: client.id, state, state_ms: client.state_ms }))
}

impl Step {
    fn new(at: Duration, duration: Duration, pool: &Pool, change: &PoolChange, holders: Vec<Holder>) -> Self {
        let mut waited = Times::default();
        if pool.waiters > 0 {
            change.checkout.values().for_each(|times| waited.add(times));
        }
        Self {
            at,
            duration,
            clients: pool.clients,
            waiters: pool.waiters,
            in_use: pool.servers.in_use,
            connecting: pool.servers.connecting,
            cleaned: pool.servers.checking.saturating_add(pool.servers.closing),
            open: pool.servers.total,
            created: change.created,
            connect_ms: change.connect.values().map(|times| times.sum_ms).sum(),
            is_down: pool.unavailable_ms.is_some(),
            max_size: pool.max_size,
            is_stopped: pool.paused || pool.drained,
            waited,
            hold: change.hold.clone(),
            holders,
            work: pool.work,
        }
    }

    /// Its memory, in steps without holders.
    fn memory_steps(&self) -> usize {
        1 + self.holders.len() / HOLDERS_PER_STEP
    }

    /// Servers that are with a client, or have just been and are not free yet.
    pub(crate) fn taken(&self) -> u64 {
        self.in_use.saturating_add(self.cleaned)
    }

    /// Servers that clients have or want.
    pub(crate) fn wanted(&self) -> u64 {
        self.taken().saturating_add(self.waiters)
    }

    /// All servers are taken, and clients wait.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.waiters > 0 && self.taken() >= self.max_size
    }

    /// The work of the pool's sessions, where the database showed some.
    pub(crate) fn session_work(&self) -> Option<Work> {
        self.work.filter(|work| work.sessions > 0)
    }

    pub(crate) fn has_unknown_holders(&self) -> bool {
        self.holders_in(HolderState::Unknown).next().is_some()
    }

    pub(crate) fn holders_in(&self, state: HolderState) -> impl Iterator<Item = &Holder> {
        self.holders.iter().filter(move |holder| holder.state == state)
    }

    /// The share of holders in a state, at least: where too many are there to be listed, the list has those that have
    /// been in their state longest.
    pub(crate) fn share_of(&self, state: HolderState) -> Option<f64> {
        let all = (self.holders.len() as u64).max(self.in_use);
        (!self.holders.is_empty()).then(|| self.holders_in(state).count() as f64 / all as f64)
    }
}

/// What people call a database. A Poolhouse labels a pool of Redis with the database's number and the version of the
/// protocol.
fn name_database(protocol: &str, label: &str) -> String {
    match label.strip_suffix("/resp3").filter(|_| protocol == "redis") {
        Some(number) => format!("{number} (RESP3)"),
        None => label.to_owned(),
    }
}

impl PoolWindow<'_> {
    pub(crate) fn name(&self) -> String {
        let database = name_database(&self.last.protocol, &self.last.database);
        match self.last.user.as_str() {
            "" => database,
            user => format!("{database} as {user}"),
        }
    }

    /// The milliseconds of a time-out in force; `None` if it is off or unknown.
    pub(crate) fn timeout_ms(&self, key: Key) -> Option<f64> {
        match key {
            Key::TransactionIdleTime => self.last.settings.transaction_idle_time,
            Key::ClientIdleTime => self.last.settings.client_idle_time,
            Key::MaxIdleTime => self.last.settings.max_idle_time,
            Key::MaxSize | Key::MinSize => None,
        }
    }

    /// A shorter time-out; `None` if the one in force is as short.
    pub(crate) fn shorten(&self, key: Key, to_ms: f64) -> Option<Setting> {
        Setting::shorten(self.key(key), self.timeout_ms(key), to_ms)
    }

    /// Most servers; of a pool that does not tell its size, the most that were seen.
    pub(crate) fn size(&self) -> u64 {
        match self.last.max_size {
            0 => self.steps.iter().map(|step| step.open.max(step.in_use)).max().unwrap_or(0),
            size => size,
        }
    }

    /// The share of steps of which this holds, from 0 to 1.
    pub(crate) fn share(&self, holds: impl Fn(&Step) -> bool) -> f64 {
        self.steps.iter().filter(|step| holds(step)).count() as f64 / self.steps.len().max(1) as f64
    }

    pub(crate) fn share_with_waiters(&self) -> f64 {
        self.share(|step| step.waiters > 0)
    }

    /// The mean of a figure over the steps at which it is known.
    pub(crate) fn mean(&self, of: impl Fn(&Step) -> Option<f64>) -> Option<f64> {
        let known: Vec<f64> = self.steps.iter().filter_map(|step| of(step)).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    }

    /// The mean number of servers in use while any was.
    pub(crate) fn mean_in_use(&self) -> f64 {
        self.mean(|step| (step.in_use > 0).then_some(step.in_use as f64)).unwrap_or(0.0)
    }

    /// The largest value of a figure over the steps.
    pub(crate) fn max(&self, of: fn(&Step) -> u64) -> u64 {
        self.steps.iter().map(|step| of(step)).max().unwrap_or(0)
    }

    /// The pooler's own name of a setting.
    pub(crate) fn key(&self, key: Key) -> &'static str {
        key.of(self.pooler)
    }

    /// The error of a hold time, which may be too short by this: HikariCP counts whole milliseconds.
    pub(crate) fn hold_error_ms(&self) -> f64 {
        if self.pooler == Pooler::HikariCp { 1.0 } else { 0.0 }
    }

    /// Transactions a second.
    pub(crate) fn rate(&self) -> f64 {
        self.change.transactions as f64 / self.duration.as_secs_f64().max(1e-3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_that_are_new_at_each_look_are_bounded() {
        let mut window = PoolerWindow::default();
        for n in 0..20u64 {
            let pool = |id| Pool { id, ..Pool::default() };
            let pools = (n * 300..n * 300 + 300).chain([u64::MAX]).map(pool).collect();
            let look = Look { pools, ..Look::default() };
            window.add(Observation { at: Duration::from_secs(n), look, holders: Vec::new() });
        }
        assert!(window.steps.len() <= MAX_POOLS, "{}", window.steps.len());
        assert_eq!((window.steps[&u64::MAX].len(), window.left_out()), (19, 0), "the pool that stays is remembered");
    }

    #[test]
    fn counters_of_a_pool_that_one_look_lacks_are_not_counted_again() {
        let mut window = PoolerWindow::default();
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
    fn steps_of_many_pools_are_bounded() {
        let mut window = PoolerWindow::default();
        for n in 0..5 {
            let look = Look { pools: (0..9).map(|id| Pool { id, ..Pool::default() }).collect(), ..Look::default() };
            let holders = vec![Client { pool: Some(3), ..Client::default() }; 2 * HOLDERS_PER_STEP];
            window.add(Observation { at: Duration::from_secs(n), look, holders });
        }
        assert_eq!((window.memory_steps, window.is_at_memory_limit()), (4 * (9 + 2), false));
        window.memory_steps += MAX_STEPS - window.memory_steps;
        assert!(window.is_at_memory_limit());
    }

    #[test]
    fn a_database_of_redis_is_called_by_its_number() {
        assert_eq!(name_database("redis", "3/resp3"), "3 (RESP3)");
        assert_eq!(name_database("postgres", "3/resp3"), "3/resp3");
        assert_eq!(name_database("redis", "3"), "3");
    }

    #[test]
    fn too_many_pools_at_once_are_counted() {
        let mut window = PoolerWindow::default();
        for n in 0..3 {
            let pools = (0..MAX_POOLS as u64 + 7).map(|id| Pool { id, ..Pool::default() }).collect();
            let look = Look { pools, ..Look::default() };
            window.add(Observation { at: Duration::from_secs(n), look, holders: Vec::new() });
        }
        assert_eq!((window.steps.len(), window.left_out(), window.pools().len()), (MAX_POOLS, 7, MAX_POOLS));
    }
}
