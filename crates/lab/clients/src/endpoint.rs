//! Where connections to a database go: an address, the name that its certificate must have, and what makes TLS.

use std::{net::SocketAddr, sync::Arc};

use driver::{Address, TlsConnector};
use upstream::{UpstreamUrl, connector, uses_tls};

use super::TargetError;

pub struct Endpoint {
    pub address: Arc<Address>,
    /// The name on the certificate; empty for a Unix socket.
    pub name: String,
}

impl Endpoint {
    /// `via`: connections go to a relay instead, and the certificate is still that of the address.
    pub(crate) fn of(address: &Address, via: Option<SocketAddr>) -> Self {
        let name = match address {
            Address::Tcp { host, .. } => host.clone(),
            Address::Unix(_) => String::new(),
        };
        let relay = |via: SocketAddr| Address::Tcp { host: via.ip().to_string(), port: via.port() };
        Self { address: Arc::new(via.map_or_else(|| address.clone(), relay)), name }
    }
}

/// What makes TLS, if the URL asks for it.
///
/// # Errors
/// What is wrong with the files that the URL names.
pub(crate) fn tls_connector(url: &UpstreamUrl) -> Result<Option<TlsConnector>, TargetError> {
    let is_used = uses_tls(&url.hosts, &url.tls);
    is_used.then(|| connector(&url.tls).map_err(TargetError::configuration)).transpose()
}
