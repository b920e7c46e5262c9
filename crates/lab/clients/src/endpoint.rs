//! Where connections to a database go: an address, the name that its certificate must have, and what makes TLS.

use std::{net::SocketAddr, sync::Arc};

use driver::{Address, TlsConnector};
use upstream::UpstreamUrl;

use super::TargetError;

pub struct Endpoint {
    pub address: Arc<Address>,
    /// The name on the certificate; empty for a Unix socket.
    pub name: String,
}

impl Endpoint {
    /// `via`: connections go to a relay instead, and the certificate is still that of the address.
    pub(crate) fn of(address: &upstream::Address, via: Option<SocketAddr>) -> Self {
        let name = match address {
            upstream::Address::Tcp { host, .. } => host.clone(),
            upstream::Address::Unix(_) => String::new(),
        };
        let relay = |via: SocketAddr| Address::Tcp { host: via.ip().to_string(), port: via.port() };
        Self { address: Arc::new(via.map_or_else(|| dial::address(address), relay)), name }
    }
}

/// What makes TLS, if the URL asks for it.
///
/// # Errors
/// What is wrong with the files that the URL names.
pub(crate) fn tls_connector(url: &UpstreamUrl) -> Result<Option<TlsConnector>, TargetError> {
    let is_used = dial::uses_tls(&dial::hosts(url), &url.tls);
    is_used.then(|| dial::connector(&url.tls).map_err(TargetError::configuration)).transpose()
}
