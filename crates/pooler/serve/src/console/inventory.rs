//! The lists of what is configured and how it is used: databases, pools, users, counts and memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use console::{Table, Value};
use driver::{Address, BeginWith, ClientFilter, PoolSnapshot, Snapshot};
use upstream::Kind;

use super::{Console, dns, orders::postgres_database};
use crate::{
    admin::MAX_LIMIT,
    config::{Config, Database, FALLBACK, Limits, PGBOUNCER_NAME, User},
    pools::LOOKUPS_SUFFIX,
};

/// The size that PgBouncer shows for the console's own database.
const CONSOLE_POOL_SIZE: u32 = 2;

/// How a database or a user uses what it may.
#[derive(Clone, Copy, Default)]
struct Usage {
    servers: u64,
    clients: u64,
}

impl Console {
    /// Databases by name: those that are configured, those that clients use by `*`, and the console's own.
    pub(super) fn list_databases(&self, table: &mut Table) {
        let (config, snapshot) = (self.reloader().in_force(), self.handle.snapshot());
        let mut usage = BTreeMap::<&str, Usage>::new();
        for pool in pools(&snapshot) {
            let entry = usage.entry(database_of(pool)).or_default();
            entry.servers += u64::from(pool.counts.total);
            entry.clients += pool.clients;
        }
        let configured = config.databases_of(Kind::Postgres).map(|database| (database.name.as_str(), database));
        let mut all: BTreeMap<&str, &Database> = configured.filter(|(name, _)| *name != FALLBACK).collect();
        if let Some(fallback) = config.databases_of(Kind::Postgres).find(|database| database.name == FALLBACK) {
            for name in usage.keys() {
                all.entry(name).or_insert(fallback);
            }
        }
        let console = config.console.name.as_str();
        let names: BTreeSet<&str> = all.keys().copied().chain([console]).collect();
        for name in names {
            match all.get(name) {
                Some(database) => {
                    let usage = usage.get(name).copied().unwrap_or_default();
                    self.push_database(name, database, usage, &config.limits, table);
                }
                None => self.push_own_database(&config, table),
            }
        }
    }

    fn push_database(&self, name: &str, database: &Database, usage: Usage, general: &Limits, table: &mut Table) {
        let order = self.handle.order_for(&postgres_database(name.to_owned()));
        let paused = self.is_paused(Some(&postgres_database(name.to_owned())));
        let (hosts, port) = hosts(database);
        let settings = &database.pool;
        let client_limit = database.clients.or(general.of_each_database()).map_or(0, |limits| limits.hard_limit);
        table.push([
            name.into(),
            Value::from(&hosts),
            port.into(),
            database.database.as_deref().unwrap_or(name).into(),
            database.user.as_ref().into(),
            settings.config.max_size.into(),
            settings.config.min_size.into(),
            settings.config.reserve_size.into(),
            seconds(settings.config.max_life_time).into(),
            database.spots.contains_key("mode").then(|| settings.mode.as_str()).into(),
            balancing(database).into(),
            database.max_connections.into(),
            usage.servers.into(),
            client_limit.into(),
            usage.clients.into(),
            paused.into(),
            order.is_disabled().into(),
        ]);
    }

    fn push_own_database(&self, config: &Config, table: &mut Table) {
        let name = config.console.name.as_str();
        table.push([
            name.into(),
            Value::Null,
            listen_port(config).into(),
            name.into(),
            name.into(),
            CONSOLE_POOL_SIZE.into(),
            0_u32.into(),
            0_u32.into(),
            seconds(config.pool.config.max_life_time).into(),
            "statement".into(),
            Value::Null,
            0_u32.into(),
            0_u32.into(),
            config.limits.max_database_clients.into(),
            (self.running.count() as u64).into(),
            false.into(),
            false.into(),
        ]);
    }

    /// Pools of PostgreSQL, by database and user, and the console's own.
    pub(super) fn list_pools(&self, table: &mut Table) {
        let (config, snapshot) = (self.reloader().in_force(), self.handle.snapshot());
        let mut all: Vec<&PoolSnapshot> = pools(&snapshot).collect();
        all.sort_by_key(|pool| (database_of(pool), pool.user.as_str()));
        let own = config.console.name.as_str();
        let before = all.partition_point(|pool| database_of(pool) < own);
        for pool in &all[..before] {
            self.push_pool(&config, pool, table);
        }
        let here = self.running.count() as u64;
        let none = Value::Number(0);
        let zeros = [none; 12];
        let row = [own.into(), own.into(), here.into()].into_iter().chain(zeros);
        table.push(row.chain(["statement".into(), Value::Null]));
        for pool in &all[before..] {
            self.push_pool(&config, pool, table);
        }
    }

    fn push_pool(&self, config: &Config, pool: &PoolSnapshot, table: &mut Table) {
        let counts = &pool.counts;
        let waiting = u64::from(counts.waiters);
        let oldest = pool.oldest_wait.unwrap_or_default();
        let mode = self.reloader().mode(pool.id);
        let database = config.databases_of(Kind::Postgres).find(|database| database.name == pool.database);
        let none = Value::Number(0);
        table.push([
            database_of(pool).into(),
            Value::from(&pool.user),
            pool.clients.saturating_sub(waiting).into(),
            waiting.into(),
            none,
            none,
            counts.in_use.into(),
            none,
            none,
            counts.idle.into(),
            none,
            counts.checking.into(),
            counts.connecting.into(),
            oldest.as_secs().into(),
            oldest.subsec_micros().into(),
            mode.map(crate::config::Mode::as_str).into(),
            database.and_then(balancing).into(),
        ]);
    }

    /// Users that are configured, or whose servers are there.
    pub(super) fn list_users(&self, table: &mut Table) {
        let (config, snapshot) = (self.reloader().in_force(), self.handle.snapshot());
        let mut usage = BTreeMap::<String, Usage>::new();
        for pool in pools(&snapshot) {
            usage.entry(pool.user.clone()).or_default().servers += u64::from(pool.counts.total);
        }
        for client in self.handle.clients(ClientFilter::All, MAX_LIMIT).iter().filter(|client| client.is_logged_in()) {
            usage.entry(client.login_user.clone()).or_default().clients += 1;
        }
        let rules: BTreeMap<&str, &User> = config.users.iter().map(|user| (user.name.as_str(), user)).collect();
        let named = config.users.iter().map(|user| user.name.as_str()).chain([PGBOUNCER_NAME]);
        let names: BTreeSet<&str> = named.chain(usage.keys().map(String::as_str)).collect();
        for name in names {
            let rule = rules.get(name);
            let usage = usage.get(name).copied().unwrap_or_default();
            let size = rule.and_then(|user| user.max_size).map(|size| size.to_string()).unwrap_or_default();
            let reserve = rule.and_then(|user| user.reserve_size).map(|size| size.to_string()).unwrap_or_default();
            let limit = rule.and_then(|user| user.max_user_connections);
            let own = rule.and_then(|user| user.clients);
            let clients = own.or(config.limits.of_each_user()).map_or(0, |limits| limits.hard_limit);
            table.push([
                name.into(),
                Value::from(&size),
                Value::from(&reserve),
                rule.and_then(|user| user.mode).map(|mode| mode.as_str()).into(),
                limit.unwrap_or(config.limits.max_user_connections).into(),
                usage.servers.into(),
                clients.into(),
                usage.clients.into(),
            ]);
        }
    }

    /// SHOW PEERS: all that are configured, this process included if the list has it.
    pub(super) fn list_peers(&self, table: &mut Table) {
        for peer in &self.reloader().in_force().peers {
            let (host, port) = peer.place();
            table.push([
                u32::from(peer.node).into(),
                Value::from(&host),
                port.map(u32::from).into(),
                peer.max_size.into(),
            ]);
        }
    }

    /// SHOW PEER_POOLS: what is on its way to each peer.
    pub(super) fn list_peer_pools(&self, table: &mut Table) {
        for peer in self.reloader().peers().iter().flat_map(|peers| peers.status()) {
            let [waiting, connecting, under_way] =
                [peer.waiting, peer.connecting, peer.under_way].map(|count| count as u64);
            table.push([
                u32::from(peer.node).into(),
                under_way.into(),
                (waiting + connecting).into(),
                under_way.into(),
                connecting.into(),
            ]);
        }
    }

    /// SHOW LISTS. Memory of connections that have gone is not kept.
    pub(super) fn list_counts(&self, table: &mut Table) {
        let (mut databases, mut users) = (console::Show::Databases.table(), console::Show::Users.table());
        self.list_databases(&mut databases);
        self.list_users(&mut users);
        let (config, snapshot) = (self.reloader().in_force(), self.handle.snapshot());
        let hosts = self.admin.control().hosts.list();
        let of_postgres = snapshot.listeners.iter().filter(|listener| listener.protocol == Kind::Postgres.word());
        let (mut used, mut login) = (0, 0);
        for listener in of_postgres {
            used += listener.idle + listener.active + listener.waiting + listener.subscribed;
            login += listener.login;
        }
        let servers = pools(&snapshot).map(|pool| u64::from(pool.counts.total)).sum();
        let rows: [(&str, u64); 14] = [
            ("databases", databases.len() as u64),
            ("users", users.len() as u64),
            ("peers", config.peers.len() as u64),
            ("pools", pools(&snapshot).count() as u64 + 1),
            ("peer_pools", self.reloader().peers().map_or(0, |peers| peers.status().len()) as u64),
            ("free_clients", 0),
            ("used_clients", used),
            ("login_clients", login),
            ("free_servers", 0),
            ("used_servers", servers),
            ("dns_names", hosts.len() as u64),
            ("dns_zones", dns::zones(&hosts).len() as u64),
            ("dns_queries", 0),
            ("dns_pending", 0),
        ];
        for (list, items) in rows {
            table.push([list.into(), items.into()]);
        }
    }

    /// SHOW MEM: what is known of memory by its use. Poolhouse keeps no caches of free objects.
    pub(super) fn list_memory(&self, table: &mut Table) {
        for (name, bytes) in self.admin.memory() {
            table.push([name.into(), Value::Null, Value::Null, Value::Number(0), bytes.into()]);
        }
    }
}

/// The pools of PostgreSQL.
pub fn pools(snapshot: &Snapshot) -> impl Iterator<Item = &PoolSnapshot> {
    snapshot.pools.iter().filter(|pool| pool.protocol == Kind::Postgres.word())
}

/// The database of a pool. Servers that look up users count for their database.
pub fn database_of(pool: &PoolSnapshot) -> &str {
    pool.database.strip_suffix(LOOKUPS_SUFFIX).unwrap_or(&pool.database)
}

/// The hosts of a database as a list, and the port of the first.
fn hosts(database: &Database) -> (String, u32) {
    let mut port = None;
    let name = |address: &Address| match address {
        Address::Tcp { host, port: of_host } => {
            port.get_or_insert(u32::from(*of_host));
            host.clone()
        }
        Address::Unix(path) => path.parent().unwrap_or(path).display().to_string(),
    };
    let names: Vec<String> = database.hosts.addresses.iter().map(name).collect();
    (names.join(","), port.unwrap_or(5432))
}

/// PgBouncer's word for how servers are spread over several hosts.
fn balancing(database: &Database) -> Option<&'static str> {
    (database.hosts.addresses.len() > 1).then_some(match database.hosts.begin {
        BeginWith::Any | BeginWith::Next => "round-robin",
        BeginWith::First | BeginWith::LastGood => "disable",
    })
}

/// The port of the first listener for PostgreSQL.
fn listen_port(config: &Config) -> Option<u32> {
    config
        .listeners
        .iter()
        .filter(|listener| listener.kind == Kind::Postgres)
        .find_map(|listener| Some(listener.listen.tcp()?.port().into()))
}

/// A time-out in seconds, where 0 is none.
pub fn seconds(time: Option<Duration>) -> u64 {
    time.map_or(0, |time| time.as_secs())
}
