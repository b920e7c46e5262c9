//! `[[peer]]`: the other processes behind the same address, to which cancel requests are handed on. Connects to none.

use std::{collections::HashSet, path::PathBuf};

use driver::Address;
use settings::{Problem, Section, Spots};

use super::{MAX_COUNT, Serve};

pub const PEER_KEYS: &[&str] = &["node_id", "address", "max_size"];

/// The name of a Unix socket in a folder, before its port.
const SOCKET_PREFIX: &str = ".s.PGSQL.";

/// A process behind the same address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its number, which its cancel keys carry.
    pub node: u16,
    /// Where it takes cancel requests.
    pub address: Address,
    /// Requests that may be on their way to it at a time.
    pub max_size: u32,
    pub spots: Spots,
}

impl Peer {
    /// The host, or the folder of its Unix socket, and the port.
    pub fn place(&self) -> (String, Option<u16>) {
        match &self.address {
            Address::Tcp { host, port } => (host.clone(), Some(*port)),
            unix @ Address::Unix(_) => {
                let text = unix.to_string();
                let (folder, name) = text.rsplit_once('/').unwrap_or((&text, ""));
                match name.strip_prefix(SOCKET_PREFIX).and_then(|port| port.parse().ok()) {
                    Some(port) => (folder.to_owned(), Some(port)),
                    None => (text, None),
                }
            }
        }
    }
}

/// The peers of a file, in the order of their numbers. `default_size` is for those that have no size of their own.
pub fn peers(root: &Section<'_>, serve: &Serve, is_for_postgres: bool, default_size: u32) -> Vec<Peer> {
    let sections = root.tables("peer", &[PEER_KEYS]);
    if let (Some(first), false) = (sections.first(), is_for_postgres) {
        first.error("", "peers are for cancel requests of PostgreSQL, and no [[database]] in this file is of it");
    }
    let (mut peers, mut known) = (Vec::new(), HashSet::new());
    for section in &sections {
        let Some(peer) = peer(section, default_size) else { continue };
        match known.insert(peer.node) {
            true => peers.push(peer),
            false => section.error("node_id", format!("another [[peer]] has the `node_id` {}, too", peer.node)),
        }
    }
    if let (Some(first), 0) = (sections.first(), serve.node_id) {
        let problem = Problem::error("this file has peers, and does not say which of them this Poolhouse is");
        first.report("", problem.hint("write a `node_id` above 0 into [serve], which no peer has"));
    }
    peers.sort_by_key(|peer| peer.node);
    peers
}

fn peer(section: &Section<'_>, default_size: u32) -> Option<Peer> {
    for key in ["node_id", "address"] {
        if !section.has(key) {
            section.error("", format!("this [[peer]] has no `{key}`"));
        }
    }
    let node = section.number("node_id", 1..=u32::from(postgres_session::MAX_NODE));
    let address = section.text("address", address);
    let max_size = section.number("max_size", 1..=MAX_COUNT).unwrap_or(default_size);
    Some(Peer { node: node? as u16, address: address?, max_size, spots: section.spots() })
}

/// A host and a port, the path of a Unix socket, or `@` and the name of an abstract one.
fn address(text: &str) -> Result<Address, String> {
    if let Some(name) = text.strip_prefix('@').filter(|name| !name.is_empty()) {
        return Ok(Address::of_abstract_socket(name));
    }
    if let Some(path) = text.strip_prefix("unix:").or(Some(text)).filter(|path| path.starts_with('/')) {
        return Ok(Address::Unix(PathBuf::from(path)));
    }
    let bare = |host: &str| match host.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']').map(str::to_owned),
        None => Some(host.to_owned()).filter(|host| !host.contains(':')),
    };
    let parts = text.rsplit_once(':').and_then(|(host, port)| Some((bare(host)?, port.parse().ok()?)));
    match parts {
        Some((host, port)) if port > 0 && !host.is_empty() => Ok(Address::Tcp { host, port }),
        _ => Err(format!(
            "`{}` is no address of a peer: write \"10.0.0.2:6432\", or the path of its Unix socket",
            text.escape_debug()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_sockets_are_told_apart() {
        let place = |text| {
            let peer = Peer { node: 1, address: address(text).unwrap(), max_size: 1, spots: Spots::new() };
            (peer.address.to_string(), peer.place())
        };
        assert_eq!(place("db.example:6432").1, ("db.example".to_owned(), Some(6432)));
        assert_eq!(place("[::1]:7"), ("[::1]:7".to_owned(), ("::1".to_owned(), Some(7))));
        assert_eq!(place("/run/a/.s.PGSQL.6432").1, ("/run/a".to_owned(), Some(6432)));
        assert_eq!(place("@a/.s.PGSQL.1"), ("@a/.s.PGSQL.1".to_owned(), ("@a".to_owned(), Some(1))));
        assert_eq!(place("unix:/run/a").1, ("/run/a".to_owned(), None));
        for wrong in ["", "@", "host", "host:", ":1", "host:0", "host:99999", "::1:5", "unix:x"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }
}
