//! One configuration as the sessions and the driver ask for it: who may log in, and which pool serves a client. A pool
//! gets its id when the first client asks for it. Ids are never reused. Opens no connection.
//!
//! - [`key`]: the identity of a pool;
//! - [`announcements`]: what clients are told beside the parameters of their servers;
//! - [`dedicated`]: clients of PostgreSQL with a server of their own;
//! - [`logins`], [`redis`], [`mongodb`]: the answers to the sessions of each protocol;
//! - [`proofs`]: how clients of PostgreSQL must prove who they are;
//! - [`specs`]: the answers to the driver.

mod announcements;
mod dedicated;
mod key;
mod logins;
mod mongodb;
mod proofs;
pub(crate) mod redis;
mod specs;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
    time::Instant,
};

use ::redis_session::HttpRules;
use postgres_session::{Encryption, ListenerRules, Unknown};
use seam::PoolId;
use settings::Secret;
use upstream::{Kind, MongoOptions, Sentinel, UpstreamTls};

use self::{key::Key, proofs::Looks};
pub(crate) use self::{
    key::{LOOKUPS_SUFFIX, RESP3_SUFFIX},
    proofs::Preparation,
};
use crate::{
    Password,
    config::{AuthQuery, AuthType, Config, Database, Endpoint, FALLBACK, Method, User},
    console_socket,
    known_users::KnownUsers,
    ldap::VerifiedPasswords,
    password_commands::PasswordCommands,
    tls::Tls,
    tokens::Tokens,
};

/// The most pools of one configuration.
pub const MAX_POOLS: usize = 16_384;

/// Pools reserved for databases that are configured by name. Clients can invent any number of names under `"*"`, and
/// get no more than the rest.
const RESERVED_FOR_CONFIGURED: usize = MAX_POOLS / 4;

/// Length of a database's or user's name in bytes. PostgreSQL's own limit is 63.
const MAX_NAME_BYTES: usize = 255;

/// The pools of a configuration.
pub struct ConfigPools {
    config: Arc<Config>,
    tls: Arc<Tls>,
    /// Databases of PostgreSQL, by name: indexes into the configuration.
    databases: HashMap<String, usize>,
    /// Index of the Redis, whose logical databases clients select by number.
    redis: Option<usize>,
    /// Index of the MongoDB deployment.
    mongodb: Option<usize>,
    users: HashMap<String, usize>,
    looks: Looks,
    tokens: Tokens,
    /// For each database: its users, if they are looked up there.
    lookups: Vec<Option<Lookups>>,
    /// The passwords that programs give.
    commands: Arc<PasswordCommands>,
    /// The passwords that directory servers have found right.
    verified: Arc<VerifiedPasswords>,
    table: RwLock<Table>,
}

/// The users of a database, which are looked up there.
struct Lookups {
    /// The pool whose servers run the query.
    pool: PoolId,
    /// The database's name at these servers.
    database: String,
    /// The configured database at whose servers the query runs.
    at: usize,
    auth: AuthQuery,
    known: Arc<KnownUsers>,
}

#[derive(Default)]
struct Table {
    ids: HashMap<Key, PoolId>,
    entries: HashMap<PoolId, Entry>,
    /// The next id.
    next: u32,
    /// For each client's user: its pools of databases that are not configured by name.
    made_up: HashMap<Arc<str>, usize>,
}

#[derive(Clone)]
struct Entry {
    /// Index into the configured databases.
    database: usize,
    key: Key,
    /// The client's user for whom the pool was made, if its database is not configured by name.
    made_for: Option<Arc<str>>,
}

/// The configuration with the console as one more database, at the end, if it is on.
fn with_console(config: Arc<Config>) -> Arc<Config> {
    if !config.has_console() {
        return config;
    }
    let mut config = Arc::unwrap_or_clone(config);
    config.databases.push(Database::console(&config.console, console_socket::name()));
    Arc::new(config)
}

impl ConfigPools {
    /// `tls` belongs to the same configuration. The only pools that exist at first are those that look up users.
    pub fn new(config: Arc<Config>, tls: Arc<Tls>) -> Self {
        let config = with_console(config);
        let of = |kind| move |(_, database): &(usize, &Database)| database.kind == kind;
        let all = || config.databases.iter().enumerate();
        let databases: HashMap<_, _> = all().filter(of(Kind::Postgres)).map(|(i, d)| (d.name.clone(), i)).collect();
        let redis = all().find(of(Kind::Redis)).map(|(i, _)| i);
        let mongodb = all().find(of(Kind::MongoDb)).map(|(i, _)| i);
        let users = config.users.iter().enumerate().map(|(i, u)| (u.name.clone(), i)).collect();
        let looks = Looks::of(&config.users);
        let mut table = Table::default();
        let lookups = config.databases.iter().enumerate().map(|(index, database)| {
            let auth = database.auth.clone()?;
            let key = Key::Lookups { database: database.name.as_str().into(), user: auth.user.as_str().into() };
            let named = |name: &String| databases.get(name).or_else(|| databases.get(FALLBACK)).copied();
            let at = auth.server.as_ref().map_or(Some(index), named)?;
            let name_there = || config.databases[at].database.clone();
            let database = auth.database.clone().or_else(name_there).or_else(|| auth.server.clone())?;
            let pool = table.add(Entry { database: at, key, made_for: None })?;
            Some(Lookups { pool, database, at, auth, known: Arc::default() })
        });
        let lookups: Vec<_> = lookups.collect();
        let table = RwLock::new(table);
        // A token without a user, where no login is needed, has the empty user.
        let tokens = Tokens::new(&config.tokens, "");
        Self {
            config,
            tls,
            databases,
            redis,
            mongodb,
            users,
            looks,
            tokens,
            lookups,
            verified: Arc::default(),
            commands: Arc::default(),
            table,
        }
    }

    /// Takes passwords of databases from these programs.
    pub fn with_commands(self, commands: Arc<PasswordCommands>) -> Self {
        Self { commands, ..self }
    }

    /// Takes over what stays valid from the configuration before: verifiers of equal passwords, and the passwords of
    /// looked-up users if the database and the query are the same. Who logs in is looked up again.
    pub fn inheriting_from(self, earlier: &Self) -> Self {
        let mut pools = self;
        (pools.verified, pools.commands) = (Arc::clone(&earlier.verified), Arc::clone(&earlier.commands));
        for user in &pools.config.users {
            let before = earlier.user(&user.name).and_then(|before| before.password.as_ref());
            if let (Some(password), Some(before)) = (&user.password, before) {
                password.reuse_verifier(before);
            }
        }
        for (index, lookups) in pools.lookups.iter_mut().enumerate() {
            let database = &pools.config.databases[index];
            let Some(lookups) = lookups else { continue };
            let Some(before) = earlier.databases.get(&database.name).copied() else { continue };
            if let Some(old) = &earlier.lookups[before]
                && earlier.config.databases[old.at].hosts == pools.config.databases[lookups.at].hosts
                && (&old.auth.query, &old.auth.user, &old.database)
                    == (&lookups.auth.query, &lookups.auth.user, &lookups.database)
            {
                lookups.known = Arc::clone(&old.known);
                lookups.known.expire(Instant::now());
            }
        }
        pools
    }

    /// The configured database that serves a name.
    fn database(&self, name: &str) -> Option<usize> {
        let found = self.databases.get(name).or_else(|| self.databases.get(FALLBACK)).copied();
        found.filter(|_| !name.is_empty() && name.len() <= MAX_NAME_BYTES)
    }

    /// Whether clients of PostgreSQL may ask for a database by this name.
    pub fn serves(&self, name: &str) -> bool {
        self.database(name).is_some()
    }

    /// The name that clients of PostgreSQL use for a pool's database; `None` if the pool has no such clients.
    pub fn database_of_clients(&self, pool: PoolId) -> Option<Arc<str>> {
        match self.entry(pool).0.key {
            Key::Postgres { database, .. } | Key::Dedicated { database, .. } => Some(database),
            Key::Redis { .. } | Key::MongoDb { .. } | Key::Lookups { .. } => None,
        }
    }

    /// Where the users of a database are looked up. For a database that does not exist they are looked up in another
    /// one, so that a client cannot tell the difference.
    fn lookups(&self, database: &str) -> Option<&Lookups> {
        match self.database(database) {
            Some(index) => self.lookups[index].as_ref(),
            None => self.lookups.iter().flatten().next(),
        }
    }

    /// What the servers of a pool look up, if they look up users.
    fn lookups_of(&self, pool: &Entry) -> Option<&Lookups> {
        let Key::Lookups { database, .. } = &pool.key else { return None };
        self.lookups[*self.databases.get(&**database)?].as_ref()
    }

    /// A user's stored password: from the configuration, or as last looked up.
    fn stored(&self, database: usize, user: &str) -> Option<Arc<Password>> {
        if let Some(password) = self.user(user).and_then(|user| user.password.clone()) {
            return Some(Arc::new(password));
        }
        self.lookups[database].as_ref()?.known.last(user)
    }

    /// The password with which Poolhouse logs in to servers, if it is known.
    fn server_password(&self, database: usize, user: &str) -> Option<Secret> {
        let from = &self.config.databases[database];
        let commanded = || self.commands.password(from.password_command.as_ref()?);
        let configured = from.password.clone().or_else(commanded);
        let stored = || self.stored(database, user)?.plain().cloned();
        configured.or_else(stored).or_else(|| self.verified.get(user))
    }

    pub fn verified_passwords(&self) -> &Arc<VerifiedPasswords> {
        &self.verified
    }

    /// A listener's address, by its index in the configuration.
    pub fn listen(&self, listener: u16) -> Option<&Endpoint> {
        self.config.listeners.get(usize::from(listener)).map(|listener| &listener.listen)
    }

    /// Whether clients of the listener at this address use TLS; `None` if there is no such listener.
    pub fn encryption_at(&self, listen: &Endpoint) -> Option<Encryption> {
        let listener = self.config.listeners.iter().find(|listener| listener.listen == *listen)?;
        Some(match &listener.tls {
            None => Encryption::Off,
            Some(tls) if tls.required => Encryption::Require,
            Some(_) => Encryption::Allow,
        })
    }

    /// What clients of the listener at this address may send; `None` if there is no such listener.
    pub fn rules_at(&self, listen: &Endpoint) -> Option<ListenerRules> {
        let listener = self.config.listeners.iter().find(|listener| listener.listen == *listen)?;
        Some(listener.rules.clone())
    }

    /// The rules of the listener at this address, if its clients speak HTTP.
    pub fn http_at(&self, listen: &Endpoint) -> Option<Arc<HttpRules>> {
        self.config.listeners.iter().find(|listener| listener.listen == *listen)?.http.clone()
    }

    pub fn kind(&self, pool: PoolId) -> Kind {
        self.entry(pool).0.key.kind()
    }

    /// Whether there is a pool with this id.
    pub fn has(&self, pool: PoolId) -> bool {
        self.table.read().unwrap_or_else(PoisonError::into_inner).entries.contains_key(&pool)
    }

    pub fn forget(&self, pool: PoolId) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = table.entries.remove(&pool) else { return };
        if table.ids.get(&entry.key) == Some(&pool) {
            table.ids.remove(&entry.key);
        }
        if let Some(user) = entry.made_for
            && let Some(has) = table.made_up.get_mut(&user)
        {
            *has -= 1;
            if *has == 0 {
                table.made_up.remove(&user);
            }
        }
    }

    /// How connections to a pool's upstream are encrypted, and what its certificate must be like.
    pub fn upstream_tls(&self, pool: PoolId) -> &UpstreamTls {
        &self.entry(pool).1.tls
    }

    pub fn mongo_options(&self, pool: PoolId) -> &MongoOptions {
        &self.entry(pool).1.mongo
    }

    /// How to ask the sentinels, if a pool's hosts are sentinels.
    pub fn sentinel(&self, pool: PoolId) -> Option<&Sentinel> {
        self.entry(pool).1.sentinel.as_ref()
    }

    fn user(&self, name: &str) -> Option<&User> {
        self.users.get(name).map(|i| &self.config.users[*i])
    }

    /// The pool of a database with this key. It is added if there is none.
    fn find_or_add_pool(&self, database: usize, key: Key) -> Result<PoolId, Unknown> {
        self.find_or_add_pool_for(database, key, None)
    }

    /// [`Self::find_or_add_pool`] for a client of this user. One user may have at most half of the free pools of
    /// databases that are not configured by name.
    fn find_or_add_pool_for(&self, database: usize, key: Key, user: Option<&str>) -> Result<PoolId, Unknown> {
        if let Some(id) = self.table.read().unwrap_or_else(PoisonError::into_inner).ids.get(&key) {
            return Ok(*id);
        }
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = table.ids.get(&key) {
            return Ok(*id);
        }
        let configured = &self.config.databases[database];
        // Only the owner's pool has a parameter of its own: see `find_dedicated_route`.
        let is_owners = matches!(&key, Key::Dedicated { parameters, .. } if !parameters.is_empty());
        let is_operators = configured.is_console && (is_owners || self.config.console.role(key.user()).is_some());
        let is_covered = configured.name == FALLBACK;
        let made_up = !is_operators && (is_covered || key.is_made_up());
        let most = if made_up { MAX_POOLS - RESERVED_FOR_CONFIGURED } else { MAX_POOLS };
        if table.entries.len() >= most + self.lookups.iter().flatten().count() {
            let text =
                format!("{most} pairs of database and user are in use, or were lately, and Poolhouse keeps no more");
            return Err(Unknown::Full(text));
        }
        let made_for: Option<Arc<str>> = user.filter(|_| made_up).map(Into::into);
        if let Some(user) = &made_for {
            let left = most.saturating_sub(table.entries.len());
            let has = table.made_up.get(user).copied().unwrap_or_default();
            if has >= left {
                let text = format!(
                    "user \"{user}\" has {has} databases that are in use, or were lately, \
                     and no more than that are left for all other users"
                );
                return Err(Unknown::Full(text));
            }
            table.made_up.insert(Arc::clone(user), has + 1);
        }
        if is_covered && self.config.is_in_place_of_pgbouncer() && !table.has_database(&key) {
            tracing::info!(database = key.label(), "first use of a database that only \"*\" covers");
        }
        let entry = Entry { database, key: key.clone(), made_for };
        let id = table.add(entry).ok_or_else(|| Unknown::Full("there are no numbers left for pools".to_owned()))?;
        table.ids.insert(key, id);
        Ok(id)
    }

    /// The pool that continues one of an earlier configuration; `None` if its database or its user was removed.
    pub fn pool_continuing(&self, earlier: &Self, pool: PoolId) -> Option<PoolId> {
        let (entry, before) = earlier.entry(pool);
        let index = match &entry.key {
            Key::Lookups { database, .. } => {
                let index = *self.databases.get(&**database)?;
                return self.lookups[index].as_ref().map(|lookups| lookups.pool);
            }
            Key::Postgres { database, .. } | Key::Dedicated { database, .. } => {
                *self.databases.get(&**database).or_else(|| self.databases.get(FALLBACK))?
            }
            Key::Redis { .. } => self.redis?,
            Key::MongoDb { host, .. } => {
                let index = self.mongodb?;
                self.host(index, host)?;
                index
            }
        };
        let user = entry.key.user();
        let user = match (&before.user, &self.config.databases[index].user) {
            // All clients share the configured user's pool.
            (Some(_), Some(now)) => now.as_str().into(),
            (None, None) if self.admits(index, user) => Arc::clone(user),
            _ => return None,
        };
        self.find_or_add_pool_for(index, entry.key.with_user(user), entry.made_for.as_deref()).ok()
    }

    /// Whether a user may use a database, as far as the configuration tells.
    fn admits(&self, database: usize, user: &str) -> bool {
        !self.config.authenticates(self.config.databases[database].kind)
            || self.user(user).is_some()
            || matches!(self.config.auth, AuthType::Any)
            || self.config.auth.methods().iter().any(|method| matches!(method, Method::Ldap(_)))
            || self.lookups[database].is_some()
    }

    /// # Panics
    /// If the id was never handed out, or the pool has been forgotten.
    fn entry(&self, pool: PoolId) -> (Entry, &Database) {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let entry = table.entries.get(&pool).expect("the pool's id was handed out here").clone();
        let database = &self.config.databases[entry.database];
        (entry, database)
    }
}

impl Table {
    /// Whether there is a pool of the same database.
    fn has_database(&self, key: &Key) -> bool {
        self.entries.values().any(|entry| entry.key.label() == key.label())
    }

    /// `None` if all ids have been used.
    fn add(&mut self, entry: Entry) -> Option<PoolId> {
        let id = PoolId(self.next);
        self.next = self.next.checked_add(1)?;
        self.entries.insert(id, entry);
        Some(id)
    }
}
