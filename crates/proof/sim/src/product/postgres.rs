//! Schedules of the PostgreSQL sessions: the users, the configuration, and what the seed decides.

mod protocol;
mod requests;

use std::sync::Arc;

use driver::{PoolSpec, Upstreams};
use pool::PoolConfig;
use postgres_session::{
    CheckOutcome, Directory, Encryption, ListenerRules, LoginAttempt, Look, PasswordCheck, PoolMode, Postgres, Proof,
    ResetPolicy, Route, ServerLogin, StartRequest, StatePolicy, Unknown,
};
use seam::PoolId;

use super::{
    Bounds, DatabaseServer, Harness, Limits, Outcome, RAW_CLIENT, Simulation, pool_ids::PoolIds, random_setup,
};
use crate::{
    databases::{Database, postgres as model},
    network::Network,
    random::Rng,
};

use protocol::PostgresProtocol;

/// Users, each with a pool.
const USERS: [&str; 2] = ["app", "web"];

#[derive(Clone)]
struct Setup {
    mode: PoolMode,
    state: StatePolicy,
    config: PoolConfig,
    /// The most servers of all pools together.
    cap: u32,
    pool_ids: Arc<PoolIds>,
}

impl Upstreams for Setup {
    fn spec(&self, pool: PoolId) -> Option<PoolSpec> {
        let user = USERS[self.pool_ids.index_of(pool)? as usize].into();
        let caps = vec![("all".into(), self.cap), (format!("of {user}"), 0)];
        Some(PoolSpec { user, caps, ..random_setup::spec_at(0, "sim".into(), self.config.clone()) })
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

    fn proof(&self, _: &LoginAttempt) -> Result<Proof, Unknown> {
        Ok(Proof::Trust)
    }

    fn note_lookup(&self, _: &LoginAttempt, _: Option<&str>) -> Result<Proof, Unknown> {
        unreachable!("no user is looked up")
    }

    fn looks(&self, _: &LoginAttempt) -> Vec<Look> {
        Vec::new()
    }

    fn begin_check(&self, _: PasswordCheck) {
        unreachable!("no password is checked elsewhere")
    }

    fn finished_checks(&self) -> Vec<CheckOutcome> {
        Vec::new()
    }

    fn note_refuted(&self, _: &str, _: &str) {}

    fn route(&self, _: &str, user: &str) -> Result<Route, Unknown> {
        let pool = USERS.iter().position(|known| *known == user).ok_or(Unknown::User)?;
        Ok(Route { pool: self.pool_ids.id_or_new(pool as u32), mode: self.mode, pass_through: false, add_host: false })
    }

    fn rules(&self, _: u16) -> ListenerRules {
        ListenerRules::default()
    }

    fn announcements(&self, _: PoolId) -> Vec<(String, String)> {
        Vec::new()
    }

    fn dedicated_route(&self, _: &str, _: &str, _: &StartRequest<'_>) -> Result<Option<Route>, Unknown> {
        Ok(None)
    }

    fn note_catalogue(&self, _: PoolId, _: &[String]) {}

    fn server_login(&self, pool: PoolId) -> ServerLogin {
        ServerLogin {
            database: "sim".into(),
            database_id: "sim".into(),
            user: USERS[self.pool_ids.index_of(pool).expect("it has a server") as usize].into(),
            mode: self.mode,
            state: self.state,
            ..ServerLogin::default()
        }
    }
}

/// Plays the schedule of a seed. `raw_bytes`: the bytes of the only raw client.
///
/// # Panics
/// If a check fails.
pub fn play(seed: u64, bounds: Bounds, raw_bytes: Option<&[u8]>, trace: bool) -> Outcome {
    let mut rng = Rng::new(seed);
    let mode = if rng.percent(15) { PoolMode::Session } else { PoolMode::Transaction };
    // Most schedules are small: they take less time, and a failure is easier to understand.
    let clients = (1 + rng.index(8).min(rng.index(8))).min(bounds.clients);
    let raw_clients = random_setup::raw_client_count(&mut rng, bounds).max(usize::from(raw_bytes.is_some()));
    let all = (clients + raw_clients) as u32;
    let max_size = if mode == PoolMode::Session { all + 1 } else { 1 + rng.below(4) as u32 };
    let reset = rng.pick(&[ResetPolicy::Auto, ResetPolicy::Auto, ResetPolicy::Always]);
    let config =
        PoolConfig { min_size_once_connected: seed.is_multiple_of(3), ..random_setup::pool(&mut rng, max_size) };
    let users = if mode == PoolMode::Transaction && rng.percent(30) { USERS.len() } else { 1 };
    // Pinned clients leave two servers to their pool: one for subscriptions, one for all other clients.
    let pinners = if mode == PoolMode::Session { clients } else { users * (max_size as usize).saturating_sub(2) };
    let all_pools = max_size * users as u32;
    let enough = (pinners.min(clients) + 2 * users) as u32;
    let cap = if rng.percent(50) { all_pools.min(enough) } else { all_pools };
    let state = StatePolicy { reset, max_prepared: rng.pick(&[2, 500]), ..StatePolicy::default() };
    let setup = Arc::new(Setup { mode, state, config, cap, pool_ids: Arc::default() });
    let conditions = random_setup::conditions(&mut rng, bounds);
    let network = Network::new(rng.next(), conditions);
    let rules = random_setup::rules(&mut rng);
    let fault_plan = random_setup::fault_plan(&mut rng, bounds);
    let harness = Harness::new(Postgres::new(setup.clone()), setup, rules, &network, &mut rng);
    let protocol = |number| PostgresProtocol::new(number, USERS[number % users], number < pinners);
    let clients = random_setup::clients(&mut rng, bounds, clients, protocol);
    let raw_clients =
        random_setup::raw_clients(raw_bytes, raw_clients, PostgresProtocol::new(RAW_CLIENT, USERS[0], false), &mut rng);
    let database =
        if seed.is_multiple_of(4) { model::Postgres::with_changing_configuration() } else { model::Postgres::new() };
    let simulation = Simulation::new(
        (harness, network, DatabaseServer::new(database, trace)),
        (clients, raw_clients),
        fault_plan,
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
        database.open_connections().into_iter().flat_map(held).collect()
    })
}
