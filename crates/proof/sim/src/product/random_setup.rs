//! Draws the parts of a schedule that all protocols have: the settings of the pool, the network, workers, clients,
//! faults.

use std::time::Duration;

use driver::{DriverConfig, PoolSpec, Timeouts};
use pool::{GateConfig, PoolConfig};

use super::{
    Bounds,
    checked_protocol::CheckedProtocol,
    client::{Client, Size},
    faults::FaultPlan,
    raw_client::RawClient,
};
use crate::{
    harness::{Rules, pool_spec},
    network::{Conditions, HostId},
    random::Rng,
};

/// Unused pools are forgotten this early, so that every schedule meets it.
const UNUSED_AFTER: Duration = Duration::from_millis(1);

/// Settings of a pool of this size, whose servers are short-lived in some schedules. Waits are long enough for every
/// client to get a server.
pub(super) fn pool(rng: &mut Rng, max_size: u32) -> PoolConfig {
    PoolConfig {
        max_size,
        max_connecting: 1 + rng.below(2) as u32,
        max_idle_time: rng.percent(30).then_some(Duration::from_millis(40)),
        max_life_time: rng.percent(20).then_some(Duration::from_millis(150)),
        max_wait_time: Some(Duration::from_secs(60)),
        unavailable_wait_time: Some(Duration::from_secs(30)),
        check_after_idle: rng.percent(30).then_some(Duration::from_millis(5)),
        connect_timeout: Duration::from_millis(500),
        backoff_min: Duration::from_millis(2),
        backoff_max: Duration::from_millis(50),
        ..PoolConfig::default()
    }
}

pub(super) fn clients<S: CheckedProtocol>(
    rng: &mut Rng,
    bounds: Bounds,
    count: usize,
    protocol: impl Fn(usize) -> S,
) -> Vec<Client<S>> {
    let made = |number: usize| {
        let (connections, requests) = (rng.pick(&[1, 1, 2, 4]), rng.pick(&[3, 6, 12, 24]));
        let size = Size { connections: connections.min(bounds.connections), requests: requests.min(bounds.requests) };
        Client::new(number, protocol(number), size, Rng::new(rng.next()))
    };
    (0..count).map(made).collect()
}

/// One raw client that sends `raw_bytes`, or `count` that send damaged requests.
pub(super) fn raw_clients(
    raw_bytes: Option<&[u8]>,
    count: usize,
    mut protocol: impl CheckedProtocol,
    rng: &mut Rng,
) -> Vec<RawClient> {
    match raw_bytes {
        Some(bytes) => vec![RawClient::sending(&mut protocol, bytes, Rng::new(rng.next()))],
        None => (0..count).map(|_| RawClient::damaged(&mut protocol, Rng::new(rng.next()))).collect(),
    }
}

/// A pool of this host.
pub(super) fn spec_at(host: HostId, database: String, config: PoolConfig) -> PoolSpec {
    let caps = vec![("all".into(), 0)];
    PoolSpec { caps, forget_after: Some(UNUSED_AFTER), ..pool_spec("sim", database, host, config) }
}

/// Draws how many raw clients a schedule has.
pub(super) fn raw_client_count(rng: &mut Rng, bounds: Bounds) -> usize {
    let drawn = if rng.percent(30) { 1 + rng.index(3) } else { 0 };
    if bounds.raw_clients { drawn } else { 0 }
}

/// A network, quick or slow.
pub(super) fn conditions(rng: &mut Rng, bounds: Bounds) -> Conditions {
    let drawn = Conditions {
        delay: Duration::from_micros(rng.pick(&[1, 30, 1000])),
        pieces: rng.pick(&[0, 10, 60]),
        window: rng.pick(&[64 << 10, 64 << 10, 700]),
        short_reads: rng.pick(&[0, 10]),
    };
    let calm = Conditions { delay: Duration::from_micros(1), pieces: 0, window: 64 << 10, short_reads: 0 };
    if bounds.bad_network { drawn } else { calm }
}

/// One to three workers, and a gate with room for all.
pub(super) fn rules(rng: &mut Rng) -> Rules {
    let workers = 1 + rng.index(3);
    Rules {
        driver: DriverConfig { workers, buffer_size: rng.pick(&[512, 4096]), ..DriverConfig::default() },
        gate: GateConfig { soft_limit: 100, hard_limit: 100, evict_min_idle: Duration::from_secs(60) },
        timeouts: Timeouts::default(),
        proxies: Vec::new(),
    }
}

/// Faults in three of four schedules, in a third of these only ones that no client may notice; and a drain while
/// clients still come in one of eight.
pub(super) fn fault_plan(rng: &mut Rng, bounds: Bounds) -> FaultPlan {
    let mean_interval = rng.percent(75).then(|| Duration::from_millis(20 + rng.below(200)));
    let drain = rng.percent(12).then(|| rng.exponential(Duration::from_millis(60)));
    let (mean_interval, drain) = if bounds.faults { (mean_interval, drain) } else { (None, None) };
    let (unnoticeable, delay_per_myriad) = (rng.percent(33), rng.pick(&[0, 0, 20, 100]));
    FaultPlan { mean_interval, unnoticeable, delay_per_myriad, drain, orders: false, departures: None }
}
