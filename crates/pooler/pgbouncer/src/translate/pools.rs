//! The rules of all pools: `[pool]`.

use std::time::Duration;

use settings::Problem;

use super::Writer;
use crate::{general::Given, toml_text::Value};

/// In place of a time-out that is switched off and cannot be.
const A_DAY: Duration = Duration::from_secs(86_400);
/// In place of no time at all: each released connection is checked before it is used, or used only once.
const AT_ONCE: Duration = Duration::from_millis(1);

impl Writer<'_> {
    pub(super) fn pool(&mut self) {
        self.open("pool");
        let mode = self.get("pool_mode");
        self.set("mode", mode.word(), mode);
        self.sizes();
        self.checks();
        for (name, key) in [
            ("server_idle_timeout", "max_idle_time"),
            ("pool_idle_timeout", "pool_idle_time"),
            ("server_login_retry", "login_retry_time"),
        ] {
            let given = self.get(name);
            self.set(key, given.time_unless_zero(), given);
        }
        let life = self.get("server_lifetime");
        self.set("max_life_time", Some(life_time(life)), life);
        let connect = self.get("server_connect_timeout");
        self.set("connect_time", Some(connect.time_unless_zero().unwrap_or(A_DAY)), connect);
        let cancel = self.get("cancel_wait_timeout");
        self.set("cancel_wait_time", Some(cancel.time_unless_zero().unwrap_or(A_DAY)), cancel);
        let wait = self.get("query_wait_timeout");
        self.toml.comment("PgBouncer makes no difference between a busy server and one that is down.");
        self.set("max_wait_time", wait.time_unless_zero(), wait);
        self.set("unavailable_wait_time", wait.time_unless_zero(), wait);
        for (name, key) in [
            ("query_timeout", "query_time"),
            ("client_idle_timeout", "client_idle_time"),
            ("idle_transaction_timeout", "transaction_idle_time"),
            ("transaction_timeout", "transaction_time"),
        ] {
            let given = self.get(name);
            self.set_unless_default(key, given.time_unless_zero(), given);
        }
        for (name, key) in [
            ("server_round_robin", "round_robin"),
            ("server_fast_close", "fast_close"),
            ("application_name_add_host", "application_name_add_host"),
        ] {
            let given = self.get(name);
            self.set_unless_default(key, given.truth(), given);
        }
        self.statements();
    }

    fn sizes(&mut self) {
        let (size, least) = (self.get("default_pool_size"), self.get("min_pool_size"));
        self.set("max_size", self.size(size), size);
        // Replication connections are counted apart here, and have the same limit.
        self.put("max_replication_size", self.size(size));
        self.set_unless_default("min_size", least.number().clamp(0, self.size(size)), least);
        let (reserve, time) = (self.get("reserve_pool_size"), self.get("reserve_pool_timeout"));
        self.set_unless_default("reserve_size", self.count(reserve.number()), reserve);
        // The time counts for databases with a reserve of their own, too.
        self.set("reserve_wait_time", time.time_unless_zero(), time);
    }

    /// How many servers a pool may have. With 0 there are as many as clients.
    pub(super) fn size(&self, size: Given<'_>) -> i64 {
        let clients = self.get("max_client_conn").number();
        self.count(if size.number() > 0 { size.number() } else { clients.max(1) })
    }

    /// How an idle server is checked before it is used.
    fn checks(&mut self) {
        let (delay, query) = (self.get("server_check_delay"), self.get("server_check_query"));
        match query.value.is_empty() {
            true => self.set("check_after_idle", Value::Time(None), query),
            false => self.set("check_after_idle", Some(delay.time().max(AT_ONCE)), delay),
        }
    }

    /// What is made of statements that a client leaves behind.
    fn statements(&mut self) {
        let prepared = self.get("max_prepared_statements");
        match prepared.number() {
            ..=0 => {
                if let Some(spot) = prepared.spot {
                    self.notes.push(self.ini.locate(
                        Problem::warning("max_prepared_statements: prepared statements are followed with 0, too"),
                        spot,
                    ));
                }
            }
            number => self.set("max_prepared_statements", self.count(number), prepared),
        }
        let always = self.get("server_reset_query_always");
        if always.truth() {
            self.set("reset", "always", always);
        }
        let reset = self.get("server_reset_query");
        if !only_resets(reset.value) {
            let hint = "Poolhouse runs statements of its own between clients; have the application run this one";
            self.refuse_given(reset, "this server_reset_query does more than reset the session", hint);
        }
    }
}

/// How long a connection to a server may live. One of no time is used once.
pub(super) fn life_time(life: Given<'_>) -> Duration {
    life.time().max(AT_ONCE)
}

/// Whether a query only does what Poolhouse's own cleaning does, too.
fn only_resets(query: &str) -> bool {
    const RESETS: &[&str] = &[
        "",
        "discard all",
        "discard temp",
        "discard temporary",
        "discard plans",
        "discard sequences",
        "deallocate all",
        "deallocate prepare all",
        "reset all",
        "reset session authorization",
        "reset role",
        "set session authorization default",
        "unlisten *",
        "close all",
        "abort",
        "rollback",
        "select pg_advisory_unlock_all()",
        "select pg_catalog.pg_advisory_unlock_all()",
    ];
    query.split(';').all(|statement| {
        let words: Vec<String> = statement.split_whitespace().map(str::to_lowercase).collect();
        RESETS.contains(&words.join(" ").as_str())
    })
}

#[cfg(test)]
mod tests {
    use super::only_resets;

    #[test]
    fn statements_that_reset_are_known() {
        assert!(only_resets("DISCARD ALL") && only_resets("RESET ALL; SET  SESSION AUTHORIZATION DEFAULT;"));
        assert!(only_resets("") && only_resets("deallocate all"));
        assert!(!only_resets("SELECT clean()") && !only_resets("DISCARD ALL; SELECT 1"));
    }
}
