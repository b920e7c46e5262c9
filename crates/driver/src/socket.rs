//! Making and asking sockets. Everything here is non-blocking.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    path::Path,
    time::Duration,
};

use socket2::{Domain, SockAddr, SockRef, Socket, TcpKeepalive, Type};

/// Idle time after which the kernel asks whether a peer is still there, and the pace of asking.
const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(60)).with_interval(Duration::from_secs(15)).with_retries(4);
/// How long sent bytes may stay unacknowledged, or a peer may read nothing, before the kernel gives a connection up.
const USER_TIMEOUT: Duration = Duration::from_secs(600);

/// Options that accepted sockets inherit from their listener, set once there.
pub(crate) fn prepare_listener(socket: &OwnedFd) -> io::Result<()> {
    let socket = SockRef::from(socket);
    set_tcp_options(&socket)?;
    socket.set_nonblocking(true)
}

fn set_tcp_options(socket: &Socket) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&KEEPALIVE)?;
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))
}

/// Begins to connect to an address.
pub(crate) fn connect_tcp(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking().cloexec(), None)?;
    set_tcp_options(&socket)?;
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

/// The peer's address; `None` for a Unix socket or one that has gone.
pub(crate) fn peer(socket: &OwnedFd) -> Option<SocketAddr> {
    SockRef::from(socket).peer_addr().ok()?.as_socket()
}

/// The peer's IP address, with IPv4 in its own form.
pub(crate) fn peer_ip(socket: &OwnedFd) -> Option<IpAddr> {
    peer(socket).map(|address| address.ip().to_canonical())
}

/// Says that no more will be sent and takes what the peer has sent meanwhile, because closing
/// with unread bytes resets the connection and may destroy our last words on their way.
pub(crate) fn part(socket: &OwnedFd) {
    let socket = SockRef::from(socket);
    if socket.shutdown(std::net::Shutdown::Write).is_ok() {
        let mut rest = [std::mem::MaybeUninit::uninit(); 4096];
        let _ = socket.recv(&mut rest);
    }
}
