//! Addresses of listeners: two that cannot be open at once, folders that do not exist, and newcomers that wait in vain.
//! Opens no socket.

use std::{net::SocketAddr, path::Path};

use settings::{Problem, show_duration};

use crate::config::{Config, Endpoint, Listener};

/// Two listeners of which only one can be opened: their addresses are equal, or one is the wildcard of the other's
/// family.
pub fn duplicates(config: &Config, found: &mut Vec<Problem>) {
    let all: Vec<(&Endpoint, &Listener)> = config
        .listeners
        .iter()
        .flat_map(|listener| listener.endpoints().map(move |endpoint| (endpoint, listener)))
        .collect();
    for (place, (listen, listener)) in all.iter().enumerate() {
        let Some((before, _)) = all[..place].iter().find(|(before, _)| clash(before, listen)) else { continue };
        let problem = match before == listen {
            true => Problem::error(format!("two listeners have the address {listen}")),
            false => {
                let message = format!("{before} and {listen} cannot be open at once");
                Problem::error(message).hint("one of them has the port at all addresses: the other one is not needed")
            }
        };
        found.push(config.locate(problem, &listener.spots, "listen"));
    }
    let Some(admin) = config.admin.listen else { return };
    let own = Endpoint::Tcp(admin);
    if let Some((listen, _)) = all.iter().find(|(listen, _)| clash(listen, &own)) {
        let problem = match **listen == own {
            true => Problem::error(format!("the admin address {admin} is a listener's as well")),
            false => {
                Problem::error(format!("the admin address {admin} and the listener {listen} cannot be open at once"))
            }
        };
        found.push(config.locate(problem, &config.admin.spots, "listen"));
    }
}

fn clash(one: &Endpoint, other: &Endpoint) -> bool {
    let covers = |one: &SocketAddr, other: &SocketAddr| {
        // Port 0 is a new port each time. Sockets of IPv6 take no clients of IPv4.
        let same_port = one.port() == other.port() && one.port() != 0 && one.is_ipv4() == other.is_ipv4();
        same_port && (one.ip() == other.ip() || one.ip().is_unspecified())
    };
    match (one, other) {
        (Endpoint::Tcp(one), Endpoint::Tcp(other)) => covers(one, other) || covers(other, one),
        (Endpoint::Unix(one), Endpoint::Unix(other)) => one == other,
        _ => false,
    }
}

/// A Unix socket whose folder does not exist.
pub fn folders(config: &Config, found: &mut Vec<Problem>) {
    let endpoints = |listener| Listener::endpoints(listener).map(move |endpoint| (endpoint, listener));
    for (endpoint, listener) in config.listeners.iter().flat_map(endpoints) {
        let Some(path) = endpoint.path().filter(|_| !endpoint.is_abstract()) else { continue };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !folder.is_dir() {
            let problem = Problem::warning(format!("the socket's folder {} does not exist", folder.display()));
            let problem = problem.hint("make it before Poolhouse starts (RuntimeDirectory= of the unit, for one)");
            found.push(config.locate(problem, &listener.spots, "listen"));
        }
    }
}

/// Peers at an address of this process itself: requests for them would come back.
pub fn peers(config: &Config, found: &mut Vec<Problem>) {
    for peer in config.peers.iter().filter(|peer| peer.node != config.serve.node_id) {
        let address = Endpoint::parse(&peer.address.to_string()).ok();
        let mut own = config.listeners.iter().flat_map(Listener::endpoints);
        if address.is_some_and(|address| own.any(|endpoint| *endpoint == address)) {
            let message = format!("{} is an address of this Poolhouse, and not of peer {}", peer.address, peer.node);
            let hint = "give each process a listener of its own beside the shared one, such as a Unix socket";
            found.push(config.locate(Problem::warning(message).hint(hint), &peer.spots, "address"));
        }
    }
}

/// A `newcomer_wait_time` that ends before any client may be evicted.
pub fn newcomers(config: &Config, listener: &Listener, found: &mut Vec<Problem>) {
    let idle = listener.gate.evict_min_idle;
    let Some(wait) = listener.timeouts.newcomer_wait.filter(|wait| idle > *wait) else { return };
    let (idle, wait) = (show_duration(idle), show_duration(wait));
    let problem = Problem::warning(format!("evict_min_idle {idle} is above newcomer_wait_time {wait}"));
    let problem = problem.hint(
        "after a flood up to hard_limit newcomers are refused before any client has been idle for long enough: raise \
         newcomer_wait_time, or switch it off to refuse them at once",
    );
    let key = if listener.spots.contains_key("evict_min_idle") { "evict_min_idle" } else { "newcomer_wait_time" };
    found.push(config.locate(problem, &listener.spots, key));
}
