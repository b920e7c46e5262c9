//! Where a `[[listener]]` listens, and from where clients come to it through proxies. Opens no socket.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use driver::Network;
use settings::{Problem, Section};

use super::Endpoint;

/// The addresses in `listen`: one text, or a list. `*` is all addresses, of IPv4 and of IPv6.
pub fn endpoints(section: &Section<'_>) -> Vec<Endpoint> {
    let texts = section.one_or_more("listen").unwrap_or_default();
    let mut found = Vec::new();
    for text in &texts {
        let all = text.strip_prefix("*:").and_then(|port| port.parse().ok());
        match Endpoint::parse(text) {
            Ok(_) if all.is_some() => {
                let port: u16 = all.unwrap_or_default();
                let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
                found.extend(any.map(|address| Endpoint::Tcp((address, port).into())));
            }
            Ok(endpoint) => found.push(endpoint),
            Err(message) => section.error("listen", message),
        }
    }
    let is_tcp = |endpoint: &Endpoint| matches!(endpoint, Endpoint::Tcp(_));
    if found.iter().any(|endpoint| is_tcp(endpoint) != is_tcp(&found[0])) {
        let problem = Problem::error("`listen`: a list has addresses, or paths of Unix sockets, and not both");
        section.report("listen", problem.hint("write a second [[listener]]; [limits] max_clients holds for both"));
    }
    found
}

/// The networks of proxies that name their clients.
pub fn proxies(section: &Section<'_>, is_tcp: bool) -> Vec<Network> {
    let key = "proxy_protocol_from";
    let networks = section.texts(key).unwrap_or_default();
    if section.has(key) && !is_tcp {
        section.error(key, "`proxy_protocol_from` lists addresses, and a Unix socket has none");
    }
    let parse = |text: String| Network::parse(&text).map_err(|why| section.error(key, format!("`{key}`: {why}"))).ok();
    networks.into_iter().filter_map(parse).collect()
}

pub fn parse_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text.trim_start_matches("0o"), 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "file permissions are three octal digits, such as \"0770\"".to_owned())
}
