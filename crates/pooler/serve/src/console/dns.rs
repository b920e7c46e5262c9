//! SHOW DNS_HOSTS and SHOW DNS_ZONES: the names of hosts that are followed, which needs `[dns] max_ttl`. All other
//! names are looked up anew for each connection, and kept nowhere.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Instant,
};

use console::{Table, Value};

use super::Console;
use crate::host_names::LookedUpHost;

impl Console {
    pub(super) fn list_hosts(&self, table: &mut Table) {
        let now = Instant::now();
        for LookedUpHost { name, addresses, until } in self.admin.control().hosts.list() {
            // As there, with a port that means nothing.
            let show = |address: &IpAddr| SocketAddr::new(*address, 0).to_string();
            let shown: Vec<String> = addresses.iter().map(show).collect();
            let ttl = until.saturating_duration_since(now).as_secs();
            table.push([Value::from(&name), ttl.into(), Value::from(&shown.join(","))]);
        }
    }

    /// Zones are not asked for their serial numbers.
    pub(super) fn list_zones(&self, table: &mut Table) {
        for (zone, count) in zones(&self.admin.control().hosts.list()) {
            table.push([zone.into(), Value::Number(0), count.into()]);
        }
    }
}

/// The domains of these hosts, and the number of hosts in each.
pub fn zones(hosts: &[LookedUpHost]) -> BTreeMap<&str, u64> {
    let mut zones = BTreeMap::new();
    for (_, zone) in hosts.iter().filter_map(|host| host.name.split_once('.')) {
        *zones.entry(zone).or_default() += 1;
    }
    zones
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_counted_by_their_domains() {
        let host = |name: &str| LookedUpHost { name: name.to_owned(), addresses: Vec::new(), until: Instant::now() };
        let hosts = ["a.test", "b.test", "a.b.test", "localhost"].map(host);
        assert_eq!(zones(&hosts), BTreeMap::from([("test", 2), ("b.test", 1)]));
    }
}
