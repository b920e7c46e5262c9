//! From the TLS parameters of a URL to what the driver connects with: reads the files that they name.

use std::{io::Read, path::Path};

use driver::{Address, Hosts, TlsConnector, TlsError, TlsIdentity, Trust};
use postgres_session::ServerEncryption;

use crate::tls::{Root, SslMode, UpstreamTls};

/// Bytes that a file of certificates or a key may have.
const MAX_FILE: u64 = 4 * 1024 * 1024;

/// The application protocol inside (ALPN).
pub const ALPN: &[&[u8]] = &[b"postgresql"];

/// Whether connections to these hosts may be in TLS: as in libpq, never on a Unix socket.
pub fn uses_tls(hosts: &Hosts, tls: &UpstreamTls) -> bool {
    let is_socket = |address: &Address| matches!(address, Address::Unix(_));
    tls.mode != SslMode::Disable && !hosts.addresses.iter().all(is_socket)
}

/// How sessions are to encrypt connections to these hosts.
pub fn encryption(hosts: &Hosts, tls: &UpstreamTls) -> ServerEncryption {
    match uses_tls(hosts, tls) {
        true => ServerEncryption { tls: tls.mode.tls(), direct: tls.direct, binding: tls.binding },
        // Without TLS there is nothing to bind to, and a Unix socket has no one in the middle.
        false => ServerEncryption::default(),
    }
}
/// What makes TLS connections of this kind.
///
/// # Errors
/// Which file cannot be read or holds the wrong thing.
pub fn connector(tls: &UpstreamTls) -> Result<TlsConnector, String> {
    let trust = match (&tls.root, tls.mode) {
        (Some(Root::System), _) => Trust::System,
        (Some(Root::File(path)), SslMode::VerifyFull) => Trust::Host(read_pem(path)?),
        // As in libpq, an authority that is named is checked.
        (Some(Root::File(path)), _) => Trust::Authority(read_pem(path)?),
        (None, _) => Trust::Anybody,
    };
    let identity = match &tls.identity {
        Some((cert, key)) => Some(TlsIdentity { certificates: read_pem(cert)?, key: read_pem(key)? }),
        None => None,
    };
    let file = match (&tls.root, &tls.identity) {
        (_, Some((cert, _))) => cert,
        (Some(Root::File(path)), None) => path,
        _ => Path::new("TLS"),
    };
    TlsConnector::new(&trust, identity.as_ref(), ALPN).map_err(|error| about_file(file, &error))
}

/// An error of what a file holds, with the file's name.
pub fn about_file(path: &Path, error: &TlsError) -> String {
    format!("{}: {error}", path.display())
}

/// A file of certificates or a key.
///
/// # Errors
/// It cannot be read, or is far too large.
pub fn read_pem(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes));
    match read {
        Err(error) => Err(format!("cannot read {}: {error}", path.display())),
        Ok(length) if length as u64 > MAX_FILE => Err(format!("{} has more than {MAX_FILE} bytes", path.display())),
        Ok(_) => Ok(bytes),
    }
}
