//! From a target's URL to where connections go and how they log in. Opens nothing.

use std::{net::SocketAddr, sync::Arc};

use driver::TlsConnector;
use redis_session::ServerLogin;
use settings::Secret;
use upstream::{Kind, UpstreamUrl};

use crate::{
    TargetError,
    endpoint::{Endpoint, tls_connector},
};

/// Where connections go, and how they log in.
pub struct ConnectOptions {
    pub endpoint: Endpoint,
    pub login: ServerLogin,
    /// `None`: no TLS is used.
    pub connector: Option<TlsConnector>,
}

impl ConnectOptions {
    /// Reads the URL. `via`: connections go there instead.
    ///
    /// # Errors
    /// What is wrong with the URL or the files that it names; without the password.
    pub fn of(url: &Secret, via: Option<SocketAddr>) -> Result<Self, TargetError> {
        let url = UpstreamUrl::parse(url.reveal()).map_err(TargetError::configuration)?;
        if url.kind != Kind::Redis {
            return Err(TargetError::configuration("this is no URL of a Redis: write redis://user:password@host:port"));
        }
        let connector = tls_connector(&url)?;
        let address = url.hosts.first().expect("a URL of a Redis has one host");
        let endpoint = Endpoint::of(address, via);
        let login = ServerLogin {
            tls: connector.is_some(),
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
        Ok(Self { endpoint, login, connector })
    }
}

#[cfg(test)]
mod tests {
    use driver::Address;

    use super::*;

    fn options(url: &str, via: Option<&str>) -> Result<ConnectOptions, TargetError> {
        ConnectOptions::of(&Secret::new(url), via.map(|via| via.parse().unwrap()))
    }

    #[test]
    fn a_url_says_where_and_as_whom() {
        let read = options("redis://shop:a%20b@h:7/3", None).unwrap();
        assert_eq!(read.endpoint.address.to_string(), "h:7");
        let login = &read.login;
        assert_eq!((login.user.as_deref(), login.password.as_deref(), login.database), (Some("shop"), Some("a b"), 3));
        assert!(read.connector.is_none() && !login.tls);
        let socket = options("redis://%2Frun%2Fredis.sock", None).unwrap();
        assert!(matches!(&*socket.endpoint.address, Address::Unix(path) if path.ends_with("redis.sock")));
    }

    #[test]
    fn a_mistake_in_the_url_is_told_without_the_password() {
        for url in ["redis://a:hunter2@h/x", "redis://a:hunter2@h?sslmode=require", "postgres://a:hunter2@h/d"] {
            let error = options(url, None).err().expect(url);
            assert!(!error.message.contains("hunter2"), "{error}");
        }
        assert!(options("redis://shop@h", None).err().unwrap().message.contains("without a password"));
    }
}
