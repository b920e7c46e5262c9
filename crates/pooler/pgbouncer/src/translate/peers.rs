//! The other processes behind the same address: `[[peer]]`.

use super::{Writer, databases::Entry};
use crate::ini::SectionName;

/// The largest `peer_id`.
const MAX_PEER_ID: i64 = 16_383;

/// The port of a peer without one.
const DEFAULT_PORT: &str = "6432";

impl Writer<'_> {
    /// As in PgBouncer, an entry may be for the process itself, and all are without use without a `peer_id`.
    pub(super) fn peers(&mut self) {
        let entries = self.read_entries(SectionName::Peers);
        let own = self.get("peer_id").number();
        if own == 0 {
            if let Some(first) = entries.first() {
                self.note(&first.spot, "[peers] is without effect, because peer_id is 0: peering is switched off");
            }
            return;
        }
        for entry in &entries {
            let id = crate::values::number(&entry.name).filter(|id| (1..=MAX_PEER_ID).contains(id));
            let Some(id) = id else {
                let message = format!("`{}` is no peer_id", entry.name.escape_debug());
                self.refuse(&entry.spot, message, format!("write a number from 1 to {MAX_PEER_ID}"));
                continue;
            };
            let Some(address) = self.peer_address(entry) else { continue };
            self.open_entry("peer", Some(&entry.spot));
            self.toml.set("node_id", &id.into(), Some(&entry.spot));
            self.toml.set("address", &address.into(), Some(&entry.spot));
            let general = self.get("default_pool_size");
            let size = entry.get("pool_size").filter(|size| size.number() > 0).unwrap_or(general);
            self.set("max_size", self.size(size), size);
        }
    }

    /// The host and port of an entry, or the path of its Unix socket.
    fn peer_address(&mut self, entry: &Entry) -> Option<String> {
        let port = entry.get("port").map_or(DEFAULT_PORT, |given| given.value);
        if port.parse::<u16>().is_ok_and(|port| port > 0) {
            match entry.get("host").map(|given| given.value) {
                None | Some("") => {
                    self.refuse(&entry.spot, "this peer has no host", "write host=, and port= if need be")
                }
                Some(hosts) if hosts.contains(',') => {
                    self.refuse(&entry.spot, "a peer has one host", "write a line for each peer");
                }
                Some(folder) if folder.starts_with('/') => return Some(format!("{folder}/.s.PGSQL.{port}")),
                Some(name) if name.starts_with('@') => return Some(format!("{name}/.s.PGSQL.{port}")),
                Some(host) if host.contains(':') => return Some(format!("[{host}]:{port}")),
                Some(host) => return Some(format!("{host}:{port}")),
            }
        } else {
            self.refuse(&entry.spot, format!("`{}` is no port", port.escape_debug()), "write a number from 1 to 65535");
        }
        None
    }
}
