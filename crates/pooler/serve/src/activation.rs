//! Sockets that systemd has opened before it started this process (`.socket` units). A listener whose address one of
//! them has uses it instead of opening its own, so that clients can connect while no process is there.

use std::io;

use driver::TcpOptions;
use listenfd::ListenFd;
use settings::Problem;
use socket2::Socket;

use crate::{
    config::{Endpoint, Listener},
    sockets::{Bound, adopt},
};

/// The sockets that no listener has taken yet.
pub struct Activated(Vec<(Endpoint, Socket)>);

impl Activated {
    /// The sockets that the environment of this process tells of: none unless systemd has passed some.
    ///
    /// # Errors
    /// When one of them is not a stream socket of the Internet or of Unix.
    pub fn take() -> io::Result<Self> {
        let mut passed = ListenFd::from_env();
        let mut sockets = Vec::new();
        for at in 0..passed.len() {
            let socket: Socket = match passed.take_tcp_listener(at) {
                Ok(socket) => socket.map(Socket::from),
                Err(_) => passed.take_unix_listener(at)?.map(Socket::from),
            }
            .ok_or(io::ErrorKind::NotFound)?;
            socket.set_nonblocking(true)?;
            sockets.push((address_of(&socket)?, socket));
        }
        Ok(Self(sockets))
    }

    /// The socket of an address, if systemd has passed it.
    pub fn adopt(&mut self, listener: &Listener, endpoint: &Endpoint, tcp: &TcpOptions) -> Option<io::Result<Bound>> {
        let at = self.0.iter().position(|(address, socket)| covers(address, socket, endpoint))?;
        let (_, socket) = self.0.swap_remove(at);
        let prepared = match endpoint {
            Endpoint::Tcp(_) => driver::prepare_listener(&socket, listener.timeouts.client_idle, tcp),
            Endpoint::Unix(_) => Ok(()),
        };
        Some(prepared.and_then(|()| adopt(endpoint, socket)).map(Bound::of_systemd))
    }

    /// # Errors
    /// When there is a socket that no listener has taken: its clients would wait for ever.
    pub fn require_none(&self) -> Result<(), Problem> {
        let addresses: Vec<String> = self.0.iter().map(|(address, _)| address.to_string()).collect();
        if addresses.is_empty() {
            return Ok(());
        }
        let problem = Problem::error(format!("systemd passes sockets that no listener has: {}", addresses.join(", ")));
        Err(problem.hint("write these addresses in a [[listener]], or take them out of the .socket unit"))
    }
}

fn address_of(socket: &Socket) -> io::Result<Endpoint> {
    let address = socket.local_addr()?;
    let tcp = address.as_socket().map(Endpoint::Tcp);
    let unix = || address.as_pathname().map(|path| Endpoint::Unix(path.to_owned()));
    tcp.or_else(unix).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a socket without an address"))
}

/// Whether clients of an address come in at this socket. Systemd's `ListenStream=6432` is the socket of all addresses
/// of IPv6, which takes clients of IPv4, too.
fn covers(address: &Endpoint, socket: &Socket, wanted: &Endpoint) -> bool {
    match (address, wanted) {
        (Endpoint::Tcp(has), Endpoint::Tcp(wanted)) if has.is_ipv6() && wanted.is_ipv4() => {
            let takes_both = socket.only_v6().is_ok_and(|only| !only);
            has.ip().is_unspecified() && wanted.ip().is_unspecified() && has.port() == wanted.port() && takes_both
        }
        _ => address == wanted,
    }
}
