//! Looks up the names of hosts from time to time (`[dns] max_ttl`), and has servers connect anew when a name has lost
//! an address: those that were connected to it would stay there until their lives end. Knows no pool and no protocol.

use std::{
    collections::{BTreeSet, HashMap},
    net::{IpAddr, ToSocketAddrs},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use driver::{Address, Handle};

use crate::{config::Config, reload::Reloader};

/// How often the configuration is asked whether names are to be followed.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// The outcome of the last look-up of all names, for people.
#[derive(Default)]
pub struct LookedUpHosts(Mutex<Vec<LookedUpHost>>);

/// A name, and what it stood for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LookedUpHost {
    pub name: String,
    /// Empty if the name was never found.
    pub addresses: Vec<IpAddr>,
    /// When it is looked up again.
    pub until: Instant,
}

impl LookedUpHosts {
    /// By name.
    pub fn list(&self) -> Vec<LookedUpHost> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, hosts: Vec<LookedUpHost>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = hosts;
    }
}

pub async fn follow_hosts(reloader: Arc<Reloader>, handle: Handle, shown: Arc<LookedUpHosts>) {
    let mut known = KnownHosts::default();
    loop {
        let Some(max_ttl) = reloader.in_force().dns.max_ttl else {
            known = KnownHosts::default();
            shown.note(Vec::new());
            tokio::time::sleep(CHECK_INTERVAL).await;
            continue;
        };
        let names = names(&reloader.in_force());
        let all: Vec<String> = names.iter().cloned().collect();
        let looked_up = tokio::task::spawn_blocking(move || {
            let changed = known.look_up(&names, |name| {
                let found = (name, 0).to_socket_addrs().ok()?;
                Some(found.map(|address| address.ip()).collect())
            });
            (known, changed)
        });
        let Ok((still_known, changed)) = looked_up.await else { return };
        known = still_known;
        let until = Instant::now() + max_ttl;
        let host = |name: String| LookedUpHost { addresses: known.addresses(&name), name, until };
        shown.note(all.into_iter().map(host).collect());
        for name in changed {
            let pools = handle.reconnect_host(&name);
            tracing::info!(host = name, pools, "the addresses of a host have changed: connecting anew");
        }
        tokio::time::sleep(max_ttl).await;
    }
}

/// The names of hosts in the configuration that are no addresses.
fn names(config: &Config) -> BTreeSet<String> {
    let addresses = config.databases.iter().flat_map(|database| &database.hosts.addresses);
    let names = addresses.filter_map(|address| match address {
        Address::Tcp { host, .. } if host.parse::<IpAddr>().is_err() => Some(host.clone()),
        Address::Tcp { .. } | Address::Unix(_) => None,
    });
    names.collect()
}

/// The addresses of each name when it was looked up last.
#[derive(Default)]
struct KnownHosts(HashMap<String, BTreeSet<IpAddr>>);

impl KnownHosts {
    fn addresses(&self, name: &str) -> Vec<IpAddr> {
        self.0.get(name).into_iter().flatten().copied().collect()
    }

    /// Looks these names up. Returns those that have lost an address. A name that cannot be looked up stays as it was.
    fn look_up(&mut self, names: &BTreeSet<String>, look_up: impl Fn(&str) -> Option<BTreeSet<IpAddr>>) -> Vec<String> {
        self.0.retain(|name, _| names.contains(name));
        let mut changed = Vec::new();
        for name in names {
            let Some(now) = look_up(name).filter(|addresses| !addresses.is_empty()) else { continue };
            if let Some(before) = self.0.insert(name.clone(), now.clone())
                && !before.is_subset(&now)
            {
                changed.push(name.clone());
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(last: &[u8]) -> Option<BTreeSet<IpAddr>> {
        Some(last.iter().map(|last| IpAddr::from([10, 0, 0, *last])).collect())
    }

    #[test]
    fn a_name_that_has_lost_an_address_has_changed() {
        let names = BTreeSet::from(["db".to_owned()]);
        let mut known = KnownHosts::default();
        assert!(known.look_up(&names, |_| addresses(&[1])).is_empty(), "the first answer is no change");
        assert!(known.look_up(&names, |_| addresses(&[1, 2])).is_empty(), "servers may stay where they are");
        assert!(known.look_up(&names, |_| None).is_empty(), "no answer tells nothing");
        assert_eq!(known.look_up(&names, |_| addresses(&[2])), ["db"]);
        assert!(known.look_up(&names, |_| addresses(&[2])).is_empty());
        assert!(known.look_up(&BTreeSet::new(), |_| None).is_empty() && known.0.is_empty());
    }
}
