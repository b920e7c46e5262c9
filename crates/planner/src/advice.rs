//! The settings to use: those that were found, and those that follow from them by arithmetic. Numbers only; the reasons are told elsewhere.

use std::time::Duration;

use bench::{
    plan::{Plan, Shape},
    result::BenchResult,
};
use serde::{Serialize, Serializer};

use crate::{
    facts::{Facts, poisson_quantile},
    question::Question,
    search::Sizes,
};

/// How long a connection lives where nothing speaks for another time: long beside everything that one costs, short beside a deployment.
const LIFE_TIME: Duration = Duration::from_secs(30 * 60);
/// Waiting times that one can remember, in milliseconds.
const WAITS: [u64; 7] = [500, 1000, 2000, 5000, 10_000, 20_000, 30_000];
/// So many times the longest wait that is expected.
const WAIT_FACTOR: f64 = 2.0;
/// Most connections that are worth being made at a time.
const MOST_CONNECTING: u32 = 16;
/// Clients beyond those that are expected, as a share.
const CLIENT_ROOM: f64 = 0.25;
/// The soft limit as a share of the hard one.
const SOFT_SHARE: f64 = 0.8;
/// Nobody who has been idle for less is sent away, where nothing is said.
const EVICT_MIN_IDLE: Duration = Duration::from_secs(5);
/// How often there may be more of what needs a connection of its own than there are connections for.
const RARE: f64 = 0.001;

/// Settings for each instance, in the words of the pool core, and limits for clients. What cannot be told is null; times are in seconds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Advice {
    /// Most connections of a pool.
    pub max_size: u32,
    /// Connections that are kept.
    pub min_size: u32,
    /// When an idle one is closed.
    #[serde(serialize_with = "seconds")]
    pub max_idle_time: Option<Duration>,
    /// When one is replaced.
    #[serde(serialize_with = "seconds")]
    pub max_life_time: Option<Duration>,
    /// How long an operation waits for one.
    #[serde(serialize_with = "seconds")]
    pub max_wait_time: Option<Duration>,
    /// Most that are being made at a time.
    pub max_connecting: u32,
    /// Instances, each with such a pool.
    pub instances: u32,
    /// Connections that all of them may have together, as pools of one Poolhouse.
    pub budget: Option<u32>,
    /// Clients from which on those idle longest are sent away.
    pub soft_limit: Option<u32>,
    /// Clients at which new ones are refused.
    pub hard_limit: Option<u32>,
    /// An idle client is closed after this.
    #[serde(serialize_with = "seconds")]
    pub client_idle_time: Option<Duration>,
    /// Connections of a Redis that are not shared.
    pub exclusive: Option<Exclusive>,
}

/// Connections of a Redis that are not shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Exclusive {
    /// For blocking commands, so many that more are under way at most once in a thousand moments.
    pub blocking: u32,
    /// The same for transactions.
    pub transactions: u32,
    /// For all subscribers together.
    pub subscribers: u32,
    /// All of these, and one for the clients that share: `max_size` at least.
    pub max_size: u32,
}

fn seconds<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(to)
}

impl Advice {
    /// What follows from these sizes, which have led to these results for a load.
    pub fn of(question: &Question, load: &Plan, facts: &Facts, sizes: &Sizes, results: &[&BenchResult]) -> Self {
        let config = &load.pool.config;
        let real = |time: Duration| time.mul_f64(question.compression);
        let max_wait_time = wait_time(config.max_wait_time, facts, results);
        let exclusive = question.exclusive.map(|needs| Exclusive::of(&needs));
        let max_size = exclusive.map_or(sizes.max_size, |needs| sizes.max_size.max(needs.max_size));
        let (soft_limit, hard_limit) = client_limits(question, load, max_size).unzip();
        Self {
            max_size,
            min_size: sizes.min_size,
            max_idle_time: sizes.max_idle_time.map(real),
            max_life_time: Some(config.max_life_time.map_or(LIFE_TIME, real)),
            max_wait_time,
            max_connecting: connecting(config.max_connecting, facts, sizes, max_wait_time.unwrap_or(Duration::MAX)),
            instances: load.pool.instances,
            budget: question.spec.budget,
            soft_limit,
            hard_limit,
            client_idle_time: question.platform.map(|platform| platform.outlived()),
            exclusive,
        }
    }

    /// Connections of all instances together.
    pub fn in_all(&self) -> u64 {
        u64::from(self.max_size) * u64::from(self.instances)
    }
}

/// A wait that is easily remembered, twice as long as all but one of 1,000 were, and no shorter than the longest: with it nobody fails who
/// did not fail with the given one, and nobody waits for longer than that allows.
fn wait_time(given: Option<Duration>, facts: &Facts, results: &[&BenchResult]) -> Option<Duration> {
    let waits = results.iter().filter_map(|result| result.total.pool_wait_ms.as_ref());
    let waited =
        waits.fold(facts.connect_ms * WAIT_FACTOR, |most, waits| most.max(waits.p999 * WAIT_FACTOR).max(waits.max));
    let remembered = WAITS.into_iter().find(|ms| *ms as f64 >= waited).map(Duration::from_millis);
    [remembered, given].into_iter().flatten().min()
}

/// So many at a time that a pool has grown before somebody has waited for half of what one may wait.
fn connecting(given: u32, facts: &Facts, sizes: &Sizes, max_wait: Duration) -> u32 {
    let missing = sizes.max_size - sizes.min_size;
    let fast = |at_a_time: &u32| facts.growing(missing, *at_a_time) <= max_wait / 2;
    // More at a time than keep the server's processors busy are made no faster.
    let busy = facts.connects_per_s.map_or(MOST_CONNECTING, |most| (most * facts.connect_ms / 1e3).ceil() as u32);
    (given..=MOST_CONNECTING).find(fast).unwrap_or(MOST_CONNECTING.min(busy).max(given))
}

/// The soft and the hard limit of a Poolhouse in front: where operations bring their own connections, for those that cannot be sent away;
/// where pools do, for all of theirs.
fn client_limits(question: &Question, load: &Plan, max_size: u32) -> Option<(u32, u32)> {
    let expected = match (load.pool.reuse, &load.shape) {
        (true, Shape::Closed { clients, .. }) if question.is_sweep => f64::from(*clients),
        (true, _) => f64::from(load.pool.instances) * f64::from(max_size),
        (false, Shape::Open { .. }) => {
            let evict = load.poolhouse.as_ref().and_then(|wishes| wishes.evict_min_idle).unwrap_or(EVICT_MIN_IDLE);
            let stays = question.spec.held(&load.faults) + question.spec.connecting(&load.faults) + evict;
            Facts::of(question, load).peak_rate? * stays.as_secs_f64()
        }
        (false, _) => return None,
    };
    let soft = (expected * (1.0 + CLIENT_ROOM)).ceil().max(1.0);
    Some((soft as u32, (soft / SOFT_SHARE).ceil() as u32))
}

impl Exclusive {
    fn of(needs: &crate::question::Exclusive) -> Self {
        let at_once = |rate: f64, time: Duration| poisson_quantile(rate * time.as_secs_f64(), RARE);
        let blocking = at_once(needs.blocking_rate, needs.blocking_time);
        let transactions = at_once(needs.transaction_rate, needs.transaction_time);
        let subscribers = u32::from(needs.subscribers > 0);
        let max_size = [transactions, subscribers, 1].into_iter().fold(blocking, u32::saturating_add);
        Self { blocking, transactions, subscribers, max_size }
    }
}

/// The limits for clients of a load that has no pool.
pub fn for_clients(question: &Question, load: &Plan) -> Option<(u32, u32)> {
    client_limits(question, load, 0)
}
