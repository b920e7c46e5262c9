//! Schedules of the Redis sessions: the configuration, and what the seed decides.

mod protocol;
mod requests;

use std::sync::Arc;

use driver::{PoolSpec, Upstreams};
use pool::PoolConfig;
use redis_session::{Directory, Redis, ServerLogin, Version, Welcome};
use seam::{Encryption, Origin, PoolId};

use super::{
    Bounds, DatabaseServer, Harness, Limits, Outcome, RAW_CLIENT, Simulation, pool_ids::PoolIds, random_setup,
};
use crate::{
    databases::{Database, redis as model},
    network::Network,
    random::Rng,
};

use protocol::RedisProtocol;

/// Number of logical databases.
const DATABASES: u32 = 2;

/// A pool for each logical database and version.
#[derive(Clone)]
struct Setup {
    config: PoolConfig,
    pool_ids: Arc<PoolIds>,
}

impl Upstreams for Setup {
    fn spec(&self, pool: PoolId) -> Option<PoolSpec> {
        let index = self.pool_ids.index_of(pool)?;
        Some(random_setup::spec_at(0, (index / 2).to_string(), self.config.clone()))
    }

    fn try_forget(&self, pool: PoolId) -> bool {
        self.pool_ids.forget(pool);
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
        Ok(self.pool_ids.id_or_new(database * 2 + u32::from(version == Version::Resp3)))
    }

    fn epoch(&self) -> u64 {
        self.pool_ids.forgotten().into()
    }

    fn server_login(&self, pool: PoolId) -> ServerLogin {
        let index = self.pool_ids.index_of(pool).expect("it has a server");
        let version = if index % 2 == 1 { Version::Resp3 } else { Version::Resp2 };
        ServerLogin { database: index / 2, version, ..ServerLogin::default() }
    }
}

/// Plays the schedule of a seed. `raw_bytes`: the bytes of the only raw client.
///
/// # Panics
/// If a check fails.
pub fn play(seed: u64, bounds: Bounds, raw_bytes: Option<&[u8]>, trace: bool) -> Outcome {
    let mut rng = Rng::new(seed);
    // Most schedules are small: they take less time, and a failure is easier to understand.
    let clients = (1 + rng.index(5).min(rng.index(5))).min(bounds.clients);
    let raw_clients = random_setup::raw_client_count(&mut rng, bounds).max(usize::from(raw_bytes.is_some()));
    let max_size = (clients + raw_clients) as u32 + 2;
    let config = random_setup::pool(&mut rng, max_size);
    let setup = Arc::new(Setup {
        config: PoolConfig { min_size_once_connected: seed.is_multiple_of(3), ..config },
        pool_ids: Arc::default(),
    });
    let conditions = random_setup::conditions(&mut rng, bounds);
    let network = Network::new(rng.next(), conditions);
    let rules = random_setup::rules(&mut rng);
    let fault_plan = random_setup::fault_plan(&mut rng, bounds);
    let harness = Harness::new(Redis::new(setup.clone()), setup, rules, &network, &mut rng);
    let clients = random_setup::clients(&mut rng, bounds, clients, RedisProtocol::new);
    let raw_clients = random_setup::raw_clients(raw_bytes, raw_clients, RedisProtocol::new(RAW_CLIENT), &mut rng);
    let simulation = Simulation::new(
        (harness, network, DatabaseServer::new(model::Redis::default(), trace)),
        (clients, raw_clients),
        fault_plan,
        Limits::new(max_size as usize * 2 * DATABASES as usize, 2 << 20),
        rng,
        trace,
    );
    simulation.play(|database| {
        database.open_connections().into_iter().flat_map(|connection| database.leftovers(connection)).collect()
    })
}
