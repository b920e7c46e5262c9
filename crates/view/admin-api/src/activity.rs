//! One look at a PostgreSQL itself: what its statistics views show, and the queries for that. They need no more than
//! pg_read_all_stats, and ask for no text of a statement, which may hold private data.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One row of an answer: columns that are not NULL, by name.
pub type Row = BTreeMap<String, String>;

/// Sessions that one look lists. Further ones are only counted.
pub const MAX_BACKENDS: usize = 5_000;

/// The first version whose views have all columns of the queries.
const MIN_VERSION: u64 = 100_000;
/// The first version that counts sessions.
const MIN_VERSION_COUNTING_SESSIONS: u64 = 140_000;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Activity {
    pub version: String,
    /// The start, in microseconds of the Unix epoch: tells this run of the server from others.
    pub started_us: u64,
    /// Connections that the server accepts.
    pub max_connections: u64,
    /// Connections of `max_connections` that are reserved for superusers and other privileged roles.
    pub reserved: u64,
    /// `idle_in_transaction_session_timeout` of the doctor's own session, in milliseconds; `None`: off, or unknown.
    #[serde(default)]
    pub transaction_idle_ms: Option<f64>,
    /// Transactions that have ended, in all databases.
    pub transactions: u64,
    /// Sessions that were begun, in all databases; not counted before PostgreSQL 14.
    pub sessions: Option<u64>,
    /// Processors of the machine, if they are known.
    pub processors: Option<u64>,
    /// A pooler is in between, which tells nothing of itself here.
    #[serde(default)]
    pub is_pooled: bool,
    /// Clients' sessions of which nothing but the existence may be seen. They are not in `backends`.
    pub hidden: u64,
    /// Sessions beyond [`MAX_BACKENDS`].
    pub left_out: u64,
    /// Clients' sessions, without the doctor's own.
    pub backends: Vec<Backend>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Backend {
    pub pid: u32,
    /// The start, in microseconds of the Unix epoch: unique with `pid`.
    pub started_us: u64,
    pub age_ms: f64,
    pub database: String,
    pub user: String,
    pub application: String,
    /// The client's address; empty for a Unix socket.
    pub address: String,
    /// As PostgreSQL calls it: `active`, `idle`, `idle in transaction`, ...
    pub state: String,
    /// How long the session has been in that state.
    pub state_ms: f64,
    /// How long the open transaction, if there is one, has been open.
    pub transaction_ms: Option<f64>,
    /// The kind of event that the session waits for: `Lock`, `IO`, `Client`, ...; `None` while it runs or is ready to.
    pub wait: Option<String>,
    pub event: Option<String>,
}

impl Activity {
    /// Clients' sessions, whether they are listed or not.
    pub fn count_sessions(&self) -> u64 {
        crate::sum(&[self.backends.len() as u64, self.hidden, self.left_out])
    }

    /// Asks for the server's own figures; one row. `number` is its version, as `server_version_num` writes it.
    ///
    /// # Errors
    /// The server is too old.
    pub fn server_query(number: u64) -> Result<String, String> {
        if number < MIN_VERSION {
            return Err("PostgreSQL before 10 does not show what is needed".to_owned());
        }
        let sessions = if number >= MIN_VERSION_COUNTING_SESSIONS { "pg_catalog.sum(sessions)" } else { "NULL" };
        Ok(format!(
            "SELECT pg_catalog.current_setting('server_version') AS version, \
             (EXTRACT(epoch FROM pg_catalog.pg_postmaster_start_time()) * 1000000)::int8 AS started_us, \
             pg_catalog.current_setting('max_connections') AS max_connections, \
             pg_catalog.current_setting('superuser_reserved_connections')::int8 \
             + coalesce(pg_catalog.current_setting('reserved_connections', true)::int8, 0) AS reserved, \
             (SELECT setting FROM pg_catalog.pg_settings WHERE name = 'idle_in_transaction_session_timeout') AS \
             pause_ms, \
             pg_catalog.sum(xact_commit + xact_rollback) AS transactions, {sessions} AS sessions \
             FROM pg_catalog.pg_stat_database"
        ))
    }

    /// Asks for the version, as `server_version_num` writes it, and the process that answers: one row, `number` and
    /// `pid`.
    pub const VERSION_QUERY: &str =
        "SELECT pg_catalog.current_setting('server_version_num') AS number, pg_catalog.pg_backend_pid() AS pid";

    /// Asks for the sessions; a row each. Those that do something come first.
    pub const SESSIONS_QUERY: &str = "SELECT pid, (EXTRACT(epoch FROM backend_start) * 1000000)::int8 AS started_us, \
        EXTRACT(epoch FROM pg_catalog.clock_timestamp() - backend_start) * 1000 AS age_ms, \
        datname AS database, usename AS \"user\", application_name AS application, \
        pg_catalog.host(client_addr) AS address, state, \
        EXTRACT(epoch FROM pg_catalog.clock_timestamp() - state_change) * 1000 AS state_ms, \
        EXTRACT(epoch FROM pg_catalog.clock_timestamp() - xact_start) * 1000 AS transaction_ms, \
        wait_event_type AS wait, wait_event AS event, backend_type IS NULL AS hidden \
        FROM pg_catalog.pg_stat_activity \
        WHERE pid <> pg_catalog.pg_backend_pid() AND datid IS NOT NULL AND usesysid IS NOT NULL \
        AND (backend_type = 'client backend' OR backend_type IS NULL) \
        ORDER BY state = 'idle', pid";

    /// From the answers to [`server_query`](Self::server_query) and [`SESSIONS_QUERY`](Self::SESSIONS_QUERY).
    ///
    /// # Errors
    /// What the server's own figures lack.
    pub fn read(server: &Row, sessions: &[Row], left_out: u64) -> Result<Self, String> {
        let figure = |name: &str| server.get(name).and_then(|text| text.parse::<u64>().ok());
        let needed = |name: &str| figure(name).ok_or_else(|| format!("the server does not tell its {name}"));
        Ok(Self {
            version: server.get("version").cloned().unwrap_or_default(),
            started_us: needed("started_us")?,
            max_connections: needed("max_connections")?,
            reserved: figure("reserved").unwrap_or(0),
            transaction_idle_ms: figure("pause_ms").filter(|ms| *ms > 0).map(|ms| ms as f64),
            transactions: needed("transactions")?,
            sessions: figure("sessions"),
            processors: None,
            is_pooled: false,
            hidden: sessions.iter().filter(|row| is_hidden(row)).count() as u64,
            left_out,
            backends: sessions.iter().filter_map(Backend::read).collect(),
        })
    }
}

/// Nothing but the existence of the session may be seen: it is another user's, or the server does not track what
/// sessions do (`track_activities`).
fn is_hidden(row: &Row) -> bool {
    let is = |name: &str, value: &str| row.get(name).is_some_and(|told| told == value);
    is("hidden", "t") || is("state", "disabled")
}

impl Backend {
    /// From one row of the answer to [`Activity::SESSIONS_QUERY`]; `None` if nothing but its existence may be seen.
    pub fn read(row: &Row) -> Option<Self> {
        if is_hidden(row) {
            return None;
        }
        let text = |name: &str| row.get(name).cloned().unwrap_or_default();
        let number = |name: &str| row.get(name).and_then(|text| text.parse().ok()).unwrap_or(0);
        // Clocks that are set back make times negative.
        let time = |name: &str| row.get(name)?.parse::<f64>().ok().filter(|ms| ms.is_finite()).map(|ms| ms.max(0.0));
        Some(Self {
            pid: u32::try_from(number("pid")).unwrap_or(0),
            started_us: number("started_us"),
            age_ms: time("age_ms").unwrap_or(0.0),
            database: text("database"),
            user: text("user"),
            application: text("application"),
            address: text("address"),
            state: text("state"),
            state_ms: time("state_ms").unwrap_or(0.0),
            transaction_ms: time("transaction_ms"),
            wait: row.get("wait").cloned(),
            event: row.get("event").cloned(),
        })
    }

    /// A statement is under way.
    pub fn works(&self) -> bool {
        self.state == "active" || self.state == "fastpath function call"
    }

    /// A transaction is open, and no statement is under way.
    pub fn pauses(&self) -> bool {
        self.state.starts_with("idle in transaction")
    }

    /// The session runs, or waits for nothing but a processor.
    pub fn is_ready(&self) -> bool {
        self.works() && self.wait.is_none()
    }

    /// The client does not take the answer.
    pub fn waits_for_client_to_take(&self) -> bool {
        self.works() && self.event.as_deref() == Some("ClientWrite")
    }

    /// The session waits for a lock that another session has: not for a latch or a page of the server's memory, for
    /// which no session is named.
    pub fn waits_for_lock(&self) -> bool {
        self.works() && self.wait.as_deref() == Some("Lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(columns: &[(&str, &str)]) -> Row {
        columns.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn what_may_not_be_seen_is_counted_and_nothing_else() {
        let server =
            row(&[("version", "15.3"), ("started_us", "5"), ("max_connections", "100"), ("transactions", "7")]);
        let own = row(&[("pid", "4"), ("state", "active"), ("state_ms", "-3"), ("wait", "Lock"), ("hidden", "f")]);
        let hidden = row(&[("pid", "5"), ("user", "other"), ("hidden", "t")]);
        let look = Activity::read(&server, &[own, hidden], 2).unwrap();
        assert_eq!((look.hidden, look.left_out, look.sessions, look.backends.len()), (1, 2, None, 1));
        let own = &look.backends[0];
        assert!(own.works() && own.waits_for_lock() && !own.is_ready() && own.state_ms == 0.0);
        assert!(Activity::read(&row(&[("version", "15.3")]), &[], 0).unwrap_err().contains("started_us"));
        let untracked = row(&[("pid", "6"), ("state", "disabled"), ("hidden", "f")]);
        let look = Activity::read(&server, &[untracked], 0).unwrap();
        assert_eq!((look.hidden, look.backends.len()), (1, 0), "whether it works is unknown");
    }

    #[test]
    fn what_an_old_server_does_not_count_is_not_asked_for() {
        assert!(Activity::server_query(150_003).unwrap().contains("sum(sessions)"));
        assert!(!Activity::server_query(130_000).unwrap().contains("sum(sessions)"));
        assert!(Activity::server_query(90_600).is_err());
    }

    #[test]
    fn no_text_of_a_statement_is_asked_for() {
        assert!(
            !Activity::SESSIONS_QUERY.contains("query") && !Activity::server_query(150_000).unwrap().contains("query")
        );
    }
}
