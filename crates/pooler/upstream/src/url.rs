//! The URL of an upstream. Of PostgreSQL as libpq understands it:
//! `postgres://user:password@host:port/database?parameters`, with percent-encoding, IPv6 hosts and Unix sockets
//! (`?host=/run/postgresql`). Of Redis: `redis://user:password@host:port/number`, the host of a Unix socket being its
//! path (`redis://%2Frun%2Fredis.sock`), or of its sentinels:
//! `redis+sentinel://user:password@host:port,host:port/master`; `rediss` is the same in TLS. Opens nothing.

mod parts;
#[cfg(test)]
mod tests;

use std::time::Duration;

use settings::Secret;

use self::parts::{SRV_SCHEME, UrlParts, some};
use crate::{
    hosts::{Address, HostOrder, SessionAttrs},
    kind::Kind,
    mongodb::{Ignored, MongoOptions},
    percent::decode,
    srv::SrvName,
    tls::UpstreamTls,
};

/// What the sentinels of a Redis are asked for, and with which login.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sentinel {
    pub master: String,
    /// The user at the sentinels.
    pub user: Option<String>,
    pub password: Option<Secret>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpstreamUrl {
    pub kind: Kind,
    /// One host or several, up to [`MAX_HOSTS`](crate::MAX_HOSTS).
    pub hosts: Vec<Address>,
    pub host_order: HostOrder,
    /// `None` if the hosts are databases, not sentinels.
    pub sentinel: Option<Sentinel>,
    /// Options that only MongoDB has.
    pub mongo: MongoOptions,
    pub session_attrs: SessionAttrs,
    pub user: Option<String>,
    pub password: Option<Secret>,
    pub database: Option<String>,
    /// Paths are as they stand in the URL.
    pub tls: UpstreamTls,
    /// Further start-up parameters.
    pub parameters: Vec<(String, String)>,
    /// `connect_timeout` of the URL.
    pub connect_time: Option<Duration>,
    /// Options of a `mongodb://` URL that only drivers use.
    pub ignored: Vec<Ignored>,
    /// The name whose hosts must be looked up and take the place of [`UpstreamUrl::hosts`].
    pub srv: Option<SrvName>,
}

impl UpstreamUrl {
    /// Reads a URL that is complete without a look-up.
    ///
    /// # Errors
    /// All that is wrong with the parameters. Errors never repeat the URL: it may hold a password.
    pub fn parse(url: &str) -> Result<Self, String> {
        let url = Self::parse_any(url)?;
        match url.srv {
            None => Ok(url),
            Some(_) => Err("mongodb+srv:// is not available here: \
                            write mongodb://user:password@host1:27017,host2:27017/?tls=true with the \
                            hosts that `dig +short SRV _mongodb._tcp.NAME` lists, and the options that \
                            `dig +short TXT NAME` shows"
                .to_owned()),
        }
    }

    /// Reads a URL, or a `mongodb+srv://` name: until its hosts are looked up the name is the only host.
    ///
    /// # Errors
    /// As [`UpstreamUrl::parse`].
    pub fn parse_any(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").ok_or("this is no URL: write postgres://user:password@host/name")?;
        let kind = match scheme {
            "postgres" | "postgresql" => Kind::Postgres,
            "redis" | "rediss" | "redis+sentinel" | "rediss+sentinel" => Kind::Redis,
            "redis-sentinel" | "rediss-sentinel" => {
                let right = scheme.replace('-', "+");
                return Err(format!("write it as {right}://user:password@host1:26379,host2:26379/master-name"));
            }
            "mongodb" | SRV_SCHEME => Kind::MongoDb,
            _ => return Err("unknown kind of URL: it must begin with postgres://, redis:// or mongodb://".to_owned()),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if path.contains('@') {
            return Err("a `/` stands before the `@`: in a password write it as %2F".to_owned());
        }
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = login.split_once(':').map_or((login, None), |(user, pw)| (user, Some(pw)));
        let mut parts = UrlParts::new(kind, scheme);
        parts.user = some(decode(user)?);
        parts.password = password.map(decode).transpose()?;
        parts.database = some(decode(path)?);
        parts.read_hosts(hosts)?;
        let mut wrong = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let taken = match pair.split_once('=') {
                Some((key, value)) => {
                    decode(key).and_then(|key| decode(value).and_then(|value| parts.parameter(&key, value)))
                }
                None => Err("a parameter behind the `?` has no `=`".to_owned()),
            };
            wrong.extend(taken.err());
        }
        if wrong.is_empty() { parts.finish() } else { Err(wrong.join("; ")) }
    }

    /// Reads a URL that must be PostgreSQL's.
    pub fn parse_postgres(url: &str) -> Result<Self, String> {
        let url = Self::parse(url)?;
        match url.kind {
            Kind::Postgres => Ok(url),
            kind => Err(format!("{}:// is not available here in this version; postgres:// is", kind.word())),
        }
    }
}
