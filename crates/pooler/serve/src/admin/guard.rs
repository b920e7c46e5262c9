//! Which requests may look, and which may change something over the admin address. With the token a request may do
//! both. Without it, changes are for requests from this machine that come from no web page, and looking is for requests
//! from no web page. Knows no order.
//!
//! A page of any site can make its visitor's browser send forms to 127.0.0.1, so being on this machine is not enough:
//! the request must carry a header that a form cannot send, it must not come from a page at all (browsers then name the
//! page's origin), and it must be addressed to this machine by address and not by a name that the page's owner could
//! point here. The last holds for looking, too: otherwise such a page could read all that is here ("DNS rebinding").

use std::net::{IpAddr, SocketAddr};

use axum::http::{
    HeaderMap,
    header::{AUTHORIZATION, HOST, ORIGIN},
};
use settings::Secret;

use crate::config::{Admin, AdminToken, Role};

/// The header that must be there when there is no token; its value does not matter.
pub const HEADER: &str = "x-poolhouse";

/// What browsers say of where a request comes from, and what for.
const SITE: &str = "sec-fetch-site";
const MODE: &str = "sec-fetch-mode";

/// Why a request may change nothing, or see nothing: with the HTTP status 401 or 403.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Denied {
    /// No token, or a wrong one.
    Token,
    /// The token of this name only permits to look.
    Role(String),
    /// There is no token to show, and the request does not come from this machine, or comes from a web page.
    NotLocal(&'static str),
}

/// Pages that probes look at, which have no token.
const OPEN_PAGES: &[&str] = &["/health", "/ready"];

/// Whether a request may see the page at `path`.
pub fn may_look(headers: &HeaderMap, path: &str, admin: &Admin) -> Result<(), Denied> {
    if shown(headers, admin).is_some() {
        return Ok(());
    }
    may_look_without_token(headers, &admin.names).map_err(Denied::NotLocal)?;
    if admin.view_needs_token && !OPEN_PAGES.contains(&path) { Err(Denied::Token) } else { Ok(()) }
}

/// Whether a request may see what needs no token. `names` are those by which this address may be asked.
fn may_look_without_token(headers: &HeaderMap, names: &[String]) -> Result<(), &'static str> {
    // The dashboard sends no Origin. A link on another site navigates here, and that site cannot read the answer.
    let foreign = |site: &[u8]| matches!(site, b"cross-site" | b"same-site");
    let navigates = headers.get(MODE).is_some_and(|mode| mode == "navigate");
    if headers.contains_key(ORIGIN) || headers.get(SITE).is_some_and(|site| foreign(site.as_bytes()) && !navigates) {
        return Err("web pages of other sites may not look");
    }
    let may = |host: &[u8]| is_address(host) || is_named(host, names);
    match headers.get(HOST).is_some_and(|host| may(host.as_bytes())) {
        true => Ok(()),
        false => Err("the Host header must be an address, localhost or one of the `names` in [admin]"),
    }
}

/// Whether a request may change something. Returns the name of the token that it shows, if one is needed.
pub fn authorize(headers: &HeaderMap, peer: SocketAddr, admin: &Admin) -> Result<Option<String>, Denied> {
    if admin.orders_need_token() {
        return match shown(headers, admin) {
            Some(AdminToken { name, role: Role::Operate, .. }) => Ok(Some(name)),
            Some(AdminToken { name, role: Role::View, .. }) => Err(Denied::Role(name)),
            None => Err(Denied::Token),
        };
    }
    if !peer.ip().to_canonical().is_loopback() {
        return Err(Denied::NotLocal("without a `token` in [admin], changes are taken from this machine only"));
    }
    if headers.contains_key(ORIGIN) || headers.contains_key(SITE) {
        return Err(Denied::NotLocal("changes are not taken from web pages"));
    }
    if !headers.get(HOST).is_some_and(|host| is_address(host.as_bytes())) {
        return Err(Denied::NotLocal("the Host header must be an address or localhost"));
    }
    match headers.contains_key(HEADER) {
        true => Ok(None),
        false => Err(Denied::NotLocal("without a `token` in [admin], the header `X-Poolhouse: ctl` is needed")),
    }
}

/// The token that a request shows.
fn shown(headers: &HeaderMap, admin: &Admin) -> Option<AdminToken> {
    admin.all_tokens().find(|known| shows(headers, &known.token))
}

fn shows(headers: &HeaderMap, token: &Secret) -> bool {
    let shown = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    shown.is_some_and(|shown| scram::equal(shown.trim_ascii(), token.reveal().as_bytes()))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

/// One of these names, with or without a port.
fn is_named(host: &[u8], names: &[String]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    names.iter().any(|name| name.eq_ignore_ascii_case(without_port(host)))
}

/// An IP address or `localhost`, with or without a port.
fn is_address(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let name = without_port(host);
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    bare == "localhost" || bare.parse::<IpAddr>().is_ok() || host.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admin(token: Option<&Secret>, names: &[&str]) -> Admin {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Admin { token: token.cloned(), names, ..Admin::default() }
    }

    const HERE: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn with_a_token_only_the_token_counts() {
        let token = Secret::new("0123456789abcdef");
        let ask = |value| {
            authorize(&headers(&[("authorization", value)]), "10.0.0.5:1".parse().unwrap(), &admin(Some(&token), &[]))
        };
        assert_eq!(ask("Bearer 0123456789abcdef"), Ok(Some("admin".to_owned())));
        for wrong in ["Bearer 0123456789abcdeF", "Bearer ", "Basic 0123456789abcdef", "0123456789abcdef"] {
            assert_eq!(ask(wrong), Err(Denied::Token));
        }
        assert_eq!(
            authorize(&headers(&[(HEADER, "ctl"), ("host", "localhost")]), HERE, &admin(Some(&token), &[])),
            Err(Denied::Token)
        );
    }

    #[test]
    fn without_a_token_this_machine_may_but_not_its_web_pages() {
        let own = [("host", "127.0.0.1:9930"), (HEADER, "ctl")];
        assert_eq!(authorize(&headers(&own), HERE, &Admin::default()), Ok(None));
        assert!(authorize(&headers(&own), "10.0.0.5:1".parse().unwrap(), &Admin::default()).is_err());
        assert!(authorize(&headers(&own[..1]), HERE, &Admin::default()).is_err(), "a form can send this");
        for page in [("origin", "http://evil.example"), ("origin", "null"), ("sec-fetch-site", "cross-site")] {
            assert!(authorize(&headers(&[own[0], own[1], page]), HERE, &Admin::default()).is_err());
        }
        let rebound = [("host", "evil.example:9930"), (HEADER, "ctl")];
        assert!(authorize(&headers(&rebound), HERE, &Admin::default()).is_err(), "a name that was pointed here");
    }

    #[test]
    fn a_request_that_looks_names_an_address_or_a_configured_name_and_comes_from_no_foreign_page() {
        let admin = admin(None, &["poolhouse.internal"]);
        let looks = |pairs: &[(&'static str, &'static str)]| may_look(&headers(pairs), "/metrics", &admin).is_ok();
        for host in ["127.0.0.1:9930", "localhost:9930", "[::1]:9930", "10.0.0.5", "Poolhouse.Internal:9930"] {
            assert!(looks(&[("host", host)]), "{host}");
        }
        for host in ["evil.example:9930", "", "x.poolhouse.internal", "poolhouse.internal.evil.example"] {
            assert!(!looks(&[("host", host)]), "{host}");
        }
        assert!(!looks(&[]), "every browser names a host, and so does every other client of HTTP/1.1");
        let here = ("host", "localhost:9930");
        assert!(looks(&[here, (SITE, "same-origin")]), "our own page");
        assert!(looks(&[here, (SITE, "cross-site"), (MODE, "navigate")]), "a link that was followed");
        for page in [("origin", "http://evil.example"), ("origin", "null"), (SITE, "cross-site"), (SITE, "same-site")] {
            assert!(!looks(&[here, page]), "{page:?}");
        }
    }

    #[test]
    fn with_the_token_any_host_name_may_be_used() {
        let token = Secret::new("0123456789abcdef");
        let admin = admin(Some(&token), &[]);
        let looks = |shown| may_look(&headers(&[("host", "a.name"), ("authorization", shown)]), "/", &admin);
        assert!(looks("Bearer 0123456789abcdef").is_ok());
        assert!(looks("Bearer 0123456789abcdeF").is_err());
        assert!(may_look(&headers(&[("host", "127.0.0.1")]), "/", &admin).is_ok(), "looking needs no token");
    }

    #[test]
    fn roles_say_what_a_token_is_for() {
        let token = |name: &str, role| AdminToken { name: name.to_owned(), token: Secret::new(name), role };
        let tokens = vec![token("grafana", Role::View), token("anna", Role::Operate)];
        let admin = Admin { tokens, view_needs_token: true, ..Admin::default() };
        let shows = |token: &'static str| headers(&[("host", "127.0.0.1"), ("authorization", token)]);
        assert_eq!(authorize(&shows("Bearer anna"), HERE, &admin), Ok(Some("anna".to_owned())));
        assert_eq!(authorize(&shows("Bearer grafana"), HERE, &admin), Err(Denied::Role("grafana".to_owned())));
        assert_eq!(authorize(&shows("Bearer x"), HERE, &admin), Err(Denied::Token));
        for (path, token, expected) in [
            ("/metrics", "Bearer grafana", Ok(())),
            ("/metrics", "Bearer anna", Ok(())),
            ("/metrics", "Bearer x", Err(Denied::Token)),
            ("/ready", "Bearer x", Ok(())),
            ("/health", "", Ok(())),
        ] {
            assert_eq!(may_look(&shows(token), path, &admin), expected, "{path} {token}");
        }
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
