//! The side that clients connect to: its certificate, and whose certificates it believes. Knows no listener.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use rustls::{
    RootCertStore, ServerConfig,
    server::{NoServerSessionStorage, UnbufferedServerConnection, WebPkiClientVerifier},
};
use seam::TlsLimits;

use super::{Channel, TlsError, TlsIdentity, certificate, certificates, provider, provider_within, versions};

/// What is made of certificates that clients show.
#[derive(Clone, Debug)]
pub enum ClientCertificates {
    /// None is asked for.
    Ignored,
    /// One is asked for. If it is shown, one of these authorities (in PEM) must have signed it.
    Optional(Vec<u8>),
    /// None gets in without one that one of these authorities (in PEM) has signed.
    Required(Vec<u8>),
}

/// Accepts TLS connections. What it shows can be replaced while it is in use; connections keep what they began with.
pub struct TlsAcceptor(RwLock<Option<Arc<Current>>>);

struct Current {
    config: Arc<ServerConfig>,
    end_point: Option<Box<[u8]>>,
}

impl TlsAcceptor {
    /// An acceptor that has nothing to show yet, and accepts no connection until that is [replaced](Self::replace).
    #[must_use]
    pub fn without_certificate() -> Self {
        Self(RwLock::new(None))
    }

    /// An acceptor with this certificate. `alpn`: the application protocols that are spoken inside; a client that names
    /// none is let in, too.
    ///
    /// # Errors
    /// What is wrong with the certificates or the key, or that one does not belong to the other.
    pub fn new(identity: &TlsIdentity, clients: &ClientCertificates, alpn: &[&[u8]]) -> Result<Self, TlsError> {
        Self::within(&TlsLimits::default(), identity, clients, alpn)
    }

    /// As [`TlsAcceptor::new`], with these versions and ciphers only.
    ///
    /// # Errors
    /// As [`TlsAcceptor::new`], or no cipher is left for a version.
    pub fn within(
        limits: &TlsLimits,
        identity: &TlsIdentity,
        clients: &ClientCertificates,
        alpn: &[&[u8]],
    ) -> Result<Self, TlsError> {
        let (certificates, key) = identity.read()?;
        let end_point = certificate::end_point(&certificates[0]);
        let builder =
            ServerConfig::builder_with_provider(provider_within(limits)).with_protocol_versions(&versions(limits))?;
        let builder = match clients {
            ClientCertificates::Ignored => builder.with_no_client_auth(),
            ClientCertificates::Optional(authorities) => {
                builder.with_client_cert_verifier(client_verifier(authorities, true)?)
            }
            ClientCertificates::Required(authorities) => {
                builder.with_client_cert_verifier(client_verifier(authorities, false)?)
            }
        };
        let mut config = builder.with_single_cert(certificates, key)?;
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        // Sessions are not resumed: clients of databases do not, and tickets would cost each connection memory.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let config = Arc::new(config);
        Ok(Self(RwLock::new(Some(Arc::new(Current { config, end_point })))))
    }

    /// Shows and believes from now on what `newer` does, if that has a certificate: a client may be about to begin that
    /// was promised TLS.
    pub fn replace(&self, newer: &Self) {
        if let Some(newer) = newer.current() {
            *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(newer);
        }
    }

    /// A connection that a client is about to begin.
    pub(crate) fn accept(&self) -> Result<Channel, TlsError> {
        let current = self.current().ok_or_else(|| TlsError::new("this listener has no certificate"))?;
        let connection = UnbufferedServerConnection::new(Arc::clone(&current.config))?;
        Ok(Channel::accepting(connection, current.end_point.clone()))
    }

    fn current(&self) -> Option<Arc<Current>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for TlsAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsAcceptor").finish_non_exhaustive()
    }
}

fn client_verifier(
    authorities: &[u8],
    optional: bool,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(authorities)? {
        roots.add(authority)?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
    let builder = if optional { builder.allow_unauthenticated() } else { builder };
    builder.build().map_err(|error| TlsError::new(error.to_string()))
}
