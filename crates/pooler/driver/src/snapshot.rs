//! What can be seen of a running driver, as plain values. Knows no metric format.

use std::{sync::Arc, time::Duration};

use pool::{Counts, PoolConfig};
use seam::{PoolId, SessionDescription, Tenant};

/// Upper bounds of the histogram buckets, in microseconds; the last bucket has no bound.
pub const BUCKET_BOUNDS_US: [u64; 19] = [
    50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000,
    5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// A histogram of durations: counts per bucket (not cumulative; one more than bounds) and their sum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DurationHistogram {
    /// One count per bound of [`BUCKET_BOUNDS_US`], and one for what lies beyond.
    pub buckets: [u64; BUCKET_BOUNDS_US.len() + 1],
    /// Sum of all durations, in nanoseconds.
    pub sum_ns: u64,
}

/// All of the driver at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// One per listener, in the order given.
    pub listeners: Vec<ListenerSnapshot>,
    /// One per pool, in order of creation.
    pub pools: Vec<PoolSnapshot>,
    /// What pools have counted that were forgotten since, by database, while others of the same database are there.
    pub forgotten: Vec<ForgottenPools>,
    /// The databases and users that have limits of their own, and clients or counts.
    pub tenants: Vec<TenantSnapshot>,
    /// CPU time, clients and transactions per worker.
    pub workers: Vec<WorkerSnapshot>,
    /// Failed logins since the start.
    pub auth_failures: u64,
    /// Sessions that panicked since the start.
    pub session_panics: u64,
    pub reactor: &'static str,
    /// The driver is shutting down and accepts no new clients.
    pub draining: bool,
}

/// A database or a user that has limits of its own.
#[derive(Clone, Debug)]
pub struct TenantSnapshot {
    pub tenant: Tenant,
    /// Clients that have a place.
    pub clients: u32,
    /// Clients that wait for one.
    pub waiting: u64,
    pub limits: (u32, u32),
    /// Clients evicted since it has had clients.
    pub evictions: u64,
    /// Clients refused since then.
    pub rejections: u64,
}

#[derive(Clone, Debug, Default)]
pub struct ListenerSnapshot {
    pub name: String,
    /// Label: what its clients speak.
    pub protocol: &'static str,
    /// Clients not yet authenticated.
    pub login: u64,
    /// Clients with nothing in progress.
    pub idle: u64,
    /// Clients with a request or transaction in progress, a server in hand.
    pub active: u64,
    /// Clients waiting for a server.
    pub waiting: u64,
    /// Clients with nothing in progress that wait for what others send them.
    pub subscribed: u64,
    /// Let in since the start.
    pub accepted: u64,
    /// Logged in since the start.
    pub logins: u64,
    /// Refused since the start, by reason.
    pub rejections: Vec<(&'static str, u64)>,
    /// Clients sent away since the start, by reason.
    pub evictions: Vec<(&'static str, u64)>,
    /// Clients sent away that did not end their side of the connection, by reason.
    pub unanswered: Vec<(&'static str, u64)>,
    /// How often clients were seen to come back as fast as they were evicted.
    pub eviction_loops: u64,
    /// How often the system refused to accept a client.
    pub accepts_failed: u64,
    pub limits: (u32, u32),
}

#[derive(Clone, Debug)]
pub struct PoolSnapshot {
    pub id: PoolId,
    pub protocol: &'static str,
    pub database: String,
    pub user: String,
    /// Where its servers are, for people.
    pub address: String,
    pub counts: Counts,
    pub config: PoolConfig,
    /// Time-outs in force for its clients. Where they come by listeners that differ, the longest.
    pub timeouts: PoolTimes,
    /// Clients logged in to it.
    pub clients: u64,
    pub totals: PoolTotals,
    /// Pinned servers now, by reason.
    pub pinned: Vec<(&'static str, u64)>,
    /// How long the server has been held that was granted first, without pinned servers and servers that clients keep
    /// for long.
    pub oldest_hold: Option<Duration>,
    /// How long the oldest waiter has waited.
    pub oldest_wait: Option<Duration>,
    /// Since when the upstream cannot be reached, if so.
    pub unavailable_for: Option<Duration>,
    /// What the last failed attempt to connect ended with.
    pub last_error: Option<Arc<str>>,
    /// The setting, other than its own size, because of which clients that wait now get no more servers.
    pub limited_by: Option<&'static str>,
    pub paused: bool,
    /// An operator drains it: clients go as soon as they have nothing in progress.
    pub drained: bool,
    /// An operator has ordered that it takes no new clients.
    pub disabled: bool,
}

/// Time-outs of a pool's clients; `None` is off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolTimes {
    /// A client with nothing in progress.
    pub client_idle: Option<Duration>,
    /// From a request's first byte to its last answer.
    pub query: Option<Duration>,
    /// Inside a transaction, between requests.
    pub transaction_idle: Option<Duration>,
    /// From a transaction's first request to its end.
    pub transaction: Option<Duration>,
}

/// What a pool has counted since the start.
#[derive(Clone, Debug)]
pub struct PoolTotals {
    /// Connections made.
    pub created: u64,
    /// Connections closed, by reason.
    pub closed: Vec<(&'static str, u64)>,
    /// Failed check-outs, by reason.
    pub checkout_failed: Vec<(&'static str, u64)>,
    /// Sessions that were to keep a server and got none, by reason.
    pub pins_refused: Vec<(&'static str, u64)>,
    /// Transactions (leases ended).
    pub transactions: u64,
    /// Clients that have logged in.
    pub logins: u64,
    /// Requests that were answered: up to half a second late, as the following three.
    pub queries: u64,
    /// From a request's first byte to its last answer, in nanoseconds, without the wait for a server.
    pub query_ns: u64,
    /// Bytes that servers got for clients.
    pub received_bytes: u64,
    /// Bytes that clients got from servers.
    pub sent_bytes: u64,
    /// Duration of check-outs by path.
    pub checkout: [(&'static str, DurationHistogram); 3],
    /// Duration of the phases of connecting.
    pub connect: [(&'static str, DurationHistogram); 5],
    /// How long servers are held.
    pub hold: DurationHistogram,
}

/// What forgotten pools of one database have counted.
#[derive(Clone, Debug, Default)]
pub struct ForgottenPools {
    pub protocol: &'static str,
    pub database: String,
    pub totals: PoolTotals,
}

impl Default for PoolTotals {
    fn default() -> Self {
        Self {
            created: 0,
            closed: Vec::new(),
            checkout_failed: Vec::new(),
            pins_refused: Vec::new(),
            transactions: 0,
            logins: 0,
            queries: 0,
            query_ns: 0,
            received_bytes: 0,
            sent_bytes: 0,
            checkout: ["idle", "created", "queued"].map(|path| (path, DurationHistogram::default())),
            connect: ["dns", "tcp", "tls", "auth", "ready"].map(|phase| (phase, DurationHistogram::default())),
            hold: DurationHistogram::default(),
        }
    }
}

impl PoolTotals {
    /// Adds what other pools have counted. Where the pools of a database are added up, those that were forgotten are
    /// counted, too, so that no count goes backwards.
    pub fn add(&mut self, others: &Self) {
        self.created += others.created;
        self.transactions += others.transactions;
        self.logins += others.logins;
        self.queries += others.queries;
        self.query_ns += others.query_ns;
        self.received_bytes += others.received_bytes;
        self.sent_bytes += others.sent_bytes;
        for (counts, others) in [
            (&mut self.closed, &others.closed),
            (&mut self.checkout_failed, &others.checkout_failed),
            (&mut self.pins_refused, &others.pins_refused),
        ] {
            others.iter().for_each(|(reason, count)| add(counts, reason, *count));
        }
        let times = self.checkout.iter_mut().chain(&mut self.connect);
        for ((_, times), (_, others)) in times.zip(others.checkout.iter().chain(&others.connect)) {
            times.add(others);
        }
        self.hold.add(&others.hold);
    }
}

/// Adds to the count of a reason. The reasons are few and fixed, so a list is the fastest map.
pub(crate) fn add(counts: &mut Vec<(&'static str, u64)>, reason: &'static str, more: u64) {
    match counts.iter_mut().find(|(known, _)| *known == reason) {
        Some((_, count)) => *count += more,
        None => counts.push((reason, more)),
    }
}

/// What a pool holds at one moment, without its statistics.
#[derive(Clone, Debug)]
pub struct PoolState {
    pub id: PoolId,
    pub protocol: &'static str,
    pub database: String,
    pub user: String,
    pub counts: Counts,
    /// Clients logged in to it.
    pub clients: u64,
    /// Connections made since the start.
    pub created: u64,
    /// Its upstream cannot be reached.
    pub unavailable: bool,
    /// Servers that are to be replaced, and are not gone yet.
    pub stale: u32,
    pub paused: bool,
    pub drained: bool,
    /// An operator has ordered that it takes no new clients.
    pub disabled: bool,
}

/// What a pool whose size may be changed holds at one moment, and what it has counted since the start.
#[derive(Clone, Debug)]
pub struct PoolLoad {
    pub id: PoolId,
    pub protocol: &'static str,
    pub database: String,
    pub user: String,
    pub counts: Counts,
    pub max_size: u32,
    /// Holds of servers that have ended.
    pub completed: u64,
    /// How long these took, together.
    pub held: Duration,
    /// Servers that clients got.
    pub granted: u64,
    /// Those that came free only after the client had begun to wait.
    pub waited: u64,
    /// Clients that got no server for another reason than an order, and connections that were lost or could not be
    /// made.
    pub errors: u64,
    pub pinned: u32,
    /// It is not paused or drained, nor left to another process, and its upstream can be reached.
    pub fit: bool,
    /// The pool is paused, drained or left to another process, by order of an operator.
    pub ordered: bool,
}

/// How much of a cap is used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CapUsage {
    /// Its name, from [`PoolSpec::caps`](crate::PoolSpec::caps).
    pub name: String,
    /// Servers open or being made.
    pub used: u32,
    /// The limit as configured; 0 is unlimited.
    pub limit: u32,
}

#[derive(Clone, Debug, Default)]
pub struct WorkerSnapshot {
    /// CPU time used by its thread.
    pub cpu: Duration,
    pub clients: u64,
    /// Transactions it has served.
    pub transactions: u64,
    /// Servers that moved to it from another worker.
    pub moves: u64,
}

/// The clients to be listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientFilter {
    All,
    /// Those that hold a server or wait for one, the longest first.
    Busy,
    /// Those that hold one, the longest first.
    Holders,
}

/// One client, for `/api/clients`.
#[derive(Clone, Debug)]
pub struct ClientInfo {
    /// Its alone, for as long as the process lives.
    pub id: u64,
    /// `address:port`, or `unix`.
    pub address: String,
    pub listener: String,
    /// What the listener's clients speak.
    pub protocol: &'static str,
    /// Empty before login.
    pub database: String,
    /// Empty before login.
    pub user: String,
    /// `login`, `idle`, `waiting`, `active`, `transaction` or `subscribed`.
    pub state: &'static str,
    /// How long it has been in that state.
    pub state_for: Duration,
    pub connected_for: Duration,
    /// The user that it logged in as, which may be another than that of its servers; empty before login.
    pub login_user: String,
    /// The address at this end; empty on a Unix socket.
    pub local: String,
    /// Its process, on a Unix socket.
    pub process: Option<u32>,
    /// The version and the cipher of TLS; empty without.
    pub tls: String,
    /// What its session tells.
    pub about: SessionDescription,
    /// The pool of which it has a server or waits for one, else its own.
    pub pool: Option<PoolId>,
    pub server: Option<u32>,
    pub pinned: Option<&'static str>,
}

impl ClientInfo {
    /// Whether it has logged in, and is not on its way out.
    pub fn is_logged_in(&self) -> bool {
        !matches!(self.state, "login" | "closing")
    }
}

/// One server, for `/api/servers`.
#[derive(Clone, Debug)]
pub struct ServerInfo {
    /// Unique while it lives on its worker.
    pub id: u32,
    pub protocol: &'static str,
    pub database: String,
    pub user: String,
    pub address: String,
    /// `connecting`, `idle`, `in_use`, `checking` or `closing`.
    pub state: &'static str,
    /// How long it has been in that state.
    pub state_for: Duration,
    pub age: Duration,
    /// The database's process id, when the protocol tells one.
    pub backend: Option<u32>,
    /// The address at this end; empty on a Unix socket.
    pub local: String,
    /// The version and the cipher of TLS; empty without.
    pub tls: String,
    /// What its session tells.
    pub about: SessionDescription,
    /// It is closed as soon as it is free, because a reload or an order has outdated it.
    pub is_stale: bool,
    /// The client that holds it.
    pub client: Option<u64>,
    /// Why it is kept beyond a transaction.
    pub pinned: Option<&'static str>,
    pub worker: u8,
}
