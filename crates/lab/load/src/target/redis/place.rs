//! From a target's URL to where connections go and how they log in. Opens nothing.

use std::{net::SocketAddr, sync::Arc};

use driver::{Address, TlsConnector};
use redis_session::ServerLogin;
use upstream::{Kind, UpstreamUrl, connector, uses_tls};

use super::super::TargetError;
use crate::plan::RedisTarget;

/// Where connections go, and how they log in.
pub(super) struct Place {
    /// What is connected to.
    pub(super) address: Arc<Address>,
    /// What TLS is to take it for.
    pub(super) name: String,
    /// How they log in.
    pub(super) login: ServerLogin,
    /// What makes TLS, if it is used.
    pub(super) connector: Option<TlsConnector>,
}

impl Place {
    /// Reads the URL. `via`: connections go there instead.
    ///
    /// # Errors
    /// What is wrong with the URL or the files that it names; without the password.
    pub(super) fn of(target: &RedisTarget, via: Option<SocketAddr>) -> Result<Self, TargetError> {
        let url = UpstreamUrl::parse(target.url.reveal()).map_err(TargetError::configuration)?;
        if url.kind != Kind::Redis {
            return Err(TargetError::configuration("this is no URL of a Redis: write redis://user:password@host:port"));
        }
        let tls = uses_tls(&url.hosts, &url.tls);
        let connector = match tls {
            true => Some(connector(&url.tls).map_err(TargetError::configuration)?),
            false => None,
        };
        let address = url.hosts.addresses.first().cloned().expect("a URL of a Redis has one host");
        let name = match &address {
            Address::Tcp { host, .. } => host.clone(),
            Address::Unix(_) => String::new(),
        };
        let login = ServerLogin {
            tls,
            user: url.user.as_deref().map(Arc::from),
            password: url.password.map(|password| Arc::clone(password.reveal())),
            database: url.database.map_or(0, |number| number.parse().expect("the URL was read with a number there")),
            ..ServerLogin::default()
        };
        if login.user.is_some() && login.password.is_none() {
            return Err(TargetError::configuration(
                "the URL names a user without a password: write redis://USER:PASSWORD@...",
            ));
        }
        let tcp = |via: SocketAddr| Address::Tcp { host: via.ip().to_string(), port: via.port() };
        Ok(Self { address: Arc::new(via.map_or(address, tcp)), name, login, connector })
    }
}

#[cfg(test)]
mod tests {
    use settings::Secret;

    use super::*;
    use crate::plan::RedisWork;

    fn place(url: &str, via: Option<&str>) -> Result<Place, TargetError> {
        let target = RedisTarget { url: Secret::new(url), work: RedisWork::Ping, variables: Vec::new() };
        Place::of(&target, via.map(|via| via.parse().unwrap()))
    }

    #[test]
    fn a_url_says_where_and_as_whom() {
        let there = place("redis://shop:a%20b@h:7/3", None).unwrap();
        assert_eq!(there.address.to_string(), "h:7");
        let login = &there.login;
        assert_eq!((login.user.as_deref(), login.password.as_deref(), login.database), (Some("shop"), Some("a b"), 3));
        assert!(there.connector.is_none() && !login.tls);
        let socket = place("redis://%2Frun%2Fredis.sock", None).unwrap();
        assert!(matches!(&*socket.address, Address::Unix(path) if path.ends_with("redis.sock")));
    }

    #[test]
    fn a_relay_stands_in_for_the_host_but_not_for_its_certificate() {
        let there = place("rediss://:secret@db.example", Some("127.0.0.1:7")).unwrap();
        assert_eq!((there.address.to_string().as_str(), there.name.as_str()), ("127.0.0.1:7", "db.example"));
        assert!(there.connector.is_some() && there.login.tls);
    }

    #[test]
    fn a_mistake_in_the_url_is_told_without_the_password() {
        for url in ["redis://a:hunter2@h/x", "redis://a:hunter2@h?sslmode=require", "postgres://a:hunter2@h/d"] {
            let error = place(url, None).err().expect(url);
            assert!(!error.message.contains("hunter2"), "{error}");
        }
        assert!(place("redis://shop@h", None).err().unwrap().message.contains("without a password"));
    }
}
