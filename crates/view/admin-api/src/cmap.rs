//! Looks at the pools of a MongoDB driver: from the events that it tells of them (Connection Monitoring and Pooling,
//! "CMAP", of the drivers' specifications) to looks that a Poolhouse would give, as far as they mean the same. Names of
//! events are taken as the specification has them, as classes of drivers, or as messages of drivers' logs. What
//! connections do while they are checked out is not told.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    Counts, Look, Pool, PoolServers, Pooler, Times,
    outage::Outage,
    unix_time::{parse_seconds, to_seconds},
};

/// Pools, connections of a pool, and reasons beyond these are ignored.
const MAX_POOLS: usize = 200;
const MAX_CONNECTIONS: usize = 100_000;
const MAX_REASONS: usize = 16;
const MAX_NAME: usize = 100;
/// The drivers' default of `maxPoolSize`.
const DEFAULT_MAX_SIZE: u64 = 100;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    PoolCreated,
    PoolCleared,
    PoolClosed,
    ConnectionCreated,
    ConnectionReady,
    ConnectionClosed,
    CheckOutStarted,
    CheckOutFailed,
    CheckedOut,
    CheckedIn,
    /// An event that changes nothing.
    Other,
}

#[derive(Clone, PartialEq, Debug)]
pub struct CmapEvent {
    /// The time, in seconds of the Unix epoch.
    pub at_s: f64,
    kind: Kind,
    address: String,
    connection: Option<u64>,
    reason: String,
    max_size: Option<u64>,
    min_size: Option<u64>,
}

/// The pools that events tell of.
#[derive(Debug, Default)]
pub struct Cmap {
    pools: BTreeMap<String, PoolState>,
    next: u64,
    /// Restarts of the application.
    restarts: u64,
}

#[derive(Debug, Default)]
struct PoolState {
    id: u64,
    /// The pool was created, and not closed since.
    is_open: bool,
    max_size: u64,
    min_size: u64,
    waiters: u64,
    connections: BTreeMap<u64, Connection>,
    created: u64,
    closed: Counts,
    failed: Counts,
    hold: Times,
    outage: Outage,
}

#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    is_ready: bool,
    out_since_s: Option<f64>,
}

impl CmapEvent {
    /// Reads a line; `None` if it is no event.
    pub fn read(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        let event = value.as_object()?;
        let first = |names: &[&str]| names.iter().find_map(|name| event.get(*name));
        let kind = Kind::read(first(&["event", "name", "type", "eventType", "message", "msg"])?.as_str()?)?;
        let at_s = time(first(&["time", "timestamp", "ts", "t", "at", "date"])?)?;
        let options = event.get("options").and_then(Value::as_object);
        let of_options = |name: &str| event.get(name).or_else(|| options?.get(name)).and_then(Value::as_u64);
        let host = event.get("serverHost").and_then(Value::as_str);
        let address = match (event.get("address"), host) {
            (Some(Value::String(address)), _) => address.clone(),
            (Some(Value::Array(parts)), _) => parts.iter().map(to_text).collect::<Vec<_>>().join(":"),
            (_, Some(host)) => format!("{host}:{}", event.get("serverPort").map_or(String::new(), to_text)),
            _ => String::new(),
        };
        let connection = first(&["connectionId", "driverConnectionId", "connection_id"]);
        Some(Self {
            at_s,
            kind,
            address: address.chars().take(MAX_NAME).collect(),
            connection: connection.and_then(|id| id.as_u64().or_else(|| id.as_str()?.parse().ok())),
            reason: reason(event.get("reason").and_then(Value::as_str).unwrap_or_default()),
            max_size: of_options("maxPoolSize"),
            min_size: of_options("minPoolSize"),
        })
    }
}

fn to_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A reason in one word, of the driver's text.
fn reason(told: &str) -> String {
    let told = told.to_ascii_lowercase();
    let words = ["idle", "stale", "timeout", "poolclosed", "error"];
    let of = |word: &str| told.contains(word) || (word == "poolclosed" && told.contains("closed"));
    words
        .into_iter()
        .find(|word| of(word))
        .unwrap_or(if told.contains("timed out") { "timeout" } else { "other" })
        .to_owned()
}

impl Kind {
    fn read(name: &str) -> Option<Self> {
        let letters: String = name.chars().filter(char::is_ascii_alphabetic).map(|c| c.to_ascii_lowercase()).collect();
        let name = letters.strip_suffix("event").unwrap_or(&letters);
        let name = name.strip_prefix("connection").filter(|rest| rest.starts_with("pool")).unwrap_or(name);
        Some(match name {
            "poolcreated" => Self::PoolCreated,
            "poolcleared" => Self::PoolCleared,
            "poolclosed" => Self::PoolClosed,
            "poolready" => Self::Other,
            "connectioncreated" => Self::ConnectionCreated,
            "connectionready" => Self::ConnectionReady,
            "connectionclosed" => Self::ConnectionClosed,
            "connectioncheckoutstarted" => Self::CheckOutStarted,
            "connectioncheckoutfailed" => Self::CheckOutFailed,
            "connectioncheckedout" => Self::CheckedOut,
            "connectioncheckedin" => Self::CheckedIn,
            _ => return None,
        })
    }
}

/// A time in seconds of the Unix epoch: a number, or a time of ISO 8601 in UTC.
fn time(value: &Value) -> Option<f64> {
    if let Some(number) = value.as_f64() {
        return Some(to_seconds(number)).filter(|time| *time >= 0.0);
    }
    let text = value.as_str().or_else(|| value.get("$date")?.as_str())?;
    let text = text.strip_suffix('Z').or(text.strip_suffix("+00:00")).unwrap_or(text);
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let seconds = parse_seconds(&whole.replace('T', " "))?;
    let fraction: f64 = format!("0.{fraction}").parse().ok()?;
    Some(seconds as f64 + fraction)
}

impl Cmap {
    pub fn add(&mut self, event: &CmapEvent) {
        let is_open = self.pools.get(&event.address).is_some_and(|pool| pool.is_open);
        if event.kind == Kind::PoolCreated && is_open {
            self.restart();
        }
        if !self.pools.contains_key(&event.address) {
            if self.pools.len() >= MAX_POOLS {
                return;
            }
            self.next += 1;
            let made = PoolState { id: self.next, max_size: DEFAULT_MAX_SIZE, is_open: true, ..PoolState::default() };
            self.pools.insert(event.address.clone(), made);
        }
        if let Some(pool) = self.pools.get_mut(&event.address) {
            pool.add(event);
        }
    }

    /// An open pool is created again: its process is gone, with all its connections.
    fn restart(&mut self) {
        self.restarts += 1;
        for pool in self.pools.values_mut() {
            pool.connections.clear();
            (pool.waiters, pool.is_open, pool.outage) = (0, false, Outage::default());
        }
    }

    /// The look that there is now.
    pub fn make_look(&mut self, at_s: f64) -> Look {
        let pools = self.pools.iter_mut().map(|(address, made)| made.make_pool(at_s, address)).collect();
        Look { pooler: Pooler::MongoDriver, instance: self.restarts.to_string(), pools, ..Look::default() }
    }
}

impl PoolState {
    fn add(&mut self, event: &CmapEvent) {
        let id = event.connection.unwrap_or(0);
        match event.kind {
            Kind::PoolCreated => {
                self.is_open = true;
                // 0 is no limit.
                self.max_size = event
                    .max_size
                    .map_or(DEFAULT_MAX_SIZE, |most| if most == 0 { MAX_CONNECTIONS as u64 } else { most });
                self.min_size = event.min_size.unwrap_or(0);
            }
            Kind::ConnectionCreated => {
                self.created += 1;
                if self.connections.len() < MAX_CONNECTIONS {
                    self.connections.insert(id, Connection::default());
                }
            }
            Kind::ConnectionReady => {
                if self.connections.len() < MAX_CONNECTIONS || self.connections.contains_key(&id) {
                    self.connections.entry(id).or_default().is_ready = true;
                }
            }
            Kind::ConnectionClosed => {
                let gone = self.connections.remove(&id);
                self.count_hold(gone.and_then(|gone| gone.out_since_s), event.at_s);
                count(&mut self.closed, &event.reason);
            }
            Kind::CheckOutStarted => self.waiters += 1,
            Kind::CheckOutFailed => {
                self.waiters = self.waiters.saturating_sub(1);
                count(&mut self.failed, &event.reason);
            }
            Kind::CheckedOut => {
                self.waiters = self.waiters.saturating_sub(1);
                // A connection that was made before the first event.
                if self.connections.len() < MAX_CONNECTIONS || self.connections.contains_key(&id) {
                    let connection = Connection { is_ready: true, out_since_s: Some(event.at_s) };
                    self.connections.insert(id, connection);
                }
            }
            Kind::CheckedIn => {
                if let Some(connection) = self.connections.get_mut(&id) {
                    let since = connection.out_since_s.take();
                    self.count_hold(since, event.at_s);
                }
            }
            Kind::PoolClosed => {
                self.is_open = false;
                self.connections.clear();
                self.waiters = 0;
            }
            Kind::PoolCleared | Kind::Other => {}
        }
    }

    fn count_hold(&mut self, since_s: Option<f64>, at_s: f64) {
        let Some(since) = since_s else { return };
        self.hold.buckets.resize(1, 0);
        self.hold.buckets[0] += 1;
        self.hold.sum_ms += (at_s - since).max(0.0) * 1e3;
    }

    fn make_pool(&mut self, at_s: f64, address: &str) -> Pool {
        let connections = self.connections.values();
        let in_use = connections.clone().filter(|connection| connection.out_since_s.is_some()).count() as u64;
        let connecting = connections.clone().filter(|connection| !connection.is_ready).count() as u64;
        let total = connections.count() as u64;
        let outage_ms = self.outage.observe(self.waiters > 0 && total == connecting, at_s * 1e3);
        let name = if address.is_empty() { "a server that is not named" } else { address };
        Pool {
            id: self.id,
            protocol: "mongodb".to_owned(),
            database: name.to_owned(),
            address: name.to_owned(),
            waiters: self.waiters,
            servers: PoolServers {
                connecting,
                in_use,
                idle: total.saturating_sub(connecting).saturating_sub(in_use),
                total,
                ..PoolServers::default()
            },
            max_size: self.max_size,
            min_size: self.min_size,
            created: self.created,
            closed: self.closed.clone(),
            checkout_failed: self.failed.clone(),
            transactions: self.hold.count(),
            hold: self.hold.clone(),
            unavailable_ms: outage_ms,
            ..Pool::default()
        }
    }
}

fn count(counts: &mut Counts, reason: &str) {
    if counts.len() < MAX_REASONS || counts.contains_key(reason) {
        *counts.entry(reason.to_owned()).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(line: &str) -> CmapEvent {
        CmapEvent::read(line).unwrap_or_else(|| panic!("{line}"))
    }

    #[test]
    fn events_of_several_drivers_are_read() {
        let node = event(
            r#"{"name":"connectionPoolCreated","time":"2026-11-26T05:13:27.250Z","address":"db:27017",
            "options":{"maxPoolSize":7}}"#,
        );
        assert_eq!((node.kind, node.at_s, node.max_size), (Kind::PoolCreated, 1_795_670_007.25, Some(7)));
        let python = event(
            r#"{"event":"ConnectionCheckedOutEvent","time":1795670007.25,"address":["db",27017],"connectionId":4}"#,
        );
        assert_eq!((python.kind, python.connection), (Kind::CheckedOut, Some(4)));
        let log = event(
            r#"{"message":"Connection closed","t":{"$date":"2026-11-26T05:13:27.250+00:00"},"serverHost":"db",
            "serverPort":27017,"driverConnectionId":4,"reason":"Connection has been idle for too long"}"#,
        );
        assert_eq!((log.kind, log.connection, log.at_s), (Kind::ConnectionClosed, Some(4), 1_795_670_007.25));
        assert_eq!(log.reason, "idle");
        assert!([&node, &python, &log].iter().all(|event| event.address == "db:27017"));
        for none in [
            "",
            "[]",
            "{}",
            r#"{"event":"commandStarted","time":1}"#,
            r#"{"event":"poolCreated"}"#,
            r#"{"event":"poolCreated","time":"x"}"#,
        ] {
            assert_eq!(CmapEvent::read(none), None, "{none}");
        }
    }

    /// Replays events, one each second.
    fn replay(events: &[&str]) -> (Cmap, Pool) {
        let mut cmap = Cmap::default();
        for (n, event) in events.iter().enumerate() {
            let line = format!(r#"{{"time":{},"address":"db:1",{event}}}"#, 1_000 + n);
            cmap.add(&CmapEvent::read(&line).unwrap());
        }
        let look = cmap.make_look(1_000.0 + events.len() as f64);
        let pool = look.pools.into_iter().next().unwrap();
        (cmap, pool)
    }

    #[test]
    fn a_pool_is_the_sum_of_its_events() {
        let (_, pool) = replay(&[
            r#""event":"poolCreated","maxPoolSize":5,"minPoolSize":1"#,
            r#""event":"connectionCheckOutStarted""#,
            r#""event":"connectionCreated","connectionId":1"#,
            r#""event":"connectionReady","connectionId":1"#,
            r#""event":"connectionCheckedOut","connectionId":1"#,
            r#""event":"connectionCreated","connectionId":2"#,
            r#""event":"connectionCheckOutStarted""#,
            r#""event":"connectionCheckOutFailed","reason":"timeout""#,
            r#""event":"connectionCheckedIn","connectionId":1"#,
            r#""event":"connectionCheckOutStarted""#,
        ]);
        assert_eq!((pool.max_size, pool.min_size, pool.waiters, pool.created), (5, 1, 1, 2));
        assert_eq!((pool.servers.connecting, pool.servers.idle, pool.servers.in_use, pool.servers.total), (1, 1, 0, 2));
        assert_eq!((pool.transactions, pool.hold.sum_ms, pool.checkout_failed["timeout"]), (1, 4_000.0, 1));
    }

    #[test]
    fn connections_from_before_the_first_event_and_repeated_events_are_counted() {
        let (_, pool) = replay(&[
            r#""event":"connectionCheckedOut","connectionId":9"#,
            r#""event":"connectionCheckedIn","connectionId":8"#,
            r#""event":"connectionClosed","connectionId":7,"reason":"idle""#,
            r#""event":"connectionCheckedIn""#,
        ]);
        assert_eq!(
            (pool.servers.in_use, pool.waiters, pool.closed["idle"], pool.max_size),
            (1, 0, 1, DEFAULT_MAX_SIZE)
        );
        assert_eq!(pool.transactions, 0);
    }

    #[test]
    fn an_open_pool_that_is_created_is_of_another_process() {
        let first = [r#""event":"poolCreated""#, r#""event":"connectionCheckedOut","connectionId":1"#];
        let of = |events: &[&str]| {
            let (mut cmap, pool) = replay(events);
            (pool.servers.in_use, cmap.make_look(2_000.0).instance)
        };
        let before = of(&first);
        assert_eq!(before.0, 1);
        let (in_use, instance) = of(&[&first[..], &[r#""event":"poolCreated""#]].concat());
        assert!(in_use == 0 && instance != before.1, "its connections are gone with it");
        let closed = [&first[..], &[r#""event":"poolClosed""#, r#""event":"poolCreated""#]].concat();
        assert_eq!(of(&closed), (0, before.1), "a server that left a replica set and came back");
    }

    #[test]
    fn pools_and_reasons_are_bounded() {
        let mut cmap = Cmap::default();
        for n in 0..1_000 {
            let line = format!(
                r#"{{"event":"connectionClosed","time":{n},"address":"h{n}","connectionId":18446744073709551615}}"#
            );
            cmap.add(&event(&line));
        }
        assert_eq!(cmap.make_look(0.0).pools.len(), MAX_POOLS);
        let mut made = PoolState::default();
        let mut ready = event(r#"{"event":"connectionReady","time":1,"connectionId":1}"#);
        for n in 0..MAX_CONNECTIONS as u64 + 9 {
            ready.connection = Some(n);
            made.add(&ready);
        }
        assert_eq!(made.connections.len(), MAX_CONNECTIONS);
    }
}
