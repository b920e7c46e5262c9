//! Makes a [`Config`] from one URL and the flags of the command line.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use seam::TlsLimits;
use settings::Secret;
use settings::{Problem, Problems, Variables, interpolate_url};
use upstream::{Kind, UpstreamUrl};

use super::{
    Admin, AuthType, AutoSize, ClientAuth, Config, Console, Database, Dns, Endpoint, FALLBACK, Limits, Listener,
    ListenerTls, Log, Mode, PoolSettings, Preset, Serve, Token, User, default_soft_limit,
    file::default_port,
    http::{MIN_TOKEN, default_rules},
    redis,
};
use crate::Password;

/// Flags of the command line. `None` is the default; `Some(None)` of a duration is off.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// Addresses of listeners; the default is `127.0.0.1:6432`, for Redis `127.0.0.1:7379`.
    pub listen: Vec<Endpoint>,
    /// TLS towards clients.
    pub tls: Option<TlsFlags>,
    /// Address of a listener for Redis over HTTP.
    pub http: Option<Endpoint>,
    /// The bearer token of its clients.
    pub http_token: Option<Secret>,
    /// The admin address; `Some(None)` is off.
    pub admin: Option<Option<SocketAddr>>,
    /// Host names that requests at the admin address may use.
    pub admin_names: Vec<String>,
    /// The token that orders take.
    pub admin_token: Option<Secret>,
    pub workers: Option<u32>,
    /// When a server returns to its pool.
    pub mode: Option<Mode>,
    /// Most servers of a pool.
    pub max_size: Option<u32>,
    /// Whether `max_size` is tuned while Poolhouse runs.
    pub auto_size: bool,
    /// Smallest size that tuning may choose.
    pub auto_min_size: Option<u32>,
    pub auto_max_size: Option<u32>,
    /// Size with which tuning begins.
    pub auto_start_size: Option<u32>,
    /// Fewest servers of a pool.
    pub min_size: Option<u32>,
    /// Most servers being connected at a time.
    pub max_connecting: Option<u32>,
    pub soft_limit: Option<u32>,
    pub hard_limit: Option<u32>,
    /// Defaults for a kind of client.
    pub preset: Option<Preset>,
    /// How long a client waits for a busy server.
    pub max_wait_time: Option<Option<Duration>>,
    /// How long a client waits for an unreachable server.
    pub unavailable_wait_time: Option<Option<Duration>>,
    /// When an idle server is closed.
    pub max_idle_time: Option<Option<Duration>>,
    /// When a server is replaced.
    pub max_life_time: Option<Option<Duration>>,
    /// How long a newcomer waits for a place.
    pub newcomer_wait_time: Option<Option<Duration>>,
    /// From having a place to the end of authentication.
    pub login_time: Option<Option<Duration>>,
    /// When an idle client is closed.
    pub client_idle_time: Option<Option<Duration>>,
    /// Most time of one request.
    pub query_time: Option<Option<Duration>>,
    /// Most time between the requests of a transaction.
    pub transaction_idle_time: Option<Option<Duration>>,
    /// How long clients may take to finish at the end.
    pub drain_time: Option<Option<Duration>>,
    /// Let clients in from anywhere though no user has a password.
    pub insecure_no_auth: bool,
}

/// The TLS of all listeners that have an address.
#[derive(Clone, Debug)]
pub struct TlsFlags {
    pub cert: PathBuf,
    pub key: PathBuf,
    /// Whether clients without TLS are refused.
    pub required: bool,
    /// The file of the authorities that sign clients' certificates.
    pub client_ca: Option<PathBuf>,
    /// Whether clients without a certificate are refused.
    pub clients_required: bool,
}

impl TlsFlags {
    fn at(&self, listen: &Endpoint) -> Option<ListenerTls> {
        let clients = match (self.client_ca.clone(), self.clients_required) {
            (None, _) => ClientAuth::Off,
            (Some(file), false) => ClientAuth::Optional(file),
            (Some(file), true) => ClientAuth::Required(file),
        };
        let tls = ListenerTls {
            required: self.required,
            cert: self.cert.clone(),
            key: self.key.clone(),
            clients,
            limits: TlsLimits::default(),
        };
        matches!(listen, Endpoint::Tcp(_)).then_some(tls)
    }
}

/// Makes a configuration: the URL's database under its own name, all others of that server under theirs, and the
/// URL's user with the URL's password as the one user.
pub fn from_url(url: &str, flags: &Flags, variables: Variables<'_>) -> Result<Config, Problems> {
    let error = |message: String| Problems::from(Problem::error(format!("the URL: {message}")));
    let url = interpolate_url(url.trim(), variables).map_err(error)?;
    let url = UpstreamUrl::parse_any(&url).map_err(error)?;
    if url.kind == Kind::Redis && url.database.as_deref().is_some_and(|number| number != "0") {
        return Err(error(redis::NO_NUMBER.to_owned()));
    }
    let pool = pool_settings(&url, flags)?;
    let tls = |endpoint: &Endpoint| flags.tls.as_ref().and_then(|tls| tls.at(endpoint));
    let listener =
        |endpoint: &Endpoint| Listener { listen: endpoint.clone(), tls: tls(endpoint), ..listener(url.kind, flags) };
    let listeners: Vec<_> = match flags.listen.is_empty() {
        true => vec![listener(&Endpoint::Tcp(([127, 0, 0, 1], default_port(url.kind)).into()))],
        false => flags.listen.iter().map(listener).collect(),
    };
    let mut listeners = listeners;
    listeners.extend(http_listener(&url, flags)?.map(|http| Listener { tls: tls(&http.listen), ..http }));
    if let Some(l) = listeners.iter().find(|l| l.gate.soft_limit > l.gate.hard_limit) {
        let (soft, hard) = (l.gate.soft_limit, l.gate.hard_limit);
        return Err(Problem::error(format!("--soft-limit {soft} is above the hard limit {hard}")).into());
    }
    let default = Serve::default();
    Ok(Config {
        console: Console::default(),
        source: None,
        serve: Serve {
            workers: flags.workers.unwrap_or(default.workers),
            drain_time: flags.drain_time.unwrap_or(default.drain_time),
            ..default
        },
        admin: admin(flags)?,
        auth: AuthType::default(),
        limits: Limits::default(),
        tcp: driver::TcpOptions::default(),
        dns: Dns::default(),
        log: Log::default(),
        scram_iterations: scram::DEFAULT_ITERATIONS,
        pool: pool.clone(),
        insecure_no_auth: flags.insecure_no_auth,
        listeners,
        users: user(&url)?,
        tokens: flags.http_token.iter().map(|token| Token::all("http", token)).collect(),
        databases: databases(url, pool),
        peers: Vec::new(),
    })
}

fn admin(flags: &Flags) -> Result<Admin, Problems> {
    if flags.admin_token.as_ref().is_some_and(|token| token.reveal().len() < MIN_TOKEN) {
        let problem = Problem::error(format!("the admin token has fewer than {MIN_TOKEN} characters"));
        return Err(problem.hint("make one: openssl rand -hex 32").into());
    }
    let default = Admin::default();
    Ok(Admin {
        listen: flags.admin.unwrap_or(default.listen),
        is_configured: flags.admin.is_some(),
        names: flags.admin_names.clone(),
        token: flags.admin_token.clone(),
        ..default
    })
}

/// The URL's own database, and whatever else its server has.
fn databases(url: UpstreamUrl, pool: PoolSettings) -> Vec<Database> {
    // As in libpq, a URL without a database means the one called like the user.
    let named = match url.kind {
        Kind::Postgres => url.database.clone().or_else(|| url.user.clone()),
        // Its logical databases have numbers, and no rules of their own.
        Kind::Redis | Kind::MongoDb => None,
    };
    let (kind, hosts) = (url.kind, dial::hosts(&url));
    let mut fallback = Database {
        kind,
        name: FALLBACK.to_owned(),
        hosts,
        sentinel: url.sentinel,
        mongo: url.mongo.clone(),
        target: dial::target(url.session_attrs),
        database: None,
        user: url.user,
        password: url.password,
        password_command: None,
        tls: url.tls,
        parameters: url.parameters,
        pool,
        auth: None,
        max_connections: 0,
        max_user_connections: 0,
        clients: None,
        is_console: false,
        ignored: url.ignored,
        srv: url.srv,
        mongo_of_url: url.mongo,
        spots: Default::default(),
    };
    match kind {
        Kind::Postgres => {}
        Kind::Redis => redis::default_user(&mut fallback),
        // It may be where the user is known.
        Kind::MongoDb => fallback.database = url.database,
    }
    let own = named.map(|name| Database { name: name.clone(), database: Some(name), ..fallback.clone() });
    own.into_iter().chain([fallback]).collect()
}

fn user(url: &UpstreamUrl) -> Result<Vec<User>, Problems> {
    let Some(name) = &url.user else {
        return match url.password {
            // A password alone is that of Redis's `default` user.
            Some(_) if url.kind == Kind::Redis => Ok(vec![User::with_password("default", password(url))]),
            Some(_) => Err(Problem::error("the URL has a password but no user").into()),
            None => Ok(Vec::new()),
        };
    };
    Ok(vec![User::with_password(name, password(url))])
}

fn password(url: &UpstreamUrl) -> Option<Password> {
    let password = url.password.as_ref().filter(|password| !password.reveal().is_empty());
    // The upstream wants this very text, so it is the password itself even if it looks like a hash.
    password.map(|secret| Password::Plain(Secret::clone(secret), Default::default()))
}

/// Where clients come in that speak HTTP.
fn http_listener(url: &UpstreamUrl, flags: &Flags) -> Result<Option<Listener>, Problems> {
    let error = |message: &str, hint: &str| Err(Problem::error(message.to_owned()).hint(hint).into());
    match (&flags.http, &flags.http_token) {
        (None, None) => Ok(None),
        (None, Some(_)) => error("--http-token-file is for --http", "add --http 127.0.0.1:8079"),
        (Some(_), _) if url.kind != Kind::Redis => error("--http is for Redis", "leave it out"),
        (Some(_), None) => error(
            "with --http clients show a token, and there is none",
            "openssl rand -hex 32 > rest.token, and --http-token-file rest.token",
        ),
        (Some(_), Some(token)) if token.reveal().len() < MIN_TOKEN => {
            error("the token for --http has fewer than 16 characters", "make one: openssl rand -hex 32")
        }
        (Some(listen), Some(_)) => {
            Ok(Some(Listener { listen: listen.clone(), http: Some(default_rules()), ..listener(url.kind, flags) }))
        }
    }
}

fn listener(kind: Kind, flags: &Flags) -> Listener {
    let mut listener = Listener::new(kind, Endpoint::Unix(Default::default()));
    if let Some(hard) = flags.hard_limit {
        listener.gate.hard_limit = hard;
        listener.gate.soft_limit = default_soft_limit(hard);
    }
    listener.gate.soft_limit = flags.soft_limit.unwrap_or(listener.gate.soft_limit);
    let times = &mut listener.timeouts;
    if let Some(preset) = flags.preset {
        times.client_idle = Some(preset.client_idle_time());
    }
    times.newcomer_wait = flags.newcomer_wait_time.unwrap_or(times.newcomer_wait);
    times.login = flags.login_time.unwrap_or(times.login);
    times.client_idle = flags.client_idle_time.unwrap_or(times.client_idle);
    times.query = flags.query_time.unwrap_or(times.query);
    times.transaction_idle = flags.transaction_idle_time.unwrap_or(times.transaction_idle);
    listener
}

fn pool_settings(url: &UpstreamUrl, flags: &Flags) -> Result<PoolSettings, Problems> {
    if url.kind != Kind::Postgres && flags.mode.is_some_and(|mode| mode != Mode::Transaction) {
        let problem =
            Problem::error("--mode is for PostgreSQL: other clients keep a server for as long as they need one");
        return Err(problem.into());
    }
    let mut settings = PoolSettings { mode: flags.mode.unwrap_or_default(), ..PoolSettings::default() };
    settings.auto = auto_size(url.kind, flags)?;
    let config = &mut settings.config;
    config.min_size = flags.min_size.unwrap_or(config.min_size);
    if settings.auto.enabled && config.min_size > settings.auto.max.unwrap_or(AutoSize::DEFAULT_MAX_SIZE) {
        let text =
            format!("--min-size {} is above {}", config.min_size, settings.auto.describe_max_size("--auto-max-size"));
        let hint = format!("raise --auto-max-size to {} at least, or lower --min-size", config.min_size);
        return Err(Problem::error(text).hint(hint).into());
    }
    config.max_size = match settings.auto.enabled {
        true => settings.auto.first_size(config.min_size),
        false => flags.max_size.unwrap_or(config.max_size),
    };
    config.max_connecting = flags.max_connecting.unwrap_or(config.max_connecting);
    config.max_wait_time = flags.max_wait_time.unwrap_or(config.max_wait_time);
    config.unavailable_wait_time = flags.unavailable_wait_time.unwrap_or(config.unavailable_wait_time);
    config.max_idle_time = flags.max_idle_time.unwrap_or(config.max_idle_time);
    config.max_life_time = flags.max_life_time.unwrap_or(config.max_life_time);
    config.connect_timeout = url.connect_time.unwrap_or(config.connect_timeout);
    match config.validate() {
        Ok(()) => Ok(settings),
        Err(error) => Err(Problem::error(error.to_string()).into()),
    }
}

/// Whether the size is tuned, and between which bounds.
fn auto_size(kind: Kind, flags: &Flags) -> Result<AutoSize, Problems> {
    let Flags { auto_size, auto_min_size, auto_max_size, auto_start_size, .. } = *flags;
    let problem = |text: String, hint: &str| Err(Problem::error(text).hint(hint).into());
    let named = [auto_min_size, auto_max_size, auto_start_size].into_iter().any(|size| size.is_some());
    if !auto_size && named {
        let text = "--auto-min-size, --auto-max-size and --auto-start-size are for --max-size auto".to_owned();
        return problem(text, "say --max-size auto, or leave them out");
    }
    if auto_size && kind == Kind::Redis {
        let text = "--max-size auto: clients of Redis share connections, which leaves nothing to tune".to_owned();
        return problem(text, "give --max-size a number");
    }
    let default = AutoSize::default();
    let min = auto_min_size.unwrap_or(default.min);
    let most = auto_max_size.unwrap_or(AutoSize::DEFAULT_MAX_SIZE);
    if min > most {
        let hint = if auto_max_size.is_some() { "exchange them" } else { "raise --auto-max-size" };
        return problem(format!("--auto-min-size {min} is above --auto-max-size {most}"), hint);
    }
    if let Some(start) = auto_start_size.filter(|start| *start < min || *start > most) {
        let text = format!("--auto-start-size {start} is outside --auto-min-size {min} to --auto-max-size {most}");
        return problem(text, "give it a size between them");
    }
    Ok(AutoSize { enabled: auto_size, min, max: auto_max_size, start: auto_start_size, ..default })
}
