//! Making and asking sockets. Everything here is non-blocking.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    path::Path,
    time::Duration,
};

use socket2::{Domain, SockAddr, SockRef, Socket, TcpKeepalive, Type};

/// Whether the peer has closed its side, or is gone.
pub(crate) fn has_ended(socket: &OwnedFd) -> bool {
    let mut rest = [std::mem::MaybeUninit::uninit(); 4096];
    loop {
        match SockRef::from(socket).recv(&mut rest) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
        }
    }
}

/// Idle time after which the kernel asks whether a peer is still there, and the pace of asking.
const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(60)).with_interval(Duration::from_secs(15)).with_retries(4);
/// How long sent bytes may stay unacknowledged, or a peer may read nothing, before the kernel gives a connection up. It rules
/// keepalive, too: Linux then goes on asking for as long, whatever the number of questions (`tcp_keepalive_timer`).
const USER_TIMEOUT: Duration = Duration::from_secs(600);

/// What is given to a client beyond the time that it may be idle.
const GRACE: Duration = Duration::from_secs(60);

/// Options that accepted sockets inherit from their listener. A client that may be idle for longer than [`USER_TIMEOUT`] is not
/// given up before: the host of a function that its platform has frozen may not answer at all meanwhile.
pub(crate) fn prepare_listener(socket: &OwnedFd, client_idle: Option<Duration>) -> io::Result<()> {
    let socket = SockRef::from(socket);
    let longest = client_idle.map_or(USER_TIMEOUT, |idle| USER_TIMEOUT.max(idle.saturating_add(GRACE)));
    // The kernel counts milliseconds in 31 bits.
    set_tcp_options(&socket, longest.min(Duration::from_millis(i32::MAX as u64)))?;
    socket.set_nonblocking(true)
}

fn set_tcp_options(socket: &Socket, user_timeout: Duration) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&KEEPALIVE)?;
    socket.set_tcp_user_timeout(Some(user_timeout))
}

/// Begins to connect to an address.
pub(crate) fn connect_tcp(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking().cloexec(), None)?;
    set_tcp_options(&socket, USER_TIMEOUT)?;
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
