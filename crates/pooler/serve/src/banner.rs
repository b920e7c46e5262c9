//! The message on standard error when serving begins: the listeners, how to connect, the admin address.

use std::{
    fmt::Write,
    io::{self, Write as _},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
};

use upstream::Kind;

use crate::{
    config::{Config, Database, Endpoint, FALLBACK, shown_path},
    logs::LogFormat,
};

/// Databases that the message names.
const MAX_LISTED_DATABASES: usize = 10;

/// Shows the message as text, or as one event of the log.
pub fn show(config: &Config, endpoints: &[Vec<Endpoint>], admin: Option<SocketAddr>, format: LogFormat) {
    let listeners: Vec<String> = endpoints.iter().flatten().map(Endpoint::to_string).collect();
    match format {
        LogFormat::Text => write_stderr(&text(config, endpoints, admin)),
        LogFormat::Json => tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            listeners = listeners.join(" "),
            admin = admin.map(|address| address.to_string()),
            "serving"
        ),
    }
}

/// Writes to standard error and ignores errors: `eprint` would panic when the disk behind it is full.
pub fn write_stderr(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

fn text(config: &Config, endpoints: &[Vec<Endpoint>], admin: Option<SocketAddr>) -> String {
    let mut text = format!("Poolhouse {} serves\n", env!("CARGO_PKG_VERSION"));
    for database in config.databases.iter().take(MAX_LISTED_DATABASES) {
        let pool = &database.pool;
        let (upstream, most) = (&database.hosts, pool.most_servers());
        let _ = match (database.kind, database.name.as_str()) {
            (Kind::Redis, _) => {
                let master = database.sentinel.as_ref().map(|sentinel| format!("{} by ", sentinel.master));
                let master = master.unwrap_or_default();
                writeln!(text, "  {master}{upstream} (Redis), at most {most} servers for each logical database")
            }
            (Kind::MongoDb, _) => writeln!(text, "  {upstream} (MongoDB), at most {most} servers for each host"),
            (_, FALLBACK) => writeln!(text, "  any other name: {upstream}, {} mode, at most {most} servers", pool.mode),
            (_, name) => writeln!(text, "  {name}: {upstream}, {} mode, at most {most} servers", pool.mode),
        };
    }
    if let Some(more) = config.databases.len().checked_sub(MAX_LISTED_DATABASES).filter(|more| *more > 0) {
        let _ = writeln!(text, "  and {more} more");
    }
    let _ = writeln!(text, "on");
    for (endpoints, listener) in endpoints.iter().zip(&config.listeners) {
        let endpoint = endpoints.iter().map(Endpoint::to_string).collect::<Vec<_>>().join(", ");
        let what = if listener.http.is_some() { " (HTTP)" } else { "" };
        let _ = writeln!(text, "  {endpoint}{what}, at most {} clients", listener.gate.hard_limit);
    }
    let mut kinds_shown = Vec::new();
    let all = || endpoints.iter().zip(&config.listeners);
    for (endpoints, listener) in all().filter(|(_, listener)| listener.http.is_none()) {
        let Some(database) =
            config.databases_of(listener.kind).next().filter(|_| !kinds_shown.contains(&listener.kind))
        else {
            continue;
        };
        let command = match listener.kind {
            Kind::Postgres => psql(config, &endpoints[0], database),
            Kind::Redis => redis_cli(config, &endpoints[0]),
            Kind::MongoDb => mongosh(config, &endpoints[0]),
        };
        let head = if kinds_shown.is_empty() { "connect with\n" } else { "" };
        let _ = writeln!(text, "{head}  {command}");
        kinds_shown.push(listener.kind);
    }
    let http = all().find(|(_, listener)| listener.http.is_some());
    if let Some((endpoints, listener)) = http {
        let _ = writeln!(text, "ask over HTTP with\n  {}", curl(&endpoints[0], listener.tls.is_some()));
    }
    match admin {
        Some(address) => _ = writeln!(text, "look at\n  http://{}/metrics", local_address(address)),
        None => text.push_str("without an admin address\n"),
    }
    text
}

/// An address by which this machine reaches a socket. A socket of IPv6 takes no clients of IPv4.
fn local_address(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(any) if any.ip().is_unspecified() => (Ipv4Addr::LOCALHOST, any.port()).into(),
        SocketAddr::V6(any) if any.ip().is_unspecified() => (Ipv6Addr::LOCALHOST, any.port()).into(),
        one => one,
    }
}

/// A command that connects with psql, which asks for the password.
fn psql(config: &Config, endpoint: &Endpoint, database: &Database) -> String {
    let (host, port) = match endpoint {
        Endpoint::Tcp(address) => (local_address(*address).ip().to_string(), address.port().to_string()),
        Endpoint::Unix(path) => {
            // libpq finds a socket by its folder and the number after `.s.PGSQL.`.
            let port = path.extension().map_or_else(|| "5432".to_owned(), |port| port.to_string_lossy().into_owned());
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            (folder.map_or_else(|| ".".to_owned(), shown_path), port)
        }
    };
    let name = if database.name == FALLBACK { "postgres" } else { &database.name };
    let user = config.users.first().map(|user| user.name.as_str()).or(database.user.as_deref());
    let user = user.map(|user| format!(" -U {}", quoted(user))).unwrap_or_default();
    format!("psql -h {} -p {port}{user} {}", quoted(&host), quoted(name))
}

fn redis_cli(config: &Config, endpoint: &Endpoint) -> String {
    let place = match endpoint {
        Endpoint::Tcp(address) if address.ip() == Ipv4Addr::UNSPECIFIED => format!("-p {}", address.port()),
        Endpoint::Tcp(address) => format!("-h {} -p {}", local_address(*address).ip(), address.port()),
        Endpoint::Unix(path) => format!("-s {}", quoted(&shown_path(path))),
    };
    match config.users.first() {
        Some(user) if user.name != "default" => format!("redis-cli {place} --user {} --askpass", quoted(&user.name)),
        Some(_) => format!("redis-cli {place} --askpass"),
        None => format!("redis-cli {place}"),
    }
}

fn mongosh(config: &Config, endpoint: &Endpoint) -> String {
    let place = match endpoint {
        Endpoint::Tcp(address) => local_address(*address).to_string(),
        Endpoint::Unix(path) => shown_path(path).replace('/', "%2F"),
    };
    match config.users.first() {
        Some(user) => format!("mongosh mongodb://{place} -u {}", quoted(&user.name)),
        None => format!("mongosh mongodb://{place}"),
    }
}

/// A command for Redis over HTTP.
fn curl(endpoint: &Endpoint, tls: bool) -> String {
    let scheme = if tls { "https" } else { "http" };
    let place = match endpoint {
        Endpoint::Tcp(address) => format!("{scheme}://{}/ping", local_address(*address)),
        Endpoint::Unix(path) => {
            format!("--unix-socket {} {scheme}://localhost/ping", quoted(&shown_path(path)))
        }
    };
    format!("curl -H \"Authorization: Bearer $TOKEN\" {place}")
}

fn quoted(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-./:@".contains(&b);
    match !text.is_empty() && text.bytes().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Flags, from_url};

    #[test]
    fn it_names_a_command_to_connect_and_no_password() {
        let config = from_url("postgres://app:hunter2@db:5432/my%20data", &Flags::default(), &|_| None).unwrap();
        let shown = text(&config, &[vec![config.listeners[0].listen.clone()]], config.admin.listen);
        assert!(shown.contains("psql -h 127.0.0.1 -p 6432 -U app 'my data'"), "{shown}");
        assert!(shown.contains("http://127.0.0.1:9930/metrics"), "{shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn a_socket_of_all_addresses_is_reached_by_the_one_of_its_own_kind() {
        let config = from_url("postgres://app:pw@db/d", &Flags::default(), &|_| None).unwrap();
        for (listen, host, place) in [
            ("0.0.0.0:7000", "127.0.0.1", "127.0.0.1:7000"),
            ("[::]:7000", "::1", "[::1]:7000"),
            ("10.0.0.5:7000", "10.0.0.5", "10.0.0.5:7000"),
        ] {
            let endpoint = Endpoint::parse(listen).unwrap();
            let command = psql(&config, &endpoint, &config.databases[0]);
            assert_eq!(command, format!("psql -h {host} -p 7000 -U app d"));
            assert_eq!(mongosh(&config, &endpoint), format!("mongosh mongodb://{place} -u app"));
            assert!(curl(&endpoint, false).ends_with(&format!("http://{place}/ping")));
        }
        let all = Endpoint::parse("[::]:7000").unwrap();
        assert_eq!(redis_cli(&config, &all), "redis-cli -h ::1 -p 7000 --user app --askpass");
    }

    #[test]
    fn a_unix_socket_is_named_as_libpq_wants_it() {
        let config = from_url("postgres:///d?host=/run/pg", &Flags::default(), &|_| None).unwrap();
        let endpoint = Endpoint::parse("/run/x/.s.PGSQL.7000").unwrap();
        assert_eq!(psql(&config, &endpoint, &config.databases[0]), "psql -h /run/x -p 7000 d");
    }
}
