//! One look at a MongoDB itself: what it shows of its connections to the role clusterMonitor, and the commands that ask
//! for it. They ask for no text of a command, which may hold private data.

use std::{collections::BTreeMap, ops::RangeInclusive, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Sessions that one look lists: connections, and transactions that have none at the moment. Of further ones only the
/// number is known.
pub const MAX_SESSIONS: u64 = 5_000;
/// A larger figure counts as this one, so that sums do not overflow.
const MAX_FIGURE: u64 = 9_000_000_000_000;
/// The same for the microseconds that all operations took together: many clients make years of a week.
const MAX_LATENCY_US: u64 = 4_000_000_000_000_000;
const MAX_NAME: usize = 100;
/// How far two clocks may drift apart between two lists.
const MAX_CLOCK_DRIFT_MS: f64 = 2.0;
/// Parts of the answer to serverStatus that are not read here; the server leaves them out.
const UNREAD_PARTS: [&str; 16] = [
    "asserts",
    "catalogStats",
    "encryptionAtRest",
    "extra_info",
    "flowControl",
    "locks",
    "logicalSessionRecordCache",
    "mem",
    "metrics",
    "network",
    "queues",
    "repl",
    "security",
    "sharding",
    "tcmalloc",
    "wiredTiger",
];

/// The parameter that bounds the time of a transaction.
const LIFETIME_PARAMETER: &str = "transactionLifetimeLimitSeconds";

/// One look. Counters count from the server's start.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Mongo {
    pub version: String,
    /// `mongod` or `mongos`.
    pub process: String,
    /// With the process and the uptime, the host tells this run of the server from others.
    pub host: String,
    pub pid: u64,
    pub uptime_ms: f64,
    /// Connections now, without the one that asks.
    pub current: u64,
    /// Connections that it would still accept, if it tells.
    pub available: Option<u64>,
    /// Connections since the start, if it tells.
    pub created: Option<u64>,
    /// Connections that were refused for want of room, if that is counted.
    pub rejected: Option<u64>,
    /// Connections with a command under way, without the one that asks and without those that wait for news of the
    /// topology.
    pub active: Option<u64>,
    /// Of the connections, those on which a driver waits for news of the topology.
    pub watching: u64,
    /// Commands of all kinds, as far as it counts them.
    pub operations: u64,
    /// Reads and writes under way.
    pub running: Option<u64>,
    /// Reads and writes that wait for a lock or for a ticket.
    pub queued: Option<u64>,
    /// How long all reads and writes took together.
    pub took_ms: f64,
    /// The number of these reads and writes.
    pub timed: u64,
    /// Its transactions, where it has some.
    pub transactions: Option<Transactions>,
    /// The bound of a transaction's time (`transactionLifetimeLimitSeconds`), if it is known.
    #[serde(default)]
    pub transaction_lifetime_s: Option<u64>,
    /// Processors of its machine, if they are known.
    pub processors: Option<u64>,
    /// The sessions, if they were asked for and may be seen.
    pub sessions: Option<Vec<SessionRow>>,
    /// The sessions were listed twice for this look, so `pause_ms` is known of each transaction that was open at the
    /// first list.
    #[serde(default, rename = "seen_again")]
    pub are_listed_twice: bool,
    /// Why the sessions may not be seen.
    pub hides_sessions: Option<String>,
}

/// Transactions of several commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transactions {
    /// Begun since the server's start.
    pub started: u64,
    /// Ended since the server's start.
    pub ended: u64,
    pub open: u64,
    /// Open transactions that have no command under way.
    pub inactive: u64,
}

/// One connection, or a transaction that has none at the moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionRow {
    /// The connection: unique for as long as the server runs.
    pub id: Option<u64>,
    /// The client's host, without the port.
    pub host: String,
    /// The client's name.
    pub application: String,
    pub user: String,
    /// A command is under way.
    pub is_active: bool,
    /// How long a transaction without a command has been open.
    pub open_ms: Option<f64>,
    /// How long of that it had no command, all its pauses together.
    pub paused_ms: Option<f64>,
    /// How long it was seen without a command since the last one, which the server does not tell: only where sessions
    /// were listed twice.
    #[serde(default)]
    pub pause_ms: Option<f64>,
    /// How long it had a command: the same for as long as it pauses, and longer after each command.
    #[serde(default)]
    pub worked_us: Option<u64>,
}

/// A command: its elements in order, of which the first is its name.
pub type Command = Vec<(&'static str, Value)>;

impl Mongo {
    /// Asks for the number of this connection; the second command is for old servers.
    pub fn hello_commands() -> [Command; 2] {
        [vec![("hello", json!(1))], vec![("isMaster", json!(1))]]
    }

    /// The number of a connection, from the answer to [`hello_commands`](Self::hello_commands).
    pub fn read_connection_id(answer: &Value) -> Option<u64> {
        to_capped_count(answer.get("connectionId"))
    }

    /// Asks for the server's own figures.
    pub fn status_command() -> Command {
        let mut command = vec![("serverStatus", json!(1))];
        command.extend(UNREAD_PARTS.map(|name| (name, json!(0))));
        command
    }

    /// Asks whether a pooler answers in place of the server.
    pub fn pooler_command() -> Command {
        vec![("isdbgrid", json!(1))]
    }

    /// Whether the answer to [`pooler_command`](Self::pooler_command) is a Poolhouse's.
    pub fn is_of_pooler(answer: &Value) -> bool {
        answer.get("hostname").and_then(Value::as_str) == Some("poolhouse")
    }

    /// Asks when transactions are ended.
    pub fn lifetime_command() -> Command {
        vec![("getParameter", json!(1)), (LIFETIME_PARAMETER, json!(1))]
    }

    /// The seconds in the answer to [`lifetime_command`](Self::lifetime_command).
    pub fn read_lifetime_s(answer: &Value) -> Option<u64> {
        to_capped_count(answer.get(LIFETIME_PARAMETER))
    }

    pub fn machine_command() -> Command {
        vec![("hostInfo", json!(1))]
    }

    /// The processors of the machine, from the answer to [`machine_command`](Self::machine_command).
    pub fn read_processors(answer: &Value) -> Option<u64> {
        let system = answer.get("system")?;
        let of = |name| to_capped_count(system.get(name)).filter(|count| *count > 0);
        of("numCoresAvailableToProcess").or(of("numCores"))
    }

    /// Asks for the connections, without `own` and without the server's own threads.
    pub fn connections_command(own: Option<u64>, is_mongos: bool) -> Command {
        let mut options = json!({ "allUsers": true, "idleConnections": true, "idleSessions": true });
        if is_mongos {
            // Its own ones, and not what it asks its shards.
            options["localOps"] = json!(true);
        }
        let shown = json!({
            "connectionId": 1, "client": 1, "client_s": 1, "appName": 1, "active": 1, "effectiveUsers.user": 1,
            "transaction.timeOpenMicros": 1, "transaction.timeInactiveMicros": 1, "transaction.timeActiveMicros": 1,
        });
        let pipeline = json!([
            { "$currentOp": options },
            { "$match": {
                "connectionId": { "$ne": own.map_or(json!(-1), Value::from) },
                "$or": [
                    { "client": { "$exists": true } }, { "client_s": { "$exists": true } }, { "type": "idleSession" },
                ],
            } },
            { "$limit": MAX_SESSIONS },
            { "$project": shown },
        ]);
        vec![("aggregate", json!(1)), ("pipeline", pipeline), ("cursor", json!({ "batchSize": MAX_SESSIONS }))]
    }

    /// The connections, from the answer to [`connections_command`](Self::connections_command).
    pub fn read_sessions(answer: &Value) -> Vec<SessionRow> {
        let cursor = answer.get("cursor");
        let batch = cursor.and_then(|cursor| cursor.get("firstBatch").or(cursor.get("nextBatch")));
        let rows = batch.and_then(Value::as_array).into_iter().flatten();
        rows.take(MAX_SESSIONS as usize).map(SessionRow::read).collect()
    }

    /// The sessions `now`, with the pauses that have gone on since the list `before`: these have grown by the time
    /// between the lists, which is `apart`. The pause of a transaction that had not begun then is unknown.
    pub fn measure_pauses(
        before: &[SessionRow],
        mut now: Vec<SessionRow>,
        apart: &RangeInclusive<Duration>,
    ) -> Vec<SessionRow> {
        let in_ms = |time: &Duration| time.as_secs_f64() * 1e3;
        let (least, most) = (in_ms(apart.start()) - MAX_CLOCK_DRIFT_MS, in_ms(apart.end()) + MAX_CLOCK_DRIFT_MS);
        let mut pauses = BTreeMap::<_, Vec<f64>>::new();
        for session in before {
            if let Some((pause, ms)) = session.pause().zip(session.paused_ms) {
                pauses.entry(pause).or_default().push(ms);
            }
        }
        for session in &mut now {
            let Some(ms) = session.paused_ms else { continue };
            // Another transaction may have had commands for as many microseconds.
            let went_on = session.pause().and_then(|pause| {
                let then = pauses.get_mut(&pause)?;
                let same = then.iter().position(|then| (least..=most).contains(&(ms - then)))?;
                Some(ms - then.swap_remove(same))
            });
            let is_new = session.open_ms.is_some_and(|open| open <= most);
            session.pause_ms = went_on.or((!is_new).then_some(0.0));
        }
        now
    }

    /// From the answer to [`status_command`](Self::status_command).
    ///
    /// # Errors
    /// What that lacks.
    pub fn read(answer: &Value) -> Result<Self, String> {
        let at = |path: &[&str]| path.iter().try_fold(answer, |value, name| value.get(name));
        let count = |path: &[&str]| to_capped_count(at(path));
        let current = count(&["connections", "current"]).ok_or(
            "its serverStatus does not tell `connections.current`, \
            as FerretDB's does not: look at the Poolhouse in front of it, by its admin \
             address",
        )?;
        let text = |name: &str| shortened(at(&[name]).and_then(Value::as_str).unwrap_or_default());
        let time = |path: &[&str]| at(path).and_then(Value::as_f64).filter(|time| time.is_finite());
        let sum = |path: &str, names: &[&str]| {
            let sum = names.iter().fold(0, |sum: u64, name| sum.saturating_add(count(&[path, name]).unwrap_or(0)));
            sum.min(MAX_FIGURE)
        };
        let timed = |what: &str| sum_of_latencies(&at, what);
        let watching = count(&["connections", "awaitingTopologyChanges"]).unwrap_or(0);
        let kinds = ["readers", "writers"].map(|kind| count(&["globalLock", "activeClients", kind]).unwrap_or(0));
        let under_way = kinds[0].saturating_add(kinds[1]).min(MAX_FIGURE);
        Ok(Self {
            version: text("version"),
            process: text("process"),
            host: text("host"),
            pid: count(&["pid"]).unwrap_or(0),
            uptime_ms: time(&["uptimeMillis"])
                .or(time(&["uptime"]).map(|seconds| seconds * 1e3))
                .unwrap_or(0.0)
                .clamp(0.0, MAX_FIGURE as f64),
            current: current.saturating_sub(1),
            available: count(&["connections", "available"]),
            created: count(&["connections", "totalCreated"]),
            rejected: count(&["connections", "rejected"]),
            active: count(&["connections", "active"]).map(|active| active.saturating_sub(watching).saturating_sub(1)),
            watching,
            operations: sum("opcounters", &["insert", "query", "update", "delete", "getmore", "command"]),
            running: at(&["globalLock", "activeClients", "readers"]).map(|_| under_way),
            queued: count(&["globalLock", "currentQueue", "total"]),
            took_ms: timed("reads").0 + timed("writes").0,
            timed: timed("reads").1.saturating_add(timed("writes").1).min(MAX_FIGURE),
            transactions: at(&["transactions", "currentOpen"]).map(|_| Transactions {
                started: count(&["transactions", "totalStarted"]).unwrap_or(0),
                ended: sum("transactions", &["totalCommitted", "totalAborted"]),
                open: count(&["transactions", "currentOpen"]).unwrap_or(0),
                inactive: count(&["transactions", "currentInactive"]).unwrap_or(0),
            }),
            transaction_lifetime_s: None,
            processors: None,
            sessions: None,
            are_listed_twice: false,
            hides_sessions: None,
        })
    }

    /// Whether this look is at the same run of the same server as an earlier one, and its counters were not reset in
    /// between.
    pub fn is_same_run_as(&self, before: &Self) -> bool {
        (&self.host, self.pid) == (&before.host, before.pid)
            && self.uptime_ms >= before.uptime_ms
            && self.created >= before.created
            && self.operations >= before.operations
    }
}

/// How long operations of a kind took together, in milliseconds, and their number.
fn sum_of_latencies<'v>(at: &impl Fn(&[&str]) -> Option<&'v Value>, what: &str) -> (f64, u64) {
    let micros = to_count(at(&["opLatencies", what, "latency"])).unwrap_or(0).min(MAX_LATENCY_US);
    (micros as f64 / 1e3, to_capped_count(at(&["opLatencies", what, "ops"])).unwrap_or(0))
}

/// The number as a count of at most [`MAX_FIGURE`].
fn to_capped_count(value: Option<&Value>) -> Option<u64> {
    to_count(value).map(|count| count.min(MAX_FIGURE))
}

/// The number as a count: fractions are cut off, and a negative number is 0.
fn to_count(value: Option<&Value>) -> Option<u64> {
    let value = value?;
    value.as_u64().or(value.as_i64().map(|_| 0)).or_else(|| value.as_f64().map(|count| count as u64))
}

fn shortened(name: &str) -> String {
    name.chars().take(MAX_NAME).collect()
}

impl SessionRow {
    /// What stays the same for as long as a transaction pauses: its client, and how long it has worked.
    fn pause(&self) -> Option<([String; 3], u64)> {
        let names = [&self.host, &self.application, &self.user].map(Clone::clone);
        self.worked_us.map(|worked| (names, worked))
    }

    fn read(row: &Value) -> Self {
        let text = |name: &str| row.get(name).and_then(Value::as_str);
        let client = text("client").or(text("client_s")).unwrap_or_default();
        let users = row.get("effectiveUsers").and_then(Value::as_array);
        let user = users.and_then(|users| users.first()?.get("user")?.as_str());
        let micros = |name: &str| to_capped_count(row.get("transaction")?.get(name));
        let time = |name: &str| micros(name).map(|micros| micros as f64 / 1e3);
        let is_active = row.get("active").and_then(Value::as_bool).unwrap_or(false);
        Self {
            id: to_capped_count(row.get("connectionId")),
            host: shortened(client.rsplit_once(':').map_or(client, |(host, _)| host)),
            application: shortened(text("appName").unwrap_or_default()),
            user: shortened(user.unwrap_or_default()),
            is_active,
            open_ms: time("timeOpenMicros").filter(|_| !is_active),
            paused_ms: time("timeInactiveMicros").filter(|_| !is_active),
            pause_ms: None,
            worked_us: micros("timeActiveMicros").filter(|_| !is_active),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_is_read_whatever_its_types_of_numbers() {
        let answer = json!({
            "host": "db1", "version": "7.0.14", "process": "mongod", "pid": 4, "uptime": 9.0, "uptimeMillis": 9_001,
            "connections": {
                "current": 34, "available": 51_166, "totalCreated": 99.0, "active": 9, "awaitingTopologyChanges": 6,
            },
            "opcounters": { "insert": 1, "query": 2, "update": 3, "delete": 4, "getmore": 5, "command": 6 },
            "globalLock": { "currentQueue": { "total": 3 }, "activeClients": { "readers": 2, "writers": 1 } },
            "opLatencies": { "reads": { "latency": 5_000, "ops": 10 }, "writes": { "latency": 1_000, "ops": 1 } },
            "transactions": {
                "currentOpen": 3, "currentInactive": 2, "totalStarted": 7, "totalCommitted": 3, "totalAborted": 1,
            },
        });
        let look = Mongo::read(&answer).unwrap();
        assert_eq!(
            (look.current, look.available, look.created, look.active, look.rejected),
            (33, Some(51_166), Some(99), Some(2), None)
        );
        assert_eq!(
            (look.operations, look.running, look.queued, look.timed, look.took_ms),
            (21, Some(3), Some(3), 11, 6.0)
        );
        assert_eq!(look.transactions, Some(Transactions { started: 7, ended: 4, open: 3, inactive: 2 }));
        assert_eq!((look.uptime_ms, look.pid, look.version.as_str()), (9_001.0, 4, "7.0.14"));
    }

    #[test]
    fn what_is_lacking_is_told_or_unknown() {
        assert!(Mongo::read(&json!({ "ok": 1 })).unwrap_err().contains("connections.current"));
        let bare = json!({ "connections": { "current": 0 } });
        let look = Mongo::read(&bare).unwrap();
        assert_eq!((look.current, look.created, look.available, look.active), (0, None, None, None));
        assert_eq!((look.running, look.transactions), (None, None));
    }

    #[test]
    fn latencies_of_years_go_on_growing() {
        // A hundred operations at a time, for half a year and a second more.
        let took = |us: u64| {
            let latencies = json!({ "reads": { "latency": us, "ops": 9 } });
            Mongo::read(&json!({ "connections": { "current": 1 }, "opLatencies": latencies })).unwrap().took_ms
        };
        let half_a_year = 182 * 86_400 * 100 * 1_000_000;
        assert_eq!(took(half_a_year + 100_000_000) - took(half_a_year), 100_000.0);
        // And a recording takes them.
        assert!(took(u64::MAX) * 2.0 < 1e13);
    }

    #[test]
    fn hostile_figures_are_cut() {
        let hostile = json!({
            "uptimeMillis": 1e300, "pid": -5,
            "connections": {
                "current": u64::MAX, "available": 1e300, "totalCreated": -7, "active": 0,
                "awaitingTopologyChanges": u64::MAX,
            },
            "opcounters": { "insert": u64::MAX, "query": i64::MAX, "command": 1e30 },
            "opLatencies": {
                "reads": { "latency": u64::MAX, "ops": u64::MAX }, "writes": { "latency": -1.0, "ops": null },
            },
        });
        let look = Mongo::read(&hostile).unwrap();
        assert_eq!((look.created, look.active, look.pid), (Some(0), Some(0), 0));
        assert!(look.current < MAX_FIGURE && look.available == Some(MAX_FIGURE) && look.operations == MAX_FIGURE);
        assert!(look.uptime_ms <= MAX_FIGURE as f64 && look.took_ms.is_finite());
    }

    #[test]
    fn connections_and_idle_transactions_are_read() {
        let answer = json!({ "cursor": { "id": 0, "firstBatch": [
            { "connectionId": 7, "client": "10.0.0.5:4711", "appName": "web", "active": true,
              "effectiveUsers": [{ "user": "shop", "db": "a" }], "transaction": { "timeOpenMicros": 9_000 } },
            { "client_s": "[::1]:9", "transaction": {
                "timeOpenMicros": 900_000, "timeInactiveMicros": 800_000, "timeActiveMicros": 100_000,
            } },
            7,
        ] } });
        let sessions = Mongo::read_sessions(&answer);
        let first = SessionRow {
            id: Some(7),
            host: "10.0.0.5".into(),
            application: "web".into(),
            user: "shop".into(),
            is_active: true,
            ..SessionRow::default()
        };
        let second = SessionRow {
            host: "[::1]".into(),
            open_ms: Some(900.0),
            paused_ms: Some(800.0),
            worked_us: Some(100_000),
            ..SessionRow::default()
        };
        assert_eq!(sessions, [first, second, SessionRow::default()]);
        assert!(Mongo::read_sessions(&json!({})).is_empty());
    }

    #[test]
    fn a_pause_that_goes_on_is_told_from_others_of_the_same_transaction() {
        let idle = |application: &str, paused_ms: f64, worked_us: u64| SessionRow {
            application: application.into(),
            paused_ms: Some(paused_ms),
            worked_us: Some(worked_us),
            ..SessionRow::default()
        };
        let before = [idle("web", 900.0, 50), idle("web", 400.0, 70), idle("web", 5.0, 9)];
        let busy = SessionRow { is_active: true, ..SessionRow::default() };
        let now = vec![idle("web", 1_000.0, 50), idle("web", 480.0, 71), idle("other", 105.0, 9), busy];
        let apart = Duration::from_millis(100)..=Duration::from_millis(110);
        let again = |before: &[SessionRow], now| Mongo::measure_pauses(before, now, &apart);
        let told = |sessions: Vec<SessionRow>| sessions.iter().map(|session| session.pause_ms).collect::<Vec<_>>();
        let pauses = told(again(&before, now));
        assert_eq!(pauses, [Some(100.0), Some(0.0), Some(0.0), None], "it went on, it had a command, it is another's");
        let begun = |open_ms| vec![SessionRow { open_ms: Some(open_ms), ..idle("web", 60.0, 8) }];
        let pauses = [90.0, 900.0].map(|open_ms| again(&before, begun(open_ms))[0].pause_ms);
        assert_eq!(pauses, [None, Some(0.0)], "one that has just begun may pause for long");
        // Two equal transactions are two.
        let twins = || vec![idle("web", 10.0, 50), idle("web", 10.0, 50)];
        let later = vec![idle("web", 110.0, 50), idle("web", 110.0, 50), idle("web", 110.0, 50)];
        let lasting = again(&twins(), later).iter().filter(|one| one.pause_ms == Some(100.0)).count();
        assert_eq!(lasting, 2);
        // The growth of their pauses distinguishes transactions that had commands for the same time.
        let alike = [idle("web", 900.0, 50), idle("web", 20.0, 50), idle("web", 20.0, 60)];
        let later = vec![idle("web", 1_005.0, 50), idle("web", 125.0, 50), idle("web", 80.0, 60)];
        assert_eq!(told(again(&alike, later)), [Some(105.0), Some(105.0), Some(0.0)]);
    }

    #[test]
    fn no_text_of_a_command_is_asked_for() {
        let asked = format!("{:?}", Mongo::connections_command(Some(7), true));
        assert!(
            asked.contains("$project")
                && !asked.contains("\"command\"")
                && !asked.contains("cursor.originatingCommand")
        );
    }

    #[test]
    fn another_run_is_told_by_what_has_begun_anew() {
        let look = |pid, uptime_ms, created| Mongo { pid, uptime_ms, created: Some(created), ..Mongo::default() };
        assert!(look(1, 9.0, 5).is_same_run_as(&look(1, 8.0, 5)));
        for other in [look(2, 9.0, 5), look(1, 7.0, 5), look(1, 9.0, 4)] {
            assert!(!other.is_same_run_as(&look(1, 8.0, 5)), "{other:?}");
        }
    }
}
