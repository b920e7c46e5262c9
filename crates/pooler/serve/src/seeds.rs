//! Lookup of the hosts behind `mongodb+srv://` names: at start, and again from time to time. Knows no pool.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use driver::Address;
use settings::{Problem, Problems};
use upstream::{Seeds, name_servers};

use crate::config::{Config, Database};

/// Environment variable with name servers to use instead of the system's: `address:port`, separated by commas.
const NAME_SERVERS: &str = "POOLHOUSE_NAME_SERVERS";
/// Bounds of the time between two lookups, which is otherwise the records' TTL.
pub const MIN_REFRESH_INTERVAL: Duration = Duration::from_secs(60);
pub const MAX_REFRESH_INTERVAL: Duration = Duration::from_secs(3600);

/// Names whose last answer lacked the options that they had before. That is believed when the next answer lacks them,
/// too: it may come from a name server that has not got the record yet, and other options renew all servers.
pub type DoubtedNames = BTreeSet<String>;

type LookUp<'l> = &'l dyn Fn(&upstream::SrvName) -> Result<Seeds, String>;

/// The configuration with the hosts of all names. A name that cannot be looked up keeps its hosts in `known`. May
/// block.
///
/// # Errors
/// Every name that cannot be looked up and is not in `known`.
pub fn look_up_hosts(config: Config, known: Option<&Config>) -> Result<Config, Problems> {
    if config.databases.iter().all(|database| database.srv.is_none()) {
        return Ok(config);
    }
    let servers = servers();
    let look_up: LookUp<'_> = &|name| name.look_up(servers.as_ref().map_err(String::clone)?);
    look_up_hosts_with(config, known, look_up, &mut DoubtedNames::new()).map(|(config, _)| config)
}

/// The configuration in force with present hosts, or `None` if nothing has changed; and the time until the next lookup.
/// May block.
pub fn look_up_hosts_again(in_force: &Config, doubted: &mut DoubtedNames) -> (Option<Config>, Duration) {
    let servers = servers();
    let look_up: LookUp<'_> = &|name| name.look_up(servers.as_ref().map_err(String::clone)?);
    match look_up_hosts_with(in_force.clone(), Some(in_force), look_up, doubted) {
        Ok((config, holds)) => {
            let same = |(now, before): (&Database, &Database)| now.hosts == before.hosts && now.mongo == before.mongo;
            let is_new = !config.databases.iter().zip(&in_force.databases).all(same);
            (is_new.then_some(config), holds.clamp(MIN_REFRESH_INTERVAL, MAX_REFRESH_INTERVAL))
        }
        Err(_) => (None, MIN_REFRESH_INTERVAL),
    }
}

fn look_up_hosts_with(
    mut config: Config,
    known: Option<&Config>,
    look_up: LookUp<'_>,
    doubted: &mut DoubtedNames,
) -> Result<(Config, Duration), Problems> {
    let (mut problems, mut holds) = (Vec::new(), MAX_REFRESH_INTERVAL);
    for index in 0..config.databases.len() {
        let Some(name) = config.databases[index].srv.clone() else { continue };
        let before = known.and_then(|known| known.databases.iter().find(|other| other.srv.as_ref() == Some(&name)));
        match (look_up(&name), before) {
            (Ok(mut seeds), before) => {
                holds = holds.min(seeds.ttl);
                let known = before.map(options_of_name).unwrap_or_default();
                let lacks = (&seeds.auth_source, &seeds.replica_set) == (&None, &None) && known != (None, None);
                if lacks && doubted.insert(name.host.clone()) {
                    let name = &name.host;
                    tracing::warn!(name, "this name has no options any more: they stay until it says so again");
                    (seeds.auth_source, seeds.replica_set) = known;
                    holds = MIN_REFRESH_INTERVAL;
                } else {
                    doubted.remove(&name.host);
                }
                let addresses = seeds.addresses.iter().map(dial::address).collect();
                set_hosts(&mut config.databases[index], addresses, seeds.auth_source, seeds.replica_set);
            }
            (Err(why), Some(before)) => {
                tracing::warn!(name = name.host, "the hosts of this name stay as they are: {why}");
                let (auth_source, replica_set) = options_of_name(before);
                set_hosts(&mut config.databases[index], before.hosts.addresses.clone(), auth_source, replica_set);
                holds = MIN_REFRESH_INTERVAL;
            }
            (Err(why), None) => {
                let database = &config.databases[index];
                let problem =
                    Problem::error(format!("cannot look up the hosts of `{}`: {why}", name.host.escape_debug()));
                let key = if database.spots.contains_key("url_file") { "url_file" } else { "url" };
                let hint = "or name the hosts themselves in a mongodb:// URL";
                problems.push(config.locate(problem.hint(hint), &database.spots, key));
            }
        }
    }
    if problems.is_empty() { Ok((config, holds)) } else { Err(Problems(problems)) }
}

/// The authentication source and the replica set that the TXT record of a database's name has given.
fn options_of_name(database: &Database) -> (Option<String>, Option<String>) {
    let (all, of_url) = (&database.mongo, &database.mongo_of_url);
    let auth_source = all.auth_source.clone().filter(|_| of_url.auth_source.is_none());
    (auth_source, all.replica_set.clone().filter(|_| of_url.replica_set.is_none()))
}

/// Options in the URL take precedence over those in the name's TXT record.
fn set_hosts(
    database: &mut Database,
    addresses: Vec<Address>,
    auth_source: Option<String>,
    replica_set: Option<String>,
) {
    database.hosts.addresses = addresses;
    let of_url = &database.mongo_of_url;
    database.mongo.auth_source = of_url.auth_source.clone().or(auth_source);
    database.mongo.replica_set = of_url.replica_set.clone().or(replica_set);
}

fn servers() -> Result<Vec<SocketAddr>, String> {
    let Ok(list) = std::env::var(NAME_SERVERS) else { return name_servers() };
    let address = |text: &str| text.trim().parse().map_err(|_| format!("{NAME_SERVERS}: `{text}` is no address:port"));
    list.split(',').map(address).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use upstream::SrvName;

    use super::*;
    use crate::read::from_text;

    fn look_up_hosts_with(
        config: Config,
        known: Option<&Config>,
        look_up: LookUp<'_>,
    ) -> Result<(Config, Duration), Problems> {
        super::look_up_hosts_with(config, known, look_up, &mut DoubtedNames::new())
    }

    fn config(options: &str) -> Config {
        let text = format!("[[database]]\nurl = \"mongodb+srv://app:pw@c.example.net/shop{options}\"\n");
        from_text(Path::new("p.toml"), &text, &|_| None).unwrap_or_else(|problems| panic!("{problems}"))
    }

    fn seeds(host: &str) -> Seeds {
        let addresses = vec![upstream::Address::Tcp { host: host.to_owned(), port: 27_017 }];
        let (auth_source, replica_set) = (Some("admin".to_owned()), Some("rs0".to_owned()));
        Seeds { addresses, auth_source, replica_set, ttl: Duration::from_secs(5) }
    }

    #[test]
    fn options_in_the_url_take_precedence_over_those_of_the_name() {
        let (config, holds) =
            look_up_hosts_with(config("?authSource=own"), None, &|_| Ok(seeds("a.example.net"))).unwrap();
        let database = &config.databases[0];
        assert_eq!(database.hosts.to_string(), "a.example.net:27017");
        assert_eq!(database.mongo.auth_source.as_deref(), Some("own"));
        assert_eq!((database.mongo.replica_set.as_deref(), holds), (Some("rs0"), Duration::from_secs(5)));
    }

    #[test]
    fn changed_options_of_the_name_and_of_the_url_replace_earlier_ones() {
        let options = |config: &Config| {
            let mongo = &config.databases[0].mongo;
            (mongo.auth_source.clone(), mongo.replica_set.clone())
        };
        let (in_force, _) = look_up_hosts_with(config(""), None, &|_| Ok(seeds("a.example.net"))).unwrap();
        let changed = Seeds { auth_source: None, replica_set: Some("rs1".to_owned()), ..seeds("a.example.net") };
        let (renewed, _) = look_up_hosts_with(in_force.clone(), Some(&in_force), &|_| Ok(changed.clone())).unwrap();
        assert_eq!(options(&renewed), (None, Some("rs1".to_owned())));
        let silent: LookUp<'_> = &|_: &SrvName| Err("the name server does not answer".to_owned());
        let (own, _) = look_up_hosts_with(config("?authSource=own"), None, &|_| Ok(seeds("a.example.net"))).unwrap();
        let (reloaded, _) = look_up_hosts_with(config(""), Some(&own), silent).unwrap();
        assert_eq!(options(&reloaded), (None, Some("rs0".to_owned())), "the URL names no authSource now");
    }

    #[test]
    fn a_name_loses_its_options_when_two_answers_in_a_row_lack_them() {
        let (known, _) = look_up_hosts_with(config(""), None, &|_| Ok(seeds("a.example.net"))).unwrap();
        let none = || Ok(Seeds { auth_source: None, replica_set: None, ..seeds("a.example.net") });
        let mut doubted = DoubtedNames::new();
        let mut again = |answer: LookUp<'_>| {
            let (config, _) = super::look_up_hosts_with(config(""), Some(&known), answer, &mut doubted).unwrap();
            config.databases[0].mongo.replica_set.clone()
        };
        let kept = Some("rs0".to_owned());
        assert_eq!(again(&|_| none()), kept);
        assert_eq!(again(&|_| Ok(seeds("a.example.net"))), kept);
        assert_eq!(again(&|_| none()), kept, "the answers are not in a row");
        assert_eq!(again(&|_| none()), None);
    }

    #[test]
    fn a_failed_lookup_keeps_known_hosts_and_is_otherwise_an_error() {
        let silent: LookUp<'_> = &|_: &SrvName| Err("the name server does not answer".to_owned());
        let (known, _) = look_up_hosts_with(config(""), None, &|_| Ok(seeds("a.example.net"))).unwrap();
        let (kept, holds) = look_up_hosts_with(config(""), Some(&known), silent).unwrap();
        assert_eq!((kept.databases[0].hosts.clone(), holds), (known.databases[0].hosts.clone(), MIN_REFRESH_INTERVAL));
        assert_eq!(kept.databases[0].mongo, known.databases[0].mongo);
        let (changed, _) = look_up_hosts_with(config("?authSource=own&appName=x"), Some(&known), silent).unwrap();
        let mongo = &changed.databases[0].mongo;
        assert_eq!((mongo.auth_source.as_deref(), mongo.replica_set.as_deref()), (Some("own"), Some("rs0")));
        assert_eq!(changed.databases[0].hosts.addresses, known.databases[0].hosts.addresses);
        let told = look_up_hosts_with(config(""), None, silent).unwrap_err().to_string();
        assert!(
            told.contains("p.toml:2:7") && told.contains("`c.example.net`") && told.contains("does not answer"),
            "{told}"
        );
        assert!(!told.contains("app:pw"), "{told}");
    }
}
