//! Rules of single users: `[[user]]`.

use super::{Writer, databases::Entry};
use crate::{general::Given, ini::SectionName, lines::until_quote};

impl Writer<'_> {
    pub(super) fn users(&mut self, databases: &[Entry]) {
        let entries = self.read_entries(SectionName::Users);
        let listed = self.listed_users();
        for entry in entries.iter().filter(|entry| entry.says_something()) {
            if !self.is_of_use(&entry.name, listed.as_deref(), databases) {
                let name = entry.name.escape_debug();
                let text = format!("{name}: no such user is in the auth_file, so these rules are for none");
                self.note(&entry.spot, text);
                continue;
            }
            self.open_entry("user", Some(&entry.spot));
            self.toml.set("name", &entry.name.as_str().into(), Some(&entry.spot));
            let has_no_list = || self.get("auth_file").text().is_none();
            if listed.as_ref().map_or_else(has_no_list, |listed| !listed.contains(&entry.name)) {
                self.put("rules_only", true);
            }
            if let Some(size) = entry.get("pool_size").filter(|size| size.number() > 0) {
                self.set("max_size", self.count(size.number()), size);
            }
            if let Some(mode) = entry.get("pool_mode") {
                self.set("mode", mode.word(), mode);
            }
            for (name, key) in [("reserve_pool_size", "reserve_size"), ("max_user_connections", "max_user_connections")]
            {
                if let Some(given) = entry.get(name).filter(|given| given.number() >= 0) {
                    self.set(key, self.count(given.number()), given);
                }
            }
            if let Some(most) = entry.get("max_user_client_connections").filter(|most| most.number() > 0) {
                self.client_limit(most);
            }
            for (name, key) in [
                ("query_timeout", "query_time"),
                ("query_wait_timeout", "max_wait_time"),
                ("idle_transaction_timeout", "transaction_idle_time"),
                ("transaction_timeout", "transaction_time"),
                ("client_idle_timeout", "client_idle_time"),
            ] {
                if let Some(given) = entry.get(name).filter(|given| given.value != "-1") {
                    self.set(key, given.time_unless_zero(), given);
                }
            }
        }
    }

    /// The users in the auth_file, if it can be read.
    fn listed_users(&self) -> Option<Vec<String>> {
        let path = self.path(self.get("auth_file").text()?);
        let text = (self.machine.read_file)(path.as_ref()).ok()?;
        let name = |line: &str| Some(until_quote(line.trim_start().strip_prefix('"')?, '"')?.0);
        Some(text.lines().filter_map(name).collect())
    }

    /// Whether there can be clients, or servers, of this user.
    fn is_of_use(&self, name: &str, listed: Option<&[String]>, databases: &[Entry]) -> bool {
        let asks = self.get("auth_user").text().is_some();
        let of = |key| databases.iter().filter_map(move |entry| entry.get(key)).map(|given| given.value);
        let needs_none = !matches!(self.get("auth_type").word(), "md5" | "scram-sha-256" | "plain");
        asks || needs_none
            || listed.is_none_or(|listed| listed.iter().any(|other| other == name))
            || of("auth_user").next().is_some()
            || of("user").any(|user| user == name)
    }

    /// How many clients may be there, of which none is evicted for another.
    pub(super) fn client_limit(&mut self, most: Given<'_>) {
        let count = self.count(most.number());
        self.set("hard_limit", count, most);
        self.set("soft_limit", count, most);
    }
}
