//! The answers to MongoDB's sessions: who may log in, which pool serves a client at which host, and how Poolhouse
//! itself logs in.

use std::{sync::Arc, time::Duration};

use driver::Address;
use mongodb_session::{ServerLogin, Verifiers, Welcome};
use seam::{Origin, PoolId};
use settings::Secret;
use upstream::Kind;

use super::{ConfigPools, Key, Unknown};

/// The default authentication database.
const DEFAULT_AUTH_SOURCE: &str = "admin";

/// Stands for an `unavailable_wait_time` without an end.
const UNBOUNDED_WAIT: Duration = Duration::from_secs(24 * 3600);

impl ConfigPools {
    /// The hosts of the upstream, by their names in metrics.
    fn host_names(&self, database: usize) -> impl Iterator<Item = String> {
        self.config.databases[database].hosts.addresses.iter().map(Address::to_string)
    }

    pub(super) fn host(&self, database: usize, name: &str) -> Option<usize> {
        self.host_names(database).position(|host| host == name)
    }

    /// The pools of the hosts' monitors.
    pub(super) fn monitors(&self, database: usize) -> Vec<PoolId> {
        let user: Arc<str> = self.config.databases[database].user.as_deref().unwrap_or_default().into();
        let key = |host: String| Key::MongoDb { host: host.into(), user: Arc::clone(&user), monitors: true };
        self.host_names(database).filter_map(|host| self.find_or_add_pool(database, key(host)).ok()).collect()
    }
}

/// The methods of [`Directory`](mongodb_session::Directory) for one configuration, in which hosts have names instead of
/// numbers.
impl ConfigPools {
    pub(crate) fn mongodb_welcome(&self, origin: Origin) -> Welcome {
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

    pub(crate) fn mongodb_verifiers(&self, user: &str) -> Option<Verifiers> {
        let user = self.user(user)?;
        let first = user.password.as_ref()?.verifier()?;
        Some(user.other_passwords.verifiers_with(&first))
    }

    pub(crate) fn mongodb_hosts(&self) -> Vec<String> {
        self.mongodb.map(|index| self.host_names(index).collect()).unwrap_or_default()
    }

    pub(crate) fn mongodb_replica_set(&self) -> Option<Arc<str>> {
        let options = &self.config.databases[self.mongodb?].mongo;
        options.replica_set.as_deref().map(Arc::from)
    }

    /// Whether the URL lists a set's members. A single host without `replicaSet`, or with `directConnection`, is used
    /// alone.
    pub(crate) fn mongodb_lists_members(&self) -> bool {
        self.mongodb.map(|index| &self.config.databases[index]).is_some_and(|database| {
            let several = database.mongo.replica_set.is_some() || database.hosts.addresses.len() > 1;
            several && !database.mongo.direct
        })
    }

    pub(crate) fn mongodb_shares_login(&self) -> bool {
        let has_one = self.mongodb.is_some_and(|index| self.config.databases[index].user.is_some());
        has_one && self.config.users.iter().filter(|user| user.password.is_some()).count() > 1
    }

    pub(crate) fn mongodb_local_threshold(&self) -> Duration {
        let own = self.mongodb.and_then(|index| self.config.databases[index].mongo.local_threshold);
        own.unwrap_or(mongodb_session::LOCAL_THRESHOLD)
    }

    pub(crate) fn mongodb_unavailable_wait(&self) -> Duration {
        let config = self.mongodb.map(|index| &self.config.databases[index].pool.config);
        config.and_then(|config| config.unavailable_wait_time).unwrap_or(UNBOUNDED_WAIT)
    }

    pub(crate) fn mongodb_route(&self, user: &str, host: &str) -> Result<PoolId, Unknown> {
        let forbidden = |why: &str| Unknown::Forbidden(why.to_owned());
        let index = self.mongodb.ok_or_else(|| forbidden("no MongoDB is configured any more"))?;
        self.host(index, host).ok_or_else(|| forbidden("this host is no longer configured"))?;
        let user = self.config.databases[index].user.as_deref().unwrap_or(user).into();
        self.find_or_add_pool(index, Key::MongoDb { host: host.into(), user, monitors: false })
    }

    pub(crate) fn mongodb_max_wait(&self, pool: PoolId) -> Option<Duration> {
        let (entry, database) = self.entry(pool);
        self.settings(database, entry.key.user()).config.max_wait_time
    }

    pub(crate) fn mongodb_max_pinned(&self, pool: PoolId) -> u32 {
        let (entry, database) = self.entry(pool);
        database.pool.max_pinned(self.smallest_cap(database, entry.key.user()))
    }

    /// The host's name, and the login there without the host's number.
    pub(crate) fn mongodb_login(&self, pool: PoolId) -> (Arc<str>, ServerLogin) {
        let (entry, database) = self.entry(pool);
        let Key::MongoDb { host, user, monitors } = entry.key else {
            unreachable!("a server of MongoDB belongs to a pool of MongoDB")
        };
        let text = |secret: Secret| Arc::clone(secret.reveal());
        let password = self.server_password(entry.database, &user).map(text);
        let source =
            database.mongo.auth_source.as_deref().or(database.database.as_deref()).unwrap_or(DEFAULT_AUTH_SOURCE);
        let login = ServerLogin {
            host: usize::MAX,
            monitors,
            tls: dial::uses_tls(&database.hosts, &database.tls),
            user: password.map(|password| (Arc::clone(&user), password)),
            source: source.into(),
            sha1: database.mongo.sha1,
        };
        (host, login)
    }
}
