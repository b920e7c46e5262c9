//! What `/api/pools`, `/api/clients` and `/api/servers` answer: the only definition of that JSON. `serve` writes it;
//! `doctor`, `top` and `ctl` read it, and ignore fields that a newer Poolhouse adds. A look at another pooler has the
//! same types. Fields that only another pooler fills in are not written while they have their defaults, and everything
//! that not every pooler tells is optional.
//!
//! Fields stand in alphabetical order, because that is the order in which the JSON has them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Backend, Counts, Pool, Work, sum};

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
    pub auth_failures: u64,
    /// Upper bounds of the buckets of all histograms, in milliseconds; the last bucket has none.
    pub bucket_bounds_ms: Vec<f64>,
    /// Clients that were left out because the pooler has too many.
    #[serde(default, skip_serializing_if = "is_default")]
    pub clients_left_out: u64,
    /// The pooler accepts no new clients.
    pub draining: bool,
    /// The pooler does not tell when all of its pools are paused at once.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hides_pause: bool,
    /// Tells this process from those before and after it.
    pub instance: String,
    /// In the order of the configuration.
    pub listeners: Vec<Listener>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub pooler: Pooler,
    /// In the order of their creation.
    pub pools: Vec<Pool>,
    /// Pools that were left out because the pooler has too many.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pools_left_out: u64,
    /// `epoll`, for example.
    pub reactor: String,
    pub uptime_ms: f64,
    /// The pooler's version.
    pub version: String,
    pub workers: Vec<Worker>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Listener {
    pub accepted: u64,
    /// How often the system refused to accept a client.
    #[serde(default)]
    pub accepts_failed: u64,
    /// Clients gone by the look after the one that first saw them; `None` where logins are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brief: Option<u64>,
    pub clients: ListenerClients,
    /// How often clients came back as fast as they were evicted.
    #[serde(default)]
    pub eviction_loops: u64,
    /// Clients evicted, by reason.
    pub evictions: Counts,
    /// New clients are refused from here on.
    pub hard_limit: u64,
    /// Clients that logged in. Where `brief` is known: clients that were seen.
    pub logins: u64,
    pub name: String,
    /// What its clients speak.
    pub protocol: String,
    /// Clients refused, by reason.
    pub rejections: Counts,
    /// Idle clients are evicted from here on.
    pub soft_limit: u64,
    /// Evicted clients that did not close their side of the connection within seconds, by reason; empty where that is
    /// not told.
    #[serde(default)]
    pub unanswered: Counts,
}

/// Clients of a listener, by state.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct ListenerClients {
    pub active: u64,
    /// With nothing in progress.
    pub idle: u64,
    pub login: u64,
    /// With nothing in progress, but subscribed to what others send.
    pub subscribed: u64,
    pub waiting: u64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Worker {
    pub clients: u64,
    /// CPU time that the worker has used.
    pub cpu_ms: f64,
    /// Servers that moved to this worker from another.
    #[serde(default)]
    pub moves: u64,
    #[serde(default)]
    pub transactions: u64,
}

/// The answer of `/api/clients`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Clients {
    /// At most as many as the request allows.
    pub clients: Vec<Client>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Client {
    pub address: String,
    pub connected_ms: f64,
    pub database: String,
    /// Unique for as long as the process lives: what `ctl kill` takes.
    pub id: u64,
    #[serde(default)]
    pub listener: String,
    /// Why its server is pinned.
    pub pinned: Option<String>,
    /// The pool whose server the client has or waits for, else the client's own pool.
    pub pool: Option<u64>,
    pub protocol: String,
    #[serde(default)]
    pub server: Option<u64>,
    /// `login`, `idle`, `waiting`, `active`, `transaction` or `subscribed`; `held` where the client has a server and
    /// the pooler does not tell what the server does.
    pub state: String,
    /// How long the client has been in that state.
    pub state_ms: f64,
    pub user: String,
}

/// The answer of `/api/servers`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Servers {
    /// At most as many as the request allows.
    pub servers: Vec<Server>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Server {
    pub address: String,
    pub age_ms: f64,
    /// The process id of its session at the database, if it is known.
    pub backend: Option<u32>,
    /// The client that holds the server.
    pub client: Option<u64>,
    pub database: String,
    /// Unique on its worker for as long as the server lives.
    pub id: u64,
    /// Why it stays with its client beyond a transaction.
    pub pinned: Option<String>,
    pub protocol: String,
    /// `connecting`, `idle`, `in_use`, `checking` or `closing`.
    pub state: String,
    /// How long the server has been in that state.
    pub state_ms: f64,
    /// The user that the server is logged in as.
    pub user: String,
    pub worker: u64,
}

/// A server of a pooler: its pool by database and user, and its process at the database.
#[derive(Clone, Copy, Debug)]
pub struct ServerProcess<'s> {
    pub database: &'s str,
    pub user: &'s str,
    pub pid: u32,
}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Look {
    /// Clients of all listeners.
    pub fn clients(&self) -> u64 {
        self.listeners.iter().map(|listener| listener.clients.total()).fold(0, u64::saturating_add)
    }

    /// Keeps the first `max` pools, and adds the others to `pools_left_out`.
    pub fn keep_pools(&mut self, max: usize) {
        let more = self.pools.len().saturating_sub(max);
        self.pools.truncate(max);
        self.pools_left_out = self.pools_left_out.saturating_add(more as u64);
    }

    /// Sets the work of each pool of PostgreSQL from what the database says of its servers' sessions.
    pub fn set_work<'s>(
        &mut self,
        servers: impl Iterator<Item = ServerProcess<'s>>,
        backends: &[Backend],
        processors: Option<u64>,
    ) {
        let all_ready = backends.iter().filter(|backend| backend.is_ready()).count() as u64;
        let by_pid: BTreeMap<u32, &Backend> = backends.iter().map(|backend| (backend.pid, backend)).collect();
        let mut works: BTreeMap<(&str, &str), Work> = BTreeMap::new();
        for server in servers {
            // A process of the same number on another machine most likely has another user.
            if let Some(backend) = by_pid.get(&server.pid).filter(|backend| backend.user == server.user) {
                works.entry((server.database, server.user)).or_default().count(backend);
            }
        }
        for pool in self.pools.iter_mut().filter(|pool| pool.protocol == "postgres") {
            let work = works.get(&(pool.database.as_str(), pool.user.as_str())).copied().unwrap_or_default();
            pool.work = Some(Work { all_ready, processors, ..work });
        }
    }
}

impl ListenerClients {
    pub fn total(self) -> u64 {
        sum(&[self.login, self.idle, self.active, self.waiting, self.subscribed])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_counted_to_their_pool_by_what_they_wait_for() {
        let backend = |pid, user: &str, state: &str, wait: Option<&str>| Backend {
            pid,
            user: user.to_owned(),
            state: state.to_owned(),
            wait: wait.map(str::to_owned),
            ..Backend::default()
        };
        let backends = [
            backend(1, "app", "active", None),
            backend(2, "app", "active", Some("Lock")),
            backend(3, "app", "active", Some("Timeout")),
            backend(4, "app", "idle in transaction", Some("Client")),
            backend(5, "other", "active", None),
            backend(6, "app", "active", Some("IO")),
            backend(7, "app", "active", Some("LWLock")),
        ];
        let pool = |database: &str, user: &str| Pool {
            protocol: "postgres".to_owned(),
            database: database.to_owned(),
            user: user.to_owned(),
            ..Pool::default()
        };
        let mut look = Look { pools: vec![pool("shop", "app"), pool("shop", "other")], ..Look::default() };
        let server = |pid| ServerProcess { database: "shop", user: "app", pid };
        look.set_work([1, 2, 3, 4, 5, 7, 9].into_iter().map(server), &backends, Some(8));
        let work = look.pools[0].work.unwrap();
        assert_eq!((work.sessions, work.ready, work.locked, work.latched), (5, 1, 1, 1));
        assert_eq!((work.others, work.disks), (1, 0));
        assert_eq!((work.working(), work.all_ready, work.processors), (4, 2, Some(8)));
        assert_eq!(look.pools[1].work.map(|work| (work.sessions, work.all_ready)), Some((0, 2)));
    }
}
