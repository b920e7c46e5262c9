//! Who may change something over the admin address. With a token: who shows it. Without: who asks from this machine and
//! is no web page. Knows no order.
//!
//! A page of any site can make its visitor's browser send forms to 127.0.0.1, so being on this machine is not enough: the
//! request must carry a header that a form cannot send, it must not come from a page at all (browsers then name the
//! page's origin), and it must be addressed to this machine by address and not by a name that the page's owner could
//! point here.

use std::net::{IpAddr, SocketAddr};

use axum::http::{
    HeaderMap,
    header::{AUTHORIZATION, HOST, ORIGIN},
};
use settings::Secret;

/// The header that must be there when there is no token; its value does not matter.
pub const HEADER: &str = "x-poolhouse";

/// Why somebody may change nothing: with the HTTP status 401 or 403.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denied {
    /// No token, or a wrong one.
    Token,
    /// There is no token to show, and the request does not come from this machine, or comes from a web page.
    NotLocal(&'static str),
}

/// Whether a request may change something.
pub fn authorize(headers: &HeaderMap, peer: SocketAddr, token: Option<&Secret>) -> Result<(), Denied> {
    if let Some(token) = token {
        let shown = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        let right = shown.is_some_and(|shown| scram::equal(shown.trim_ascii(), token.reveal().as_bytes()));
        return if right { Ok(()) } else { Err(Denied::Token) };
    }
    if !peer.ip().to_canonical().is_loopback() {
        return Err(Denied::NotLocal("without a `token` in [admin], changes are taken from this machine only"));
    }
    if headers.contains_key(ORIGIN) || headers.contains_key("sec-fetch-site") {
        return Err(Denied::NotLocal("changes are not taken from web pages"));
    }
    if !headers.get(HOST).is_some_and(|host| is_address(host.as_bytes())) {
        return Err(Denied::NotLocal("the Host header must be an address or localhost"));
    }
    match headers.contains_key(HEADER) {
        true => Ok(()),
        false => Err(Denied::NotLocal("without a `token` in [admin], the header `X-Poolhouse: ctl` is needed")),
    }
}

/// An IP address or `localhost`, with or without a port.
fn is_address(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    bare == "localhost" || bare.parse::<IpAddr>().is_ok() || host.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn with_a_token_only_the_token_counts() {
        let token = Secret::new("0123456789abcdef");
        let ask = |value| authorize(&headers(&[("authorization", value)]), "10.0.0.5:1".parse().unwrap(), Some(&token));
        assert_eq!(ask("Bearer 0123456789abcdef"), Ok(()));
        for wrong in ["Bearer 0123456789abcdeF", "Bearer ", "Basic 0123456789abcdef", "0123456789abcdef"] {
            assert_eq!(ask(wrong), Err(Denied::Token));
        }
        assert_eq!(
            authorize(&headers(&[(HEADER, "ctl"), ("host", "localhost")]), HERE, Some(&token)),
            Err(Denied::Token)
        );
    }

    #[test]
    fn without_a_token_this_machine_may_but_not_its_web_pages() {
        let own = [("host", "127.0.0.1:9930"), (HEADER, "ctl")];
        assert_eq!(authorize(&headers(&own), HERE, None), Ok(()));
        assert!(authorize(&headers(&own), "10.0.0.5:1".parse().unwrap(), None).is_err());
        assert!(authorize(&headers(&own[..1]), HERE, None).is_err(), "a form can send this");
        for page in [("origin", "http://evil.example"), ("origin", "null"), ("sec-fetch-site", "cross-site")] {
            assert!(authorize(&headers(&[own[0], own[1], page]), HERE, None).is_err());
        }
        let rebound = [("host", "evil.example:9930"), (HEADER, "ctl")];
        assert!(authorize(&headers(&rebound), HERE, None).is_err(), "a name that was pointed here");
    }

    #[test]
    fn hosts_are_addresses_or_localhost() {
        for host in ["127.0.0.1", "127.0.0.1:9930", "[::1]:9930", "[::1]", "localhost:1", "localhost"] {
            assert!(is_address(host.as_bytes()), "{host}");
        }
        for host in ["", "evil.example", "127.0.0.1.evil.example:80", "localhost.evil.example"] {
            assert!(!is_address(host.as_bytes()), "{host}");
        }
    }
}
