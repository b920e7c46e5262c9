//! Addresses to listen on: `127.0.0.1:6432`, `[::1]:6432`, `:6432`, a path, `unix:path`, or `@name` for a Unix socket
//! in the abstract namespace.

use std::{
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
};

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Endpoint {
    Tcp(SocketAddr),
    /// The path of a Unix socket; one that begins with a zero byte is a name in the abstract namespace.
    Unix(PathBuf),
}

impl Endpoint {
    pub fn parse(text: &str) -> Result<Self, String> {
        let path = text.strip_prefix("unix:").or_else(|| text.starts_with(['/', '@']).then_some(text));
        if let Some(path) = path {
            // The kernel's sockaddr_un holds 108 bytes, one of them the end.
            return match path.len() {
                0 => Err("`unix:` without a path".to_owned()),
                1 if path == "@" => Err("`@` without the name of a socket".to_owned()),
                1..=107 => Ok(Self::Unix(match path.strip_prefix('@') {
                    Some(name) => PathBuf::from(format!("\0{name}")),
                    None => PathBuf::from(path),
                })),
                _ => Err("the path of a Unix socket has at most 107 bytes".to_owned()),
            };
        }
        parse_tcp(text).map(Self::Tcp)
    }

    /// Its address, unless it is a Unix socket.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// Its path, if it is a Unix socket.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Tcp(_) => None,
            Self::Unix(path) => Some(path),
        }
    }

    /// Whether it is a Unix socket without a file.
    pub fn is_abstract(&self) -> bool {
        self.path().is_some_and(|path| path.as_os_str().as_encoded_bytes().starts_with(&[0]))
    }

    /// Whether only this machine can reach it.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

/// An address and a port; no host names, because a name may mean several addresses.
pub fn parse_tcp(text: &str) -> Result<SocketAddr, String> {
    let resolved = match text.split_once(':') {
        Some(("localhost", port)) => format!("127.0.0.1:{port}"),
        Some(("", port)) if !port.contains(':') => format!("127.0.0.1:{port}"),
        Some(("*", port)) => format!("0.0.0.0:{port}"),
        _ => text.to_owned(),
    };
    resolved.parse().map_err(|_| {
        format!("`{}` is no address to listen on: write \"127.0.0.1:6432\" or \"[::1]:6432\"", text.escape_debug())
    })
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", shown_path(path)),
        }
    }
}

/// The path of a Unix socket as programs take it, with `@` before an abstract name.
pub fn shown_path(path: &Path) -> String {
    path.display().to_string().replacen('\0', "@", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_paths_are_told_apart() {
        let shown = |text| Endpoint::parse(text).map(|e| e.to_string());
        assert_eq!(shown("localhost:6432").unwrap(), "127.0.0.1:6432");
        assert_eq!(shown(":6432").unwrap(), "127.0.0.1:6432");
        assert_eq!(shown("*:6432").unwrap(), "0.0.0.0:6432");
        assert_eq!(shown("[::1]:6432").unwrap(), "[::1]:6432");
        assert_eq!(shown("/run/x/.s.PGSQL.6432").unwrap(), "unix:/run/x/.s.PGSQL.6432");
        assert_eq!(shown("unix:x").unwrap(), "unix:x");
        assert_eq!(shown("@a/.s.PGSQL.6432").unwrap(), "unix:@a/.s.PGSQL.6432");
        assert_eq!(shown("unix:@a").unwrap(), "unix:@a");
        assert!(Endpoint::parse("@a").unwrap().is_abstract() && !Endpoint::parse("/a").unwrap().is_abstract());
        assert!(["6432", "unix:", "db.example:1", "@", "unix:@"].iter().all(|text| shown(text).is_err()));
    }

    #[test]
    fn only_loopback_and_unix_sockets_are_local() {
        let local = |text| Endpoint::parse(text).unwrap().is_local();
        assert!(local("127.0.0.1:1") && local("[::1]:1") && local("[::ffff:127.0.0.1]:1") && local("/x"));
        assert!(!local("0.0.0.0:1") && !local("[::]:1") && !local("10.0.0.5:1"));
    }
}
