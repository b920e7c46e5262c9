//! The hosts of a MongoDB behind one name, `mongodb+srv://`: what SRV and TXT records say of it, as the drivers'
//! specification "Initial DNS Seedlist Discovery" has it. Asks name servers; connects to no database.

use std::{net::SocketAddr, time::Duration};

use crate::{
    dns::{Answer, Question, query_servers},
    hosts::{Address, MAX_HOSTS},
};

/// Parts of a name whose servers may be looked up, at least: the servers of a shorter name could belong to anyone.
const MIN_NAME_PARTS: usize = 3;

/// A name whose records list the hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SrvName {
    pub host: String,
    /// `srvServiceName`.
    pub service: String,
    /// `srvMaxHosts`; `None` is all of them.
    pub max_hosts: Option<usize>,
}

/// The hosts and options in the records of a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seeds {
    /// The hosts, in the order of their names.
    pub addresses: Vec<Address>,
    /// `authSource`.
    pub auth_source: Option<String>,
    /// `replicaSet`.
    pub replica_set: Option<String>,
    /// The shortest time to live of the records.
    pub ttl: Duration,
}

impl SrvName {
    /// Checks that the name may be looked up.
    ///
    /// # Errors
    /// The name is too short, or an address.
    pub fn check(&self) -> Result<(), String> {
        let parts = self.host.split('.').filter(|part| !part.is_empty()).count();
        if parts < MIN_NAME_PARTS || self.host.parse::<std::net::IpAddr>().is_ok() {
            return Err(format!(
                "the name in a mongodb+srv:// URL has {MIN_NAME_PARTS} parts or more, such as cluster.example.net"
            ));
        }
        Ok(())
    }

    /// Looks up the records of the name. May block for some seconds.
    ///
    /// # Errors
    /// Name servers do not answer, or a record must not be trusted.
    pub fn look_up(&self, servers: &[SocketAddr]) -> Result<Seeds, String> {
        let service = format!("_{}._tcp.{}", self.service, self.host);
        let hosts = query_servers(servers, &service, Question::Srv)?;
        let texts = query_servers(servers, &self.host, Question::Txt)?;
        self.seeds(&service, hosts, texts)
    }

    fn seeds(&self, service: &str, hosts: Answer, texts: Answer) -> Result<Seeds, String> {
        // Records that lead to another domain must not choose whom a password is shown.
        let domain = self.host.split_once('.').map_or("", |(_, domain)| domain).to_ascii_lowercase();
        let mut addresses = Vec::new();
        for target in hosts.targets {
            let host = target.host.to_ascii_lowercase();
            if !host.ends_with(&format!(".{domain}")) {
                return Err(format!("`{service}` names the server `{host}`, which is not in the domain {domain}"));
            }
            addresses.push(Address::Tcp { host, port: target.port });
        }
        addresses.sort_by_key(ToString::to_string);
        addresses.dedup();
        addresses.truncate(self.max_hosts.unwrap_or(usize::MAX));
        match addresses.len() {
            0 => return Err(format!("there is no record `{service}`: no server is known by this name")),
            many if many > MAX_HOSTS => {
                return Err(format!("`{service}` names {many} servers, more than {MAX_HOSTS}: write srvMaxHosts"));
            }
            _ => {}
        }
        if texts.texts.len() > 1 {
            return Err(format!("`{}` has {} TXT records, and may have one", self.host, texts.texts.len()));
        }
        let ttl = [hosts.ttl, texts.ttl].into_iter().flatten().min().unwrap_or_default();
        let mut seeds = Seeds { addresses, auth_source: None, replica_set: None, ttl };
        for pair in texts.texts.iter().flat_map(|text| text.split('&')).filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            match key.to_ascii_lowercase().as_str() {
                "authsource" => seeds.auth_source = Some(value.to_owned()).filter(|value| !value.is_empty()),
                "replicaset" => seeds.replica_set = Some(value.to_owned()).filter(|value| !value.is_empty()),
                "loadbalanced" if value == "false" => {}
                _ => {
                    return Err(format!(
                        "the TXT record of `{}` has an option that is not available: {pair}",
                        self.host
                    ));
                }
            }
        }
        Ok(seeds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::Target;

    fn name() -> SrvName {
        SrvName { host: "c.example.net".to_owned(), service: "mongodb".to_owned(), max_hosts: None }
    }

    fn seeds(name: &SrvName, hosts: &[&str], texts: &[&str]) -> Result<Seeds, String> {
        let target = |host: &&str| Target { host: (*host).to_owned(), port: 27_017 };
        let ttl = Some(Duration::from_secs(60));
        let hosts = Answer { targets: hosts.iter().map(target).collect(), ttl, ..Answer::default() };
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        name.seeds("_mongodb._tcp.c.example.net", hosts, Answer { texts, ..Answer::default() })
    }

    #[test]
    fn servers_of_the_same_domain_are_the_hosts_and_the_text_has_options() {
        let found = seeds(&name(), &["b.example.net", "A.example.net"], &["authSource=admin&replicaSet=rs0"]).unwrap();
        let address = |host: &str| Address::Tcp { host: host.to_owned(), port: 27_017 };
        assert_eq!(found.addresses, [address("a.example.net"), address("b.example.net")]);
        assert_eq!((found.auth_source.as_deref(), found.replica_set.as_deref()), (Some("admin"), Some("rs0")));
        assert_eq!(found.ttl, Duration::from_secs(60));
        let one = SrvName { max_hosts: Some(1), ..name() };
        assert_eq!(
            seeds(&one, &["b.example.net", "a.example.net"], &[]).unwrap().addresses,
            [address("a.example.net")]
        );
    }

    #[test]
    fn what_is_not_to_be_trusted_is_refused() {
        for (hosts, texts, part) in [
            (&["evil.example.com"][..], &[][..], "not in the domain example.net"),
            (&["example.net"], &[], "not in the domain example.net"),
            (&["evilexample.net"], &[], "not in the domain example.net"),
            (&[], &[], "no server is known"),
            (&["a.example.net"], &["replicaSet=a", "replicaSet=b"], "2 TXT records"),
            (&["a.example.net"], &["tls=false"], "not available: tls=false"),
            (&["a.example.net"], &["loadBalanced=true"], "not available"),
        ] {
            let error = seeds(&name(), hosts, texts).unwrap_err();
            assert!(error.contains(part), "{hosts:?}: {error}");
        }
        let many: Vec<String> = (0..=MAX_HOSTS).map(|n| format!("h{n}.example.net")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(seeds(&name(), &many, &[]).unwrap_err().contains("srvMaxHosts"));
        for host in ["localhost", "example.net", "10.0.0.5", "a..b"] {
            assert!(SrvName { host: host.to_owned(), ..name() }.check().is_err(), "{host}");
        }
        assert_eq!(name().check(), Ok(()));
    }
}
