//! Schedules of the PostgreSQL sessions: the users, the configuration, and what the seed decides.

mod additions;
mod protocol;
mod requests;

use std::{sync::Arc, time::Duration};

use driver::{PoolSpec, Upstreams};
use pool::PoolConfig;
use postgres_session::{
    CancelDealtWith, CheckOutcome, Directory, Encryption, ForeignCancel, ListenerRules, LoginAttempt, LoginCheck, Look,
    PoolMode, Postgres, Proof, ResetPolicy, Route, ServerLogin, StartRequest, StatePolicy, Unknown,
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

use additions::Additions;
use protocol::PostgresProtocol;

/// A dedicated server whose client left before it was ready waits this long for another one.
const DEDICATED_IDLE_TIME: Duration = Duration::from_millis(20);

/// Users, each with a pool, and perhaps one of dedicated servers.
const USERS: [&str; 2] = ["app", "web"];

#[derive(Clone)]
struct Setup {
    mode: PoolMode,
    state: StatePolicy,
    config: PoolConfig,
    /// The most servers of all pools together.
    cap: u32,
    /// The most servers of each user; 0: no limit.
    user_cap: u32,
    /// The most dedicated servers of each user.
    dedicated: u32,
    pool_ids: Arc<PoolIds>,
}

impl Setup {
    /// The user of a pool, and whether its servers are dedicated ones.
    fn pool(&self, pool: PoolId) -> Option<(&'static str, bool)> {
        let index = self.pool_ids.index_of(pool)? as usize;
        Some((USERS[index % USERS.len()], index >= USERS.len()))
    }

    fn config(&self, dedicated: bool) -> PoolConfig {
        let config = self.config.clone();
        if !dedicated {
            return config;
        }
        PoolConfig {
            max_size: self.dedicated,
            reserve_size: 0,
            min_size_once_connected: true,
            max_idle_time: Some(DEDICATED_IDLE_TIME),
            max_life_time: None,
            check_after_idle: None,
            ..config
        }
    }
}

impl Upstreams for Setup {
    fn spec(&self, pool: PoolId) -> Option<PoolSpec> {
        let (user, dedicated) = self.pool(pool)?;
        let caps = vec![("all".into(), self.cap), (format!("of {user}"), self.user_cap)];
        let user = user.into();
        Some(PoolSpec { user, caps, ..random_setup::spec_at(0, "sim".into(), self.config(dedicated)) })
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

    fn begin_check(&self, _: LoginCheck) {
        unreachable!("no password is checked elsewhere")
    }

    fn finished_checks(&self) -> Vec<CheckOutcome> {
        Vec::new()
    }

    fn hand_on_cancel(&self, _: ForeignCancel) {}

    fn handed_on_cancels(&self) -> Vec<CancelDealtWith> {
        Vec::new()
    }

    fn note_refuted(&self, _: &str, _: &str) {}

    fn keeps_places(&self, _: &str) -> bool {
        false
    }

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

    fn dedicated_route(&self, _: &str, user: &str, request: &StartRequest<'_>) -> Result<Option<Route>, Unknown> {
        let user = USERS.iter().position(|known| *known == user).ok_or(Unknown::User)?;
        let pool = self.pool_ids.id_or_new((USERS.len() + user) as u32);
        let route = Route { pool, mode: PoolMode::Dedicated, pass_through: false, add_host: false };
        Ok((request.replication.is_some() && self.dedicated > 0).then_some(route))
    }

    fn note_catalogue(&self, _: PoolId, _: &[String]) {}

    fn server_login(&self, pool: PoolId) -> ServerLogin {
        let (user, dedicated) = self.pool(pool).expect("it has a server");
        let login = ServerLogin {
            database: "sim".into(),
            database_id: "sim".into(),
            user: user.into(),
            mode: self.mode,
            state: self.state,
            ..ServerLogin::default()
        };
        if !dedicated {
            return login;
        }
        let state = StatePolicy { reset: ResetPolicy::Never, ..StatePolicy::default() };
        let parameters = vec![("replication".into(), "database".into())];
        ServerLogin { mode: PoolMode::Dedicated, parameters, state, ..login }
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
    let additions = Additions::draw(seed, mode, bounds);
    let config = PoolConfig {
        min_size_once_connected: seed.is_multiple_of(3),
        reserve_size: additions.reserve,
        reserve_wait_time: Some(additions::RESERVE_WAIT_TIME),
        round_robin: additions.round_robin,
        ..random_setup::pool(&mut rng, max_size)
    };
    let users = if mode == PoolMode::Transaction && rng.percent(30) { USERS.len() } else { 1 };
    // Pinned clients leave two servers to their pool: one for subscriptions, one for all other clients.
    let pinners = if mode == PoolMode::Session { clients } else { users * (max_size as usize).saturating_sub(2) };
    let all_pools = max_size * users as u32;
    let enough = (pinners.min(clients) + 2 * users) as u32;
    let cap = if rng.percent(50) { all_pools.min(enough) } else { all_pools };
    // A reserve has room in a cap that has room for all pools. Dedicated servers have half of what they may need.
    let reserve = if cap == all_pools { additions.reserve * users as u32 } else { 0 };
    let dedicated = additions.dedicated * users as u32;
    let cap = cap + reserve + dedicated.div_ceil(2);
    let user_cap = if additions.caps_users && users > 1 { max_size } else { 0 };
    let state = StatePolicy { reset, max_prepared: rng.pick(&[2, 500]), ..StatePolicy::default() };
    let dedicated_size = additions.dedicated;
    let pool_ids = Arc::default();
    let setup = Arc::new(Setup { mode, state, config, cap, user_cap, dedicated: dedicated_size, pool_ids });
    let conditions = random_setup::conditions(&mut rng, bounds);
    let network = Network::new(rng.next(), conditions);
    let rules = additions.rules(random_setup::rules(&mut rng));
    let fault_plan = additions.fault_plan(random_setup::fault_plan(&mut rng, bounds));
    let harness = Harness::new(Postgres::new(setup.clone()), setup, rules, &network, &mut rng);
    let protocol = |number| {
        let replicates = additions.dedicated > 0 && number % 3 == additions.replicating;
        PostgresProtocol::new(number, USERS[number % users], (number < pinners, replicates))
    };
    let clients = random_setup::clients(&mut rng, bounds, clients, protocol);
    let clients = clients.into_iter().map(|client| client.with_time_outs(additions.time_outs)).collect();
    let raw_clients = random_setup::raw_clients(
        raw_bytes,
        raw_clients,
        PostgresProtocol::new(RAW_CLIENT, USERS[0], (false, false)),
        &mut rng,
    );
    let database =
        if seed.is_multiple_of(4) { model::Postgres::with_changing_configuration() } else { model::Postgres::new() };
    let simulation = Simulation::new(
        (harness, network, DatabaseServer::new(database, trace)),
        (clients, raw_clients),
        fault_plan,
        Limits {
            servers_of_a_user: if user_cap > 0 { user_cap as usize } else { usize::MAX },
            reserve: (reserve > 0).then_some(((all_pools + dedicated) as usize, additions::RESERVE_WAIT_TIME)),
            ..Limits::new(cap as usize, 2 << 20)
        },
        rng,
        trace,
    );
    simulation.play(leftovers)
}

/// What clients have left behind at the database when all have gone.
fn leftovers(database: &model::Postgres) -> Vec<String> {
    let held = |connection| {
        let mut left = database.leftovers(connection);
        left.extend(database.in_transaction(connection).then(|| "a transaction".to_owned()));
        left.extend(database.is_for_replication(connection).then(|| "a dedicated server".to_owned()));
        left
    };
    database.open_connections().into_iter().flat_map(held).collect()
}
