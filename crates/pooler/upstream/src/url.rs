//! The URL of an upstream. Of PostgreSQL as libpq understands it:
//! `postgres://user:password@host:port/database?parameters`, with percent-encoding, IPv6 hosts and Unix sockets
//! (`?host=/run/postgresql`). Of Redis: `redis://user:password@host:port/number`, the host of a Unix socket being its
//! path (`redis://%2Frun%2Fredis.sock`), or of its sentinels:
//! `redis+sentinel://user:password@host:port,host:port/master`; `rediss` is the same in TLS. Opens nothing.

use std::{path::PathBuf, time::Duration};

use driver::{Address, BeginWith, Hosts, MAX_HOSTS};
use postgres_session::Target;
use settings::{Secret, choose, nearest};

use crate::{
    mongodb::{self, Ignored, MongoOptions},
    srv::SrvName,
    tls::{SslMode, URL_TLS_KEYS, UpstreamTls, UrlTls},
};

/// What kind of database a URL is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Kind {
    /// `postgres://`
    #[default]
    Postgres,
    /// `redis://`, and `rediss://` with TLS
    Redis,
    /// `mongodb://`
    MongoDb,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Postgres => "PostgreSQL",
            Self::Redis => "Redis",
            Self::MongoDb => "MongoDB",
        }
    }

    /// The word of the configuration, of metrics and of the admin address.
    pub fn word(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Redis => "redis",
            Self::MongoDb => "mongodb",
        }
    }

    fn default_port(self, sentinels: bool) -> u16 {
        match self {
            Self::Postgres => 5432,
            Self::Redis if sentinels => 26_379,
            Self::Redis => 6379,
            Self::MongoDb => 27_017,
        }
    }
}

/// How the sentinels of a Redis are asked for its master.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sentinel {
    pub master: String,
    /// Whom to log in to them as.
    pub user: Option<String>,
    /// With which password, if they want one.
    pub password: Option<Secret>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpstreamUrl {
    pub kind: Kind,
    /// Where the upstream is: one host or several.
    pub hosts: Hosts,
    /// The hosts are sentinels.
    pub sentinel: Option<Sentinel>,
    /// What is MongoDB's alone.
    pub mongo: MongoOptions,
    pub target: Target,
    pub user: Option<String>,
    pub password: Option<Secret>,
    pub database: Option<String>,
    /// TLS towards it; paths as they stand in the URL.
    pub tls: UpstreamTls,
    /// Further start-up parameters.
    pub parameters: Vec<(String, String)>,
    /// `connect_timeout` of the URL.
    pub connect_time: Option<Duration>,
    /// What of a `mongodb://` URL is for drivers and says nothing here.
    pub ignored: Vec<Ignored>,
    /// The name whose hosts are to be looked up in place of [`UpstreamUrl::hosts`].
    pub srv: Option<SrvName>,
}

/// Parameters of a URL, for the nearest one to a mistake.
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

/// One name for all hosts of a MongoDB.
const SRV_SCHEME: &str = "mongodb+srv";
/// What is looked up of it, unless the URL says otherwise.
const SRV_SERVICE: &str = "mongodb";

/// Those that a `redis+sentinel://` URL may have beside the others.
const SENTINEL_KEYS: &[&str] = &["sentinel_user", "sentinel_password"];

/// Those of [`URL_TLS_KEYS`] that a `rediss://` URL may have.
const REDIS_TLS_KEYS: &[&str] = &["sslmode", "sslrootcert", "sslcert", "sslkey"];

impl UpstreamUrl {
    /// Reads a URL. Errors never repeat the URL: it may hold a password. All that is wrong with its parameters is told
    /// at once.
    pub fn parse(url: &str) -> Result<Self, String> {
        let url = Self::parse_any(url)?;
        match url.srv {
            None => Ok(url),
            Some(_) => Err("mongodb+srv:// is not available here: write mongodb://user:password@host1:27017,host2:27017/?tls=true with the \
                            hosts that `dig +short SRV _mongodb._tcp.NAME` lists, and the options that `dig +short TXT NAME` shows"
                .to_owned()),
        }
    }

    /// The same, and names whose hosts must be looked up before anything is done with them: until then a URL of such a
    /// name has that as its only host.
    ///
    /// # Errors
    /// As above.
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
        let (rest, query) = rest.split_once('?').map_or((rest, ""), |(rest, query)| (rest, query));
        let (authority, path) = rest.split_once('/').map_or((rest, ""), |(authority, path)| (authority, path));
        if path.contains('@') {
            return Err("a `/` stands before the `@`: in a password write it as %2F".to_owned());
        }
        let (login, place) = authority.rsplit_once('@').map_or(("", authority), |(login, place)| (login, place));
        let (user, password) = login.split_once(':').map_or((login, None), |(user, pw)| (user, Some(pw)));
        let mut parts = Parts {
            kind,
            secure: scheme.starts_with("rediss"),
            sentinels: scheme.ends_with("+sentinel"),
            srv: scheme == SRV_SCHEME,
            user: some(decode(user)?),
            password: password.map(decode).transpose()?,
            database: some(decode(path)?),
            ..Parts::default()
        };
        parts.place(place)?;
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

    /// Reads a URL that must be PostgreSQL's, for who speaks nothing else.
    pub fn parse_postgres(url: &str) -> Result<Self, String> {
        let url = Self::parse(url)?;
        match url.kind {
            Kind::Postgres => Ok(url),
            kind => Err(format!("{}:// is not available here in this version; postgres:// is", kind.word())),
        }
    }
}

#[derive(Default)]
struct Parts {
    kind: Kind,
    /// It is `rediss://`.
    secure: bool,
    /// It is `redis+sentinel://`.
    sentinels: bool,
    /// It is `mongodb+srv://`.
    srv: bool,
    /// Whom to log in to these as, and how.
    sentinel_user: Option<String>,
    sentinel_password: Option<String>,
    mongo: mongodb::Options,
    /// As listed; the default where there is none.
    hosts: Vec<String>,
    /// One for all, or one for each.
    ports: Vec<Option<u16>>,
    target: Target,
    spread: bool,
    user: Option<String>,
    password: Option<String>,
    database: Option<String>,
    tls: UrlTls,
    parameters: Vec<(String, String)>,
    connect_time: Option<Duration>,
}

impl Parts {
    /// The part between `@` and `/`: hosts with their ports, separated by commas.
    fn place(&mut self, place: &str) -> Result<(), String> {
        if place.is_empty() {
            return Ok(());
        }
        for place in place.split(',') {
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

    fn parameter(&mut self, key: &str, value: String) -> Result<(), String> {
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
            "target_session_attrs" => self.target = choose(&value, Target::WORDS)?,
            "load_balance_hosts" => self.spread = choose(&value, &[("disable", false), ("random", true)])?,
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

    /// The name of the master that sentinels are asked for stands where a database would.
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

    /// The name in place of hosts.
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

    fn finish(mut self) -> Result<UpstreamUrl, String> {
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
        let hosts = Hosts {
            addresses: addresses(self.kind, &self.hosts, &self.ports, sentinel.is_some())?,
            then_any: self.target == Target::PreferStandby,
            begin: match (&sentinel, self.spread) {
                (Some(_), _) => BeginWith::LastGood,
                (None, true) => BeginWith::Any,
                (None, false) => BeginWith::First,
            },
        };
        let tls = match (self.kind, self.secure) {
            (Kind::Postgres, _) => self.tls.finish()?,
            (Kind::Redis, true) => self.tls.finish_strict()?,
            // Behind such a name there is TLS unless it is refused.
            (Kind::MongoDb, _) if self.mongo.secure.unwrap_or(self.srv) => self.tls.finish_strict()?,
            (Kind::Redis | Kind::MongoDb, _) => UpstreamTls { mode: SslMode::Disable, ..UpstreamTls::default() },
        };
        let sockets = hosts.addresses.iter().filter(|address| matches!(address, Address::Unix(_))).count();
        if self.secure && sockets > 0 {
            return Err("there is no TLS on a Unix socket: write redis://".to_owned());
        }
        if tls.mode >= SslMode::Require && (1..hosts.addresses.len()).contains(&sockets) {
            return Err(
                "there is no TLS on a Unix socket: give it a database of its own, or a milder sslmode".to_owned()
            );
        }
        Ok(UpstreamUrl {
            kind: self.kind,
            hosts,
            sentinel,
            mongo: self.mongo.options,
            target: self.target,
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

/// Each host with its port; one port, or none, holds for all hosts.
fn addresses(kind: Kind, hosts: &[String], ports: &[Option<u16>], sentinels: bool) -> Result<Vec<Address>, String> {
    let none = [String::new()];
    let hosts = if hosts.is_empty() { &none[..] } else { hosts };
    if ports.len() > 1 && ports.len() != hosts.len() {
        return Err(format!("{} hosts but {} ports: give one port, or one for each host", hosts.len(), ports.len()));
    }
    if hosts.len() > MAX_HOSTS {
        return Err(format!("more than {MAX_HOSTS} hosts"));
    }
    let own = kind.default_port(sentinels);
    let port = |i: usize| ports.get(if ports.len() == 1 { 0 } else { i }).copied().flatten().unwrap_or(own);
    let address = |(i, host): (usize, &String)| match host.as_str() {
        "" => Address::Tcp { host: "localhost".to_owned(), port: port(i) },
        path if path.starts_with('/') && kind != Kind::Postgres => Address::Unix(PathBuf::from(path)),
        folder if folder.starts_with('/') => Address::Unix(PathBuf::from(folder).join(format!(".s.PGSQL.{}", port(i)))),
        host => Address::Tcp { host: host.to_owned(), port: port(i) },
    };
    Ok(hosts.iter().enumerate().map(address).collect())
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

fn parse_port(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("the port is no number from 1 to 65535".to_owned()),
        Ok(port) => Ok(port),
    }
}

/// Undoes percent-encoding.
pub fn decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|b| (b as char).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err("a `%` without two hexadecimal digits: write a literal one as %25".to_owned());
        };
        bytes.push((high * 16 + low) as u8);
    }
    if bytes.contains(&0) {
        return Err("a zero byte (%00) cannot be part of it".to_owned());
    }
    String::from_utf8(bytes).map_err(|_| "percent-encoded bytes that are not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::Root;
    use proptest::prelude::*;

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.to_owned(), port }
    }

    fn hosts(url: &str) -> Vec<Address> {
        UpstreamUrl::parse(url).unwrap().hosts.addresses
    }

    #[test]
    fn a_full_url_is_taken_apart() {
        let url =
            UpstreamUrl::parse("postgresql://app:p%40ss%2Fw@db.example:6000/be%20nch?application_name=x").unwrap();
        assert_eq!(url.hosts, tcp("db.example", 6000).into());
        assert_eq!(url.user.as_deref(), Some("app"));
        assert_eq!(url.password, Some(Secret::new("p@ss/w")));
        assert_eq!(url.database.as_deref(), Some("be nch"));
        assert_eq!(url.parameters, [("application_name".to_owned(), "x".to_owned())]);
    }

    #[test]
    fn hosts_may_be_ipv6_or_missing() {
        assert_eq!(hosts("postgres://[::1]:7/x"), [tcp("::1", 7)]);
        assert_eq!(hosts("postgres://[::1]/x"), [tcp("::1", 5432)]);
        assert_eq!(hosts("postgres:///x"), [tcp("localhost", 5432)]);
        assert!(UpstreamUrl::parse("postgres://[::1/x").is_err());
        assert!(UpstreamUrl::parse("postgres://[::1]5/x").is_err());
    }

    #[test]
    fn a_unix_socket_is_named_by_its_folder() {
        let expected = Address::Unix(PathBuf::from("/run/pg/.s.PGSQL.6000"));
        assert_eq!(hosts("postgres:///x?host=/run/pg&port=6000"), std::slice::from_ref(&expected));
        assert_eq!(hosts("postgres://%2Frun%2Fpg:6000/x"), [expected]);
    }

    #[test]
    fn rediss_means_an_upstream_that_proves_who_it_is() {
        let tls = |url: &str| UpstreamUrl::parse(url).map(|url| (url.tls.mode, url.tls.root));
        assert_eq!(tls("redis://h"), Ok((SslMode::Disable, None)));
        assert_eq!(tls("rediss://h"), Ok((SslMode::VerifyFull, Some(Root::System))));
        assert_eq!(tls("rediss://h?sslrootcert=ca.pem"), Ok((SslMode::VerifyFull, Some(Root::File("ca.pem".into())))));
        assert_eq!(tls("rediss://h?sslmode=require"), Ok((SslMode::Require, None)));
        for (url, part) in [
            ("rediss://h?sslmode=prefer", "is with TLS"),
            ("redis://h?sslrootcert=x", "needs rediss://"),
            ("rediss://%2Frun%2Fr.sock", "no TLS on a Unix socket"),
            ("rediss://h?sslrootcrt=x", "did you mean `sslrootcert`"),
        ] {
            let error = UpstreamUrl::parse(url).unwrap_err();
            assert!(error.contains(part), "{url}: {error}");
        }
    }

    #[test]
    fn several_hosts_have_a_port_each_or_share_one() {
        assert_eq!(hosts("postgres://u@a:1,b,[::1]:3/x"), [tcp("a", 1), tcp("b", 5432), tcp("::1", 3)]);
        assert_eq!(hosts("postgres:///x?host=a,b&port=7"), [tcp("a", 7), tcp("b", 7)]);
        assert_eq!(hosts("postgres:///x?host=a,b&port=7,8"), [tcp("a", 7), tcp("b", 8)]);
        let url = UpstreamUrl::parse("postgres://a,b/x?target_session_attrs=prefer-standby&load_balance_hosts=random");
        let url = url.unwrap();
        assert!(url.target == Target::PreferStandby && url.hosts.then_any && url.hosts.begin == BeginWith::Any);
        for (url, part) in [
            ("postgres:///x?host=a,b,c&port=7,8", "3 hosts but 2 ports"),
            ("postgres://a,b/x?target_session_attrs=read-writ", "read-write"),
            ("postgres://a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q/x", "more than 16 hosts"),
        ] {
            let error = UpstreamUrl::parse(url).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn what_is_not_available_is_said_so() {
        assert!(UpstreamUrl::parse("mongodb+srv://c.example.net").unwrap_err().contains("not available"));
        assert!(UpstreamUrl::parse("mysql://h/x").unwrap_err().contains("must begin with"));
        assert!(UpstreamUrl::parse("postgres://h/x?sslmode=require&sslrootcert=y").is_ok());
        assert!(UpstreamUrl::parse_postgres("postgres://h/x").is_ok());
        assert!(UpstreamUrl::parse_postgres("redis://h").unwrap_err().contains("not available here"));
    }

    #[test]
    fn a_url_of_mongodb_has_the_options_of_its_drivers() {
        let url = UpstreamUrl::parse("mongodb://app:p%40w@a,b:27018/shop?replicaset=rs0&connectTimeoutMS=500").unwrap();
        assert_eq!((url.kind, url.hosts.addresses), (Kind::MongoDb, vec![tcp("a", 27_017), tcp("b", 27_018)]));
        assert_eq!((url.user.as_deref(), url.password), (Some("app"), Some(Secret::new("p@w"))));
        assert_eq!((url.database.as_deref(), url.mongo.replica_set.as_deref()), (Some("shop"), Some("rs0")));
        assert_eq!((url.connect_time, url.tls.mode), (Some(Duration::from_millis(500)), SslMode::Disable));
        let tls = |url: &str| UpstreamUrl::parse(url).map(|url| (url.tls.mode, url.tls.root));
        assert_eq!(tls("mongodb://h/?tls=true"), Ok((SslMode::VerifyFull, Some(Root::System))));
        let near = |url: &str| UpstreamUrl::parse(url).map(|url| url.mongo.local_threshold);
        assert_eq!(near("mongodb://h/?localThresholdMS=7"), Ok(Some(Duration::from_millis(7))));
        assert_eq!(near("mongodb://h/"), Ok(None));
        let own = "mongodb://h/?ssl=true&tlsCAFile=ca.pem&tlsAllowInvalidHostnames=true";
        assert_eq!(tls(own), Ok((SslMode::VerifyCa, Some(Root::File("ca.pem".into())))));
        for (url, part) in [
            ("mongodb://h/?loadBalanced=true", "not available"),
            ("mongodb://h/?replicSet=x", "did you mean `replicaSet`"),
            ("mongodb://h/?authMechanism=MONGODB-X509", "SCRAM-SHA-1 are"),
            ("mongodb://h/?tls=yes", "true or false"),
            ("mongodb://h/?localThresholdMS=-1", "a whole number of milliseconds"),
        ] {
            let error = UpstreamUrl::parse(url).unwrap_err();
            assert!(error.contains(part), "{url}: {error}");
        }
    }

    #[test]
    fn what_is_for_drivers_is_ignored_and_told() {
        let url = "mongodb://h/?retryWrites=true&w=majority&maxpoolsize=5&W=1&appName=Cluster0&loadBalanced=false";
        let ignored = UpstreamUrl::parse(url).unwrap().ignored;
        let told: Vec<_> = ignored.iter().map(|ignored| (ignored.name, ignored.setting)).collect();
        assert_eq!(told, [("retryWrites", None), ("w", None), ("maxPoolSize", Some("max_size"))]);
        assert_eq!(UpstreamUrl::parse("mongodb://h/?replicaSet=rs").unwrap().ignored, []);
    }

    #[test]
    fn a_name_stands_for_all_hosts_and_means_tls() {
        let url = "mongodb+srv://app:pw@c.example.net/shop?retryWrites=true&w=majority&srvMaxHosts=3";
        let url = UpstreamUrl::parse_any(url).unwrap();
        let name = SrvName { host: "c.example.net".to_owned(), service: "mongodb".to_owned(), max_hosts: Some(3) };
        assert_eq!((url.srv, url.tls.mode, url.database.as_deref()), (Some(name), SslMode::VerifyFull, Some("shop")));
        let plain = UpstreamUrl::parse_any("mongodb+srv://c.example.net/?tls=false").unwrap();
        assert_eq!(plain.tls.mode, SslMode::Disable);
        for (url, part) in [
            ("mongodb+srv://h", "3 parts"),
            ("mongodb+srv://a.example.net:27017", "without a port"),
            ("mongodb+srv://a.example.net,b.example.net", "one name"),
            ("mongodb+srv://a.example.net/?directConnection=true", "directConnection"),
            ("mongodb://a.example.net/?srvMaxHosts=3", "need mongodb+srv://"),
        ] {
            let error = UpstreamUrl::parse_any(url).unwrap_err();
            assert!(error.contains(part), "{url}: {error}");
        }
    }

    #[test]
    fn all_parameters_that_are_wrong_are_told_at_once() {
        let error = UpstreamUrl::parse("mongodb://h/?tls=yes&w=1&replicSet=x&authMechanism=X&flag").unwrap_err();
        for part in ["tls is true or false", "`replicaSet`", "SCRAM-SHA-1 are", "has no `=`"] {
            assert!(error.contains(part), "{error}");
        }
        let error = UpstreamUrl::parse("postgres://h/x?sslmod=require&conect_timeout=1").unwrap_err();
        assert!(error.contains("`sslmode`") && error.contains("`connect_timeout`"), "{error}");
    }

    #[test]
    fn a_url_of_sentinels_names_the_master() {
        let url = "redis+sentinel://app:pw@s1,s2:5000/main?sentinel_user=watcher&sentinel_password=w%3Dd";
        let url = UpstreamUrl::parse(url).unwrap();
        assert_eq!((url.kind, url.hosts.addresses), (Kind::Redis, vec![tcp("s1", 26_379), tcp("s2", 5000)]));
        assert_eq!((url.user.as_deref(), url.password, url.database), (Some("app"), Some(Secret::new("pw")), None));
        let (user, password) = (Some("watcher".to_owned()), Some(Secret::new("w=d")));
        assert_eq!(url.sentinel, Some(Sentinel { master: "main".to_owned(), user, password }));
        let secure = UpstreamUrl::parse("rediss+sentinel://s1/main").unwrap();
        assert_eq!((secure.tls.mode, secure.sentinel.unwrap().password), (SslMode::VerifyFull, None));
        assert_eq!(UpstreamUrl::parse("redis://h/1").unwrap().sentinel, None);
        for (url, part) in [
            ("redis+sentinel://s1", "the name of the master"),
            ("redis+sentinel://s1/main/3", "SELECT"),
            ("redis+sentinel://s1/main?sentinel_user=x", "without a sentinel_password"),
            ("redis+sentinel://s1/main?sentinel_passwd=x", "did you mean `sentinel_password`"),
            ("redis://h?sentinel_password=x", "need redis+sentinel://"),
            ("redis-sentinel://s1?sentinelMasterId=main", "write it as redis+sentinel://"),
        ] {
            let error = UpstreamUrl::parse(url).unwrap_err();
            assert!(error.contains(part), "{url}: {error}");
        }
    }

    #[test]
    fn a_url_of_redis_has_a_number_and_its_own_port() {
        let url = UpstreamUrl::parse("redis://:p%40ss@cache/3?connect_timeout=2").unwrap();
        assert_eq!((url.kind, url.hosts), (Kind::Redis, tcp("cache", 6379).into()));
        assert_eq!((url.user, url.password), (None, Some(Secret::new("p@ss"))));
        assert_eq!((url.database.as_deref(), url.connect_time), (Some("3"), Some(Duration::from_secs(2))));
        assert_eq!(hosts("redis://%2Frun%2Fredis.sock"), [Address::Unix("/run/redis.sock".into())]);
        for (url, part) in [
            ("redis://h/name", "no number"),
            ("redis://a,b", "several hosts"),
            ("redis://h?conect_timeout=1", "connect_timeout"),
            ("redis://h?sslmode=require", "sslmode"),
        ] {
            let error = UpstreamUrl::parse(url).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_mistake_in_a_url_is_named_without_the_url() {
        for (url, part) in [
            ("postgres://a:hunter2/3@h/x", "%2F"),
            ("postgres://a:hunter2@h:99999/x", "port"),
            ("postgres://a:hunter2%@h/x", "%25"),
            ("postgres://a:hunter2@h/x?aplication_name=y", "application_name"),
            ("hunter2", "no URL"),
            ("mysql://a:hunter2@h", "postgres://"),
        ] {
            let error = UpstreamUrl::parse(url).unwrap_err();
            assert!(error.contains(part) && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn debug_output_hides_the_password() {
        assert!(!format!("{:?}", UpstreamUrl::parse("postgres://a:hunter2@h/x")).contains("hunter2"));
    }

    proptest! {
        #[test]
        fn no_url_makes_the_parser_panic(rest in ".{0,60}") {
            let _ = UpstreamUrl::parse(&rest);
            let _ = UpstreamUrl::parse(&format!("postgres://{rest}"));
        }
    }
}
