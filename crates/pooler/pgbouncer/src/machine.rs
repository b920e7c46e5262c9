//! What a translation asks of the machine: files, the current folder, and addresses. Tests have a machine of their own.

use std::{
    io,
    net::{IpAddr, ToSocketAddrs},
    path::{Path, PathBuf},
};

/// Bytes that a file of settings may have.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

pub struct Machine<'m> {
    pub read_file: &'m dyn Fn(&Path) -> io::Result<String>,
    /// The addresses of a host name.
    pub addresses: &'m dyn Fn(&str) -> io::Result<Vec<IpAddr>>,
    /// The folder that relative paths start at.
    pub folder: PathBuf,
    pub has_ipv6: bool,
}

impl Machine<'static> {
    /// This machine.
    pub fn here() -> Self {
        let interfaces = std::fs::read_to_string("/proc/net/if_inet6");
        Self {
            read_file: &read_file,
            addresses: &addresses,
            folder: std::env::current_dir().unwrap_or_default(),
            has_ipv6: interfaces.is_ok_and(|lines| !lines.trim().is_empty()),
        }
    }
}

fn read_file(path: &Path) -> io::Result<String> {
    match std::fs::metadata(path)?.len() > MAX_FILE_BYTES {
        true => Err(io::Error::other(format!("it has more than {MAX_FILE_BYTES} bytes"))),
        false => std::fs::read_to_string(path),
    }
}

fn addresses(host: &str) -> io::Result<Vec<IpAddr>> {
    Ok((host, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
}
