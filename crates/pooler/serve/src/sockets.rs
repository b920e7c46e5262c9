//! Opens the listening sockets of clients and of the admin address. Accepts no connection.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    os::{
        fd::OwnedFd,
        unix::{
            fs::{FileTypeExt, MetadataExt},
            net::UnixStream,
        },
    },
    path::{Path, PathBuf},
};

use driver::ListenerSpec;
use rustix::{fs::Mode, process::umask};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::config::{Endpoint, Listener};

/// Connections that the kernel queues until they are accepted; `net.core.somaxconn` may be less.
const BACKLOG: i32 = 4096;

#[derive(Debug)]
pub struct Bound {
    pub spec: ListenerSpec,
    /// The actual address: with the assigned port, if port 0 was configured.
    pub endpoint: Endpoint,
    /// The file to remove at the end.
    pub file: Option<SocketFile>,
}

/// Opens the socket of a listener. No other thread may create files meanwhile: the umask of the process is changed to
/// give a Unix socket its permissions.
pub fn bind(listener: &Listener) -> io::Result<Bound> {
    let socket = match &listener.listen {
        Endpoint::Tcp(address) => {
            let socket = bind_tcp(*address)?;
            driver::prepare_listener(&socket, listener.timeouts.client_idle)?;
            socket.listen(BACKLOG)?;
            socket
        }
        Endpoint::Unix(path) => bind_unix(path, listener.socket_mode)?,
    };
    adopt(listener, socket)
}

/// Wraps a socket that already listens.
pub fn adopt(listener: &Listener, socket: Socket) -> io::Result<Bound> {
    let (endpoint, file) = match &listener.listen {
        Endpoint::Tcp(address) => (Endpoint::Tcp(socket.local_addr()?.as_socket().unwrap_or(*address)), None),
        Endpoint::Unix(path) => (listener.listen.clone(), Some(SocketFile::at(path)?)),
    };
    let spec = ListenerSpec {
        name: endpoint.to_string(),
        protocol: listener.protocol(),
        socket: OwnedFd::from(socket),
        tcp: matches!(endpoint, Endpoint::Tcp(_)),
        gate: listener.gate,
        timeouts: listener.timeouts,
        tls: None,
    };
    Ok(Bound { spec, endpoint, file })
}

/// Opens the socket of the admin address.
pub fn bind_admin(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = bind_tcp(address)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn bind_tcp(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // Otherwise an IPv4 client would have a mapped address, and [::] would occupy 0.0.0.0's port as well.
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn bind_unix(path: &Path, permissions: u32) -> io::Result<Socket> {
    remove_stale(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    let before = umask(Mode::from_raw_mode(0o777 & !permissions));
    let bound = socket.bind(&SockAddr::unix(path)?);
    umask(before);
    bound?;
    socket.listen(BACKLOG)?;
    Ok(socket)
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
    use std::os::unix::fs::PermissionsExt;

    fn unix(path: &Path) -> Listener {
        Listener::new(Kind::Postgres, Endpoint::Unix(path.to_owned()))
    }

    #[test]
    fn a_socket_left_behind_is_replaced_and_a_live_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let first = bind(&unix(&path)).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o770);
        assert_eq!(bind(&unix(&path)).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let left_behind = first.file.unwrap();
        drop(first.spec);
        let second = bind(&unix(&path)).unwrap();
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
        assert_eq!(bind(&unix(&path)).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    }

    #[test]
    fn whoever_comes_before_the_driver_has_all_options() {
        let bound = bind(&Listener::new(Kind::Postgres, Endpoint::parse("127.0.0.1:0").unwrap())).unwrap();
        let listener = Socket::from(bound.spec.socket);
        let _client = std::net::TcpStream::connect(&bound.spec.name).unwrap();
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
        let bound = bind(&Listener::new(Kind::Postgres, Endpoint::parse("127.0.0.1:0").unwrap())).unwrap();
        assert!(!bound.spec.name.ends_with(":0") && bound.spec.tcp);
    }
}
