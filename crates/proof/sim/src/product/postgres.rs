//! Schedules of the PostgreSQL sessions: who may log in, what is configured, and what is drawn for each seed.

mod programs;
mod speech;

use std::sync::Arc;

use driver::{PoolSpec, Upstreams};
use pool::PoolConfig;
use postgres_session::{
    Directory, Encryption, Look, PoolMode, Postgres, Proof, ResetPolicy, Route, ServerLogin, StatePolicy, Unknown,
};
use seam::{Origin, PoolId};

use super::{Bounds, Done, Harness, Limits, RAW_CLIENT, Simulation, Site, drawn, numbers::Numbers};
use crate::{
    databases::{Database, postgres as model},
    network::Network,
    random::Rng,
};

use speech::Voice;

/// Users, each with a pool.
const USERS: [&str; 2] = ["app", "web"];

/// Who may log in, and the pools.
#[derive(Clone)]
struct Setup {
    mode: PoolMode,
    state: StatePolicy,
    config: PoolConfig,
    /// Most servers of all pools together.
    cap: u32,
    numbers: Arc<Numbers>,
}

impl Upstreams for Setup {
    fn spec(&self, pool: PoolId) -> Option<PoolSpec> {
        let user = USERS[self.numbers.place(pool)? as usize].into();
        let caps = vec![("all".into(), self.cap), (format!("of {user}"), 0)];
        Some(PoolSpec { user, caps, ..drawn::spec_at(0, "sim".into(), self.config.clone()) })
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

    fn proof(&self, _: Origin, _: &str, _: &str) -> Result<Proof, Unknown> {
        Ok(Proof::Trust)
    }

    fn answered(&self, _: &str, _: &str, _: Option<&str>) -> Result<Proof, Unknown> {
        unreachable!("nobody is looked up")
    }

    fn looks(&self, _: &str) -> Vec<Look> {
        Vec::new()
    }

    fn refuted(&self, _: &str, _: &str) {}

    fn route(&self, _: &str, user: &str) -> Result<Route, Unknown> {
        let pool = USERS.iter().position(|known| *known == user).ok_or(Unknown::User)?;
        Ok(Route { pool: self.numbers.id(pool as u32), mode: self.mode, pass_through: false, add_host: false })
    }

    fn catalogue_read(&self, _: PoolId, _: &[String]) {}

    fn server_login(&self, pool: PoolId) -> ServerLogin {
        ServerLogin {
            database: "sim".into(),
            database_id: "sim".into(),
            user: USERS[self.numbers.place(pool).expect("it has a server") as usize].into(),
            mode: self.mode,
            state: self.state,
            ..ServerLogin::default()
        }
    }
}

/// Plays the schedule of a seed. `said`: a single raw client comes, and says these bytes.
///
/// # Panics
/// When anything is not as it must be.
pub fn play(seed: u64, bounds: Bounds, said: Option<&[u8]>, trace: bool) -> Done {
    let mut rng = Rng::new(seed);
    let mode = if rng.percent(15) { PoolMode::Session } else { PoolMode::Transaction };
    // Most schedules are small: more of them are played, and what goes wrong in one is found sooner.
    let players = (1 + rng.index(8).min(rng.index(8))).min(bounds.players);
    let raw_clients = drawn::raw_clients(&mut rng, bounds).max(usize::from(said.is_some()));
    let all = (players + raw_clients) as u32;
    let max_size = if mode == PoolMode::Session { all + 1 } else { 1 + rng.below(4) as u32 };
    let reset = rng.pick(&[ResetPolicy::Auto, ResetPolicy::Auto, ResetPolicy::Always]);
    let config = PoolConfig { min_size_once_connected: seed.is_multiple_of(3), ..drawn::pool(&mut rng, max_size) };
    let users = if mode == PoolMode::Transaction && rng.percent(30) { USERS.len() } else { 1 };
    // Who keeps a server of his own leaves two to his pool: one for those who listen, one for everybody else.
    let pinners = if mode == PoolMode::Session { players } else { users * (max_size as usize).saturating_sub(2) };
    let all_pools = max_size * users as u32;
    let enough = (pinners.min(players) + 2 * users) as u32;
    let cap = if rng.percent(50) { all_pools.min(enough) } else { all_pools };
    let state = StatePolicy { reset, max_prepared: rng.pick(&[2, 500]), ..StatePolicy::default() };
    let setup = Arc::new(Setup { mode, state, config, cap, numbers: Arc::default() });
    let conditions = drawn::conditions(&mut rng, bounds);
    let network = Network::new(rng.next(), conditions);
    let rules = drawn::rules(&mut rng);
    let chaos = drawn::chaos(&mut rng, bounds);
    let harness = Harness::new(Postgres::new(setup.clone()), setup, rules, &network, &mut rng);
    let voice = |number| Voice::new(number, USERS[number % users], number < pinners);
    let players = drawn::players(&mut rng, bounds, players, voice);
    let raw_clients = drawn::raw_clients_sending(said, raw_clients, Voice::new(RAW_CLIENT, USERS[0], false), &mut rng);
    let database = if seed.is_multiple_of(4) { model::Postgres::reloaded() } else { model::Postgres::new() };
    let simulation = Simulation::new(
        (harness, network, Site::new(database, trace)),
        (players, raw_clients),
        chaos,
        Limits { servers: cap as usize, unsent: 2 << 20 },
        rng,
        trace,
    );
    simulation.play(|database| {
        let held = |connection| {
            let mut left = database.leftovers(connection);
            left.extend(database.in_transaction(connection).then(|| "a transaction".to_owned()));
            left
        };
        database.open().into_iter().flat_map(held).collect()
    })
}
