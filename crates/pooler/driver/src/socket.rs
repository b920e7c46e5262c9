//! Making and asking sockets. Everything here is non-blocking.

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    time::Timespec,
};
use socket2::{Domain, SockAddr, SockRef, Socket, TcpKeepalive, Type};

/// How long sent bytes or keepalive probes may stay unacknowledged, or a peer may read nothing, before the kernel
/// closes the connection. Overrides the number of keepalive probes.
const USER_TIMEOUT: Duration = Duration::from_secs(600);
/// How much longer than its idle time a client may be silent, so that the idle time ends it, and is counted.
const MIN_BEYOND_IDLE: Duration = Duration::from_secs(60);
/// The same for a connection that has been closed here: otherwise the kernel would wait for a vanished host's
/// acknowledgement for ten minutes, and a flood of functions that vanish would fill its list of such
/// connections.
const CLOSED_USER_TIMEOUT: Duration = Duration::from_secs(30);
/// The kernel keeps the time-out as a signed number of milliseconds.
const MAX_USER_TIMEOUT: Duration = Duration::from_millis(i32::MAX as u64);

/// Options of TCP connections on both sides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpOptions {
    /// Whether the kernel probes silent peers.
    pub keepalive: bool,
    /// The idle time after which it does.
    pub keep_idle: Duration,
    /// The time between probes.
    pub keep_interval: Duration,
    /// Probes without an answer after which the peer counts as dead, unless `user_timeout` comes first.
    pub keep_count: u32,
    /// How long sent bytes or probes may stay unacknowledged; `Some(None)` is the kernel's default, `None` what follows
    /// from the idle times of clients.
    pub user_timeout: Option<Option<Duration>>,
    /// The size of the kernel's buffers for each connection and direction in bytes; `None` is the kernel's default.
    pub socket_buffer: Option<usize>,
}

impl Default for TcpOptions {
    fn default() -> Self {
        Self {
            keepalive: true,
            keep_idle: Duration::from_secs(60),
            keep_interval: Duration::from_secs(15),
            keep_count: 4,
            user_timeout: None,
            socket_buffer: None,
        }
    }
}

impl TcpOptions {
    /// How long a client with this idle time may leave bytes unacknowledged; zero is the kernel's default.
    pub(crate) fn user_timeout_of_clients(&self, client_idle: Option<Duration>) -> Duration {
        self.user_timeout.map_or_else(|| user_timeout(client_idle), Option::unwrap_or_default)
    }

    fn set(&self, socket: &Socket, user_timeout: Duration) -> io::Result<()> {
        socket.set_tcp_nodelay(true)?;
        if self.keepalive {
            let keepalive = TcpKeepalive::new().with_time(self.keep_idle).with_interval(self.keep_interval);
            socket.set_tcp_keepalive(&keepalive.with_retries(self.keep_count))?;
        } else {
            socket.set_keepalive(false)?;
        }
        if let Some(size) = self.socket_buffer {
            socket.set_recv_buffer_size(size)?;
            socket.set_send_buffer_size(size)?;
        }
        socket.set_tcp_user_timeout(Some(user_timeout))
    }
}

/// How long a client's host may be silent before the kernel declares it dead. A frozen function's host is silent and
/// comes back all the same, so that must never be before the client's idle time is over; a client without one still
/// must not stay for ever when its host has gone.
pub(crate) fn user_timeout(client_idle: Option<Duration>) -> Duration {
    let beyond = client_idle.map_or(USER_TIMEOUT, |idle| idle.saturating_add(MIN_BEYOND_IDLE));
    beyond.clamp(USER_TIMEOUT, MAX_USER_TIMEOUT)
}

/// Sets the options that accepted sockets inherit from their TCP listener. Call it before the socket listens: a client
/// that comes earlier goes without them (its packets wait for each other, and its host may vanish unnoticed).
pub fn prepare_listener(socket: &impl AsFd, client_idle: Option<Duration>, tcp: &TcpOptions) -> io::Result<()> {
    let socket = SockRef::from(socket);
    tcp.set(&socket, tcp.user_timeout_of_clients(client_idle))?;
    socket.set_nonblocking(true)
}

/// Another [`user_timeout`] than the listener's for one client.
pub(crate) fn set_user_timeout(socket: &OwnedFd, user_timeout: Duration) {
    // Only a connection that has ended refuses, and that is told elsewhere.
    let _ = SockRef::from(socket).set_tcp_user_timeout(Some(user_timeout));
}

pub(crate) fn connect_tcp(address: SocketAddr, tcp: &TcpOptions) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking().cloexec(), None)?;
    tcp.set(&socket, tcp.user_timeout.map_or(USER_TIMEOUT, Option::unwrap_or_default))?;
    begin(socket, &address.into())
}

/// Begins to connect to a Unix socket.
pub(crate) fn connect_unix(path: &Path) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)?;
    begin(socket, &SockAddr::unix(path)?)
}

fn begin(socket: Socket, address: &SockAddr) -> io::Result<OwnedFd> {
    match socket.connect(address) {
        Ok(()) => Ok(socket.into()),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => Ok(socket.into()),
        Err(error) => Err(error),
    }
}

/// The user of this machine whose process connected to a Unix socket; `None` on TCP.
pub(crate) fn peer_uid(socket: &OwnedFd) -> Option<u32> {
    let local = SockRef::from(socket).local_addr().ok()?;
    let credentials = local.is_unix().then(|| rustix::net::sockopt::socket_peercred(socket).ok()).flatten()?;
    Some(credentials.uid.as_raw())
}

/// The address of this end; `None` for a Unix socket.
pub(crate) fn local(socket: &OwnedFd) -> Option<SocketAddr> {
    SockRef::from(socket).local_addr().ok()?.as_socket()
}

/// The process that has connected to a Unix socket; `None` on TCP.
pub(crate) fn peer_process(socket: &OwnedFd) -> Option<u32> {
    let is_unix = SockRef::from(socket).local_addr().is_ok_and(|local| local.is_unix());
    let credentials = is_unix.then(|| rustix::net::sockopt::socket_peercred(socket).ok()).flatten()?;
    u32::try_from(credentials.pid.as_raw_nonzero().get()).ok()
}

/// The peer's address; `None` for a Unix socket or one that has gone.
pub(crate) fn peer(socket: &OwnedFd) -> Option<SocketAddr> {
    SockRef::from(socket).peer_addr().ok()?.as_socket()
}

/// Says that no more will be sent, on a connection that is [asked](has_peer_closed) whether its peer has heard.
pub(crate) fn half_close_and_detach(socket: &OwnedFd) {
    let _ = SockRef::from(socket).shutdown(std::net::Shutdown::Write);
    set_user_timeout(socket, CLOSED_USER_TIMEOUT);
}

/// Whether the peer has closed or reset its side, too. What it sent before is thrown away.
pub(crate) fn has_peer_closed(socket: &OwnedFd) -> bool {
    let mut rest = [std::mem::MaybeUninit::uninit(); 4096];
    match SockRef::from(socket).recv(&mut rest) {
        Ok(length) => length == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    }
}

/// Whether the peer has ended its side, or the connection is broken. What it sent before stays to be received.
pub(crate) fn has_hung_up(socket: &OwnedFd) -> bool {
    let mut asked = [PollFd::new(socket, PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    // Where the kernel cannot tell, the worker finds it out when it receives from the client.
    poll(&mut asked, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Says that no more will be sent and takes what the peer has sent meanwhile, because closing
/// with unread bytes resets the connection and may destroy our last words on their way.
pub(crate) fn half_close(socket: &OwnedFd) {
    let socket = SockRef::from(socket);
    if socket.shutdown(std::net::Shutdown::Write).is_ok() {
        let mut rest = [std::mem::MaybeUninit::uninit(); 4096];
        let _ = socket.recv(&mut rest);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        os::unix::net::UnixStream,
    };

    use super::*;

    #[test]
    fn a_peer_that_has_hung_up_is_seen_behind_what_it_has_sent() {
        let (mut peer, socket) = UnixStream::pair().unwrap();
        let socket = OwnedFd::from(socket);
        assert!(!has_hung_up(&socket));
        peer.write_all(b"startup").unwrap();
        assert!(!has_hung_up(&socket));
        drop(peer);
        assert!(has_hung_up(&socket));
        let mut said = String::new();
        UnixStream::from(socket).read_to_string(&mut said).unwrap();
        assert_eq!(said, "startup");
    }

    #[test]
    fn a_silent_host_is_not_declared_dead_before_its_client_has_been_idle_for_too_long() {
        let seconds = [1, 310, 599, 600, 3600, 86_400];
        for idle in seconds.map(Duration::from_secs) {
            assert!(user_timeout(Some(idle)) > idle);
        }
        assert_eq!(user_timeout(None), USER_TIMEOUT);
        assert_eq!(user_timeout(Some(Duration::MAX)), MAX_USER_TIMEOUT);
    }
}
