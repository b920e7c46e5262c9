//! The configuration as plain values; the modules below read it from a file or a URL. Opens no socket and starts
//! nothing.

use std::{fmt, ops::Range, path::PathBuf, sync::Arc, time::Duration};

use ::pgbouncer::Translation;
use ::redis_session::HttpRules;
use driver::{Hosts, LoggedConnections, Network, PoolTimeouts, TcpOptions, TenantLimits, Timeouts};
use pool::{GateConfig, PoolConfig};
use postgres_session::{ListenerRules, OnState, Target};
use settings::{Problem, Secret, Spots, choose};
use upstream::{Ignored, Kind, MongoOptions, Sentinel, SrvName, UpstreamTls};

use crate::{Password, compatibility::Compatibility, password::OtherPasswords};

mod addresses;
mod admin_address;
mod admin_token;
mod auth;
mod auth_query;
mod console;
mod endpoint;
mod file;
mod flags;
mod hba;
mod http;
mod keys;
mod ldap;
mod listener_rules;
mod log;
mod mongodb;
mod network;
mod options;
mod password_command;
mod passwords;
mod peers;
mod pgbouncer;
mod process;
mod redis;
mod refusals;
mod tls;
mod userlist;

pub use admin_address::Admin;
pub use admin_token::{AdminToken, Role};
pub use auth::AuthType;
pub use auth_query::{AuthQuery, DEFAULT_AUTH_QUERY};
pub use console::{Console, PGBOUNCER_NAME};
pub use endpoint::{Endpoint, parse_tcp, shown_path};
pub(crate) use file::{IntactSections, Reading, read};
pub use flags::{Flags, TlsFlags, from_url};
pub use hba::{Hba, IdentMap, IdentMaps, Method, parse as parse_hba};
pub use http::Token;
pub use ldap::{LdapBind, LdapEncryption, LdapOptions, LdapScope};
pub use log::{Log, Syslog};
pub(crate) use options::MAX_COUNT;
pub use password_command::PasswordCommand;
pub use peers::Peer;
pub use process::Serve;
pub(crate) use redis::DEFAULT_USER;
pub use tls::{ClientAuth, ListenerTls};
pub use userlist::{Entry, Unreadable, parse as parse_userlist};

#[derive(Clone, Debug)]
pub struct Config {
    /// The file it was read from; `None` when it came from the command line.
    pub source: Option<Source>,
    pub serve: Serve,
    pub admin: Admin,
    pub log: Log,
    pub console: Console,
    /// Limits over all databases and users.
    pub limits: Limits,
    /// How clients of PostgreSQL log in.
    pub auth: AuthType,
    /// `[pool]`: what databases have that set nothing of their own.
    pub pool: PoolSettings,
    /// Options of TCP connections on both sides.
    pub tcp: TcpOptions,
    pub dns: Dns,
    /// Rounds of the SCRAM verifiers that are made of plain passwords.
    pub scram_iterations: u32,
    /// Whether clients may connect from anywhere though no user has a password.
    pub insecure_no_auth: bool,
    /// At least one.
    pub listeners: Vec<Listener>,
    /// At least one.
    pub databases: Vec<Database>,
    /// Empty, or without passwords, if clients are not authenticated.
    pub users: Vec<User>,
    pub tokens: Vec<Token>,
    /// The processes behind the same address, in the order of their numbers.
    pub peers: Vec<Peer>,
}

impl Config {
    /// Whether it is to behave as PgBouncer does.
    pub fn is_in_place_of_pgbouncer(&self) -> bool {
        self.serve.compatible_with == Compatibility::PgBouncer
    }

    /// What of clients' connections is logged.
    pub fn logged_connections(&self) -> LoggedConnections {
        let logins = self.serve.log_connections;
        let attempts = logins && self.is_in_place_of_pgbouncer();
        // In PgBouncer's place the shape of the log leaves the lines out, because other lines come of the same events.
        let errors = self.serve.log_client_errors || self.is_in_place_of_pgbouncer();
        LoggedConnections { logins, attempts, ends: self.serve.log_disconnections, errors }
    }

    /// Whether clients of this kind must log in.
    pub fn authenticates(&self, kind: Kind) -> bool {
        if kind == Kind::Postgres && !self.auth.is_default() {
            return true;
        }
        let proves = |user: &User| user.password.is_some() || (user.certificate && kind == Kind::Postgres);
        self.users.iter().any(proves)
            || self.databases_of(kind).any(|database| database.auth.is_some())
            || (kind == Kind::Postgres && self.console.auth.is_some())
    }

    /// The databases of one kind.
    pub fn databases_of(&self, kind: Kind) -> impl Iterator<Item = &Database> {
        self.databases.iter().filter(move |database| database.kind == kind)
    }

    /// Adds the place in the file to a problem: that of `key` in a section, or of the whole section.
    pub fn locate(&self, problem: Problem, spots: &Spots, key: &'static str) -> Problem {
        let span = spots.get(key).or_else(|| spots.get(""));
        match (&self.source, span) {
            (Some(source), Some(span)) => source.locate(problem, span.clone()),
            (Some(source), None) => problem.in_file(&source.path),
            (None, _) => problem,
        }
    }
}

/// A configuration file as it was read.
#[derive(Clone, Debug)]
pub struct Source {
    pub path: PathBuf,
    /// Its text, which may hold passwords.
    pub text: Secret,
    /// Files with passwords in them: this one, the user list, and those that `*_file` keys name.
    pub secret_files: Vec<PathBuf>,
    /// Files with rules for logins.
    pub rule_files: Vec<PathBuf>,
    /// What was left out of the files that it names.
    pub warnings: Vec<Problem>,
    /// What the text comes from, if the file is PgBouncer's.
    pub translation: Option<Arc<Translation>>,
}

impl Source {
    /// What is different, or without effect, in a file of PgBouncer's.
    pub fn notes(&self) -> impl Iterator<Item = &Problem> {
        self.translation.iter().flat_map(|translation| &translation.notes)
    }

    /// A problem at a place of the text.
    fn locate(&self, problem: Problem, span: Range<usize>) -> Problem {
        let problem = problem.at(&self.path, self.text.reveal(), span);
        self.translation.as_ref().map_or(problem.clone(), |translation| translation.locate(problem))
    }
}

pub const MAX_WORKERS: u32 = 255;

/// Limits over all databases and users; 0 is unlimited.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// Servers in all.
    pub max_server_connections: u32,
    /// Servers of each user over all databases, unless the user has a limit of its own.
    pub max_user_connections: u32,
    /// Servers of each database over all users, unless the database has a limit of its own.
    pub max_database_connections: u32,
    /// Clients of all listeners.
    pub max_clients: u32,
    /// Clients of each database over all listeners, unless it has limits of its own.
    pub max_database_clients: u32,
    /// Clients of each user over all listeners, unless it has limits of its own.
    pub max_user_clients: u32,
    pub spots: Spots,
}

impl Limits {
    /// The limits of clients of a database without its own.
    pub fn of_each_database(&self) -> Option<TenantLimits> {
        without_eviction(self.max_database_clients)
    }

    /// The limits of clients of a user without its own.
    pub fn of_each_user(&self) -> Option<TenantLimits> {
        without_eviction(self.max_user_clients)
    }
}

/// A hard limit for which no client gives way. 0 is no limit.
fn without_eviction(limit: u32) -> Option<TenantLimits> {
    (limit > 0).then_some(TenantLimits { soft_limit: limit, hard_limit: limit })
}

/// How names of hosts are followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dns {
    /// How often names are looked up, besides for each connection; `None` is never.
    pub max_ttl: Option<Duration>,
    /// How long a name that could not be looked up counts as such; zero: each connection tries again.
    pub failure_ttl: Duration,
}

#[derive(Clone, Debug)]
pub struct Listener {
    /// The kind of database that its clients use.
    pub kind: Kind,
    pub listen: Endpoint,
    /// Further addresses, of the same kind, under the same limits.
    pub more: Vec<Endpoint>,
    /// Permissions of a Unix socket.
    pub socket_mode: u32,
    /// The group that a Unix socket belongs to; `None` is the process's own.
    pub socket_group: Option<String>,
    /// Connections that the kernel queues until they are accepted.
    pub backlog: u32,
    /// Whether other processes may listen at the same address, among which the kernel spreads clients.
    pub reuse_port: bool,
    /// Soft and hard limit of clients.
    pub gate: GateConfig,
    pub timeouts: Timeouts,
    pub tls: Option<ListenerTls>,
    /// Proxies there begin each connection with a header that names their client.
    pub proxies: Vec<Network>,
    /// What clients of PostgreSQL may send.
    pub rules: ListenerRules,
    /// The rules of clients that speak HTTP; `None` if they do not.
    pub http: Option<Arc<HttpRules>>,
    pub spots: Spots,
}

/// A database that clients may ask for.
#[derive(Clone, Debug)]
pub struct Database {
    /// Which kind of database it is.
    pub kind: Kind,
    /// The name that clients use; `*` stands for all names that are not configured.
    pub name: String,
    pub hosts: Hosts,
    /// How to ask the hosts for the master, if they are sentinels.
    pub sentinel: Option<Sentinel>,
    /// Options of MongoDB's URL.
    pub mongo: MongoOptions,
    /// The role that a host must have.
    pub target: Target,
    /// The database's name on the server; `None` is the name that the client used.
    pub database: Option<String>,
    /// The user that servers log in as; `None` is the client's own user and password.
    pub user: Option<String>,
    pub password: Option<Secret>,
    /// The program that gives the password.
    pub password_command: Option<PasswordCommand>,
    pub tls: UpstreamTls,
    /// Further start-up parameters.
    pub parameters: Vec<(String, String)>,
    /// The rules of each of its pools.
    pub pool: PoolSettings,
    /// How users are looked up there, if they are.
    pub auth: Option<AuthQuery>,
    /// Servers of this database over all users; 0 is unlimited.
    pub max_connections: u32,
    /// Servers of this database for each user; 0 is unlimited.
    pub max_user_connections: u32,
    /// Limits of its clients over all listeners.
    pub clients: Option<TenantLimits>,
    /// The process's own console: each client gets a dedicated server, which counts for no limit and is not shown.
    pub is_console: bool,
    /// Options of its URL that are for drivers only.
    pub ignored: Vec<Ignored>,
    /// The name whose hosts are looked up.
    pub srv: Option<SrvName>,
    /// [`Database::mongo`] without the options that the look-up of the name has added.
    pub mongo_of_url: MongoOptions,
    pub spots: Spots,
}

/// The name of the fallback database.
pub const FALLBACK: &str = "*";

#[derive(Clone, Debug)]
pub struct PoolSettings {
    /// When a server returns to its pool.
    pub mode: Mode,
    /// Sizes and times. If the size is tuned, `max_size` is the first size.
    pub config: PoolConfig,
    pub auto: AutoSize,
    /// Treatment of session state.
    pub state: StateSettings,
    /// Time-outs of clients that override the listener's.
    pub timeouts: PoolTimeouts,
    /// SQL that is run on each new connection before it is used.
    pub connect_query: Option<Arc<str>>,
    /// Functions that are taken to leave no session state.
    pub trusted_functions: Arc<[String]>,
    /// Whether a client's address and port are appended to its `application_name`.
    pub application_name_add_host: bool,
    /// Replication connections of a database and user, each of which has a server of its own.
    pub max_replication_size: u32,
    /// How long a pool must be unused to be forgotten; `None` is never.
    pub pool_idle_time: Option<Duration>,
    /// Whether that holds for pools of configured users, too: `pool_idle_time` was configured.
    pub forgets_configured: bool,
    /// How long a cancel request may take before the server that it was for is closed.
    pub cancel_wait_time: Duration,
    /// Whether sessions in session mode end, once they have no work, when their servers are to be replaced.
    pub fast_close: bool,
}

/// PostgreSQL's default for `max_wal_senders`.
const DEFAULT_MAX_REPLICATION_SIZE: u32 = 10;

const DEFAULT_CANCEL_WAIT_TIME: Duration = Duration::from_secs(5);

const DEFAULT_POOL_IDLE_TIME: Duration = Duration::from_secs(600);

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            config: PoolConfig::default(),
            auto: AutoSize::default(),
            state: StateSettings::default(),
            timeouts: PoolTimeouts::default(),
            connect_query: None,
            trusted_functions: Arc::default(),
            application_name_add_host: false,
            max_replication_size: DEFAULT_MAX_REPLICATION_SIZE,
            pool_idle_time: Some(DEFAULT_POOL_IDLE_TIME),
            forgets_configured: false,
            cancel_wait_time: DEFAULT_CANCEL_WAIT_TIME,
            fast_close: false,
        }
    }
}

/// Whether the size of a pool is tuned while it runs (`max_size = "auto"`), and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AutoSize {
    pub enabled: bool,
    pub min: u32,
    /// The largest size; `None` is [`AutoSize::DEFAULT_MAX_SIZE`], or what limits leave.
    pub max: Option<u32>,
    /// The first size; `None` is the default of `max_size`.
    pub start: Option<u32>,
    /// How long each size is measured during the search.
    pub window: Duration,
}

impl AutoSize {
    pub const DEFAULT_MAX_SIZE: u32 = 60;

    /// The first size of a pool with this `min_size`.
    pub fn first_size(&self, min_size: u32) -> u32 {
        let start = self.start.unwrap_or(PoolConfig::default().max_size);
        start.max(min_size).max(self.min).min(self.max.unwrap_or(Self::DEFAULT_MAX_SIZE))
    }

    /// The largest size for a message; `name` is the setting or flag that bounds it.
    pub fn describe_max_size(&self, name: &str) -> String {
        self.max.map_or_else(
            || format!("{name}, which is {} by default", Self::DEFAULT_MAX_SIZE),
            |most| format!("{name} {most}"),
        )
    }
}

impl Default for AutoSize {
    fn default() -> Self {
        Self { enabled: false, min: 1, max: None, start: None, window: Duration::from_secs(4) }
    }
}

/// Treatment of session state in transaction and statement mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StateSettings {
    pub on_session_state: OnState,
    /// When servers are cleaned before another client gets them.
    pub reset: Reset,
    /// Most pinned servers of a pool; the default is half of `max_size`, at least one.
    pub max_pinned: Option<u32>,
    /// Most prepared statements kept on a server.
    pub max_prepared_statements: Option<u32>,
}

/// The words of `on_session_state`.
pub const ON_STATE_WORDS: &[(&str, OnState)] =
    &[("replay", OnState::Replay), ("pin", OnState::Pin), ("reject", OnState::Reject), ("allow", OnState::Allow)];

/// When servers are cleaned between clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reset {
    /// Unless all that ran on the server is known to leave no state.
    #[default]
    Auto,
    /// Whenever a server changes hands.
    Always,
    /// Only after a client that was pinned or disconnected.
    Never,
}

impl Reset {
    /// The words of the configuration.
    pub const WORDS: &[(&'static str, Self)] =
        &[("auto", Self::Auto), ("always", Self::Always), ("never", Self::Never)];
}

/// When a server returns to its pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// At the end of each transaction.
    #[default]
    Transaction,
    /// When the client leaves.
    Session,
    /// After each statement.
    Statement,
}

impl Mode {
    /// The words of configuration and command line.
    pub const WORDS: &[(&'static str, Self)] =
        &[("transaction", Self::Transaction), ("session", Self::Session), ("statement", Self::Statement)];

    pub fn as_str(self) -> &'static str {
        let word = Self::WORDS.iter().find(|(_, mode)| *mode == self);
        word.expect("each mode has a word").0
    }
}

impl std::str::FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        choose(text, Self::WORDS)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl PoolSettings {
    /// The sizes between which a pool is tuned, if it is. `smallest_cap` is the smallest limit that the pool shares
    /// with other pools; 0 is no limit.
    pub fn tuner_limits(&self, smallest_cap: u32) -> Option<tuner::Limits> {
        let AutoSize { enabled, min, max, window, start: _ } = self.auto;
        let min = min.max(self.config.min_size);
        let smallest_cap = if smallest_cap == 0 { u32::MAX } else { smallest_cap };
        let max = max.unwrap_or(AutoSize::DEFAULT_MAX_SIZE.min(smallest_cap)).max(min);
        enabled.then_some(tuner::Limits { min, max, window })
    }

    /// The largest size that a pool may have.
    pub fn largest_size(&self) -> u32 {
        self.tuner_limits(0).map_or(self.config.effective_max_size(), |limits| limits.max)
    }

    /// The largest number of servers that a pool may ever have, its reserve included.
    pub fn most_servers(&self) -> u32 {
        self.tuner_limits(0).map_or(self.config.most_servers(), |limits| limits.max)
    }

    /// The largest number of servers if `smallest_cap` is the smallest limit that the pool shares with others; 0 is no
    /// limit.
    pub fn max_servers_within(&self, smallest_cap: u32) -> u32 {
        let own = self.config.effective_max_size();
        if smallest_cap == 0 { own } else { own.min(smallest_cap) }
    }

    /// The largest number of pinned servers with this `smallest_cap`, which is as in `max_servers_within`.
    pub fn max_pinned(&self, smallest_cap: u32) -> u32 {
        self.state.max_pinned.unwrap_or((self.max_servers_within(smallest_cap) / 2).max(1))
    }
}

/// A set of defaults for one kind of client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preset {
    /// Functions that come in floods, freeze and never say goodbye: idle clients are closed after 310 s, just later
    /// than the platforms end idle containers (300 s). The driver sees to it that the kernel does not declare them dead
    /// before.
    Serverless,
}

impl Preset {
    /// The words of configuration and command line.
    pub const WORDS: &[(&'static str, Self)] = &[("serverless", Self::Serverless)];

    pub fn client_idle_time(self) -> Duration {
        match self {
            Self::Serverless => Duration::from_secs(310),
        }
    }
}

impl std::str::FromStr for Preset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        choose(text, Self::WORDS)
    }
}

/// A user that may log in, or the rules for users of that name.
#[derive(Clone, Debug, Default)]
pub struct User {
    pub name: String,
    /// `None` only if no user has a password.
    pub password: Option<Password>,
    /// Passwords that let it in as well, as while it is being given another one.
    pub other_passwords: OtherPasswords,
    /// Whether the user logs in with a client certificate of this name, and with nothing else.
    pub certificate: bool,
    /// Whether these are rules for a user whom a lookup may find, and let no user in by themselves.
    pub rules_only: bool,
    /// Overrides the database's mode.
    pub mode: Option<Mode>,
    /// Overrides the database's `max_size`.
    pub max_size: Option<u32>,
    /// Overrides the database's `reserve_size`.
    pub reserve_size: Option<u32>,
    /// Overrides the database's `reserve_wait_time`; `Some(None)` is off.
    pub reserve_wait_time: Option<Option<Duration>>,
    /// Overrides the database's `min_size`.
    pub min_size: Option<u32>,
    /// Overrides the database's `max_wait_time`; `Some(None)` is off.
    pub max_wait_time: Option<Option<Duration>>,
    /// Override those of databases and listeners.
    pub timeouts: PoolTimeouts,
    /// Servers of this user over all databases; overrides the limit of all users.
    pub max_user_connections: Option<u32>,
    /// Limits of its clients over all listeners.
    pub clients: Option<TenantLimits>,
    pub spots: Spots,
}

impl User {
    /// Has verifiers that are made of its plain password have this many rounds.
    pub fn derive_with(&mut self, iterations: u32) {
        if let Some(password) = &mut self.password {
            password.derive_with(iterations);
        }
    }

    /// A user without rules of its own.
    pub fn with_password(name: impl Into<String>, password: Option<Password>) -> Self {
        Self { name: name.into(), password, ..Self::default() }
    }
}

impl Listener {
    /// All its addresses.
    pub fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        std::iter::once(&self.listen).chain(&self.more)
    }

    /// Whether only this machine can reach it.
    pub fn is_local(&self) -> bool {
        self.endpoints().all(Endpoint::is_local)
    }
}

/// The default `backlog`; `net.core.somaxconn` may be less.
pub const DEFAULT_BACKLOG: u32 = 4096;

/// The default `hard_limit` of a listener.
pub const DEFAULT_HARD_LIMIT: u32 = 12_500;

/// The default `newcomer_wait_time`: longer than [`EVICT_MIN_IDLE`].
pub const NEWCOMER_WAIT: Duration = Duration::from_secs(6);

/// The default `evict_min_idle`.
pub const EVICT_MIN_IDLE: Duration = Duration::from_secs(5);

/// The default `soft_limit`: 80% of the hard limit, at least 1.
pub fn default_soft_limit(hard_limit: u32) -> u32 {
    (u64::from(hard_limit) * 4 / 5).max(1) as u32
}
