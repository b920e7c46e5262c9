//! An upstream as a URL describes it: where it is, whom to log in as, and what to demand of its TLS. What the proxy and
//! the load generator both need before they connect. Opens no connection to an upstream; of a `mongodb+srv://` name it
//! asks name servers.
#![forbid(unsafe_code)]

mod connector;
mod dns;
mod mongodb;
mod srv;
mod tls;
mod url;

pub use connector::{ALPN, about_file, connector, encryption, read_pem, uses_tls};
pub use dns::name_servers;
pub use mongodb::{Ignored, MongoOptions};
pub use srv::{Seeds, SrvName};
pub use tls::{Root, SslMode, URL_TLS_KEYS, UpstreamTls, UrlTls};
pub use url::{Kind, Sentinel, UpstreamUrl, decode as percent_decode};
