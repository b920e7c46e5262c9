//! A pool in the answer of `/api/pools`. Fields stand in alphabetical order, as in the JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Counts, Times, Tuning, Work};

/// Servers that are equal to each other. `H` is a histogram: [`Times`], or [`Summarized`](crate::Summarized) in the
/// JSON that a Poolhouse writes.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Pool<H = Times> {
    pub address: String,
    /// How long the database needed the servers within `hold`, if that is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_ms: Option<f64>,
    /// Time to check out a server, by path: `idle`, `created`, `queued`.
    pub checkout: BTreeMap<String, H>,
    /// Failed check-outs, by reason.
    pub checkout_failed: Counts,
    pub clients: u64,
    /// Closed connections, by reason.
    pub closed: Counts,
    /// Time that each phase of making a connection takes: `dns`, `tcp`, `tls`, `auth`, `ready`.
    pub connect: BTreeMap<String, H>,
    pub created: u64,
    pub database: String,
    /// It takes no new clients.
    #[serde(default)]
    pub disabled: bool,
    pub drained: bool,
    /// How long clients hold servers.
    pub hold: H,
    /// Unique for as long as the process lives.
    pub id: u64,
    /// True if a server stays with its client until the client goes; `None` where that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeps_servers: Option<bool>,
    /// The error of the last attempt to connect that failed.
    pub last_error: Option<String>,
    /// The setting, other than the pool's own size, that keeps waiting clients from getting more servers, if it is
    /// known.
    #[serde(default)]
    pub limited_by: Option<String>,
    pub max_size: u64,
    pub min_size: u64,
    /// How long the current lease that began first has lasted.
    #[serde(default)]
    pub oldest_hold_ms: Option<f64>,
    /// How long the first client in the queue has waited.
    pub oldest_wait_ms: Option<f64>,
    pub paused: bool,
    /// Servers pinned to a client now, by reason.
    pub pinned: Counts,
    /// Sessions that could not pin a server although they had to, by reason.
    #[serde(default)]
    pub pins_refused: Counts,
    /// What its servers speak.
    pub protocol: String,
    pub servers: PoolServers,
    /// The pool's rules, as far as they are known.
    #[serde(default)]
    pub settings: PoolSettings,
    /// Functions of the database that change its sessions.
    #[serde(default)]
    pub suspicious: Vec<String>,
    pub transactions: u64,
    /// What the tuner of its size does, if the pool has one.
    #[serde(default)]
    pub tuning: Option<Tuning>,
    /// How long its database has been out of reach.
    pub unavailable_ms: Option<f64>,
    /// The user that its servers are logged in as.
    pub user: String,
    /// Clients waiting for a server.
    pub waiters: u64,
    /// What its servers do, if the database was looked at, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Work>,
}

/// Rules of a pool that are in force, under their names in the configuration. Times are in milliseconds. `None` is
/// off or unlimited, or another pooler does not tell it.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct PoolSettings {
    pub check_after_idle: Option<f64>,
    pub client_idle_time: Option<f64>,
    pub connect_time: Option<f64>,
    pub max_connecting: Option<u64>,
    pub max_idle_time: Option<f64>,
    pub max_life_time: Option<f64>,
    pub max_size: Option<u64>,
    pub max_wait_time: Option<f64>,
    pub max_waiters: Option<u64>,
    pub min_size: Option<u64>,
    pub query_time: Option<f64>,
    pub reserve_size: Option<u64>,
    pub transaction_idle_time: Option<f64>,
    pub transaction_time: Option<f64>,
    pub unavailable_wait_time: Option<f64>,
}

/// Servers of a pool now, by state.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct PoolServers {
    /// Being cleaned, or checked for being alive.
    pub checking: u64,
    pub closing: u64,
    pub connecting: u64,
    pub idle: u64,
    pub in_use: u64,
    pub total: u64,
}

impl<H> Pool<H> {
    /// The state that an operator wants to know first.
    pub fn state(&self) -> &'static str {
        match self {
            Self { paused: true, .. } => "paused",
            Self { drained: true, .. } => "drained",
            Self { unavailable_ms: Some(_), .. } => "unavailable",
            Self { disabled: true, .. } => "disabled",
            _ => "ready",
        }
    }
}
