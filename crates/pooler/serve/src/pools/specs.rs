//! The driver's view of a pool: the addresses of its servers, its settings and limits. Knows no password.

use std::time::Duration;

use ::pool::PoolConfig;
use driver::{PoolSpec, PoolTimeouts, TenantLimits};
use seam::{PoolId, Tenant};
use upstream::Kind;

use super::{ConfigPools, Entry, Key};
use crate::config::{AuthQuery, Database, FALLBACK, Mode, PoolSettings};

impl ConfigPools {
    pub fn spec(&self, pool: PoolId) -> PoolSpec {
        let (entry, database) = self.entry(pool);
        if let Some(lookups) = self.lookups_of(&entry) {
            return self.lookup_spec(&entry, database, &lookups.auth);
        }
        if let Key::Dedicated { .. } = &entry.key {
            return self.dedicated_spec(&entry, database);
        }
        let settings = self.settings(database, entry.key.user());
        if let Key::MongoDb { host, monitors, .. } = &entry.key {
            return self.mongodb_spec(&entry, database, host, *monitors);
        }
        // A client may have invented the database's name, or only the database knows the user.
        let has_no_named_user = database.user.is_none() && self.user(entry.key.user()).is_none();
        let of_postgres = entry.key.kind() == Kind::Postgres;
        let min_size_once_connected = database.name == FALLBACK || (of_postgres && has_no_named_user);
        let goes_anyway = of_postgres && (min_size_once_connected || settings.forgets_configured);
        let may_be_forgotten = goes_anyway || entry.key.is_made_up();
        PoolSpec {
            config: PoolConfig { min_size_once_connected, ..settings.config },
            sizes: self.sizes(&entry, database),
            timeouts: settings.timeouts,
            forget_after: settings.pool_idle_time.filter(|_| may_be_forgotten),
            fast_close: settings.fast_close && settings.mode == Mode::Session,
            ..self.plain_spec(&entry, database)
        }
    }

    /// A pool of the database's size, which is not tuned and never forgotten.
    pub(super) fn plain_spec(&self, entry: &Entry, database: &Database) -> PoolSpec {
        PoolSpec {
            protocol: database.kind.word(),
            database: entry.key.label(),
            ordered_as: entry.key.ordered_as(),
            user: entry.key.user().to_string(),
            hosts: database.hosts.clone(),
            tls: self.tls.connector(entry.database),
            config: database.pool.config.clone(),
            caps: self.caps(entry, database),
            sizes: None,
            timeouts: PoolTimeouts::default(),
            forget_after: None,
            cancel_timeout: database.pool.cancel_wait_time,
            fast_close: false,
            revision: 0,
            hidden: false,
            client_rank: driver::ClientRank::default(),
        }
    }

    /// How long a pool must be unused to be forgotten, once its database or user is no longer configured.
    pub fn pool_idle_time(&self, pool: PoolId) -> Option<Duration> {
        self.entry(pool).1.pool.pool_idle_time
    }

    /// Pools with a `min_size` whose login is known at the start: databases with a configured user, and users with a
    /// `min_size` of their own. Other pools start with the first client.
    pub fn at_start(&self) -> Vec<PoolId> {
        let mut pools: Vec<PoolId> = self.mongodb.into_iter().flat_map(|index| self.monitors(index)).collect();
        let is_one = |database: &Database| database.name != FALLBACK && !database.is_console;
        for (index, database) in self.config.databases.iter().enumerate().filter(|(_, d)| is_one(d)) {
            let mut add = |user: &str| {
                let known = self.server_password(index, user).is_some() || self.stored(index, user).is_none();
                if known && self.settings(database, user).config.min_size > 0 {
                    let key = Key::Postgres { database: database.name.as_str().into(), user: user.into() };
                    pools.extend(self.find_or_add_pool(index, key));
                }
            };
            match &database.user {
                Some(user) => add(user),
                None => self.config.users.iter().filter(|u| u.min_size.is_some()).for_each(|user| add(&user.name)),
            }
        }
        pools
    }

    /// The database whose client limits apply to a pool's clients. Each name under `*` is a database of its own; Redis
    /// and MongoDB have one each.
    pub fn tenant(&self, pool: PoolId) -> Option<Tenant> {
        let (Entry { key, .. }, configured) = self.entry(pool);
        let name = match &key {
            Key::Dedicated { .. } if configured.is_console => return None,
            Key::Postgres { database, .. } | Key::Dedicated { database, .. } => database.as_ref(),
            Key::Redis { .. } | Key::MongoDb { monitors: false, .. } => "",
            Key::MongoDb { monitors: true, .. } | Key::Lookups { .. } => return None,
        };
        Some(Tenant::Database { protocol: key.kind().word(), name: name.into() })
    }

    /// The client limits of a database or a user, if there are any.
    pub fn limits(&self, tenant: &Tenant) -> Option<TenantLimits> {
        match tenant {
            Tenant::Database { protocol, name } => {
                let index = match *protocol {
                    word if word == Kind::Redis.word() => self.redis,
                    word if word == Kind::MongoDb.word() => self.mongodb,
                    _ => self.database(name),
                };
                self.config.databases[index?].clients.or(self.config.limits.of_each_database())
            }
            Tenant::User(name) => self.user(name).and_then(|user| user.clients).or(self.config.limits.of_each_user()),
        }
    }
}

impl ConfigPools {
    /// The database's settings, overridden by the user's.
    pub(super) fn settings(&self, database: &Database, user: &str) -> PoolSettings {
        let mut settings = database.pool.clone();
        if let Some(user) = self.user(user) {
            settings.mode = user.mode.unwrap_or(settings.mode);
            settings.config.max_size = user.max_size.unwrap_or(settings.config.max_size);
            settings.auto.enabled &= user.max_size.is_none();
            let min_size = user.min_size.unwrap_or(settings.config.min_size);
            if settings.auto.enabled {
                // The first size is at least `min_size`.
                settings.config.max_size = settings.config.max_size.max(min_size).min(settings.largest_size());
            }
            settings.config.min_size = min_size.min(settings.config.effective_max_size());
            settings.config.reserve_size = user.reserve_size.unwrap_or(settings.config.reserve_size);
            settings.config.reserve_wait_time = user.reserve_wait_time.unwrap_or(settings.config.reserve_wait_time);
            settings.config.max_wait_time = user.max_wait_time.unwrap_or(settings.config.max_wait_time);
            let (own, general) = (user.timeouts, settings.timeouts);
            settings.timeouts = PoolTimeouts {
                client_idle: own.client_idle.or(general.client_idle),
                query: own.query.or(general.query),
                transaction_idle: own.transaction_idle.or(general.transaction_idle),
                transaction: own.transaction.or(general.transaction),
            };
        }
        if settings.auto.enabled {
            // The tuner finds the size.
            settings.config.reserve_size = 0;
        }
        settings
    }

    /// How servers of a pool return to it.
    pub fn mode(&self, pool: PoolId) -> Mode {
        let (entry, database) = self.entry(pool);
        self.settings(database, entry.key.user()).mode
    }

    /// The range of sizes within which a pool is tuned, if it is.
    pub fn tuner_limits(&self, pool: PoolId) -> Option<tuner::Limits> {
        let (entry, database) = self.entry(pool);
        match entry.key {
            Key::Lookups { .. } | Key::Dedicated { .. } | Key::MongoDb { monitors: true, .. } => None,
            _ => self.tuner_limits_of(&entry, database),
        }
    }

    /// Whether any pool is tuned.
    pub fn tunes(&self) -> bool {
        self.config.databases.iter().any(|database| database.pool.auto.enabled)
    }

    fn tuner_limits_of(&self, entry: &Entry, database: &Database) -> Option<tuner::Limits> {
        let user = entry.key.user();
        self.settings(database, user).tuner_limits(self.smallest_cap(database, user))
    }

    /// The smallest limit that a pool's servers share with those of other pools; 0 if there is none.
    pub(super) fn smallest_cap(&self, database: &Database, user: &str) -> u32 {
        let limits = [
            self.config.limits.max_server_connections,
            database.max_connections,
            database.max_user_connections,
            self.max_user_connections(user),
        ];
        limits.into_iter().filter(|limit| *limit > 0).min().unwrap_or(0)
    }

    fn sizes(&self, entry: &Entry, database: &Database) -> Option<(u32, u32)> {
        self.tuner_limits_of(entry, database).map(|limits| (limits.min, limits.max))
    }

    /// The limit of a user's servers over all databases; 0 if there is none.
    fn max_user_connections(&self, user: &str) -> u32 {
        let own = self.user(user).and_then(|user| user.max_user_connections);
        own.unwrap_or(self.config.limits.max_user_connections)
    }

    /// The pool of one host of MongoDB. Its monitor does not count towards the limits of database and user.
    fn mongodb_spec(&self, entry: &Entry, database: &Database, host: &str, monitors: bool) -> PoolSpec {
        let PoolSettings { config, timeouts, .. } = self.settings(database, entry.key.user());
        let mut spec = PoolSpec { config, timeouts, ..self.plain_spec(entry, database) };
        spec.hosts.addresses.retain(|address| address.to_string() == host);
        if monitors {
            (spec.config.min_size, spec.config.max_size, spec.config.max_life_time) = (1, 1, None);
            spec.config.reserve_size = 0;
            spec.caps.truncate(1);
        } else {
            spec.sizes = self.sizes(entry, database);
        }
        spec
    }

    /// The pool that looks up users. It is small, and counts towards the process's limit only.
    fn lookup_spec(&self, entry: &Entry, database: &Database, auth: &AuthQuery) -> PoolSpec {
        let mut spec = self.plain_spec(entry, database);
        let config = &mut spec.config;
        (config.min_size, config.max_size, config.reserve_size) = (0, auth.pool_size, 0);
        config.max_connecting = config.max_connecting.min(auth.pool_size);
        spec.caps.truncate(1);
        spec
    }

    fn caps(&self, entry: &Entry, database: &Database) -> Vec<(String, u32)> {
        let limits = &self.config.limits;
        let (name, user) = (entry.key.to_string(), entry.key.user());
        let max_user_connections = self.max_user_connections(user);
        // The last cap is the pool's own. It includes the pool's size and reserve, because caps hold across a handover.
        let size = self
            .tuner_limits_of(entry, database)
            .map_or_else(|| self.settings(database, user).config.most_servers(), |limits| limits.max);
        let of_replication = matches!(entry.key, Key::Dedicated { .. });
        let own_kind = if of_replication { "replication " } else { "" };
        let size = if of_replication { self.settings(database, user).max_replication_size } else { size };
        let of_pool = [size, database.max_user_connections].into_iter().filter(|limit| *limit > 0).min().unwrap_or(0);
        let caps = [
            ("process".to_owned(), limits.max_server_connections),
            (format!("database {name}"), database.max_connections),
            (format!("user {user}"), max_user_connections),
            (format!("{own_kind}user {user} of database {name}"), of_pool),
        ];
        // Caps without a limit are included: a reload may set one.
        caps.into()
    }
}
