//! What session and driver tell each other about TLS. Certificates, keys and ciphers stay with the driver.

use alloc::{boxed::Box, string::String};
use core::ops::Range;

/// Whether clients of a listener use TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Encryption {
    /// It has none.
    #[default]
    Off,
    Allow,
    /// Nobody logs in without it.
    Require,
}

/// What a TLS handshake that succeeded has shown.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Secured {
    /// The channel binding `tls-server-end-point` (RFC 5929): a hash of the certificate of whoever accepted the
    /// connection. `None` where the signature algorithm of that certificate defines none.
    pub end_point: Option<Box<[u8]>>,
    /// The common name in the certificate of a client, which an authority named by the configuration has signed. `None`
    /// without a certificate, and for servers.
    pub peer_name: Option<String>,
    /// An application protocol was agreed upon (ALPN).
    pub alpn: bool,
}

/// Why a TLS handshake with a server failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFailure {
    /// One side does not accept the other's certificate: asking again cannot help.
    pub certificate: bool,
    /// For log and clients; holds no secret.
    pub message: String,
}

/// How TLS begins on a connection that has no session of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Upgrade {
    /// What asks for it, a range of [`Outbox::inserted`](crate::Outbox); empty if the handshake begins at once.
    pub ask: Range<usize>,
    /// The one byte that agrees.
    pub agreed: u8,
}
