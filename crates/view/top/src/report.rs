//! What is shown, as values: for a table, and for scripts as JSON.

use std::collections::BTreeMap;

use admin_api::{Change, Client, Clients, Listener, Look, Pool};
use serde::Serialize;

/// One moment of a running Poolhouse, with what happened since the look before. An unknown figure is null.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    pub summary: Summary,
    pub listeners: Vec<ListenerRow>,
    pub pools: Vec<PoolRow>,
    /// Clients that hold a server or wait for one, in the order of `/api/clients`: the longest first.
    pub clients: Vec<ClientRow>,
    /// There are more such clients.
    pub more_clients: bool,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    pub version: String,
    pub reactor: String,
    /// It accepts no new clients.
    pub draining: bool,
    /// Seconds between the two looks.
    pub over_s: Option<f64>,
    /// Share of a core that each worker used, from 0 to 1.
    pub cpu: Vec<f64>,
    /// Clients let in, a second.
    pub accepted_per_s: Option<f64>,
    /// Clients turned away, a second.
    pub rejected_per_s: Option<f64>,
    /// Clients sent away, a second.
    pub evicted_per_s: Option<f64>,
    /// Logins that failed, a second.
    pub auth_failures_per_s: Option<f64>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct ListenerRow {
    pub name: String,
    /// What its clients speak.
    pub protocol: String,
    pub clients: BTreeMap<&'static str, u64>,
    pub total: u64,
    /// Idle clients are evicted from here on.
    pub soft_limit: u64,
    /// New clients are refused from here on.
    pub hard_limit: u64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct PoolRow {
    /// What its servers speak.
    pub protocol: String,
    pub database: String,
    pub user: String,
    pub address: String,
    /// `ready`, `paused`, `drained`, `unavailable` or `disabled`.
    pub state: &'static str,
    pub clients: u64,
    /// Clients waiting for a server.
    pub waiters: u64,
    /// How long the first client in the queue has waited.
    pub oldest_wait_ms: Option<f64>,
    pub in_use: u64,
    pub idle: u64,
    pub connecting: u64,
    pub max_size: u64,
    /// Leases ended, a second.
    pub transactions_per_s: Option<f64>,
    /// 99th percentile of the time to check out a server, by path: `idle`, `created`, `queued`. Beyond the last bound
    /// that is counted by, it is that bound: a minute.
    pub checkout_p99_ms: BTreeMap<String, Option<f64>>,
    /// Share of check-outs by path, from 0 to 1.
    pub checkout_share: BTreeMap<String, f64>,
    /// 99th percentile of how long servers were held; a minute stands for more, too.
    pub hold_p99_ms: Option<f64>,
    /// Connections made, a minute.
    pub created_per_min: Option<f64>,
    /// Check-outs that failed, a second.
    pub failed_per_s: Option<f64>,
    /// Servers pinned to a client now, by reason.
    pub pinned: BTreeMap<String, u64>,
}

/// A client that holds a server or waits for one.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ClientRow {
    /// What `ctl kill` takes.
    pub id: u64,
    pub address: String,
    pub protocol: String,
    pub database: String,
    pub user: String,
    /// `waiting`, `active`, `transaction` and the like.
    pub state: String,
    /// How long the client has been in that state.
    pub state_ms: f64,
    /// Why its server is pinned.
    pub pinned: Option<String>,
}

impl Report {
    /// Shows a look at pools and one at clients, at most `max_clients`. Rates are unknown without a change.
    pub fn new(look: &Look, clients: &Clients, max_clients: usize, change: Option<&Change>) -> Self {
        let rate = |events: fn(&Change) -> u64| change.map(|change| change.per_second(events(change)));
        Self {
            summary: Summary {
                version: look.version.clone(),
                reactor: look.reactor.clone(),
                draining: look.draining,
                over_s: change.map(|change| change.duration.as_secs_f64()),
                cpu: change.map_or(Vec::new(), |change| change.cpu.clone()),
                accepted_per_s: rate(|change| change.accepted),
                rejected_per_s: rate(|change| change.rejected),
                evicted_per_s: rate(|change| change.evicted),
                auth_failures_per_s: rate(|change| change.auth_failures),
            },
            listeners: look.listeners.iter().map(ListenerRow::new).collect(),
            pools: look.pools.iter().map(|pool| PoolRow::new(pool, &look.bucket_bounds_ms, change)).collect(),
            clients: clients.clients.iter().take(max_clients).map(ClientRow::new).collect(),
            more_clients: clients.clients.len() > max_clients,
        }
    }
}

impl ListenerRow {
    fn new(listener: &Listener) -> Self {
        let states = &listener.clients;
        let clients = [
            ("login", states.login),
            ("idle", states.idle),
            ("active", states.active),
            ("waiting", states.waiting),
            ("subscribed", states.subscribed),
        ];
        Self {
            name: listener.name.clone(),
            protocol: listener.protocol.clone(),
            clients: clients.into(),
            total: states.total(),
            soft_limit: listener.soft_limit,
            hard_limit: listener.hard_limit,
        }
    }
}

impl PoolRow {
    fn new(pool: &Pool, bounds: &[f64], change: Option<&Change>) -> Self {
        let own = change.and_then(|change| Some((change, change.pools.get(&pool.id)?)));
        let checkouts = own.map(|(_, own)| &own.checkout);
        let p99 = |paths: &BTreeMap<String, admin_api::Times>| {
            paths.iter().map(|(path, times)| (path.clone(), p99_ms(times, bounds))).collect()
        };
        let shares = |paths: &BTreeMap<String, admin_api::Times>| {
            let all = admin_api::sum(&paths.values().map(admin_api::Times::count).collect::<Vec<_>>()).max(1) as f64;
            paths.iter().map(|(path, times)| (path.clone(), times.count() as f64 / all)).collect()
        };
        Self {
            protocol: pool.protocol.clone(),
            database: pool.database.clone(),
            user: pool.user.clone(),
            address: pool.address.clone(),
            state: pool.state(),
            clients: pool.clients,
            waiters: pool.waiters,
            oldest_wait_ms: pool.oldest_wait_ms,
            in_use: pool.servers.in_use,
            idle: pool.servers.idle,
            connecting: pool.servers.connecting,
            max_size: pool.max_size,
            transactions_per_s: own.map(|(change, own)| change.per_second(own.transactions)),
            checkout_p99_ms: checkouts.map(p99).unwrap_or_default(),
            checkout_share: checkouts.map(shares).unwrap_or_default(),
            hold_p99_ms: own.and_then(|(_, own)| p99_ms(&own.hold, bounds)),
            created_per_min: own.map(|(change, own)| change.per_second(own.created) * 60.0),
            failed_per_s: own.map(|(change, own)| change.per_second(admin_api::sum(own.failed.values()))),
            pinned: pool.pinned.iter().filter(|(_, n)| **n > 0).map(|(why, n)| (why.clone(), *n)).collect(),
        }
    }
}

/// The 99th percentile, or the last bound if it lies beyond: the longest times must not be shown as unknown.
fn p99_ms(times: &admin_api::Times, bounds: &[f64]) -> Option<f64> {
    let longest = bounds.last().copied().filter(|_| times.count() > 0);
    times.quantile_ms(0.99, bounds).or(longest)
}

/// A pause within a transaction that no program needs.
const MIN_ALARMING_PAUSE_MS: f64 = 5_000.0;

impl ClientRow {
    pub fn waits(&self) -> bool {
        self.state == "waiting"
    }

    /// The client has a server in a transaction, and has asked nothing for long.
    pub fn pauses_for_long(&self) -> bool {
        self.state == "transaction" && self.state_ms >= MIN_ALARMING_PAUSE_MS
    }

    fn new(client: &Client) -> Self {
        Self {
            id: client.id,
            address: client.address.clone(),
            protocol: client.protocol.clone(),
            database: client.database.clone(),
            user: client.user.clone(),
            state: client.state.clone(),
            state_ms: client.state_ms,
            pinned: client.pinned.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_hold_beyond_the_last_bound_is_shown_as_that_bound() {
        let look = |held: u64| Look {
            bucket_bounds_ms: vec![1.0, 60_000.0],
            pools: vec![Pool { hold: admin_api::Times { buckets: vec![0, 0, held], sum_ms: 0.0 }, ..Pool::default() }],
            ..Look::default()
        };
        let after = |held| {
            let change = Change::between(&look(7), &look(held), Duration::from_secs(1));
            Report::new(&look(held), &Clients::default(), 500, change.as_ref()).pools[0].hold_p99_ms
        };
        assert_eq!(after(9), Some(60_000.0));
        assert_eq!(after(7), None, "nothing ended in between");
    }

    #[test]
    fn a_report_says_when_there_are_more_clients_than_it_lists() {
        let clients = Clients { clients: vec![Client::default(); 3] };
        let report = |most| Report::new(&Look::default(), &clients, most, None);
        assert!(!report(3).more_clients);
        assert_eq!((report(2).more_clients, report(2).clients.len()), (true, 2));
    }
}
