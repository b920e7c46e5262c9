//! What the driver is configured with.

use std::{collections::HashMap, fmt, os::fd::OwnedFd, path::PathBuf, sync::Arc, time::Duration};

use pool::{GateConfig, PoolConfig};
use seam::{PoolId, Tenant};

use crate::{
    kept_places::ClientRank,
    network::Network,
    orders::DatabaseName,
    socket::TcpOptions,
    tls::{TlsAcceptor, TlsConnector},
};

/// Settings of the driver as a whole.
#[derive(Clone, Debug)]
pub struct DriverConfig {
    /// Worker threads, 1 to 255. Each has its own reactor.
    pub workers: usize,
    /// Bytes of one buffer of a worker's ring: the most that one read takes and that one blocked
    /// connection holds.
    pub buffer_size: usize,
    /// Most bytes of unconsumed input kept for one client (an incomplete message, or a request
    /// that waits for a server).
    pub max_buffered_input: usize,
    /// Failed logins a minute from one address before logins from there take turns.
    pub max_auth_failures: u32,
    /// How long a host name that could not be looked up counts as such; zero: each connection tries again.
    pub name_failure_ttl: Duration,
    /// A client that waited this long for a server is worth a line in the log.
    pub slow_wait: Duration,
    /// Clients of all listeners; 0 is no limit.
    pub max_clients: u32,
    /// Options of TCP connections on both sides.
    pub tcp: TcpOptions,
    pub logged: LoggedConnections,
    /// Each connection to a database is worth a line in the log when it is made, and when it ends.
    pub log_servers: bool,
    /// A process that is to end sends clients away that wait for a server.
    pub drain_waiting: bool,
    /// What is left to other processes from the start: see [`Handle::reserve`](crate::Handle::reserve).
    pub reserved: HashMap<String, u32>,
}

impl Default for DriverConfig {
    fn default() -> Self {
        Self {
            workers: 1,
            buffer_size: 32 * 1024,
            max_buffered_input: 64 * 1024,
            max_auth_failures: 10,
            name_failure_ttl: Duration::ZERO,
            slow_wait: Duration::from_secs(1),
            max_clients: 0,
            tcp: TcpOptions::default(),
            logged: LoggedConnections::default(),
            log_servers: false,
            drain_waiting: false,
            reserved: HashMap::new(),
        }
    }
}

/// What of the connections of clients is worth a line in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoggedConnections {
    /// Each client that logs in.
    pub logins: bool,
    /// Each client that asks for a database, before it has proved who it is.
    pub attempts: bool,
    /// Each client that has logged in and goes.
    pub ends: bool,
    /// Each error that ends a client, or that of a login; defects of our own always are.
    pub errors: bool,
}

impl Default for LoggedConnections {
    fn default() -> Self {
        Self { logins: false, attempts: false, ends: false, errors: true }
    }
}

/// Sockets that listen, and the rules for their clients.
#[derive(Debug)]
pub struct ListenerSpec<S = OwnedFd> {
    /// For metrics and logs: the address as configured.
    pub name: String,
    /// Label: what its clients speak.
    pub protocol: &'static str,
    /// Bound and listening; all TCP, or all Unix. At least one.
    pub sockets: Vec<S>,
    /// Whether they are TCP (then TCP_NODELAY and keepalive are set on what they accept).
    pub tcp: bool,
    /// Soft and hard limit of clients.
    pub gate: GateConfig,
    /// Time-outs of its clients.
    pub timeouts: Timeouts,
    /// What accepts TLS here: needed where the protocol asks for it.
    pub tls: Option<Arc<TlsAcceptor>>,
    /// Proxies there begin each connection with a header that names their client (PROXY protocol, version 2).
    pub proxies: Vec<Network>,
}

/// Time-outs of clients; `None` is off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// Where there is no place for another client, for so long a newcomer waits for one; `None`: it is refused at once.
    pub newcomer_wait: Option<Duration>,
    /// From having a place to the end of authentication.
    pub login: Option<Duration>,
    /// A logged-in client with nothing in progress.
    pub client_idle: Option<Duration>,
    /// From a request's first byte to its last answer.
    pub query: Option<Duration>,
    /// Inside a transaction, between requests.
    pub transaction_idle: Option<Duration>,
    /// From a transaction's first request to its end.
    pub transaction: Option<Duration>,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            newcomer_wait: None,
            login: Some(Duration::from_secs(15)),
            client_idle: None,
            query: None,
            transaction_idle: None,
            transaction: None,
        }
    }
}

/// Time-outs that hold for the clients of one pool instead of the listener's: `None` is the listener's, `Some(None)`
/// off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolTimeouts {
    /// A client with nothing in progress.
    pub client_idle: Option<Option<Duration>>,
    /// From a request's first byte to its last answer.
    pub query: Option<Option<Duration>>,
    /// Inside a transaction, between requests.
    pub transaction_idle: Option<Option<Duration>>,
    /// From a transaction's first request to its end.
    pub transaction: Option<Option<Duration>>,
}

impl PoolTimeouts {
    /// These over those of a listener.
    pub fn over(&self, listener: Timeouts) -> Timeouts {
        Timeouts {
            newcomer_wait: listener.newcomer_wait,
            login: listener.login,
            client_idle: self.client_idle.unwrap_or(listener.client_idle),
            query: self.query.unwrap_or(listener.query),
            transaction_idle: self.transaction_idle.unwrap_or(listener.transaction_idle),
            transaction: self.transaction.unwrap_or(listener.transaction),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    /// Host name or address, and port.
    Tcp {
        /// Resolved anew at every connection.
        host: String,
        port: u16,
    },
    /// A path, or an [abstract name](Self::of_abstract_socket).
    Unix(PathBuf),
}

impl Address {
    /// A Unix socket of Linux that has a name instead of a path.
    pub fn of_abstract_socket(name: &str) -> Self {
        Address::Unix(PathBuf::from(format!("\0{name}")))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
            Address::Unix(path) => match path.as_os_str().as_encoded_bytes().strip_prefix(&[0]) {
                Some(name) => write!(f, "@{}", String::from_utf8_lossy(name)),
                None => write!(f, "{}", path.display()),
            },
        }
    }
}

/// Where the servers of a pool may be: several hosts of one upstream, of which not all may be fit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hosts {
    /// Tried one after another for each new server; at least one.
    pub addresses: Vec<Address>,
    /// When none of them will do, all are tried once more with lower demands
    /// ([`Protocol::server_start_fallback`](seam::Protocol::server_start_fallback)).
    pub then_any: bool,
    pub begin: BeginWith,
}

/// The host that is tried first.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum BeginWith {
    #[default]
    First,
    /// Another one each time.
    Any,
    /// The one that was of use last: what is silent costs time once.
    LastGood,
    /// One after the other.
    Next,
}

impl From<Address> for Hosts {
    fn from(address: Address) -> Self {
        Self { addresses: vec![address], then_any: false, begin: BeginWith::First }
    }
}

impl fmt::Display for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, address) in self.addresses.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            write!(f, "{comma}{address}")?;
        }
        Ok(())
    }
}

/// Everything the driver must know of a pool.
#[derive(Clone, Debug)]
pub struct PoolSpec {
    /// Label: what its clients speak.
    pub protocol: &'static str,
    /// Label of metrics and logs: the database as clients call it.
    pub database: String,
    /// What orders call the database, where that is not the label: several pools may be of one.
    pub ordered_as: Option<String>,
    /// Label of metrics and logs.
    pub user: String,
    pub hosts: Hosts,
    pub config: PoolConfig,
    /// What makes TLS connections to its servers, if anything: needed where the protocol asks for it.
    pub tls: Option<Arc<TlsConnector>>,
    /// Caps it shares with other pools: name and limit (0 is unlimited). Pools that name the same cap share it.
    pub caps: Vec<(String, u32)>,
    /// Time-outs of its clients, where they are not the listener's.
    pub timeouts: PoolTimeouts,
    /// Between which sizes it may be changed while it runs, by [`Handle::resize`](crate::Handle::resize), instead of
    /// the `max_size` of its rules; `None`: it may not.
    pub sizes: Option<(u32, u32)>,
    /// A pool that no client uses for this long is forgotten, if [`Upstreams::try_forget`] agrees; `None`: it stays.
    /// Its idle servers are closed then, if its `min_size` holds only `min_size_once_connected`; otherwise it stays as
    /// long as it has any.
    pub forget_after: Option<Duration>,
    /// How long a cancel request may take before the server that it was for is closed.
    pub cancel_timeout: Duration,
    /// A client that keeps a server beyond its transactions goes, once it has no work, when that server is to be
    /// replaced.
    pub fast_close: bool,
    /// Anything that changes when servers must be made anew, because where they are or how they log in has changed.
    pub revision: u64,
    /// The pool is a part of the process itself: neither it nor its servers are shown, and no order is for it.
    pub hidden: bool,
    /// What its clients are to the process.
    pub client_rank: ClientRank,
}

impl PoolSpec {
    /// What orders call its database.
    pub(crate) fn name_in_orders(&self) -> DatabaseName {
        DatabaseName { protocol: self.protocol, database: self.ordered_name().to_owned() }
    }

    /// What its metrics call its database.
    pub(crate) fn name_in_metrics(&self) -> DatabaseName {
        DatabaseName { protocol: self.protocol, database: self.database.clone() }
    }

    /// Whether orders call its database by this name.
    pub(crate) fn is_called(&self, name: &DatabaseName) -> bool {
        (self.protocol, self.ordered_name()) == (name.protocol, name.database.as_str())
    }

    fn ordered_name(&self) -> &str {
        self.ordered_as.as_deref().unwrap_or(&self.database)
    }
}

/// How many clients a database or a user may have, over all listeners.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TenantLimits {
    /// As long as there are more than this, those go that have been idle longest.
    pub soft_limit: u32,
    /// At this number there is no place for another.
    pub hard_limit: u32,
}

/// Answers what a pool is. Asked at the start or when its first client logs in, and again at every
/// [`Handle::reconfigure`](crate::Handle::reconfigure); under locks of the driver, so that no answer may ask it
/// anything.
#[expect(unused_variables, reason = "the default of a method ignores what it is told")]
pub trait Upstreams: Send + Sync + 'static {
    /// The pool behind an id that the protocol handed out; `None` if it is forgotten.
    fn spec(&self, pool: PoolId) -> Option<PoolSpec>;

    /// No client has used a pool for [`PoolSpec::forget_after`]. True if it is forgotten from here on: the protocol
    /// hands its id out no more, nor does it give that to another pool. False if the id was handed out since this was
    /// asked last: who got it is about to come.
    fn try_forget(&self, pool: PoolId) -> bool {
        false
    }

    /// Pools that exist from the start, or from a reload on, so that their `min_size` holds before a client comes.
    fn at_start(&self) -> Vec<PoolId>;

    /// The database that the clients of a pool count for. It is the same for as long as the pool is there.
    fn tenant(&self, pool: PoolId) -> Option<Tenant> {
        None
    }

    /// The limits of a database or a user, if it has any.
    fn limits(&self, tenant: &Tenant) -> Option<TenantLimits> {
        None
    }
}

/// What may change while a driver runs, besides the pools.
#[derive(Clone, Debug)]
pub struct Changes {
    /// The limits and time-outs of each listener, in the order in which they were given at the start.
    pub listeners: Vec<(GateConfig, Timeouts)>,
    /// See [`DriverConfig::max_clients`].
    pub max_clients: u32,
    /// See [`DriverConfig::max_auth_failures`].
    pub max_auth_failures: u32,
    /// See [`DriverConfig::name_failure_ttl`].
    pub name_failure_ttl: Duration,
    pub logged: LoggedConnections,
}
