//! From a target's URL to where connections go and how they log in. Opens nothing.

use std::{net::SocketAddr, sync::Arc};

use driver::TlsConnector;
use mongodb_session::{KeyCache, ServerLogin};
use settings::Secret;
use upstream::{Kind, UpstreamUrl};

use crate::{
    TargetError,
    endpoint::{Endpoint, tls_connector},
};

/// The database of a URL without one, as drivers have it.
const DATABASE: &str = "test";

/// Where connections go, and how they log in.
pub struct ConnectOptions {
    pub endpoint: Endpoint,
    pub login: ServerLogin,
    /// Keys derived from the password, which drivers cache, too.
    pub keys: KeyCache,
    /// `None`: no TLS is used.
    pub connector: Option<TlsConnector>,
    /// The database of commands that name none.
    pub database: Arc<str>,
}

impl ConnectOptions {
    /// Reads the URL. `via`: connections go there instead.
    ///
    /// # Errors
    /// What is wrong with the URL or the files that it names; without the password.
    pub fn of(url: &Secret, via: Option<SocketAddr>) -> Result<Self, TargetError> {
        let url = UpstreamUrl::parse(url.reveal()).map_err(TargetError::configuration)?;
        if url.kind != Kind::MongoDb {
            return Err(TargetError::configuration(
                "this is no URL of a MongoDB: write mongodb://user:password@host:port/database",
            ));
        }
        let [address] = url.hosts.as_slice() else {
            return Err(TargetError::configuration(
                "all operations go to one host: name the primary, or the pooler in front of the replica set",
            ));
        };
        let connector = tls_connector(&url)?;
        let user = match (url.user.as_deref(), &url.password) {
            (Some(user), Some(password)) => Some((Arc::from(user), Arc::clone(password.reveal()))),
            (Some(_), None) => {
                return Err(TargetError::configuration(
                    "the URL names a user without a password: write mongodb://USER:PASSWORD@...",
                ));
            }
            (None, _) => None,
        };
        let source = url.mongo.auth_source.as_deref().or(url.database.as_deref()).unwrap_or("admin");
        let sha1 = url.mongo.sha1;
        let login =
            ServerLogin { tls: connector.is_some(), user, source: source.into(), sha1, ..ServerLogin::default() };
        Ok(Self {
            endpoint: Endpoint::of(address, via),
            login,
            keys: KeyCache::default(),
            connector,
            database: url.database.as_deref().unwrap_or(DATABASE).into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(url: &str) -> Result<ConnectOptions, TargetError> {
        ConnectOptions::of(&Secret::new(url), None)
    }

    #[test]
    fn a_url_says_where_as_whom_and_in_which_database() {
        let read = options("mongodb://shop:a%20b@h:7/app?authSource=users").unwrap();
        let user = read.login.user.as_ref().map(|(user, password)| (&**user, &**password));
        assert_eq!((read.endpoint.address.to_string().as_str(), user), ("h:7", Some(("shop", "a b"))));
        assert_eq!((&*read.database, &*read.login.source), ("app", "users"));
        let read = options("mongodb://h").unwrap();
        assert_eq!((&*read.database, &*read.login.source, read.login.user), ("test", "admin", None));
    }

    #[test]
    fn a_mistake_in_the_url_is_told_without_the_password() {
        for url in ["mongodb://a:hunter2@h,b/x", "mongodb://a:hunter2@h?wibble=1", "postgres://a:hunter2@h/d"] {
            let error = options(url).err().expect(url);
            assert!(!error.message.contains("hunter2"), "{error}");
        }
        assert!(options("mongodb://shop@h").err().unwrap().message.contains("without a password"));
    }
}
