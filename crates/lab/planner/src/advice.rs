//! The settings to use: those that were found and simulated, and limits for clients that follow from them by
//! arithmetic. Numbers only; the reasons are told elsewhere.

use std::time::Duration;

use load::plan::{Plan, Shape, Spacing};
use serde::{Serialize, Serializer};

use crate::{
    facts::{Facts, poisson_quantile},
    question::Question,
    server::POLLING_MONITORS_PER_HOST,
    sizes::Sizes,
    upkeep::Upkeep,
};

/// Clients beyond those that are expected, as a share.
const CLIENT_ROOM: f64 = 0.25;
/// The soft limit as a share of the hard one.
const SOFT_SHARE: f64 = 0.8;
/// Nobody who has been idle for less is sent away, where nothing is said.
const EVICT_MIN_IDLE: Duration = Duration::from_secs(5);
/// How often there may be more of what needs a connection of its own than there are connections for.
const RARE: f64 = 0.001;

/// Settings for each instance, in the words of the pool core, and limits for clients. What cannot be told is null;
/// times are in seconds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Advice {
    /// Most connections of a pool.
    pub max_size: u32,
    /// Connections that are kept.
    pub min_size: u32,
    /// When an idle one is closed.
    #[serde(serialize_with = "seconds")]
    pub max_idle_time: Option<Duration>,
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
    /// Nobody who has been idle for less is sent away; null: nothing was said of that.
    #[serde(serialize_with = "seconds")]
    pub evict_min_idle: Option<Duration>,
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
    /// All of these, and those of the load: `max_size`.
    pub max_size: u32,
}

fn seconds<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(to)
}

impl Advice {
    /// These settings for a load.
    pub fn of(question: &Question, load: &Plan, sizes: &Sizes, upkeep: &Upkeep) -> Self {
        let real = |time: Duration| time.mul_f64(question.compression);
        let exclusive = question.exclusive.map(|needs| Exclusive::of(&needs, sizes.max_size));
        let max_size = exclusive.map_or(sizes.max_size, |needs| needs.max_size);
        let (soft_limit, hard_limit) =
            for_clients(question, load, max_size).map(|limits| (limits.soft, limits.hard)).unzip();
        Self {
            max_size,
            min_size: sizes.min_size,
            max_idle_time: sizes.max_idle_time.map(real),
            max_life_time: upkeep.max_life_time.map(real),
            max_wait_time: upkeep.max_wait_time,
            max_connecting: upkeep.max_connecting,
            instances: load.pool.instances,
            budget: question.spec.budget,
            soft_limit,
            hard_limit,
            evict_min_idle: load.poolhouse.as_ref().and_then(|wishes| wishes.evict_min_idle).map(real),
            client_idle_time: question.platform.map(|platform| platform.outlived()),
            exclusive,
        }
    }

    /// Connections of all instances together.
    pub fn in_all(&self) -> u64 {
        u64::from(self.max_size) * u64::from(self.instances)
    }
}

/// Limits for clients, and how many are expected.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ClientLimits {
    /// Clients on average, or at most, that cannot be sent away.
    pub expected: f64,
    /// Of those that come at random there are more at most once in a thousand moments; `None`: none comes at random.
    pub seldom: Option<u32>,
    /// From which on those idle longest are sent away.
    pub soft: u32,
    /// At which new ones are refused.
    pub hard: u32,
}

/// The limits for clients of a Poolhouse in front: where operations bring their own connections, for those that cannot
/// be sent away; where pools of so many connections do, for all of theirs.
pub fn for_clients(question: &Question, load: &Plan, max_size: u32) -> Option<ClientLimits> {
    let (expected, at_random) = match (load.pool.reuse, &load.shape) {
        (true, Shape::Closed { clients, .. }) if question.is_sweep => (f64::from(*clients), false),
        (true, _) => {
            // Those that watch a Poolhouse are its clients, too.
            let watching = question.spec.watchers.min(POLLING_MONITORS_PER_HOST);
            (f64::from(load.pool.instances) * (f64::from(max_size) + f64::from(watching)), false)
        }
        (false, Shape::Open { spacing, .. }) => {
            let evict = load.poolhouse.as_ref().and_then(|wishes| wishes.evict_min_idle);
            let evict = evict.map_or(EVICT_MIN_IDLE, |idle| idle.mul_f64(question.compression));
            let facts = Facts::of(question, load);
            // In a stall they stay for longer.
            let held_ms = facts.held_in_stall_ms.unwrap_or(facts.held_ms);
            let connect_ms = facts.connect_in_stall_ms.unwrap_or(facts.connect_ms);
            let stays = (held_ms + connect_ms) / 1e3 + evict.as_secs_f64();
            (facts.peak_rate? * stays, *spacing == Spacing::Poisson)
        }
        (false, _) => return None,
    };
    let seldom = at_random.then(|| poisson_quantile(expected, RARE));
    let soft = (expected * (1.0 + CLIENT_ROOM)).ceil().max(1.0).max(seldom.map_or(0.0, f64::from));
    Some(ClientLimits { expected, seldom, soft: soft as u32, hard: (soft / SOFT_SHARE).ceil() as u32 })
}

/// The limits for one Poolhouse in front of all instances that keep the pools they have: the larger of what is given
/// and what is recommended for each. `None`: nothing comes through a pool.
pub fn for_own_pools(question: &Question, load: &Plan, advised: u32) -> Option<ClientLimits> {
    let own = load.pool.config.max_size;
    load.pool.reuse.then(|| for_clients(question, load, own.max(advised))).flatten()
}

impl Exclusive {
    /// Beside a load that needs so many connections.
    fn of(needs: &crate::question::Exclusive, load: u32) -> Self {
        let at_once = |rate: f64, time: Duration| poisson_quantile(rate * time.as_secs_f64(), RARE);
        let blocking = at_once(needs.blocking_rate, needs.blocking_time);
        let transactions = at_once(needs.transaction_rate, needs.transaction_time);
        let subscribers = u32::from(needs.subscribers > 0);
        let max_size = [transactions, subscribers, load].into_iter().fold(blocking, u32::saturating_add);
        Self { blocking, transactions, subscribers, max_size }
    }
}
