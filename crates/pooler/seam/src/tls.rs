//! What sessions and the driver tell each other about TLS, and what configurations allow of it. Certificates and keys
//! stay with the driver.

use alloc::{boxed::Box, string::String, vec::Vec};
use core::ops::Range;

/// Which versions of TLS, which ciphers and which curves a connection may use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsLimits {
    pub tls12: bool,
    pub tls13: bool,
    /// The numbers of cipher suites at IANA; `None`: all that there are.
    pub suites: Option<Vec<u16>>,
    /// The numbers of groups for the exchange of keys at IANA; `None`: all that there are.
    pub groups: Option<Vec<u16>>,
}

impl Default for TlsLimits {
    fn default() -> Self {
        Self { tls12: true, tls13: true, suites: None, groups: None }
    }
}

/// Whether clients of a listener use TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Encryption {
    /// The listener has no TLS.
    #[default]
    Off,
    Allow,
    /// No client logs in without TLS.
    Require,
}

/// What a TLS handshake has shown that succeeded.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Secured {
    /// The channel binding `tls-server-end-point` (RFC 5929): a hash of the certificate of the side that accepted
    /// the connection. `None` where the signature algorithm of that certificate defines none.
    pub end_point: Option<Box<[u8]>>,
    /// The common name in the certificate of a client, which an authority named by the configuration has signed. `None`
    /// without a certificate, and for servers.
    pub peer_name: Option<String>,
    /// The two sides have agreed on an application protocol (ALPN).
    pub alpn_agreed: bool,
}

/// Why a TLS handshake with a server failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFailure {
    /// One side does not accept the other's certificate, so another attempt would fail, too.
    pub bad_certificate: bool,
    /// The error, for the log and for clients. It holds no secret.
    pub message: String,
}

/// How TLS begins on a connection that has no session of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Upgrade {
    /// The bytes that ask for TLS, a range of [`Outbox::inserted`](crate::Outbox); empty if the handshake begins at
    /// once.
    pub ask: Range<usize>,
    /// The one byte by which the server agrees.
    pub agreed: u8,
}
