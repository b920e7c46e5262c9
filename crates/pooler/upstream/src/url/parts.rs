//! The parts of a URL while they are read, and what they are together.

use std::time::Duration;

use settings::{Secret, choose, nearest};

use super::{Sentinel, UpstreamUrl};
use crate::{
    hosts::{Address, HostOrder, SessionAttrs, addresses, parse_port},
    kind::Kind,
    mongodb,
    percent::decode,
    srv::SrvName,
    tls::{SslMode, URL_TLS_KEYS, UpstreamTls, UrlTls},
};

/// Parameters of a PostgreSQL URL beside those of TLS, for "did you mean".
const PARAMETERS: &[&str] = &[
    "host",
    "port",
    "user",
    "password",
    "dbname",
    "connect_timeout",
    "application_name",
    "options",
    "target_session_attrs",
    "load_balance_hosts",
];

/// The scheme of a name that stands for all hosts of a MongoDB.
pub const SRV_SCHEME: &str = "mongodb+srv";

/// `srvServiceName` of a URL without one.
const SRV_SERVICE: &str = "mongodb";

/// Parameters that only a `redis+sentinel://` URL may have.
const SENTINEL_KEYS: &[&str] = &["sentinel_user", "sentinel_password"];

/// The [`URL_TLS_KEYS`] that a `rediss://` URL may have.
const REDIS_TLS_KEYS: &[&str] = &["sslmode", "sslrootcert", "sslcert", "sslkey"];

#[derive(Default)]
pub struct UrlParts {
    kind: Kind,
    /// It is `rediss://`.
    secure: bool,
    /// It is `redis+sentinel://`.
    sentinels: bool,
    /// It is `mongodb+srv://`.
    srv: bool,
    /// The login at the sentinels.
    sentinel_user: Option<String>,
    sentinel_password: Option<String>,
    mongo: mongodb::UrlOptions,
    /// As listed. An empty one stands for the default.
    hosts: Vec<String>,
    /// One for all hosts, or one for each.
    ports: Vec<Option<u16>>,
    session_attrs: SessionAttrs,
    host_order: HostOrder,
    pub user: Option<String>,
    pub password: Option<String>,
    pub database: Option<String>,
    tls: UrlTls,
    parameters: Vec<(String, String)>,
    connect_time: Option<Duration>,
}

impl UrlParts {
    pub fn new(kind: Kind, scheme: &str) -> Self {
        let (secure, sentinels) = (scheme.starts_with("rediss"), scheme.ends_with("+sentinel"));
        Self { kind, secure, sentinels, srv: scheme == SRV_SCHEME, ..Self::default() }
    }

    /// Reads the part between `@` and `/`: hosts with their ports, separated by commas.
    pub fn read_hosts(&mut self, list: &str) -> Result<(), String> {
        if list.is_empty() {
            return Ok(());
        }
        for place in list.split(',') {
            let (host, port) = if let Some(v6) = place.strip_prefix('[') {
                let (host, behind) = v6.split_once(']').ok_or("a `[` in the host without a `]`")?;
                host.parse::<std::net::Ipv6Addr>().map_err(|_| "what stands in `[]` is no IPv6 address")?;
                match behind.strip_prefix(':') {
                    None if !behind.is_empty() => return Err("something stands between `]` and the port".to_owned()),
                    port => (host, port),
                }
            } else {
                place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port)))
            };
            self.hosts.push(decode(host)?);
            self.ports.push(port.filter(|port| !port.is_empty()).map(parse_port).transpose()?);
        }
        Ok(())
    }

    pub fn parameter(&mut self, key: &str, value: String) -> Result<(), String> {
        if self.kind == Kind::MongoDb {
            return self.mongo.parameter(key, value, &mut self.tls);
        }
        if self.kind == Kind::Redis {
            if REDIS_TLS_KEYS.contains(&key) && !self.secure {
                return Err(format!("`{key}` is for TLS, which needs rediss://"));
            }
            if SENTINEL_KEYS.contains(&key) && !self.sentinels {
                return Err(format!("`{key}` is for sentinels, which need redis+sentinel://"));
            }
            let known = [REDIS_TLS_KEYS, SENTINEL_KEYS, &["connect_timeout"]].concat();
            if !known.contains(&key) {
                let guess = nearest(key, &known).map(|n| format!(", did you mean `{n}`?")).unwrap_or_default();
                let key = key.escape_debug();
                return Err(format!("unknown parameter `{key}` behind the `?` of a redis:// URL{guess}"));
            }
        }
        match key {
            "host" => self.hosts = value.split(',').map(str::to_owned).collect(),
            "port" => {
                let port = |text: &str| if text.is_empty() { Ok(None) } else { parse_port(text).map(Some) };
                self.ports = value.split(',').map(port).collect::<Result<_, _>>()?;
            }
            "target_session_attrs" => self.session_attrs = choose(&value, SessionAttrs::WORDS)?,
            "load_balance_hosts" => self.host_order = choose(&value, HostOrder::WORDS)?,
            "sentinel_user" => self.sentinel_user = some(value),
            "sentinel_password" => self.sentinel_password = some(value),
            "user" => self.user = some(value),
            "password" => self.password = Some(value),
            "dbname" => self.database = some(value),
            "application_name" | "options" => self.parameters.push((key.to_owned(), value)),
            "connect_timeout" => {
                let seconds: u64 = value.parse().map_err(|_| "connect_timeout is a whole number of seconds")?;
                self.connect_time = (seconds > 0).then(|| Duration::from_secs(seconds));
            }
            _ if URL_TLS_KEYS.contains(&key) => self.tls.parameter(key, &value)?,
            _ => {
                let known: Vec<&str> = [PARAMETERS, URL_TLS_KEYS].concat();
                let guess = nearest(key, &known).map(|n| format!(", did you mean `{n}`?")).unwrap_or_default();
                return Err(format!("unknown parameter `{}` behind the `?`{guess}", key.escape_debug()));
            }
        }
        Ok(())
    }

    /// The name of the master stands where other URLs have a database.
    fn sentinel(&mut self) -> Result<Option<Sentinel>, String> {
        if !self.sentinels {
            return Ok(None);
        }
        let needed =
            "behind the `/` of a redis+sentinel:// URL stands the name of the master, as the sentinels know it";
        let master = self.database.take().ok_or(needed)?;
        if master.contains('/') {
            return Err(format!("{needed}, and nothing else: clients choose their logical database with SELECT"));
        }
        let (user, password) = (self.sentinel_user.take(), self.sentinel_password.take().map(Secret::new));
        if user.is_some() && password.is_none() {
            return Err("a sentinel_user without a sentinel_password".to_owned());
        }
        Ok(Some(Sentinel { master, user, password }))
    }

    fn srv(&mut self) -> Result<Option<SrvName>, String> {
        let (service, max_hosts) = (self.mongo.srv_service.take(), self.mongo.srv_max_hosts);
        if !self.srv {
            let needs = "srvServiceName and srvMaxHosts need mongodb+srv://";
            return if service.is_none() && max_hosts.is_none() { Ok(None) } else { Err(needs.to_owned()) };
        }
        let ([host], [None]) = (&self.hosts[..], &self.ports[..]) else {
            return Err("a mongodb+srv:// URL has one name, without a port".to_owned());
        };
        if self.mongo.options.direct {
            return Err("directConnection needs a mongodb:// URL, which names the host itself".to_owned());
        }
        let service = service.unwrap_or_else(|| SRV_SERVICE.to_owned());
        let name = SrvName { host: host.trim_end_matches('.').to_owned(), service, max_hosts };
        name.check().map(|()| Some(name))
    }

    pub fn finish(mut self) -> Result<UpstreamUrl, String> {
        let srv = self.srv()?;
        let sentinel = self.sentinel()?;
        if self.kind == Kind::Redis && sentinel.is_none() {
            if self.hosts.len() > 1 {
                return Err("several hosts: a redis:// URL has one, and redis+sentinel:// may have several".to_owned());
            }
            if self.database.as_ref().is_some_and(|number| number.parse::<u32>().is_err()) {
                return Err("behind the `/` stands no number: that of a logical database".to_owned());
            }
        }
        let hosts = addresses(self.kind, &self.hosts, &self.ports, sentinel.is_some())?;
        let tls = match (self.kind, self.secure) {
            (Kind::Postgres, _) => self.tls.finish()?,
            (Kind::Redis, true) => self.tls.finish_strict(self.kind)?,
            // `mongodb+srv://` implies TLS unless `tls=false` is given.
            (Kind::MongoDb, _) if self.mongo.secure.unwrap_or(self.srv) => self.tls.finish_strict(self.kind)?,
            (Kind::Redis | Kind::MongoDb, _) => UpstreamTls { mode: SslMode::Disable, ..UpstreamTls::default() },
        };
        let sockets = hosts.iter().filter(|address| matches!(address, Address::Unix(_))).count();
        if self.secure && sockets > 0 {
            return Err("there is no TLS on a Unix socket: write redis://".to_owned());
        }
        if tls.mode >= SslMode::Require && (1..hosts.len()).contains(&sockets) {
            return Err(
                "there is no TLS on a Unix socket: give it a database of its own, or a milder sslmode".to_owned()
            );
        }
        Ok(UpstreamUrl {
            kind: self.kind,
            hosts,
            sentinel,
            mongo: self.mongo.options,
            session_attrs: self.session_attrs,
            host_order: self.host_order,
            user: self.user,
            password: self.password.map(Secret::new),
            database: self.database,
            tls,
            parameters: self.parameters,
            connect_time: self.connect_time.or(self.mongo.connect_time),
            ignored: self.mongo.ignored,
            srv,
        })
    }
}

pub fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}
