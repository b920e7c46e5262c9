//! TLS connectors of upstreams, made from the files that a URL's TLS parameters name.

use std::{fs::File, io::Read, path::Path};

use driver::{TlsConnector, TlsError, TlsIdentity, Trust};
use upstream::{Root, SslMode, UpstreamTls};

/// Bytes of a file of certificates, or of a key.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// The application protocol of PostgreSQL (ALPN).
pub const ALPN: &[&[u8]] = &[b"postgresql"];

/// Makes the connector of an upstream, from the files that its TLS parameters name.
///
/// # Errors
/// The file that cannot be read, or has the wrong contents.
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
    TlsConnector::within(&tls.limits, &trust, identity.as_ref(), ALPN).map_err(|error| about_file(file, &error))
}

/// Describes an error in the contents of a file, with its name.
pub fn about_file(path: &Path, error: &TlsError) -> String {
    format!("{}: {error}", path.display())
}

/// Reads a file of certificates or a key.
///
/// # Errors
/// The file cannot be read, or has more than [`MAX_FILE_BYTES`].
pub fn read_pem(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes));
    let name = path.display();
    match read {
        Err(error) => Err(format!("cannot read {name}: {error}")),
        Ok(length) if length as u64 > MAX_FILE_BYTES => Err(format!("{name} has more than {MAX_FILE_BYTES} bytes")),
        Ok(_) => Ok(bytes),
    }
}
