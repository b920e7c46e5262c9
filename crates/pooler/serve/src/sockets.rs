//! Opens the listening sockets of clients and of the admin address. Accepts no connection.

use std::{
    fs::Permissions,
    io,
    net::{SocketAddr, TcpListener},
    os::{
        fd::OwnedFd,
        unix::{
            fs::{FileTypeExt, MetadataExt, PermissionsExt},
            net::UnixStream,
        },
    },
    path::{Path, PathBuf},
};

use driver::{ListenerSpec, TcpOptions};
use rustix::{fs::Mode, io::Errno, process::umask};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::config::{DEFAULT_BACKLOG, Endpoint, Listener};

/// A listening socket.
#[derive(Debug)]
pub struct Bound {
    pub socket: OwnedFd,
    /// The address as configured.
    pub configured: Endpoint,
    /// The actual address: with the assigned port, if port 0 was configured.
    pub endpoint: Endpoint,
    /// The file to remove at the end.
    pub file: Option<SocketFile>,
    /// Systemd has opened the socket.
    pub is_activated: bool,
}

impl Bound {
    /// The same, opened by systemd: its file, if it has one, is systemd's.
    pub fn of_systemd(self) -> Self {
        Self { file: None, is_activated: true, ..self }
    }
}

/// Opens a socket of a listener. No other thread may create files meanwhile: the umask of the process is changed to
/// give a Unix socket its permissions.
pub fn bind(listener: &Listener, endpoint: &Endpoint, tcp: &TcpOptions) -> io::Result<Bound> {
    let backlog = i32::try_from(listener.backlog).unwrap_or(i32::MAX);
    let socket = match endpoint {
        Endpoint::Tcp(address) => {
            let socket = bind_tcp(*address, listener.reuse_port)?;
            driver::prepare_listener(&socket, listener.timeouts.client_idle, tcp)?;
            socket.listen(backlog)?;
            socket
        }
        Endpoint::Unix(path) if endpoint.is_abstract() => bind_abstract(path, backlog)?,
        Endpoint::Unix(path) => bind_unix(path, listener.socket_mode, listener.socket_group.as_deref(), backlog)?,
    };
    adopt(endpoint, socket)
}

/// Wraps a socket that already listens.
pub fn adopt(configured: &Endpoint, socket: Socket) -> io::Result<Bound> {
    let (endpoint, file) = match configured {
        Endpoint::Tcp(address) => (Endpoint::Tcp(socket.local_addr()?.as_socket().unwrap_or(*address)), None),
        Endpoint::Unix(_) if configured.is_abstract() => (configured.clone(), None),
        Endpoint::Unix(path) => (configured.clone(), Some(SocketFile::at(path)?)),
    };
    Ok(Bound { socket: socket.into(), configured: configured.clone(), endpoint, file, is_activated: false })
}

/// What the driver has to know of a listener with these sockets, of which there is one at least.
pub fn spec(listener: &Listener, bound: Vec<Bound>) -> ListenerSpec {
    let names: Vec<String> = bound.iter().map(|bound| bound.endpoint.to_string()).collect();
    ListenerSpec {
        name: names.join(","),
        protocol: listener.protocol(),
        tcp: matches!(listener.listen, Endpoint::Tcp(_)),
        sockets: bound.into_iter().map(|bound| bound.socket).collect(),
        gate: listener.gate,
        timeouts: listener.timeouts,
        tls: None,
        proxies: listener.proxies.clone(),
    }
}

/// Whether an address cannot be listened on because the machine has no IPv6.
pub fn lacks_ipv6(endpoint: &Endpoint, error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    let any = matches!(endpoint, Endpoint::Tcp(address) if address.is_ipv6() && address.ip().is_unspecified());
    any && matches!(errno, Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL))
}

/// Opens the socket of the admin address.
pub fn bind_admin(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = bind_tcp(address, false)?;
    socket.listen(DEFAULT_BACKLOG as i32)?;
    Ok(socket.into())
}

fn bind_tcp(address: SocketAddr, reuse_port: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    if reuse_port {
        socket.set_reuse_port(true)?;
    }
    if address.is_ipv6() {
        // Otherwise an IPv4 client would have a mapped address, and [::] would occupy 0.0.0.0's port as well.
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn bind_unix(path: &Path, permissions: u32, group: Option<&str>, backlog: i32) -> io::Result<Socket> {
    let group = group.map(group_id).transpose()?;
    remove_stale(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    // Until it has its group, no other user may connect.
    let permissions_at_first = if group.is_some() { permissions & 0o700 } else { permissions };
    let before = umask(Mode::from_raw_mode(0o777 & !permissions_at_first));
    let bound = socket.bind(&SockAddr::unix(path)?);
    umask(before);
    bound?;
    if let Some(group) = group {
        std::os::unix::fs::chown(path, None, Some(group))?;
        std::fs::set_permissions(path, Permissions::from_mode(permissions))?;
    }
    socket.listen(backlog)?;
    Ok(socket)
}

/// Opens a socket that has a name and no file.
fn bind_abstract(name: &Path, backlog: i32) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::unix(name)?)?;
    socket.listen(backlog)?;
    Ok(socket)
}

/// The number of a group, by its name or as it stands.
fn group_id(name: &str) -> io::Result<u32> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let group = nix::unistd::Group::from_name(name)?;
    let unknown = || io::Error::new(io::ErrorKind::NotFound, format!("socket_group: there is no group `{name}`"));
    group.map(|group| group.gid.as_raw()).ok_or_else(unknown)
}

/// Removes a socket on which no process listens any more. Any other file at that path stays.
fn remove_stale(path: &Path) -> io::Result<()> {
    let meta = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        meta => meta?,
    };
    if !meta.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket is in its place"));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        _ => Err(io::Error::new(io::ErrorKind::AddrInUse, "somebody else listens there")),
    }
}

/// The file of a Unix socket, identified by its inode: a successor's socket at the same path must not be removed.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    inode: (u64, u64),
}

impl SocketFile {
    fn at(path: &Path) -> io::Result<Self> {
        let meta = std::fs::symlink_metadata(path)?;
        Ok(Self { path: path.to_owned(), inode: (meta.dev(), meta.ino()) })
    }

    /// Removes the file if it is still the same.
    pub fn remove(&self) {
        if Self::at(&self.path).is_ok_and(|now| now.inode == self.inode) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use upstream::Kind;

    use super::*;

    fn open(listener: &Listener) -> io::Result<Bound> {
        bind(listener, &listener.listen, &TcpOptions::default())
    }

    fn unix(path: &Path) -> Listener {
        Listener::new(Kind::Postgres, Endpoint::Unix(path.to_owned()))
    }

    #[test]
    fn a_socket_left_behind_is_replaced_and_a_live_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let first = open(&unix(&path)).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o770);
        assert_eq!(open(&unix(&path)).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let left_behind = first.file.unwrap();
        drop(first.socket);
        let second = open(&unix(&path)).unwrap();
        left_behind.remove();
        assert!(path.exists() || left_behind.inode == second.file.as_ref().unwrap().inode);
        second.file.unwrap().remove();
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_is_no_socket_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        std::fs::write(&path, "precious").unwrap();
        assert_eq!(open(&unix(&path)).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    }

    #[test]
    fn whoever_comes_before_the_driver_has_all_options() {
        let bound = open(&Listener::new(Kind::Postgres, Endpoint::parse("127.0.0.1:0").unwrap())).unwrap();
        let _client = std::net::TcpStream::connect(bound.endpoint.to_string()).unwrap();
        let listener = Socket::from(bound.socket);
        let (accepted, _) = loop {
            match listener.accept() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                accepted => break accepted.unwrap(),
            }
        };
        assert!(accepted.tcp_nodelay().unwrap() && accepted.keepalive().unwrap());
    }

    #[test]
    fn port_0_gets_a_port() {
        let listener = Listener::new(Kind::Postgres, Endpoint::parse("127.0.0.1:0").unwrap());
        let spec = spec(&listener, vec![open(&listener).unwrap(), open(&listener).unwrap()]);
        assert!(!spec.name.contains(":0") && spec.tcp && spec.sockets.len() == 2);
    }
}
