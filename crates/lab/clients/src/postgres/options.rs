//! From a target's URL to where connections go and how they log in. Opens nothing.

use std::{net::SocketAddr, sync::Arc};

use driver::{Address, BeginWith, Hosts, TlsConnector};
use postgres_session::{ServerLogin, SharedLogin};
use upstream::{UpstreamTls, UpstreamUrl};

use crate::{
    TargetError,
    endpoint::{Endpoint, tls_connector},
};

/// Where connections go, and how they log in.
pub struct ConnectOptions {
    /// Tried in this order.
    pub hosts: Vec<Endpoint>,
    pub login: SharedLogin,
    /// `None`: no TLS is used.
    pub connector: Option<TlsConnector>,
}

impl ConnectOptions {
    /// Reads a URL. `name` is what connections call themselves where the URL gives no name, `more` another parameter of
    /// the start-up message; `via`: connections go there instead.
    ///
    /// # Errors
    /// What is wrong with the URL or the files that it names; without the password.
    pub fn at(
        url: &str,
        name: &str,
        more: Option<(String, String)>,
        via: Option<SocketAddr>,
    ) -> Result<Self, TargetError> {
        let url = UpstreamUrl::parse_postgres(url).map_err(TargetError::configuration)?;
        let connector = tls_connector(&url)?;
        let encryption = dial::encryption(&dial::hosts(&url), &url.tls);
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
            target: dial::target(url.session_attrs),
            encryption,
            ..ServerLogin::default()
        };
        let hosts = url.hosts.iter().map(|address| Endpoint::of(address, via));
        // A relay leads to one host.
        let hosts = hosts.take(if via.is_some() { 1 } else { usize::MAX }).collect();
        Ok(Self { hosts, login: SharedLogin::new(login), connector })
    }
}

impl ConnectOptions {
    /// For a login that is known already.
    ///
    /// # Errors
    /// What is wrong with the files that `tls` names.
    pub fn of_login(hosts: &[Address], tls: &UpstreamTls, login: ServerLogin) -> Result<Self, TargetError> {
        let addresses = Hosts { addresses: hosts.to_vec(), then_any: false, begin: BeginWith::First };
        let connector =
            dial::uses_tls(&addresses, tls).then(|| dial::connector(tls).map_err(TargetError::configuration));
        let endpoint = |address: &Address| Endpoint {
            address: Arc::new(address.clone()),
            name: match address {
                Address::Tcp { host, .. } => host.clone(),
                Address::Unix(_) => String::new(),
            },
        };
        let hosts = hosts.iter().map(endpoint).collect();
        Ok(Self { hosts, login: SharedLogin::new(login), connector: connector.transpose()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Blame;

    fn options(url: &str, via: Option<&str>) -> Result<ConnectOptions, TargetError> {
        ConnectOptions::at(url, "test", None, via.map(|via| via.parse().unwrap()))
    }

    #[test]
    fn a_relay_stands_in_for_the_host_but_not_for_its_certificate() {
        let url = "postgres://u:secret@db.example,other/x?sslmode=require";
        let relayed = options(url, Some("127.0.0.1:7")).unwrap();
        assert_eq!(relayed.hosts.len(), 1);
        let host = &relayed.hosts[0];
        assert_eq!((host.address.to_string().as_str(), host.name.as_str()), ("127.0.0.1:7", "db.example"));
        assert_eq!(options(url, None).unwrap().hosts.len(), 2);
        assert!(relayed.connector.is_some());
    }

    #[test]
    fn a_mistake_in_the_url_is_told_without_the_password() {
        let error = options("postgres://u:hunter2@h/x?sslmodus=x", None).err().unwrap();
        assert!(!error.message.contains("hunter2"), "{error}");
        assert_eq!(error.blame, Blame::Configuration);
    }
}
