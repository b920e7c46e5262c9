//! The recommended settings: those that were found and simulated, and limits for clients that follow from them by
//! arithmetic.

use std::time::Duration;

use load::plan::{Plan, Shape, Spacing};
use serde::Serialize;

use crate::{
    facts::{Facts, rare_peak},
    front::DEFAULT_EVICT_MIN_IDLE,
    question::Question,
    server::POLLING_MONITORS_PER_HOST,
    sizes::{Sizes, seconds},
    upkeep::Upkeep,
};

/// Share of the expected clients by which the soft limit is higher.
const CLIENT_RESERVE: f64 = 0.25;
/// The advised soft limit as a share of the hard limit.
const ADVISED_SOFT_SHARE: f64 = 0.8;

/// Settings of the pool of each instance, and limits for clients. Unknown settings are null; times are in seconds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Advice {
    pub max_size: u32,
    pub min_size: u32,
    #[serde(serialize_with = "seconds")]
    pub max_idle_time: Option<Duration>,
    #[serde(serialize_with = "seconds")]
    pub max_life_time: Option<Duration>,
    #[serde(serialize_with = "seconds")]
    pub max_wait_time: Option<Duration>,
    pub max_connecting: u32,
    /// Instances, each with such a pool.
    pub instances: u32,
    /// Limit that all pools share, as pools of one Poolhouse.
    pub budget: Option<u32>,
    /// Clients above which the ones idle longest are evicted.
    pub soft_limit: Option<u32>,
    /// Clients above which new ones are rejected.
    pub hard_limit: Option<u32>,
    /// The given idle time before a client may be evicted.
    #[serde(serialize_with = "seconds")]
    pub evict_min_idle: Option<Duration>,
    #[serde(serialize_with = "seconds")]
    pub client_idle_time: Option<Duration>,
}

impl Advice {
    pub fn of(question: &Question, load: &Plan, sizes: &Sizes, upkeep: &Upkeep) -> Self {
        let real_time = |time: Duration| time.mul_f64(question.compression);
        let (soft_limit, hard_limit) =
            client_limits(question, load, sizes.max_size).map(|limits| (limits.soft, limits.hard)).unzip();
        Self {
            max_size: sizes.max_size,
            min_size: sizes.min_size,
            max_idle_time: sizes.max_idle_time.map(real_time),
            max_life_time: upkeep.max_life_time.map(real_time),
            max_wait_time: upkeep.max_wait_time,
            max_connecting: upkeep.max_connecting,
            instances: load.pool.instances,
            budget: question.spec.budget,
            soft_limit,
            hard_limit,
            evict_min_idle: load.poolhouse.as_ref().and_then(|wishes| wishes.evict_min_idle).map(real_time),
            client_idle_time: question.platform.map(|platform| platform.safe_client_idle_time()),
        }
    }

    /// The sum of the `max_size` of all instances.
    pub fn total_max_size(&self) -> u64 {
        u64::from(self.max_size) * u64::from(self.instances)
    }

    /// The most connections of all instances together.
    pub fn max_connections(&self) -> u64 {
        self.total_max_size().min(self.budget.map_or(u64::MAX, u64::from))
    }
}

/// Limits for the clients of a Poolhouse in front.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ClientLimits {
    /// Expected clients that cannot be evicted: the mean with random arrivals, otherwise the most.
    pub expected: f64,
    /// With random arrivals, the 99.9th percentile of concurrent clients.
    pub rare_peak: Option<u32>,
    pub soft: u32,
    pub hard: u32,
}

/// The limits for clients of a Poolhouse in front. Its clients are the connections of pools of `max_size`, or one for
/// each operation. `None`: the load says nothing about the number of clients.
pub fn client_limits(question: &Question, load: &Plan, max_size: u32) -> Option<ClientLimits> {
    let (expected, at_random) = match (load.pool.reuse, &load.shape) {
        (true, Shape::Closed { clients, .. }) if question.is_sweep => (f64::from(*clients), false),
        (true, _) => {
            // Monitoring connections are clients of the Poolhouse, too.
            let watching = question.spec.monitors_per_instance.min(POLLING_MONITORS_PER_HOST);
            (f64::from(load.pool.instances) * (f64::from(max_size) + f64::from(watching)), false)
        }
        (false, Shape::Open { spacing, .. }) => {
            let evict = load.poolhouse.as_ref().and_then(|wishes| wishes.evict_min_idle);
            let evict = evict.map_or(DEFAULT_EVICT_MIN_IDLE, |idle| idle.mul_f64(question.compression));
            let facts = Facts::of(question, load);
            // In a stall, clients stay for longer.
            let held_ms = facts.held_in_stall_ms.unwrap_or(facts.held_ms);
            let connect_ms = facts.connect_in_stall_ms.unwrap_or(facts.connect_ms);
            let stays = (held_ms + connect_ms) / 1e3 + evict.as_secs_f64();
            (facts.peak_rate? * stays, *spacing == Spacing::Poisson)
        }
        (false, _) => return None,
    };
    let rare_peak = at_random.then(|| rare_peak(expected));
    let soft = (expected * (1.0 + CLIENT_RESERVE)).ceil().max(1.0).max(rare_peak.map_or(0.0, f64::from));
    Some(ClientLimits { expected, rare_peak, soft: soft as u32, hard: (soft / ADVISED_SOFT_SHARE).ceil() as u32 })
}

/// The limits for clients of one Poolhouse in front of all instances, whose pools have the given or the recommended
/// size, whichever is larger. `None`: the load has no pool.
pub fn client_limits_of_pools(question: &Question, load: &Plan, recommended: u32) -> Option<ClientLimits> {
    let given = load.pool.config.max_size;
    load.pool.reuse.then(|| client_limits(question, load, given.max(recommended))).flatten()
}
