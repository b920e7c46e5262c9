//! TLS of the connections that this crate serves: who may be believed, and the state of one connection. Certificates
//! and keys come as PEM texts; which file they are in, and which protocol runs inside, is known by others.
//!
//! - [`acceptor`]: the side that clients connect to;
//! - [`connector`]: the side that connects to upstreams;
//! - [`trust`]: when the certificate of an upstream is believed;
//! - [`certificate`]: what must be read out of a certificate;
//! - [`channel`]: one connection, ciphertext in and plaintext out.

mod acceptor;
mod certificate;
mod channel;
mod connector;
#[cfg(test)]
mod tests;
mod trust;

use std::{fmt, io, sync::Arc};

use rustls::{
    SupportedProtocolVersion,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    version::{TLS12, TLS13},
};
use seam::{TlsFailure, TlsLimits};

pub use acceptor::{ClientCertificates, TlsAcceptor};
pub use certificate::CertificateFacts;
pub use channel::Channel;
pub(crate) use channel::{Decrypted, MAX_RECORD};
pub use connector::TlsConnector;
pub use trust::Trust;

fn versions(limits: &TlsLimits) -> Vec<&'static SupportedProtocolVersion> {
    let versions = [(limits.tls12, &TLS12), (limits.tls13, &TLS13)];
    versions.into_iter().filter(|(is_allowed, _)| *is_allowed).map(|(_, version)| version).collect()
}

fn provider_within(limits: &TlsLimits) -> Arc<CryptoProvider> {
    let mut provider = rustls::crypto::ring::default_provider();
    if let Some(suites) = &limits.suites {
        provider.cipher_suites.retain(|suite| suites.contains(&u16::from(suite.suite())));
    }
    if let Some(groups) = &limits.groups {
        provider.kx_groups.retain(|group| groups.contains(&u16::from(group.name())));
    }
    Arc::new(provider)
}

/// Certificates that one file may hold.
const MAX_CERTIFICATES: usize = 1000;

/// An identity: a certificate, the certificates that link it to an authority, and the key.
#[derive(Clone)]
pub struct TlsIdentity {
    /// In PEM, one's own first.
    pub certificates: Vec<u8>,
    pub key: Vec<u8>,
}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsIdentity").finish_non_exhaustive()
    }
}

impl TlsIdentity {
    fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        let certificates = certificates(&self.certificates)?;
        refuse_version_1(&certificates)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|_| TlsError::new("the key file holds no private key in PEM that is not encrypted"))?;
        Ok((certificates, key))
    }
}

/// Why certificates, keys and settings make no TLS. Holds no secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsError(String);

impl TlsError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> Self {
        Self(explain(&error))
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TlsError {}

/// A connection that TLS could not carry on, as the reactor tells it in an [`io::Error`].
#[derive(Debug)]
pub(crate) struct Failed(TlsFailure);

impl Failed {
    pub(crate) fn error(error: &rustls::Error) -> io::Error {
        let bad_certificate =
            matches!(error, rustls::Error::InvalidCertificate(_)) || is_alert_about_certificate(error);
        io::Error::other(Self(TlsFailure { bad_certificate, message: explain(error) }))
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Failed {}

/// The failure of TLS by which a connection broke; `None` if something else broke it.
pub fn tls_failure_of(error: &io::Error) -> Option<&TlsFailure> {
    error.get_ref()?.downcast_ref::<Failed>().map(|failed| &failed.0)
}

/// The ciphers, in one place.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// What is to be known of the certificates in a PEM text.
///
/// # Errors
/// There is none.
pub fn certificate_facts(pem: &[u8]) -> Result<Vec<CertificateFacts>, TlsError> {
    Ok(certificates(pem)?.iter().filter_map(|der| CertificateFacts::of(der)).collect())
}

/// The certificates of a PEM text; at least one.
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).take(MAX_CERTIFICATES).collect();
    match read {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(TlsError::new("the file holds no certificate in PEM")),
    }
}

/// A certificate of the first version says nothing of what it may be used for, and is accepted as that of an authority
/// only.
fn refuse_version_1(certificates: &[CertificateDer<'_>]) -> Result<(), TlsError> {
    let facts = certificates.iter().filter_map(|der| CertificateFacts::of(der));
    match facts.into_iter().find(|facts| facts.version == 1) {
        Some(facts) => Err(TlsError::new(format!("{VERSION_1} (subject {})", facts.subject))),
        None => Ok(()),
    }
}

const VERSION_1: &str = "the certificate is of X.509 version 1, which has no extensions and is not accepted: sign it \
     again with some, for one `openssl x509 -req -copy_extensions copyall`";

fn is_alert_about_certificate(error: &rustls::Error) -> bool {
    use rustls::AlertDescription as Alert;
    matches!(
        error,
        rustls::Error::AlertReceived(
            Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::CertificateRequired
                | Alert::UnknownCA
        )
    )
}

/// The error in words that say what to do about it.
fn explain(error: &rustls::Error) -> String {
    use rustls::{CertificateError as Certificate, Error};
    match error {
        Error::InvalidCertificate(why) => match why {
            Certificate::UnknownIssuer | Certificate::BadSignature => {
                "the certificate was signed by nobody who is trusted here".to_owned()
            }
            Certificate::Other(why) if why.to_string().contains("UnsupportedCertVersion") => VERSION_1.to_owned(),
            Certificate::Expired | Certificate::ExpiredContext { .. } => "the certificate has expired".to_owned(),
            Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => {
                "the certificate is not valid yet".to_owned()
            }
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => {
                "the certificate is not for this host name".to_owned()
            }
            why => format!("the certificate is not accepted: {why}"),
        },
        Error::AlertReceived(alert) => format!("the other side refused: {alert:?}"),
        Error::InvalidMessage(_) => "the other side does not speak TLS".to_owned(),
        Error::NoCertificatesPresented => "the other side has shown no certificate".to_owned(),
        Error::InconsistentKeys(_) => "the key does not belong to the certificate".to_owned(),
        error => error.to_string(),
    }
}
