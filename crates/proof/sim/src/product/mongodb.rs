//! Schedules of the MongoDB sessions: the users, a pool for each user and host and one for each monitor, and what the
//! seed decides.

mod answer_text;
mod application;
mod protocol;
mod requests;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use driver::{PoolSpec, Upstreams};
use mongodb_session::{Directory, MongoDb, ServerLogin, Verifier, Verifiers, Welcome};
use pool::PoolConfig;
use seam::{Encryption, Origin, PoolId};

use super::{
    Bounds, DatabaseServer, Harness, Limits, Outcome, RAW_CLIENT, SelfCheckingClient, Simulation, pool_ids::PoolIds,
    random_setup,
};
use crate::{
    databases::{
        Database,
        mongodb::{self as model, Kind},
    },
    network::{HostId, Network},
    random::Rng,
};

use application::{Application, Profile};
use protocol::MongoDbProtocol;

/// An election may take 1.5 seconds, and monitors ask each host for its role every second.
const RECOVERY_TIME: Duration = Duration::from_secs(4);

/// Time after the last fault by which each host has a monitor again.
const MAX_CLEANING_TIME: Duration = Duration::from_secs(5);

/// The longest time between two requests of a monitor, which sends one every second.
const MAX_WATCH_GAP: Duration = Duration::from_secs(2);

const SERVER_SELECTION_TIMEOUT: Duration = Duration::from_secs(2);

/// Requests of a pool that may wait for the writes of other clients.
const MAX_PINNED: u32 = 1;

/// The password of every user.
const PASSWORD: &str = "secret";

/// SCRAM iterations: few, so that logins cost nothing.
const ITERATIONS: u32 = 2;

/// A pool for each user at each host, and one for the host's monitor.
#[derive(Clone)]
struct Setup {
    config: PoolConfig,
    hosts: u32,
    /// Clients log in as one of the users. Otherwise there is one user.
    secure: bool,
    /// The name of the replica set, if it is configured.
    name: Option<Arc<str>>,
    /// `localThresholdMS`.
    window: Duration,
    pool_ids: Arc<PoolIds>,
}

impl Setup {
    fn monitors(&self, index: u32) -> bool {
        index >= self.hosts * model::USERS as u32
    }
}

impl Upstreams for Setup {
    fn spec(&self, pool: PoolId) -> Option<PoolSpec> {
        let index = self.pool_ids.index_of(pool)?;
        let watch = PoolConfig { min_size: 1, max_size: 1, ..self.config.clone() };
        let (host, user) = (index % self.hosts, index / self.hosts);
        Some(match self.monitors(index) {
            true => random_setup::spec_at(host as HostId, "app".into(), watch),
            false => {
                random_setup::spec_at((host + user * model::HOSTS as u32) as HostId, "app".into(), self.config.clone())
            }
        })
    }

    /// Configured pools are never forgotten: cleanup tasks at their hosts belong to them.
    fn try_forget(&self, _: PoolId) -> bool {
        false
    }

    fn at_start(&self) -> Vec<PoolId> {
        let first = self.hosts * model::USERS as u32;
        (first..first + self.hosts).map(|index| self.pool_ids.id_or_new(index)).collect()
    }
}

impl Directory for Setup {
    fn encryption(&self, _: u16) -> Encryption {
        Encryption::Off
    }

    fn welcome(&self, _: Origin) -> Welcome {
        if self.secure { Welcome::Password } else { Welcome::Open }
    }

    fn verifiers(&self, user: &str) -> Option<Verifiers> {
        static VERIFIER: OnceLock<Arc<Verifier>> = OnceLock::new();
        let verifier = || VERIFIER.get_or_init(|| Arc::new(Verifier::from_password(PASSWORD, b"salt", ITERATIONS)));
        self.secure.then(|| user_of(user).map(|_| Arc::clone(verifier()).into()))?
    }

    fn hosts(&self) -> Vec<usize> {
        (0..self.hosts as usize).collect()
    }

    fn host_name(&self, host: usize) -> Arc<str> {
        format!("host{host}:27017").into()
    }

    fn lists_members(&self) -> bool {
        false
    }

    fn note_unlisted(&self, _: &str) {}

    fn note_expired_cleanup(&self, _: PoolId, _: usize) {}

    fn replica_set(&self) -> Option<Arc<str>> {
        self.name.clone()
    }

    fn shares_login(&self) -> bool {
        false
    }

    fn local_threshold(&self) -> Duration {
        self.window
    }

    fn unavailable_wait(&self) -> Duration {
        SERVER_SELECTION_TIMEOUT
    }

    fn route(&self, user: &str, host: usize) -> Result<PoolId, String> {
        let user = if self.secure { user_of(user).ok_or("no user of this name")? } else { 0 };
        Ok(self.pool_ids.id_or_new(user * self.hosts + host as u32))
    }

    fn is_configured(&self, pool: PoolId) -> bool {
        self.pool_ids.index_of(pool).is_some()
    }

    fn max_wait(&self, _: PoolId) -> Option<Duration> {
        self.config.max_wait_time
    }

    fn max_pinned(&self, _: PoolId) -> u32 {
        MAX_PINNED
    }

    fn server_login(&self, pool: PoolId) -> ServerLogin {
        let index = self.pool_ids.index_of(pool).expect("it has a server");
        let (host, monitors) = ((index % self.hosts) as usize, self.monitors(index));
        ServerLogin { host, monitors, ..ServerLogin::default() }
    }
}

fn name_of(user: usize) -> String {
    format!("user{user}")
}

fn user_of(name: &str) -> Option<u32> {
    (0..model::USERS).find(|user| name_of(*user) == name).map(|user| user as u32)
}

/// Draws the applications. With a single server connection none uses the hot collection: a write that waits there for
/// the end of a transaction would hold the connection that the transaction needs.
fn applications(
    rng: &mut Rng,
    (bounds, count): (Bounds, usize),
    kind: Kind,
    secure: bool,
    (max_size, never_vanishes): (u32, bool),
) -> Vec<Application> {
    let hot = max_size > 1 && rng.percent(50);
    let pause = Duration::from_micros(rng.pick(&[300, 3000, 300_000]));
    let twins = secure && rng.percent(50);
    let balanced = kind != Kind::Standalone && rng.percent(30);
    let mut drawn = |number: usize| {
        let user = if secure { number % model::USERS } else { 0 };
        let login = secure.then(|| ServerLogin {
            user: Some((name_of(user).into(), PASSWORD.into())),
            source: "admin".into(),
            ..ServerLogin::default()
        });
        let tasks = rng.pick(&[2, 5, 12]).min(bounds.requests);
        // Twins: applications of two users whose sessions have the same ids.
        let session_seed = if twins { number / model::USERS } else { number };
        let profile = Profile { number, user, login, balanced, kind, tasks, pause, hot, never_vanishes, session_seed };
        Application::new(profile, Rng::new(rng.next()))
    };
    (0..count).map(&mut drawn).collect()
}

/// Plays the schedule of a seed. `raw_bytes`: the bytes of the only raw client.
///
/// # Panics
/// If a check fails.
pub fn play(seed: u64, bounds: Bounds, raw_bytes: Option<&[u8]>, trace: bool) -> Outcome {
    let mut rng = Rng::new(seed);
    let kind = rng.pick(&[Kind::Set, Kind::Set, Kind::Set, Kind::Set, Kind::Standalone, Kind::Sharded]);
    let set = kind == Kind::Set;
    let secure = rng.percent(20);
    let applications_only = secure || rng.percent(20);
    let clients = if applications_only { 0 } else { (1 + rng.index(5)).min(bounds.clients) };
    let least = usize::from(applications_only);
    let self_checking_clients = (least + if rng.percent(50) { rng.index(3) } else { 0 }).min(bounds.clients);
    let raw_clients = random_setup::raw_client_count(&mut rng, bounds).max(usize::from(raw_bytes.is_some()));
    let scarce = bounds.faults && rng.percent(15);
    let max_size =
        if scarce { 1 } else { rng.pick(&[1, 2, (clients + self_checking_clients + raw_clients) as u32 + 1]) };
    // Longer than a host refuses connections in a fault that no client may notice.
    let unavailable_wait_time = Some(Duration::from_millis(rng.pick(&[600, 2000])));
    let mut config = PoolConfig { unavailable_wait_time, ..random_setup::pool(&mut rng, max_size) };
    if scarce {
        config.max_wait_time = Some(Duration::from_millis(rng.pick(&[1, 5, 20])));
        config.max_waiters = rng.pick(&[0, 1]);
    }
    let hosts = if kind == Kind::Standalone { 1 } else { model::HOSTS as u32 };
    let name = (set && rng.percent(50)).then(|| "rs".into());
    let window = Duration::from_micros(rng.pick(&[0, 100, 15_000]));
    let setup = Arc::new(Setup { config, hosts, secure, name, window, pool_ids: Arc::default() });
    let conditions = random_setup::conditions(&mut rng, bounds);
    let network = Network::new(rng.next(), conditions);
    let mut rules = random_setup::rules(&mut rng);
    if rng.percent(30) {
        // The sections before the body of a request may be longer than the driver holds.
        rules.driver.max_buffered_input = 2048;
    }
    let mut fault_plan = random_setup::fault_plan(&mut rng, bounds);
    if rng.percent(25) {
        // Rare faults: the effects of one are over before the next.
        fault_plan.mean_interval = fault_plan.mean_interval.map(|_| Duration::from_millis(1000 + rng.below(5000)));
    }
    let harness = Harness::new(MongoDb::new(setup.clone()), setup, rules, &network, &mut rng);
    let clients = random_setup::clients(&mut rng, bounds, clients, |number| MongoDbProtocol::new(number, kind));
    let raw_clients =
        random_setup::raw_clients(raw_bytes, raw_clients, MongoDbProtocol::new(RAW_CLIENT, kind), &mut rng);
    let never_vanishes = rng.percent(30);
    let self_checking_clients =
        applications(&mut rng, (bounds, self_checking_clients), kind, secure, (max_size, never_vanishes));
    let mut database = model::MongoDb::new(kind);
    if never_vanishes {
        database.limit_streams(MAX_PINNED as usize);
    }
    let mut database_server = DatabaseServer::new(database, trace);
    database_server.flush(&network);
    let mut simulation = Simulation::new(
        (harness, network, database_server),
        (clients, raw_clients),
        fault_plan,
        Limits::new((max_size as usize * model::USERS + 1) * hosts as usize, 1 << 15),
        rng,
        trace,
    );
    simulation.self_checking_clients = self_checking_clients
        .into_iter()
        .map(|self_checking_client| Box::new(self_checking_client) as Box<dyn SelfCheckingClient<_>>)
        .collect();
    simulation.scarce = scarce;
    simulation.recovery_time = RECOVERY_TIME;
    simulation.max_cleaning_time = MAX_CLEANING_TIME;
    simulation.outcome.faults = u64::from(scarce);
    simulation.play(|database| {
        // When the workers have ended there are no monitors.
        if database.open_connections().is_empty() { Vec::new() } else { database.unwatched(MAX_WATCH_GAP) }
    })
}
