//! An upstream as a URL describes it: where it is, which login it takes, and what to demand of its TLS. These are plain
//! values, which `dial` turns into those of the driver and the sessions. Opens no connection to an upstream; for a
//! `mongodb+srv://` name it asks name servers.
#![forbid(unsafe_code)]

mod dns;
mod hosts;
mod kind;
mod mongodb;
mod percent;
mod srv;
mod tls;
mod tls_limits;
mod url;

pub use dns::name_servers;
pub use hosts::{Address, HostOrder, MAX_HOSTS, SessionAttrs};
pub use kind::Kind;
pub use mongodb::{Ignored, MongoOptions};
pub use percent::decode as percent_decode;
pub use srv::{Seeds, SrvName};
pub use tls::{ChannelBinding, Root, SslMode, URL_TLS_KEYS, UpstreamTls, UrlTls};
pub use tls_limits::{allow_ciphers, allow_curves, allow_versions};
pub use url::{Sentinel, UpstreamUrl};
