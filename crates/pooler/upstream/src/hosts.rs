//! Hosts of a URL: where they are, and which of them will do.

use std::{fmt, path::PathBuf};

use crate::kind::Kind;

/// Hosts that one URL, or one name, may have.
pub const MAX_HOSTS: usize = 16;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// Host name or address, and port.
    Tcp {
        host: String,
        port: u16,
    },
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// libpq's `target_session_attrs`: what a host of PostgreSQL must be like.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SessionAttrs {
    #[default]
    Any,
    ReadWrite,
    ReadOnly,
    Primary,
    Standby,
    /// A standby if there is one, otherwise any host.
    PreferStandby,
}

impl SessionAttrs {
    pub(crate) const WORDS: &[(&'static str, Self)] = &[
        ("any", Self::Any),
        ("read-write", Self::ReadWrite),
        ("read-only", Self::ReadOnly),
        ("primary", Self::Primary),
        ("standby", Self::Standby),
        ("prefer-standby", Self::PreferStandby),
    ];
}

/// `load_balance_hosts`: with which host each connection begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HostOrder {
    /// The first.
    #[default]
    AsGiven,
    /// Another one each time.
    Random,
    /// One after the other.
    RoundRobin,
    /// The one that was of use last.
    LastGood,
}

impl HostOrder {
    pub(crate) const WORDS: &[(&'static str, Self)] = &[
        ("disable", Self::AsGiven),
        ("random", Self::Random),
        ("round-robin", Self::RoundRobin),
        ("last-good", Self::LastGood),
    ];
}

/// Each host with its port; one port, or none, holds for all hosts.
pub fn addresses(kind: Kind, hosts: &[String], ports: &[Option<u16>], sentinels: bool) -> Result<Vec<Address>, String> {
    let none = [String::new()];
    let hosts = if hosts.is_empty() { &none[..] } else { hosts };
    if ports.len() > 1 && ports.len() != hosts.len() {
        return Err(format!("{} hosts but {} ports: give one port, or one for each host", hosts.len(), ports.len()));
    }
    if hosts.len() > MAX_HOSTS {
        return Err(format!("more than {MAX_HOSTS} hosts"));
    }
    let default = kind.default_port(sentinels);
    let port = |i: usize| ports.get(if ports.len() == 1 { 0 } else { i }).copied().flatten().unwrap_or(default);
    let address = |(i, host): (usize, &String)| match host.as_str() {
        "" => Address::Tcp { host: "localhost".to_owned(), port: port(i) },
        path if path.starts_with('/') && kind != Kind::Postgres => Address::Unix(PathBuf::from(path)),
        folder if folder.starts_with('/') => Address::Unix(PathBuf::from(folder).join(format!(".s.PGSQL.{}", port(i)))),
        host => Address::Tcp { host: host.to_owned(), port: port(i) },
    };
    Ok(hosts.iter().enumerate().map(address).collect())
}

pub fn parse_port(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("the port is no number from 1 to 65535".to_owned()),
        Ok(port) => Ok(port),
    }
}
