//! From a target's URL to where connections go and how they log in. Opens nothing.

use std::{net::SocketAddr, sync::Arc};

use driver::{Address, TlsConnector};
use postgres_session::{RequesterLogin, ServerLogin};
use upstream::{UpstreamUrl, connector, encryption, uses_tls};

use super::super::TargetError;
use crate::plan::{PostgresTarget, Script};

/// What connections call themselves where the URL gives no name.
const APPLICATION_NAME: &str = "poolhouse bench";
/// The schema that is found without a word.
const DEFAULT_SCHEMA: &str = "public";

/// Where connections go, and how they log in.
pub(super) struct Place {
    /// Tried in this order: to be connected to, and what TLS is to take it for.
    pub(super) hosts: Vec<(Arc<Address>, String)>,
    /// How they log in.
    pub(super) login: RequesterLogin,
    /// What makes TLS, if it may be needed.
    pub(super) connector: Option<TlsConnector>,
}

impl Place {
    /// Reads the URL of a target. `via`: connections go there instead.
    ///
    /// # Errors
    /// What is wrong with the URL or the files that it names; without the password.
    pub(super) fn of(target: &PostgresTarget, via: Option<SocketAddr>) -> Result<Self, TargetError> {
        let parameters = search_path(target).map(|path| ("search_path".to_owned(), path));
        Self::at(target.url.reveal(), APPLICATION_NAME, parameters, via)
    }

    /// The same of a URL alone. `name` is what connections call themselves where that gives none.
    pub(super) fn at(
        url: &str,
        name: &str,
        more: Option<(String, String)>,
        via: Option<SocketAddr>,
    ) -> Result<Self, TargetError> {
        let url = UpstreamUrl::parse_postgres(url).map_err(TargetError::configuration)?;
        let connector = match uses_tls(&url.hosts, &url.tls) {
            true => Some(connector(&url.tls).map_err(TargetError::configuration)?),
            false => None,
        };
        let environment = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let user = url.user.or_else(|| environment("PGUSER")).or_else(|| environment("USER"));
        let user =
            user.ok_or_else(|| TargetError::configuration("the url names no user: write postgres://USER@..."))?;
        let mut parameters = url.parameters;
        if !parameters.iter().any(|(name, _)| name == "application_name") {
            parameters.push(("application_name".to_owned(), name.to_owned()));
        }
        parameters.extend(more);
        let login = ServerLogin {
            database: url.database.unwrap_or_else(|| user.clone()),
            user,
            password: match url.password {
                Some(password) => Some(Arc::clone(password.reveal())),
                None => environment("PGPASSWORD").map(Arc::from),
            },
            parameters,
            target: url.target,
            encryption: encryption(&url.hosts, &url.tls),
            ..ServerLogin::default()
        };
        let hosts = url.hosts.addresses.iter().map(|address| {
            let name = match address {
                Address::Tcp { host, .. } => host.clone(),
                Address::Unix(_) => String::new(),
            };
            (Arc::new(via.map_or_else(|| address.clone(), tcp)), name)
        });
        // A relay leads to one host.
        let hosts = hosts.take(if via.is_some() { 1 } else { usize::MAX }).collect();
        Ok(Self { hosts, login: RequesterLogin::new(login), connector })
    }
}

/// What a target needs its tables to be found: the built-in scripts' own first. Where only the user's own scripts run, whatever is set for
/// him stays.
fn search_path(target: &PostgresTarget) -> Option<String> {
    let built_in = target.scripts.iter().any(|(script, _)| !matches!(script, Script::File(..)));
    let own = target.scripts.iter().any(|(script, _)| matches!(script, Script::File(..)));
    let schema = quote(&target.schema);
    match (built_in && target.schema != DEFAULT_SCHEMA, own) {
        (false, _) => None,
        (true, false) => Some(schema),
        (true, true) => Some(format!("{schema}, \"$user\", {DEFAULT_SCHEMA}")),
    }
}

/// An SQL identifier.
pub(super) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn tcp(address: SocketAddr) -> Address {
    Address::Tcp { host: address.ip().to_string(), port: address.port() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::Secret;

    fn target(url: &str, scripts: Vec<Script>) -> PostgresTarget {
        PostgresTarget {
            url: Secret::new(url),
            scripts: scripts.into_iter().map(|script| (script, 1)).collect(),
            protocol: crate::plan::QueryProtocol::Simple,
            scale: 1,
            schema: "a\"b".to_owned(),
            variables: Vec::new(),
        }
    }

    #[test]
    fn a_relay_stands_in_for_the_host_but_not_for_its_certificate() {
        let target = target("postgres://u:secret@db.example,other/x?sslmode=require", Vec::new());
        let place = Place::of(&target, Some("127.0.0.1:7".parse().unwrap())).unwrap();
        assert_eq!(place.hosts.len(), 1);
        assert_eq!((place.hosts[0].0.to_string().as_str(), place.hosts[0].1.as_str()), ("127.0.0.1:7", "db.example"));
        assert_eq!(Place::of(&target, None).unwrap().hosts.len(), 2);
        assert!(place.connector.is_some());
    }

    #[test]
    fn only_built_in_scripts_change_where_tables_are_looked_for() {
        let file = Script::File("x.sql".into(), String::new());
        let path = |scripts: Vec<Script>| search_path(&target("postgres://", scripts));
        assert_eq!(path(vec![Script::SelectOnly]).unwrap(), "\"a\"\"b\"");
        assert_eq!(path(vec![file.clone()]), None);
        assert_eq!(path(vec![Script::TpcbLike, file]).unwrap(), "\"a\"\"b\", \"$user\", public");
    }

    #[test]
    fn a_mistake_in_the_url_is_told_without_the_password() {
        let error = Place::of(&target("postgres://u:hunter2@h/x?sslmodus=x", Vec::new()), None).err().unwrap();
        assert!(!error.message.contains("hunter2"), "{error}");
        assert_eq!(error.blame, super::super::super::Blame::Configuration);
    }
}
