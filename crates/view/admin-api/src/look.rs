//! One look at a pooler: what `/api/pools` and `/api/clients` answer. What a newer Poolhouse tells beyond this is not
//! read. Of another pooler the same is told as far as it tells it; what only that one tells, or only Poolhouse, is
//! optional.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Times, Work, sum};

pub type Counts = BTreeMap<String, u64>;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pooler {
    /// A Poolhouse, by its admin address.
    #[default]
    Poolhouse,
    /// A PgBouncer, by its console.
    #[serde(rename = "pgbouncer")]
    PgBouncer,
    /// HikariCP, by what Micrometer tells of it.
    #[serde(rename = "hikaricp")]
    HikariCp,
    /// A driver of MongoDB, by its events.
    #[serde(rename = "mongodb_driver")]
    MongoDriver,
}

/// The answer of `/api/pools`. Counters count from the process's start.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Look {
    #[serde(default)]
    pub pooler: Pooler,
    /// Of the one that answered.
    pub version: String,
    /// Tells this process from those before and after it.
    pub instance: String,
    pub uptime_ms: f64,
    /// What it receives and sends with.
    pub reactor: String,
    /// It accepts no new clients.
    pub draining: bool,
    /// Clients that were not looked at, because there are too many.
    #[serde(default)]
    pub clients_left_out: u64,
    /// Pools that are not among these, because there are too many.
    #[serde(default)]
    pub pools_left_out: u64,
    /// It does not tell when all of its pools are paused at once.
    #[serde(default)]
    pub hides_pause: bool,
    pub auth_failures: u64,
    /// Upper bounds of the buckets of all histograms, in milliseconds; the last bucket has none.
    pub bucket_bounds_ms: Vec<f64>,
    /// In the order of the configuration.
    pub listeners: Vec<Listener>,
    /// In the order of their creation.
    pub pools: Vec<Pool>,
    pub workers: Vec<Worker>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Listener {
    pub name: String,
    /// What its clients speak.
    pub protocol: String,
    pub clients: ListenerClients,
    /// From here on idle clients are sent away.
    pub soft_limit: u64,
    /// From here on clients are turned away.
    pub hard_limit: u64,
    pub accepted: u64,
    /// How often the system refused to accept a client.
    #[serde(default)]
    pub accepts_failed: u64,
    /// Clients that logged in. Where `brief` is known: clients that were seen.
    pub logins: u64,
    /// Where logins are not counted, but clients are looked at: how many of them were gone at the look after the one
    /// that first saw them.
    #[serde(default)]
    pub brief: Option<u64>,
    /// Clients turned away, by reason.
    pub rejections: Counts,
    /// Clients sent away, by reason.
    pub evictions: Counts,
    /// Of those, how many did not end their side of the connection within seconds, by reason; empty where that is not
    /// told.
    #[serde(default)]
    pub unanswered: Counts,
}

/// Clients of a listener, by state.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct ListenerClients {
    pub login: u64,
    /// With nothing in progress.
    pub idle: u64,
    pub active: u64,
    pub waiting: u64,
    /// With nothing in progress, for what others send.
    pub subscribed: u64,
}

/// Servers that are equal to each other.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Pool {
    /// The same for as long as the process lives.
    pub id: u64,
    /// What its servers speak.
    pub protocol: String,
    pub database: String,
    /// Whose servers these are.
    pub user: String,
    pub address: String,
    pub clients: u64,
    /// Clients waiting for a server.
    pub waiters: u64,
    /// How long the one who waits longest has waited.
    pub oldest_wait_ms: Option<f64>,
    pub servers: PoolServers,
    pub max_size: u64,
    pub min_size: u64,
    pub created: u64,
    /// Connections closed, by reason.
    pub closed: Counts,
    /// Check-outs that failed, by reason.
    pub checkout_failed: Counts,
    /// Servers pinned to a client now, by reason.
    pub pinned: Counts,
    /// Sessions that were to keep a server and got none, by reason.
    #[serde(default)]
    pub pins_refused: Counts,
    pub transactions: u64,
    /// Time to check out a server, by path: `idle`, `created`, `queued`.
    pub checkout: BTreeMap<String, Times>,
    /// Time that phases of making a connection take: `dns`, `tcp`, `tls`, `auth`, `ready`.
    pub connect: BTreeMap<String, Times>,
    /// How long servers are held.
    pub hold: Times,
    /// For how much of that time they had a statement to carry out, if that is counted.
    #[serde(default)]
    pub busy_ms: Option<f64>,
    /// A server stays with its client for as long as that is there; `None` where that is not told.
    #[serde(default)]
    pub keeps_servers: Option<bool>,
    /// Its rules, as far as they are told.
    #[serde(default)]
    pub settings: PoolSettings,
    /// Its `max_size` is tuned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuning: Option<Tuned>,
    /// For how long its database has been out of reach.
    pub unavailable_ms: Option<f64>,
    /// What the last attempt to connect that failed ended with.
    pub last_error: Option<String>,
    /// The setting, other than its own size, because of which clients that wait now get no more servers, if that is
    /// told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<String>,
    pub paused: bool,
    pub drained: bool,
    /// What its servers do, where the database was asked, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Work>,
}

/// Rules of a pool that are in force.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct PoolSettings {
    /// When an idle server is closed, in milliseconds; `None`: never, or it is not told.
    pub max_idle_time: Option<f64>,
    /// Most connections that are made at a time; `None`: it is not told.
    #[serde(default)]
    pub max_connecting: Option<u64>,
    /// For how long a client may pause within a transaction, in milliseconds; `None`: for ever, or it is not told.
    #[serde(default)]
    pub transaction_idle_time: Option<f64>,
    /// For how long a client may have nothing in progress; the same.
    #[serde(default)]
    pub client_idle_time: Option<f64>,
}

/// That a pool's size is looked for while it runs.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Tuned {}

/// Servers of a pool now, by state.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct PoolServers {
    pub connecting: u64,
    pub idle: u64,
    pub in_use: u64,
    /// Being cleaned or asked whether they live.
    pub checking: u64,
    pub closing: u64,
    pub total: u64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Worker {
    /// CPU time that it has used.
    pub cpu_ms: f64,
    pub clients: u64,
}

/// The answer of `/api/clients`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Clients {
    /// Up to as many as were asked for.
    pub clients: Vec<Client>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Client {
    /// Its alone for as long as the process lives: what `ctl kill` takes.
    pub id: u64,
    pub address: String,
    pub protocol: String,
    pub database: String,
    pub user: String,
    /// `login`, `idle`, `waiting`, `active`, `transaction` or `subscribed`; `held` where it has a server and nobody
    /// tells what that does.
    pub state: String,
    /// For how long it has been in that state.
    pub state_ms: f64,
    /// For how long it has been connected.
    pub connected_ms: f64,
    /// The pool of which it has a server or waits for one, else its own.
    pub pool: Option<u64>,
    /// Why its server is pinned.
    pub pinned: Option<String>,
}

/// The answer of `/api/servers`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Servers {
    /// Up to as many as were asked for.
    pub servers: Vec<Server>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Server {
    /// Its process at the database, if that has told it.
    pub backend: Option<u32>,
    pub database: String,
    /// As whom it is logged in to.
    pub user: String,
    pub protocol: String,
}

impl Look {
    /// Keeps the first pools, so many at most, and tells how many are lacking.
    pub fn keep_pools(&mut self, most: usize) {
        let more = self.pools.len().saturating_sub(most);
        self.pools.truncate(most);
        self.pools_left_out = self.pools_left_out.saturating_add(more as u64);
    }
}

impl ListenerClients {
    pub fn total(self) -> u64 {
        sum(&[self.login, self.idle, self.active, self.waiting, self.subscribed])
    }
}

impl Pool {
    /// What an operator wants to know first.
    pub fn state(&self) -> &'static str {
        match self {
            Self { paused: true, .. } => "paused",
            Self { drained: true, .. } => "drained",
            Self { unavailable_ms: Some(_), .. } => "unavailable",
            _ => "ready",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stops_a_pool_is_its_state() {
        assert_eq!(Pool::default().state(), "ready");
        assert_eq!(Pool { unavailable_ms: Some(1.0), ..Pool::default() }.state(), "unavailable");
        assert_eq!(Pool { unavailable_ms: Some(1.0), paused: true, ..Pool::default() }.state(), "paused");
    }
}
