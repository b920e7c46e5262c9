//! Schedules of the toy for a cluster: its pools, and what is drawn for each seed.

mod speech;

use std::{sync::Arc, time::Duration};

use driver::{PoolSpec, Upstreams};
use pool::PoolConfig;
use seam::PoolId;

use super::{Bounds, Done, House, Most, RAW_CLIENT, Site, World, drawn};
use crate::{
    databases::{Database, cluster as model},
    network::{HostId, Network},
    random::Rng,
    toys::{cluster::Cluster, topology::HOSTS},
};

use speech::Voice;

/// A host that was away is watched again after so long at the latest.
const SOON: Duration = Duration::from_secs(2);

/// A pool for each host, and one for its monitor.
struct Doors {
    config: PoolConfig,
}

impl Upstreams for Doors {
    fn spec(&self, pool: PoolId) -> Option<PoolSpec> {
        let (pool, hosts) = (pool.0, HOSTS as u32);
        let watch = PoolConfig { min_size: 1, max_size: 1, ..self.config.clone() };
        let config = if pool >= hosts { watch } else { self.config.clone() };
        // Its sessions know pools by their hosts, so that none is forgotten.
        Some(drawn::spec_at((pool % hosts) as HostId, "cluster".into(), config))
    }

    fn forget(&self, _: PoolId) -> bool {
        false
    }

    fn at_start(&self) -> Vec<PoolId> {
        (HOSTS..2 * HOSTS).map(|pool| PoolId(pool as u32)).collect()
    }
}

/// Plays the schedule of a seed. `said`: a single raw client comes, and says these bytes.
///
/// # Panics
/// When anything is not as it must be.
pub fn play(seed: u64, bounds: Bounds, said: Option<&[u8]>, trace: bool) -> Done {
    let mut rng = Rng::new(seed);
    let players = (1 + rng.index(5)).min(bounds.players);
    let raw_clients = drawn::raw_clients(&mut rng, bounds).max(usize::from(said.is_some()));
    let scarce = bounds.faults && rng.percent(20);
    let max_size = if scarce { 1 } else { rng.pick(&[1, 2, (players + raw_clients) as u32 + 1]) };
    // Longer than a host refuses where no client may feel it.
    let unavailable_wait_time = Some(Duration::from_millis(rng.pick(&[600, 2000])));
    let mut config = PoolConfig { unavailable_wait_time, ..drawn::pool(&mut rng, max_size) };
    if scarce {
        config.max_wait_time = Some(Duration::from_millis(rng.pick(&[1, 5, 20])));
        config.max_waiters = rng.pick(&[0, 1]);
    }
    let doors = Arc::new(Doors { config });
    let conditions = drawn::conditions(&mut rng, bounds);
    let network = Network::new(rng.next(), conditions);
    let rules = drawn::rules(&mut rng);
    let chaos = drawn::chaos(&mut rng, bounds);
    let house = House::new(Cluster::default(), doors, rules, &network, &mut rng);
    let players = drawn::players(&mut rng, bounds, players, Voice::new);
    let raw_clients = drawn::raw_clients_sending(said, raw_clients, Voice::new(RAW_CLIENT), &mut rng);
    let mut site = Site::new(model::Cluster::new(), trace);
    site.speak(&network);
    let mut world = World::new(
        (house, network, site),
        (players, raw_clients),
        chaos,
        Most { servers: (max_size as usize + 1) * HOSTS, unsent: 1 << 10 },
        rng,
        trace,
    );
    world.scarce = scarce;
    world.soon = SOON;
    world.done.faults = u64::from(scarce);
    world.play(|database| {
        if database.open().is_empty() {
            // The workers have ended, and their monitors with them.
            return Vec::new();
        }
        let watched = database.watched();
        (watched != HOSTS).then(|| format!("{watched} sessions watch the hosts")).into_iter().collect()
    })
}
