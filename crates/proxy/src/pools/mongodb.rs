//! What the protocol of MongoDB asks: who may log in, which pool serves him at which host, and how Poolhouse logs in itself.

use std::{sync::Arc, time::Duration};

use driver::Address;
use mongodb::{Directory, ServerLogin, Verifier, Welcome};
use protocol::{Encryption, Origin, PoolId};
use settings::Secret;
use upstream::Kind;

use super::{Key, Pools, redis::reason};

/// Where MongoDB knows its users, unless a URL says otherwise.
const ADMIN: &str = "admin";

/// For ever, as far as clients are concerned.
const LONG: Duration = Duration::from_secs(24 * 3600);

impl Pools {
    /// The hosts of the upstream, as they are called in metrics.
    fn host_names(&self, database: usize) -> impl Iterator<Item = String> {
        self.config.databases[database].hosts.addresses.iter().map(Address::to_string)
    }

    /// The number of a host.
    pub(super) fn host(&self, database: usize, name: &str) -> Option<usize> {
        self.host_names(database).position(|host| host == name)
    }

    /// The pools of those who watch the hosts.
    pub(super) fn monitors(&self, database: usize) -> Vec<PoolId> {
        let user: Arc<str> = self.config.databases[database].user.as_deref().unwrap_or_default().into();
        let key = |host: String| Key::MongoDb { host: host.into(), user: Arc::clone(&user), monitors: true };
        self.host_names(database).filter_map(|host| self.pool(database, key(host)).ok()).collect()
    }
}

impl Directory for Pools {
    fn encryption(&self, listener: u16) -> Encryption {
        postgres::Directory::encryption(self, listener)
    }

    fn welcome(&self, origin: Origin) -> Welcome {
        if self.config.authenticates(Kind::MongoDb) {
            return Welcome::Password;
        }
        match origin.is_local() || self.config.insecure_no_auth {
            true => Welcome::Open,
            false => Welcome::Forbidden(
                "no user is configured, so clients are let in from this machine only: give the URL user and password"
                    .to_owned(),
            ),
        }
    }

    fn verifier(&self, user: &str) -> Option<Arc<Verifier>> {
        self.user(user)?.password.as_ref()?.verifier()
    }

    fn hosts(&self) -> usize {
        self.mongodb.map_or(0, |index| self.config.databases[index].hosts.addresses.len())
    }

    fn replica_set(&self) -> Option<Arc<str>> {
        let options = &self.config.databases[self.mongodb?].mongo;
        options.replica_set.as_deref().map(Arc::from)
    }

    fn patience(&self) -> Duration {
        let config = self.mongodb.map(|index| &self.config.databases[index].pool.config);
        config.and_then(|config| config.unavailable_wait_time).unwrap_or(LONG)
    }

    fn route(&self, user: &str, host: usize) -> Result<PoolId, String> {
        let index = self.mongodb.ok_or("no MongoDB is configured any more")?;
        let host = self.host_names(index).nth(host).ok_or("this host is no longer configured")?.into();
        let user = self.config.databases[index].user.as_deref().unwrap_or(user).into();
        self.pool(index, Key::MongoDb { host, user, monitors: false }).map_err(reason)
    }

    fn server_login(&self, pool: PoolId) -> ServerLogin {
        let (entry, database) = self.entry(pool);
        let Key::MongoDb { host, user, monitors } = entry.key else {
            unreachable!("a server of MongoDB belongs to a pool of MongoDB")
        };
        let text = |secret: Secret| Arc::clone(secret.reveal());
        let password = self.server_password(entry.database, &user).map(text);
        let source = database.mongo.auth_source.as_deref().or(database.database.as_deref()).unwrap_or(ADMIN);
        ServerLogin {
            host: self.host(entry.database, &host).unwrap_or(usize::MAX),
            monitors,
            tls: upstream::uses_tls(&database.hosts, &database.tls),
            user: password.map(|password| (Arc::clone(&user), password)),
            source: source.into(),
        }
    }
}
