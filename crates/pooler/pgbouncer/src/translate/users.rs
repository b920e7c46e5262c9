//! Rules of single users: `[[user]]`.

use super::{Writer, databases::Entry};
use crate::{general::Given, ini::SectionName};

impl Writer<'_> {
    pub(super) fn users(&mut self, databases: &[Entry]) {
        let entries = self.read_entries(SectionName::Users);
        let general = self.get("min_pool_size").number();
        let least = databases.iter().filter_map(|entry| entry.get("min_pool_size")).map(|given| given.number());
        let least = least.chain([general]).max().unwrap_or(0);
        for entry in entries.iter().filter(|entry| entry.says_something()) {
            self.open_entry("user", Some(&entry.spot));
            self.toml.set("name", &entry.name.as_str().into(), Some(&entry.spot));
            if let Some(size) = entry.get("pool_size").filter(|size| size.number() > 0) {
                self.set("max_size", self.count(size.number()), size);
                if least > size.number() {
                    self.put("min_size", size.number());
                }
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

    /// How many clients may be there, of which none is evicted for another.
    pub(super) fn client_limit(&mut self, most: Given<'_>) {
        let count = self.count(most.number());
        self.set("hard_limit", count, most);
        self.set("soft_limit", count, most);
    }
}
