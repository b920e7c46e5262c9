//! The side that connects to upstreams: whom it trusts, and what it shows. Knows no pool.

use std::{fmt, sync::Arc};

use rustls::{
    ClientConfig,
    client::{Resumption, UnbufferedClientConnection},
    pki_types::ServerName,
};
use seam::TlsLimits;

use super::{
    Channel, TlsError, TlsIdentity, provider_within,
    trust::{Rule, Trust},
    versions,
};

/// Makes TLS connections to upstreams.
pub struct TlsConnector(Arc<ClientConfig>);

impl TlsConnector {
    /// A connector that believes according to `trust`, shows `identity` where an upstream asks for one, and names the
    /// application protocols in `alpn`.
    ///
    /// # Errors
    /// What is wrong with the certificates or the key.
    pub fn new(trust: &Trust, identity: Option<&TlsIdentity>, alpn: &[&[u8]]) -> Result<Self, TlsError> {
        Self::within(&TlsLimits::default(), trust, identity, alpn)
    }

    /// As [`TlsConnector::new`], with these versions and ciphers only.
    ///
    /// # Errors
    /// As [`TlsConnector::new`], or no cipher is left for a version.
    pub fn within(
        limits: &TlsLimits,
        trust: &Trust,
        identity: Option<&TlsIdentity>,
        alpn: &[&[u8]],
    ) -> Result<Self, TlsError> {
        let provider = provider_within(limits);
        let rule = Rule::new(trust, &provider)?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions(limits))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(rule));
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let (certificates, key) = identity.read()?;
                builder.with_client_auth_cert(certificates, key)?
            }
        };
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        // PostgreSQL gives out no tickets, so that keeping room for them would be a waste.
        config.resumption = Resumption::disabled();
        Ok(Self(Arc::new(config)))
    }

    /// The channel of a TLS connection to `host`, a name or an address. Sends nothing.
    pub fn client_channel(&self, host: &str) -> Result<Channel, TlsError> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| TlsError::new(format!("\"{host}\" is no host name that a certificate could be for")))?;
        Ok(Channel::connecting(UnbufferedClientConnection::new(Arc::clone(&self.0), name)?))
    }
}

impl fmt::Debug for TlsConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConnector").finish_non_exhaustive()
    }
}
