//! Connections of proxies that tell first whom they speak for. The worker that accepts reads their headers; from then
//! on the client that a header names is treated as if it had connected itself. Knows no client.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use pool::Time;
use seam::Protocol;
use slab::Slab;

use super::Worker;
use crate::{
    mailbox::Accepted,
    proxy_header::{self, ProxyHeader},
    reactor::{ConnId, Owner, Reactor},
};

/// Connections whose header has not come that may be here at a time. Further ones are closed.
const MAX_PROXIES: usize = 1024;

/// How long a header may take to come. A proxy sends it at once.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// The connections whose header has not come.
#[derive(Default)]
pub(super) struct Proxies(Slab<Proxy>);

struct Proxy {
    conn: ConnId,
    listener: u32,
    address: SocketAddr,
    /// What has come of the header.
    received: Vec<u8>,
    since: Time,
}

/// The address of a client whose proxy tells none, because it speaks for itself or does not know. It is that of no
/// machine, so that the client has no right that comes of an address: neither the proxy's nor this machine's. A proxy
/// relays clients of Unix sockets in this way, too.
fn unknown_client(proxy: SocketAddr) -> SocketAddr {
    let nowhere = match proxy.ip().to_canonical() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    SocketAddr::new(nowhere, proxy.port())
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// A connection has been accepted at a listener that takes headers from its peer.
    pub(super) fn await_proxy_header(&mut self, listener: u32, socket: R::Socket, address: SocketAddr) {
        if self.proxies.0.len() >= MAX_PROXIES {
            return self.log_proxy(listener, address, "too many connections wait for their header");
        }
        let entry = self.proxies.0.vacant_entry();
        match self.reactor.attach(socket, Owner::Proxy(entry.key() as u32)) {
            Ok(conn) => {
                entry.insert(Proxy { conn, listener, address, received: Vec::new(), since: self.now });
                self.reactor.receive(conn);
            }
            Err(error) => tracing::error!(%error, "cannot watch the connection of a proxy"),
        }
    }

    pub(super) fn on_proxy_received(&mut self, slot: usize, bytes: &[u8]) {
        let proxy = &mut self.proxies.0[slot];
        if bytes.is_empty() {
            // A proxy that looks whether the port is open says nothing.
            return self.end_proxy(slot, None);
        }
        proxy.received.extend_from_slice(bytes);
        match proxy_header::read(&proxy.received) {
            Ok(ProxyHeader::Incomplete) => {
                let conn = proxy.conn;
                self.reactor.receive(conn);
            }
            Ok(ProxyHeader::Complete { length, client }) => {
                let Proxy { conn, listener, address, mut received, .. } = self.proxies.0.remove(slot);
                received.drain(..length);
                match self.reactor.release(conn) {
                    Ok(socket) => {
                        let peer = Some(client.unwrap_or_else(|| unknown_client(address)));
                        self.admit_accepted(listener, Accepted { socket, peer, received });
                    }
                    Err(error) => tracing::error!(%error, "cannot go on with the connection of a proxy"),
                }
            }
            Err(why) => self.end_proxy(slot, Some(&why)),
        }
    }

    /// Closes the connection of a proxy. `why` is for the log.
    pub(super) fn end_proxy(&mut self, slot: usize, why: Option<&str>) {
        let Proxy { conn, listener, address, .. } = self.proxies.0.remove(slot);
        self.reactor.close(conn);
        if let Some(why) = why {
            self.log_proxy(listener, address, why);
        }
    }

    /// Closes connections whose header does not come.
    pub(super) fn end_late_proxies(&mut self) {
        if self.proxies.0.is_empty() {
            return;
        }
        let is_late = |proxy: &Proxy| self.now - proxy.since >= HEADER_TIMEOUT;
        let late: Vec<usize> =
            self.proxies.0.iter().filter(|(_, proxy)| is_late(proxy)).map(|(slot, _)| slot).collect();
        for slot in late {
            self.end_proxy(slot, Some("it did not come in time"));
        }
    }

    fn log_proxy(&mut self, listener: u32, address: SocketAddr, why: &str) {
        if let Some(withheld) = self.paces.client_error.take_line(self.now) {
            let listener = &self.process.listeners[listener as usize].name;
            tracing::warn!(withheld, proxy = %address, %listener, "a header of the PROXY protocol was refused: {why}");
        }
    }
}
