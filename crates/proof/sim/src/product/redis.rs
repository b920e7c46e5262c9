//! Schedules of the Redis sessions: who may log in, what is configured, and what is drawn for each seed.

mod programs;
mod speech;

use std::sync::Arc;

use driver::{PoolSpec, Upstreams};
use pool::PoolConfig;
use redis_session::{Directory, Redis, ServerLogin, Version, Welcome};
use seam::{Encryption, Origin, PoolId};

use super::{Bounds, Done, Harness, Limits, RAW_CLIENT, Simulation, Site, drawn, numbers::Numbers};
use crate::{
    databases::{Database, redis as model},
    network::Network,
    random::Rng,
};

use speech::Voice;

/// Logical databases that players use.
const DATABASES: u32 = 2;

/// A pool for each logical database and version.
#[derive(Clone)]
struct Setup {
    config: PoolConfig,
    numbers: Arc<Numbers>,
}

impl Upstreams for Setup {
    fn spec(&self, pool: PoolId) -> Option<PoolSpec> {
        let place = self.numbers.place(pool)?;
        Some(drawn::spec_at(0, (place / 2).to_string(), self.config.clone()))
    }

    fn forget(&self, pool: PoolId) -> bool {
        self.numbers.forget(pool);
        true
    }

    fn at_start(&self) -> Vec<PoolId> {
        Vec::new()
    }
}

impl Directory for Setup {
    fn encryption(&self, _: u16) -> Encryption {
        Encryption::Off
    }

    fn welcome(&self, _: Origin) -> Welcome {
        Welcome::Open
    }

    fn is_password(&self, _: &str, _: &[u8]) -> bool {
        false
    }

    fn route(&self, _: &str, database: u32, version: Version) -> Result<PoolId, String> {
        if database >= DATABASES {
            return Err("ERR DB index is out of range".into());
        }
        Ok(self.numbers.id(database * 2 + u32::from(version == Version::Resp3)))
    }

    fn epoch(&self) -> u64 {
        self.numbers.forgotten().into()
    }

    fn server_login(&self, pool: PoolId) -> ServerLogin {
        let place = self.numbers.place(pool).expect("it has a server");
        let version = if place % 2 == 1 { Version::Resp3 } else { Version::Resp2 };
        ServerLogin { database: place / 2, version, ..ServerLogin::default() }
    }
}

/// Plays the schedule of a seed. `said`: a single raw client comes, and says these bytes.
///
/// # Panics
/// When anything is not as it must be.
pub fn play(seed: u64, bounds: Bounds, said: Option<&[u8]>, trace: bool) -> Done {
    let mut rng = Rng::new(seed);
    // Most schedules are small: more of them are played, and what goes wrong in one is found sooner.
    let players = (1 + rng.index(5).min(rng.index(5))).min(bounds.players);
    let raw_clients = drawn::raw_clients(&mut rng, bounds).max(usize::from(said.is_some()));
    let max_size = (players + raw_clients) as u32 + 2;
    let config = drawn::pool(&mut rng, max_size);
    let setup = Arc::new(Setup {
        config: PoolConfig { min_size_once_connected: seed.is_multiple_of(3), ..config },
        numbers: Arc::default(),
    });
    let conditions = drawn::conditions(&mut rng, bounds);
    let network = Network::new(rng.next(), conditions);
    let rules = drawn::rules(&mut rng);
    let chaos = drawn::chaos(&mut rng, bounds);
    let harness = Harness::new(Redis::new(setup.clone()), setup, rules, &network, &mut rng);
    let players = drawn::players(&mut rng, bounds, players, Voice::new);
    let raw_clients = drawn::raw_clients_sending(said, raw_clients, Voice::new(RAW_CLIENT), &mut rng);
    let simulation = Simulation::new(
        (harness, network, Site::new(model::Redis::default(), trace)),
        (players, raw_clients),
        chaos,
        Limits { servers: max_size as usize * 2 * DATABASES as usize, unsent: 2 << 20 },
        rng,
        trace,
    );
    simulation
        .play(|database| database.open().into_iter().flat_map(|connection| database.leftovers(connection)).collect())
}
