//! The process itself: `[serve]`, `[log]`, `[admin]`, `[console]`, `[limits]`, `[tcp]` and `[dns]`.

use std::time::Duration;

use super::Writer;
use crate::toml_text::Value;

/// The shortest time for which the address of a name may be kept.
const SHORTEST_TTL: Duration = Duration::from_secs(1);

impl Writer<'_> {
    pub(super) fn process(&mut self) {
        self.open("serve");
        self.put("compatible_with", "pgbouncer");
        let (connections, disconnections) = (self.get("log_connections"), self.get("log_disconnections"));
        self.set("log_connections", connections.truth(), connections);
        self.set("log_disconnections", disconnections.truth(), disconnections);
        let errors = self.get("log_pooler_errors");
        self.set_unless_default("log_client_errors", errors.truth(), errors);
        let peer = self.get("peer_id");
        self.set_unless_default("node_id", peer.number(), peer);
        for (name, key) in [("pidfile", "pid_file"), ("user", "user")] {
            let given = self.get(name);
            if let Some(text) = given.text() {
                let text = if name == "pidfile" { self.path(text) } else { text.to_owned() };
                self.set(key, text, given);
            }
        }
        self.toml.comment("PgBouncer waits for its clients as long as it takes.");
        self.put("drain_time", Value::Time(None));
        self.log();
        self.open("admin");
        self.toml.comment("PgBouncer has no such address. With one there are metrics, `poolhouse ctl` and the doctor.");
        self.put("listen", "off");
    }

    fn log(&mut self) {
        self.open("log");
        let file = self.get("logfile");
        if let Some(path) = file.text() {
            self.set("file", self.path(path), file);
        }
        let verbose = self.get("verbose");
        let level = match verbose.number() {
            ..=0 => "info",
            1 | 2 => "debug",
            _ => "trace",
        };
        self.set_unless_default("level", level, verbose);
        let syslog = self.get("syslog");
        self.set_unless_default("syslog", syslog.truth(), syslog);
        if syslog.truth() {
            let (ident, facility) = (self.get("syslog_ident"), self.get("syslog_facility"));
            self.set("syslog_ident", ident.value, ident);
            self.set("syslog_facility", facility.value, facility);
        }
        let (period, stats) = (self.get("stats_period"), self.get("log_stats"));
        match stats.truth() {
            true => self.set("stats_period", period.time_unless_zero(), period),
            false => self.set("stats_period", Value::Time(None), stats),
        }
    }

    pub(super) fn limits(&mut self) {
        self.open("limits");
        let clients = self.get("max_client_conn");
        if clients.number() > 0 {
            self.set("max_clients", self.count(clients.number()), clients);
        }
        for (name, key) in [
            ("max_db_connections", "max_database_connections"),
            ("max_db_client_connections", "max_database_clients"),
            ("max_user_connections", "max_user_connections"),
            ("max_user_client_connections", "max_user_clients"),
        ] {
            let given = self.get(name);
            if given.number() > 0 {
                self.set(key, self.count(given.number()), given);
            }
        }
    }

    /// A count within the bounds of Poolhouse: more than a million is as good as no limit.
    pub(super) fn count(&self, number: i64) -> i64 {
        const MAX_COUNT: i64 = 1_000_000;
        number.min(MAX_COUNT)
    }

    pub(super) fn console(&mut self) {
        self.open("console");
        self.put("name", "pgbouncer");
        for (name, key) in [("admin_users", "admins"), ("stats_users", "viewers")] {
            let given = self.get(name);
            self.set(key, given.list(), given);
        }
    }

    pub(super) fn network(&mut self) {
        self.open("tcp");
        let keepalive = self.get("tcp_keepalive");
        self.set_unless_default("keepalive", keepalive.truth(), keepalive);
        for (name, key) in [("tcp_keepidle", "keep_idle"), ("tcp_keepintvl", "keep_interval")] {
            let given = self.get(name);
            self.set_unless_default(key, given.time_unless_zero(), given);
        }
        let count = self.get("tcp_keepcnt");
        self.set_unless_default("keep_count", count.number(), count);
        let timeout = self.get("tcp_user_timeout");
        let millis = Duration::from_millis(timeout.number().try_into().unwrap_or_default());
        self.set_unless_default("user_timeout", Some(millis).filter(|time| !time.is_zero()), timeout);
        let buffer = self.get("tcp_socket_buffer");
        self.set_unless_default("socket_buffer", buffer.number(), buffer);
        self.open("dns");
        let ttl = self.get("dns_max_ttl");
        let failed = self.get("dns_nxdomain_ttl");
        self.set("failure_ttl", failed.time_unless_zero(), failed);
        self.set("max_ttl", ttl.time_unless_zero().map(|time| time.max(SHORTEST_TTL)), ttl);
    }
}
