//! Settings that are each valid but cannot work together, or not on this machine. Reads the configuration and the
//! permissions of its files; connects to nothing.

mod addresses;
mod alike;
mod certificates;
mod console;
mod logins;
mod secrets;
mod tenants;
mod tuning;
mod users;

use std::time::Duration;

use driver::Address;
use settings::{Problem, Severity, show_duration};
use upstream::{Ignored, Kind};

use crate::{
    config::{Config, Database, Endpoint, FALLBACK, IntactSections, Listener, Mode, User},
    tls::Tls,
};

/// Time that a new connection is assumed to take. Measured times lie between 7 and 175 ms, most of it TLS and
/// authentication.
const ASSUMED_CONNECT_COST: Duration = Duration::from_millis(100);

/// Descriptors besides those of clients and servers.
const OTHER_DESCRIPTORS: u64 = 64;

/// The limits of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Machine {
    /// The limit of file descriptors.
    pub descriptors: u64,
}

impl Machine {
    pub fn here() -> Self {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        Self { descriptors: limit.maximum.unwrap_or(u64::MAX) }
    }
}

/// All problems of a valid configuration as a whole, errors first.
pub fn check(config: &Config, machine: Machine) -> Vec<Problem> {
    let mut found = Vec::new();
    addresses::duplicates(config, &mut found);
    missing_authentication(config, &mut found);
    descriptors(config, machine, &mut found);
    budgets(config, &mut found);
    for database in &config.databases {
        pool_times(config, database, &mut found);
        server_logins(config, database, &mut found);
        loops(config, database, &mut found);
        ignored(config, database, &mut found);
    }
    tuning::tuning(config, &mut found);
    for listener in &config.listeners {
        listener_times(config, listener, &mut found);
        addresses::newcomers(config, listener, &mut found);
    }
    addresses::folders(config, &mut found);
    addresses::peers(config, &mut found);
    tenants::tenants(config, &mut found);
    secrets::secrets(config, &mut found);
    users::users(config, &mut found);
    console::console(config, &mut found);
    tls_files(config, &mut found);
    certificates::expiry(config, &mut found);
    logins::logins(config, &mut found);
    open_keys(config, &mut found);
    files(config, &mut found);
    found.extend(config.source.iter().flat_map(|source| source.warnings.clone()));
    found.sort_by_key(|problem| problem.severity as u8);
    alike::fold(&mut found);
    found
}

/// The errors of the parts that could be read of an invalid configuration. Only intact parts are compared, so that no
/// error is the consequence of another one.
pub(crate) fn errors_of_a_part(config: &Config, intact: IntactSections) -> Vec<Problem> {
    let mut found = Vec::new();
    addresses::duplicates(config, &mut found);
    tls_files(config, &mut found);
    for database in &config.databases {
        server_logins(config, database, &mut found);
        loops(config, database, &mut found);
    }
    if intact.users {
        missing_authentication(config, &mut found);
    }
    if intact.users && intact.databases {
        tuning::tuning(config, &mut found);
        users::users(config, &mut found);
    }
    if intact.users && intact.listeners {
        logins::certificates_asked_for(config, &mut found);
    }
    found.retain(|problem| problem.severity == Severity::Error);
    found
}

fn missing_authentication(config: &Config, found: &mut Vec<Problem>) {
    let is_guarded = config.admin.view_needs_token && config.admin.orders_need_token();
    if let Some(admin) = config.admin.listen.filter(|a| !Endpoint::Tcp(*a).is_local() && !is_guarded) {
        let problem = Problem::warning(format!("the admin address {admin} can be reached from other machines"));
        let problem = problem.hint(match config.admin.orders_need_token() {
            true => {
                "looking asks for no token: everyone who reaches it sees names and addresses of clients; \
                 view_needs_token = true changes that"
            }
            false => {
                "everyone who reaches it sees names and addresses of clients; changes need a `token` there, \
                     and there is none"
            }
        });
        found.push(config.locate(problem, &config.admin.spots, "listen"));
    }
    let reachable = || config.listeners.iter().filter(|listener| !listener.is_local());
    for listener in reachable().filter(|listener| listener.http.is_some() && listener.tls.is_none()) {
        let problem = Problem::warning(format!("{} can be reached from other machines without TLS", listener.listen));
        let problem = problem
            .hint("a listener between reads the tokens: set tls_cert and tls_key, or have a proxy end TLS in front");
        found.push(config.locate(problem, &listener.spots, "listen"));
    }
    if config.insecure_no_auth {
        return;
    }
    // Requests over HTTP are guarded by a token.
    let unguarded = |listener: &&Listener| listener.http.is_none() && !config.authenticates(listener.kind);
    let logs_in = |kind| config.databases_of(kind).any(|database| database.password.is_some());
    let local = config.listeners.iter().filter(|listener| listener.is_local());
    for listener in local.filter(unguarded).filter(|listener| logs_in(listener.kind)) {
        let message = format!(
            "every program on this machine gets in at {} without a password: Poolhouse alone knows the one in the url",
            listener.listen
        );
        let problem = Problem::warning(message).hint("add a [[user]] with a password, and clients are asked for it");
        found.push(config.locate(problem, &listener.spots, "listen"));
    }
    for listener in reachable().filter(unguarded) {
        let message = format!("{} can be reached from other machines, but no user has a password", listener.listen);
        let hint = match config.source {
            Some(_) => "add a [[user]] with a password, or listen on 127.0.0.1, or give --insecure-no-auth",
            None => "put user and password into the URL, or listen on 127.0.0.1, or give --insecure-no-auth",
        };
        found.push(config.locate(Problem::error(message).hint(hint), &listener.spots, "listen"));
    }
}

/// The number of hosts, if each has pools of its own, with all sizes and limits of the database, and a monitor: so it
/// is for MongoDB. Other databases have one pool for all hosts.
fn hosts_with_pools(database: &Database) -> Option<u64> {
    (database.kind == Kind::MongoDb).then_some(database.hosts.addresses.len() as u64)
}

/// Servers of a database at all its hosts, with the hosts' monitors.
fn at_all_hosts(database: &Database, servers: u32) -> u64 {
    let servers = u64::from(servers);
    hosts_with_pools(database).map_or(servers, |hosts| hosts * (servers + 1))
}

/// The most servers that may be open at once: the process's limit, or the sum of the databases' limits.
fn most_servers(config: &Config) -> u64 {
    let of = |database: &Database| match database.max_connections {
        0 => at_all_hosts(database, database.pool.most_servers()),
        limit => at_all_hosts(database, limit),
    };
    let lookups = |database: &Database| database.auth.as_ref().map_or(0, |auth| u64::from(auth.pool_size));
    let of_console = config.console.auth.as_ref().map_or(0, |auth| u64::from(auth.pool_size));
    let sum = config.databases.iter().map(|database| of(database) + lookups(database)).sum::<u64>() + of_console;
    match config.limits.max_server_connections {
        0 => sum,
        limit => sum.min(u64::from(limit)),
    }
}

fn descriptors(config: &Config, machine: Machine, found: &mut Vec<Problem>) {
    let clients: u64 = config.listeners.iter().map(|listener| u64::from(listener.gate.hard_limit)).sum();
    let clients = match config.limits.max_clients {
        0 => clients,
        most => clients.min(u64::from(most)),
    };
    let needed = clients + most_servers(config) + OTHER_DESCRIPTORS;
    if needed <= machine.descriptors {
        return;
    }
    let Some(largest) = config.listeners.iter().max_by_key(|listener| listener.gate.hard_limit) else { return };
    let message = format!(
        "hard_limit {} is above what the descriptor limit of {} leaves: all clients and servers need {needed}",
        largest.gate.hard_limit, machine.descriptors
    );
    let problem = Problem::warning(message).hint("raise the limit (ulimit -Hn, or LimitNOFILE= of the unit)");
    found.push(config.locate(problem, &largest.spots, "hard_limit"));
}

fn budgets(config: &Config, found: &mut Vec<Problem>) {
    let process = config.limits.max_server_connections;
    let floor: u64 = config.databases.iter().map(|d| at_all_hosts(d, d.pool.config.min_size)).sum();
    if process > 0 && floor > u64::from(process) {
        let watched = config.databases.iter().any(|database| hosts_with_pools(database).is_some());
        let with = if watched { " with what watches MongoDB's hosts" } else { "" };
        let message = format!("max_server_connections {process} is below the sum of all min_size{with}, {floor}");
        found.push(config.locate(Problem::warning(message), &config.limits.spots, "max_server_connections"));
    }
    for database in &config.databases {
        let auto = database.pool.auto;
        let (max_size, name) = (database.pool.config.max_size, &database.name);
        // A tuned size stays within the limits, unless its bounds are configured.
        let max_size = if auto.enabled { auto.max.unwrap_or(0) } else { max_size };
        let mut compare = |key: &'static str, limit: u32| {
            if limit > 0 && max_size > limit {
                let message = format!("max_size {max_size} of `{name}` is above its {key} {limit} and never reached");
                found.push(config.locate(Problem::warning(message), &database.spots, key));
            }
        };
        compare("max_connections", database.max_connections);
        compare("max_user_connections", database.max_user_connections);
        let value = database.max_connections.max(max_size);
        let all = at_all_hosts(database, value);
        if process > 0 && value > 0 && all > u64::from(process) {
            let key = if database.max_connections >= max_size { "max_connections" } else { "max_size" };
            let message = match hosts_with_pools(database) {
                None => format!("{key} {value} of `{name}` is above max_server_connections {process}"),
                Some(hosts) => format!(
                    "{key} {value} of `{name}` at {} and a connection that watches each host make {all}, \
                     above max_server_connections {process}",
                    if hosts == 1 { "its host".to_owned() } else { format!("each of its {hosts} hosts") },
                ),
            };
            found.push(config.locate(Problem::warning(message), &database.spots, key));
        }
    }
}

fn pool_times(config: &Config, database: &Database, found: &mut Vec<Problem>) {
    let (pool, name) = (&database.pool.config, &database.name);
    let mut warn = |key, message: String, hint: &str| {
        found.push(config.locate(Problem::warning(message).hint(hint), &database.spots, key));
    };
    let rounds = pool.max_size.div_ceil(pool.max_connecting.max(1));
    let fill = ASSUMED_CONNECT_COST * rounds;
    if let Some(wait) = pool.max_wait_time.filter(|wait| fill > *wait) {
        let message = format!(
            "filling `{name}` takes about {}, longer than max_wait_time {}: {} servers, {} at a time, {} each",
            show_duration(fill),
            show_duration(wait),
            pool.max_size,
            pool.max_connecting,
            show_duration(ASSUMED_CONNECT_COST),
        );
        warn("max_size", message, "raise max_connecting or max_wait_time, or keep a min_size");
    }
    let most = database.pool.largest_size();
    if let Some(pinned) = database.pool.state.max_pinned.filter(|pinned| *pinned > most) {
        let message = format!("max_pinned {pinned} of `{name}` is above its {most} servers and limits nothing");
        warn("max_pinned", message, "clients that keep a server may take all: write fewer than max_size");
    }
    if let (Some(busy), Some(down)) = (pool.max_wait_time, pool.unavailable_wait_time)
        && down < busy
    {
        let (busy, down) = (show_duration(busy), show_duration(down));
        let message = format!("unavailable_wait_time {down} of `{name}` is below max_wait_time {busy}");
        warn("unavailable_wait_time", message, "a database that is down would be given up before a busy one");
    }
    if let (Some(idle), Some(life)) = (pool.max_idle_time, pool.max_life_time)
        && idle > life
    {
        let (idle, life) = (show_duration(idle), show_duration(life));
        let message = format!("max_idle_time {idle} of `{name}` is above max_life_time {life} and has no effect");
        warn("max_idle_time", message, "lower it, or switch it off");
    }
    let speaking = config.listeners.iter().filter(|listener| listener.kind == database.kind);
    let clients = speaking.map(|listener| listener.gate.hard_limit).max().unwrap_or(0);
    if database.pool.mode == Mode::Session && pool.max_wait_time.is_some() && clients > pool.effective_max_size() {
        let message = format!(
            "in session mode each client of `{name}` keeps a server: of {clients} clients only {} are served at once",
            pool.max_size
        );
        warn("mode", message, "use transaction mode if the application can, or lower hard_limit");
    }
}

fn server_logins(config: &Config, database: &Database, found: &mut Vec<Problem>) {
    // A password without a user is that of Redis' `default` user.
    if database.kind == Kind::Postgres && database.user.is_none() && database.password.is_some() {
        let problem = Problem::error(format!("`{}` has a password but its url has no user", database.name));
        found.push(config.locate(problem, &database.spots, "url"));
    }
    if database.user.is_some() {
        return;
    }
    // A SCRAM verifier suffices: servers are logged in to with the keys of the user's own login.
    let hashed = |user: &&User| user.password.as_ref().is_some_and(|password| password.md5().is_some());
    if let Some(user) = config.users.iter().find(hashed) {
        let message = format!(
            "the url of `{}` has no user, so clients' own are used there; but of `{}` only an md5 hash is known",
            database.name, user.name
        );
        let problem = Problem::warning(message);
        let problem =
            problem.hint("it works only where the upstream asks for md5: use the SCRAM verifier in pg_authid there");
        found.push(config.locate(problem, &database.spots, "url"));
    }
}

/// Options of a URL that are for drivers only.
fn ignored(config: &Config, database: &Database, found: &mut Vec<Problem>) {
    if database.ignored.is_empty() {
        return;
    }
    let named = |ignored: &Ignored| match ignored.setting {
        Some(setting) => format!("{} (here the setting is `{setting}`)", ignored.name),
        None => ignored.name.to_owned(),
    };
    let all: Vec<String> = database.ignored.iter().map(named).collect();
    let message = format!("options of the url of `{}` are for drivers and ignored: {}", database.name, all.join(", "));
    let problem = Problem::warning(message).hint("applications say them in their own URLs");
    let key = if database.spots.contains_key("url_file") { "url_file" } else { "url" };
    found.push(config.locate(problem, &database.spots, key));
}

/// A database whose address is one of Poolhouse's own listeners.
fn loops(config: &Config, database: &Database, found: &mut Vec<Problem>) {
    let is_host = |listen: &Endpoint, address: &Address| match (listen, address) {
        (Endpoint::Unix(a), Address::Unix(b)) => a == b,
        (Endpoint::Tcp(a), Address::Tcp { host, port }) => {
            let local = host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
            a.port() == *port && local && (a.ip().is_loopback() || a.ip().is_unspecified())
        }
        _ => false,
    };
    let is_upstream = |listener: &&Listener| {
        let reaches = |host: &Address| listener.endpoints().any(|listen| is_host(listen, host));
        database.hosts.addresses.iter().any(reaches)
    };
    if let Some(listener) = config.listeners.iter().find(is_upstream) {
        let name = if database.name == FALLBACK { "the fallback database" } else { &database.name };
        let message = format!("the url of `{name}` is Poolhouse's own address {}", listener.listen);
        // In PgBouncer's place the console may be reached in this way.
        let problem =
            if config.is_in_place_of_pgbouncer() { Problem::warning(message) } else { Problem::error(message) };
        found.push(config.locate(problem, &database.spots, "url"));
    }
}

fn listener_times(config: &Config, listener: &Listener, found: &mut Vec<Problem>) {
    let Some(query) = listener.timeouts.query else { return };
    let waits = config.databases_of(listener.kind).filter_map(|database| database.pool.config.max_wait_time);
    if let Some(wait) = waits.max().filter(|wait| *wait >= query) {
        let message = format!("query_time {} is not above max_wait_time {}", show_duration(query), show_duration(wait));
        let problem = Problem::warning(message)
            .hint("waiting for a server is no part of query_time: a request may take as long as both together");
        found.push(config.locate(problem, &listener.spots, "query_time"));
    }
}

fn tls_files(config: &Config, found: &mut Vec<Problem>) {
    if let Err(problems) = Tls::load(config) {
        found.extend(problems.0);
    }
}

fn open_keys(config: &Config, found: &mut Vec<Problem>) {
    use std::os::unix::fs::PermissionsExt;
    let of_listeners = config.listeners.iter().filter_map(|listener| listener.tls.as_ref()).map(|tls| &tls.key);
    let of_databases =
        config.databases.iter().filter_map(|database| database.tls.identity.as_ref()).map(|(_, key)| key);
    for key in of_listeners.chain(of_databases) {
        if std::fs::metadata(key).is_ok_and(|meta| meta.permissions().mode() & 0o004 != 0) {
            let problem = Problem::warning("every user of this machine can read this key").in_file(key);
            found.push(problem.hint(format!("chmod o-rwx {}", key.display())));
        }
    }
}

fn files(config: &Config, found: &mut Vec<Problem>) {
    use std::os::unix::fs::PermissionsExt;
    let Some(source) = &config.source else { return };
    for path in &source.secret_files {
        let open = std::fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o004 != 0);
        if open && (*path != source.path || holds_plain_secret(config)) {
            let problem = Problem::warning("every user of this machine can read the passwords in it").in_file(path);
            found.push(problem.hint(format!("chmod o-rwx {}", path.display())));
        }
    }
}

/// Whether the main file holds a password, rather than variables or names of files.
fn holds_plain_secret(config: &Config) -> bool {
    let Some(source) = &config.source else { return false };
    let text = source.text.reveal();
    let literal = |spots: &settings::Spots, key: &str| {
        let value = spots.get(key).and_then(|span| text.get(span.clone()));
        value.is_some_and(|value| !value.contains("${") && !value.contains("SCRAM-SHA-256$"))
    };
    config.users.iter().any(|user| literal(&user.spots, "password"))
        || config.databases.iter().any(|database| {
            literal(&database.spots, "password")
                || literal(&database.spots, "auth_password")
                || (database.password.is_some() && literal(&database.spots, "url"))
        })
}
