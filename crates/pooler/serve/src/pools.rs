//! Who may log in to what, and which pool serves him: the configuration as the protocol and the driver ask for it. A
//! pool gets its id when the first client asks for it; ids are never used again, though unused pools are forgotten.
//! Opens no connection.
//!
//! - [`key`]: what tells pools apart;
//! - [`logins`]: what the protocol asks;
//! - [`redis`], [`mongodb`]: what the protocols of Redis and MongoDB ask;
//! - [`specs`]: what the driver asks.

mod key;
mod logins;
mod mongodb;
pub(crate) mod redis;
mod specs;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use ::redis_session::HttpRules;
use postgres_session::{Encryption, Look, Unknown};
use seam::PoolId;
use settings::Secret;
use upstream::{Kind, MongoOptions, Sentinel, UpstreamTls};

use self::key::Key;
pub(crate) use self::key::RESP3;
use crate::{
    Password,
    config::{AuthQuery, Config, Database, Endpoint, FALLBACK, User},
    known_users::KnownUsers,
    tls::Tls,
    tokens::Tokens,
};

/// Most pools of a process.
pub const MAX_POOLS: usize = 16_384;

/// Of these, those kept for databases that are configured by name: those whose names clients make up get no more,
/// because there is no end to such names.
const KEPT_FOR_CONFIGURED: usize = MAX_POOLS / 4;

/// Bytes that a name of a database or user may have; PostgreSQL's own have at most 63.
const MAX_NAME: usize = 255;

/// The pools of a configuration.
pub struct Pools {
    config: Arc<Config>,
    tls: Arc<Tls>,
    /// Those that clients ask for by name.
    databases: HashMap<String, usize>,
    /// The one of Redis, whose logical databases clients ask for by number.
    redis: Option<usize>,
    /// The one of MongoDB, of which clients see one deployment.
    mongodb: Option<usize>,
    users: HashMap<String, usize>,
    /// What the configured users are asked for at login.
    looks: Vec<Look>,
    tokens: Tokens,
    /// For each database: what it said of its users, if they are looked up there.
    lookups: Vec<Option<Lookups>>,
    table: RwLock<Table>,
}

/// The users of a database who are looked up there.
struct Lookups {
    /// Whose servers are asked.
    pool: PoolId,
    auth: AuthQuery,
    known: Arc<KnownUsers>,
}

#[derive(Default)]
struct Table {
    ids: HashMap<Key, PoolId>,
    entries: HashMap<PoolId, Entry>,
    /// The number of the next pool.
    next: u32,
    /// How many were made for a client of this name, of a database whose name was made up.
    made_up: HashMap<Arc<str>, usize>,
}

#[derive(Clone)]
struct Entry {
    /// Index into the configured databases.
    database: usize,
    key: Key,
    /// The client's user for whom it was made, if its database's name was made up.
    made_for: Option<Arc<str>>,
}

impl Pools {
    /// No pool yet, but for those in which users are looked up. `tls` belongs to the same configuration.
    pub fn new(config: Arc<Config>, tls: Arc<Tls>) -> Self {
        let of = |kind| move |(_, database): &(usize, &Database)| database.kind == kind;
        let all = || config.databases.iter().enumerate();
        let databases = all().filter(of(Kind::Postgres)).map(|(i, d)| (d.name.clone(), i)).collect();
        let redis = all().find(of(Kind::Redis)).map(|(i, _)| i);
        let mongodb = all().find(of(Kind::MongoDb)).map(|(i, _)| i);
        let users = config.users.iter().enumerate().map(|(i, u)| (u.name.clone(), i)).collect();
        let mut looks = Vec::new();
        for password in config.users.iter().filter_map(|user| user.password.as_ref()) {
            password.note_look(&mut looks);
        }
        let mut table = Table::default();
        let lookups = config.databases.iter().enumerate().map(|(index, database)| {
            let auth = database.auth.clone()?;
            let key = Key::Lookups { database: database.name.as_str().into(), user: auth.user.as_str().into() };
            let pool = table.add(Entry { database: index, key, made_for: None })?;
            Some(Lookups { pool, auth, known: Arc::default() })
        });
        let lookups = lookups.collect();
        let table = RwLock::new(table);
        // Where the servers' user is not named, and nobody has to log in, there is none.
        let tokens = Tokens::new(&config.tokens, "");
        Self { config, tls, databases, redis, mongodb, users, looks, tokens, lookups, table }
    }

    /// The same as pools of a configuration that follows another: passwords that are the same keep their verifiers, and
    /// what databases have said of their users still holds, if the same ones are asked the same.
    pub fn after(self, earlier: &Self) -> Self {
        let mut pools = self;
        for user in &pools.config.users {
            let before = earlier.user(&user.name).and_then(|before| before.password.as_ref());
            if let (Some(password), Some(before)) = (&user.password, before) {
                password.go_on_as(before);
            }
        }
        for (index, lookups) in pools.lookups.iter_mut().enumerate() {
            let database = &pools.config.databases[index];
            let Some(lookups) = lookups else { continue };
            let Some(before) = earlier.databases.get(&database.name).copied() else { continue };
            if let Some(old) = &earlier.lookups[before]
                && earlier.config.databases[before].hosts == database.hosts
                && (&old.auth.query, &old.auth.user, &old.auth.database)
                    == (&lookups.auth.query, &lookups.auth.user, &lookups.auth.database)
            {
                lookups.known = Arc::clone(&old.known);
            }
        }
        pools
    }

    /// The configured database that serves a name.
    fn database(&self, name: &str) -> Option<usize> {
        let found = self.databases.get(name).or_else(|| self.databases.get(FALLBACK)).copied();
        found.filter(|_| !name.is_empty() && name.len() <= MAX_NAME)
    }

    /// Where the users of a database are looked up. Those who ask for one that does not exist are looked up
    /// somewhere, too, so that strangers cannot tell.
    fn lookups(&self, database: &str) -> Option<&Lookups> {
        match self.database(database) {
            Some(index) => self.lookups[index].as_ref(),
            None => self.lookups.iter().flatten().next(),
        }
    }

    /// What is stored of a user's password, here or, as far as is known, in the database.
    fn stored(&self, database: usize, user: &str) -> Option<Arc<Password>> {
        if let Some(password) = self.user(user).and_then(|user| user.password.clone()) {
            return Some(Arc::new(password));
        }
        self.lookups[database].as_ref()?.known.last(user)
    }

    /// The password with which servers of a database are logged in to, if it is known.
    fn server_password(&self, database: usize, user: &str) -> Option<Secret> {
        let configured = self.config.databases[database].password.clone();
        configured.or_else(|| self.stored(database, user)?.plain().cloned())
    }

    /// Where a listener is, by its place in the configuration.
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

    /// The rules of the listener at this address, if its clients speak HTTP.
    pub fn http_at(&self, listen: &Endpoint) -> Option<Arc<HttpRules>> {
        self.config.listeners.iter().find(|listener| listener.listen == *listen)?.http.clone()
    }

    /// The kind of database that a pool is for.
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

    /// What is MongoDB's alone of a pool's upstream.
    pub fn mongo_options(&self, pool: PoolId) -> &MongoOptions {
        &self.entry(pool).1.mongo
    }

    /// How the sentinels of a pool's upstream are asked, if its hosts are some.
    pub fn sentinel(&self, pool: PoolId) -> Option<&Sentinel> {
        self.entry(pool).1.sentinel.as_ref()
    }

    fn user(&self, name: &str) -> Option<&User> {
        self.users.get(name).map(|i| &self.config.users[*i])
    }

    /// The pool of a database with this key.
    fn pool(&self, database: usize, key: Key) -> Result<PoolId, Unknown> {
        self.pool_for(database, key, None)
    }

    /// The same, for a client of this user. Of pools whose names clients make up none may have more than are left for
    /// all others.
    fn pool_for(&self, database: usize, key: Key, user: Option<&str>) -> Result<PoolId, Unknown> {
        if let Some(id) = self.table.read().unwrap_or_else(PoisonError::into_inner).ids.get(&key) {
            return Ok(*id);
        }
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = table.ids.get(&key) {
            return Ok(*id);
        }
        let made_up = self.config.databases[database].name == FALLBACK || key.is_made_up();
        let most = if made_up { MAX_POOLS - KEPT_FOR_CONFIGURED } else { MAX_POOLS };
        if table.entries.len() >= most + self.lookups.iter().flatten().count() {
            let text =
                format!("{most} pairs of database and user are in use, or were lately, and Poolhouse keeps no more");
            return Err(Unknown::Full(text));
        }
        let made_for: Option<Arc<str>> = user.filter(|_| made_up).map(Into::into);
        if let Some(user) = &made_for {
            let left = most.saturating_sub(table.entries.len());
            let has = table.made_up.entry(Arc::clone(user)).or_default();
            if *has >= left {
                let text = format!(
                    "user \"{user}\" has {has} databases that are in use, or were lately, and no more than that are left for all other users"
                );
                return Err(Unknown::Full(text));
            }
            *has += 1;
        }
        let entry = Entry { database, key: key.clone(), made_for };
        let id = table.add(entry).ok_or_else(|| Unknown::Full("there are no numbers left for pools".to_owned()))?;
        table.ids.insert(key, id);
        Ok(id)
    }

    /// What a pool of an earlier configuration is in this one; `None` if its database or its user is gone.
    pub fn successor(&self, earlier: &Self, pool: PoolId) -> Option<PoolId> {
        let (entry, before) = earlier.entry(pool);
        let index = match &entry.key {
            Key::Lookups { database, .. } => {
                let index = *self.databases.get(&**database)?;
                return self.lookups[index].as_ref().map(|lookups| lookups.pool);
            }
            Key::Postgres { database, .. } => {
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
            // Clients share it, whoever they are.
            (Some(_), Some(now)) => now.as_str().into(),
            (None, None) if self.admits(index, user) => Arc::clone(user),
            _ => return None,
        };
        self.pool_for(index, entry.key.with_user(user), entry.made_for.as_deref()).ok()
    }

    /// Whether a user of this name may come to a database, as far as is known without asking.
    fn admits(&self, database: usize, user: &str) -> bool {
        !self.config.authenticates(self.config.databases[database].kind)
            || self.user(user).is_some()
            || self.lookups[database].is_some()
    }

    /// Panics for an id that was never handed out, or of a pool that is forgotten: who asks knows that it is not.
    fn entry(&self, pool: PoolId) -> (Entry, &Database) {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let entry = table.entries.get(&pool).expect("the pool's id was handed out here").clone();
        let database = &self.config.databases[entry.database];
        (entry, database)
    }
}

impl Table {
    /// One more; `None` if there are no numbers left.
    fn add(&mut self, entry: Entry) -> Option<PoolId> {
        let id = PoolId(self.next);
        self.next = self.next.checked_add(1)?;
        self.entries.insert(id, entry);
        Some(id)
    }
}
