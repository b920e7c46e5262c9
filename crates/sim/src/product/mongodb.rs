//! Schedules of the MongoDB sessions: who may log in, a pool for each host and one for its monitor, and what is drawn
//! for each seed.

mod programs;
mod speech;
mod texts;

use std::{sync::Arc, time::Duration};

use driver::{PoolSpec, Upstreams};
use mongodb::{Directory, MongoDb, ServerLogin, Verifier, Welcome};
use pool::PoolConfig;
use protocol::{Encryption, Origin, PoolId};

use super::{Bounds, Done, House, Most, RAW_CLIENT, Site, World, drawn};
use crate::{
    databases::{Database, mongodb as model},
    network::{HostId, Network},
    random::Rng,
};

use speech::Voice;

/// After a fault an election may take 1.5 seconds, and each host is asked every second what it is.
const AFTERMATH: Duration = Duration::from_secs(4);

/// By then every host is watched again.
const SOON: Duration = Duration::from_secs(5);

/// Hosts are asked every second what they are.
const UNWATCHED: Duration = Duration::from_secs(2);

/// How long clients wait for a host that can serve them.
const PATIENCE: Duration = Duration::from_secs(2);

/// A pool for each host, and one for its monitor.
#[derive(Clone)]
struct Doors {
    config: PoolConfig,
    hosts: u32,
    /// The name of the replica set, if it is configured.
    name: Option<Arc<str>>,
}

impl Upstreams for Doors {
    fn spec(&self, pool: PoolId) -> PoolSpec {
        let watch = PoolConfig { min_size: 1, max_size: 1, ..self.config.clone() };
        let config = if pool.0 >= self.hosts { watch } else { self.config.clone() };
        drawn::spec_at((pool.0 % self.hosts) as HostId, "app".into(), config)
    }

    fn at_start(&self) -> Vec<PoolId> {
        (self.hosts..2 * self.hosts).map(PoolId).collect()
    }
}

impl Directory for Doors {
    fn encryption(&self, _: u16) -> Encryption {
        Encryption::Off
    }

    fn welcome(&self, _: Origin) -> Welcome {
        Welcome::Open
    }

    fn verifier(&self, _: &str) -> Option<Arc<Verifier>> {
        None
    }

    fn hosts(&self) -> Vec<usize> {
        (0..self.hosts as usize).collect()
    }

    fn max_greeters(&self) -> u32 {
        3
    }

    fn replica_set(&self) -> Option<Arc<str>> {
        self.name.clone()
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }

    fn route(&self, _: &str, host: usize) -> Result<PoolId, String> {
        Ok(PoolId(host as u32))
    }

    fn max_pinned(&self, _: PoolId) -> u32 {
        1
    }

    fn server_login(&self, pool: PoolId) -> ServerLogin {
        let (host, monitors) = ((pool.0 % self.hosts) as usize, pool.0 >= self.hosts);
        ServerLogin { host, monitors, ..ServerLogin::default() }
    }
}

/// Plays the schedule of a seed. `said`: a single raw client comes, and says these bytes.
///
/// # Panics
/// When anything is not as it must be.
pub fn play(seed: u64, bounds: Bounds, said: Option<&[u8]>, trace: bool) -> Done {
    let mut rng = Rng::new(seed);
    let set = rng.percent(75);
    let players = (1 + rng.index(5)).min(bounds.players);
    let raw_clients = drawn::raw_clients(&mut rng, bounds).max(usize::from(said.is_some()));
    let scarce = bounds.faults && rng.percent(15);
    let max_size = if scarce { 1 } else { rng.pick(&[1, 2, (players + raw_clients) as u32 + 1]) };
    // Longer than a host refuses where no client may feel it.
    let unavailable_wait_time = Some(Duration::from_millis(rng.pick(&[600, 2000])));
    let mut config = PoolConfig { unavailable_wait_time, ..drawn::pool(&mut rng, max_size) };
    if scarce {
        config.max_wait_time = Some(Duration::from_millis(rng.pick(&[1, 5, 20])));
        config.max_waiters = rng.pick(&[0, 1]);
    }
    let hosts = if set { model::HOSTS as u32 } else { 1 };
    let name = (set && rng.percent(50)).then(|| "rs".into());
    let doors = Arc::new(Doors { config, hosts, name });
    let conditions = drawn::conditions(&mut rng, bounds);
    let network = Network::new(rng.next(), conditions);
    let mut rules = drawn::rules(&mut rng);
    if rng.percent(30) {
        // The body of a request may be behind more than the driver holds.
        rules.driver.max_held_input = 2048;
    }
    let chaos = drawn::chaos(&mut rng, bounds);
    let house = House::new(MongoDb::new(doors.clone()), doors, rules, &network, &mut rng);
    let players = drawn::players(&mut rng, bounds, players, |number| Voice::new(number, set));
    let raw_clients = drawn::raw_clients_sending(said, raw_clients, Voice::new(RAW_CLIENT, set), &mut rng);
    let database = if set { model::MongoDb::set() } else { model::MongoDb::standalone() };
    let mut site = Site::new(database, trace);
    site.speak(&network);
    let mut world = World::new(
        (house, network, site),
        (players, raw_clients),
        chaos,
        Most { servers: (max_size + 1) as usize * hosts as usize, unsent: 1 << 15 },
        rng,
        trace,
    );
    world.scarce = scarce;
    world.aftermath = AFTERMATH;
    world.soon = SOON;
    world.done.faults = u64::from(scarce);
    world.play(|database| {
        // Where the workers have ended, their monitors have, too.
        if database.open().is_empty() { Vec::new() } else { database.unwatched(UNWATCHED) }
    })
}
