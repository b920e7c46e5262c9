//! What the driver and the sessions take of a URL: `upstream` has plain values, and this crate makes theirs of them. It
//! reads the files that the TLS parameters name, and connects to nothing.
#![forbid(unsafe_code)]

mod connector;

use driver::{Address, BeginWith, Hosts};
use postgres_session::{Binding, ServerEncryption, Target, Tls};
use upstream::{ChannelBinding, HostOrder, SessionAttrs, SslMode, UpstreamTls, UpstreamUrl};

pub use connector::{ALPN, about_file, connector, read_pem};

pub fn address(address: &upstream::Address) -> Address {
    match address {
        upstream::Address::Tcp { host, port } => Address::Tcp { host: host.clone(), port: *port },
        upstream::Address::Unix(path) => Address::Unix(path.clone()),
    }
}

/// The hosts of a URL, and the order in which connections try them.
pub fn hosts(url: &UpstreamUrl) -> Hosts {
    Hosts {
        addresses: url.hosts.iter().map(address).collect(),
        then_any: url.session_attrs == SessionAttrs::PreferStandby,
        begin: match (&url.sentinel, url.host_order) {
            (Some(_), _) | (None, HostOrder::LastGood) => BeginWith::LastGood,
            (None, HostOrder::Random) => BeginWith::Any,
            (None, HostOrder::RoundRobin) => BeginWith::Next,
            (None, HostOrder::AsGiven) => BeginWith::First,
        },
    }
}

/// What a session demands of a host of PostgreSQL.
pub fn target(attrs: SessionAttrs) -> Target {
    match attrs {
        SessionAttrs::Any => Target::Any,
        SessionAttrs::ReadWrite => Target::ReadWrite,
        SessionAttrs::ReadOnly => Target::ReadOnly,
        SessionAttrs::Primary => Target::Primary,
        SessionAttrs::Standby => Target::Standby,
        SessionAttrs::PreferStandby => Target::PreferStandby,
    }
}

/// Whether connections to these hosts may use TLS: as in libpq, never on a Unix socket.
pub fn uses_tls(hosts: &Hosts, tls: &UpstreamTls) -> bool {
    let is_socket = |address: &Address| matches!(address, Address::Unix(_));
    tls.mode != SslMode::Disable && !hosts.addresses.iter().all(is_socket)
}

/// How sessions encrypt connections to these hosts.
pub fn encryption(hosts: &Hosts, tls: &UpstreamTls) -> ServerEncryption {
    if !uses_tls(hosts, tls) {
        // Without TLS a login has nothing that it could be bound to, and a Unix socket has no one in the middle.
        return ServerEncryption::default();
    }
    ServerEncryption {
        tls: match tls.mode {
            SslMode::Disable => Tls::Never,
            SslMode::Allow => Tls::Allow,
            SslMode::Prefer => Tls::Prefer,
            SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => Tls::Require,
        },
        direct: tls.direct,
        binding: match tls.binding {
            ChannelBinding::Never => Binding::Never,
            ChannelBinding::Prefer => Binding::Prefer,
            ChannelBinding::Require => Binding::Require,
        },
    }
}
