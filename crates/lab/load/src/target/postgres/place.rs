//! From a target's URL to where connections go and how they log in. Opens nothing.

use std::{net::SocketAddr, sync::Arc};

use driver::TlsConnector;
use postgres_session::{RequesterLogin, ServerLogin};
use upstream::{UpstreamUrl, encryption};

use super::super::{
    TargetError,
    endpoint::{Endpoint, tls_connector},
};
use crate::plan::{PostgresTarget, QueryProtocol, Script};

/// What connections call themselves where the URL gives no name.
const APPLICATION_NAME: &str = "poolhouse bench";
/// The schema that is found without a word.
const DEFAULT_SCHEMA: &str = "public";

/// Where connections go, and how they log in.
pub(super) struct Place {
    /// Tried in this order.
    pub(super) hosts: Vec<Endpoint>,
    pub(super) login: RequesterLogin,
    /// `None`: no TLS is used.
    pub(super) connector: Option<TlsConnector>,
    /// How statements of scripts are sent.
    pub(super) protocol: QueryProtocol,
}

impl Place {
    /// Reads the URL of a target. `via`: connections go there instead.
    ///
    /// # Errors
    /// What is wrong with the URL or the files that it names; without the password.
    pub(super) fn of(target: &PostgresTarget, via: Option<SocketAddr>) -> Result<Self, TargetError> {
        let parameters = search_path(target).map(|path| ("search_path".to_owned(), path));
        let place = Self::at(target.url.reveal(), APPLICATION_NAME, parameters, via)?;
        Ok(Self { protocol: target.protocol, ..place })
    }

    /// The same of a URL alone. `name` is what connections call themselves where that gives none.
    pub(super) fn at(
        url: &str,
        name: &str,
        more: Option<(String, String)>,
        via: Option<SocketAddr>,
    ) -> Result<Self, TargetError> {
        let url = UpstreamUrl::parse_postgres(url).map_err(TargetError::configuration)?;
        let connector = tls_connector(&url)?;
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
        let hosts = url.hosts.addresses.iter().map(|address| Endpoint::of(address, via));
        // A relay leads to one host.
        let hosts = hosts.take(if via.is_some() { 1 } else { usize::MAX }).collect();
        Ok(Self { hosts, login: RequesterLogin::new(login), connector, protocol: QueryProtocol::Simple })
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
        assert_eq!(
            (place.hosts[0].address.to_string().as_str(), place.hosts[0].name.as_str()),
            ("127.0.0.1:7", "db.example")
        );
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
