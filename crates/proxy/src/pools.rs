//! Who may log in to what, and which pool serves him: the configuration as the protocol and the driver ask for it.
//! A pool gets its id when the first client asks for it; ids are never reused. Opens no connection.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use driver::{PoolSpec, Upstreams};
use postgres::{Directory, Encryption, PoolMode, Proof, Route, ServerEncryption, ServerLogin, StatePolicy, Unknown};
use protocol::{Origin, PoolId};

use crate::{
    Password,
    config::{Config, Database, Endpoint, FALLBACK, Mode, PoolSettings, Reset, UpstreamTls, User},
    tls::{Tls, uses_tls},
};

/// Most pools of a process. Reached only through the `*` database, whose names clients choose.
pub const MAX_POOLS: usize = 4096;

/// Bytes that a name of a database or user may have; PostgreSQL's own have at most 63.
const MAX_NAME: usize = 255;

/// The pools of a configuration.
pub struct Pools {
    config: Arc<Config>,
    tls: Arc<Tls>,
    databases: HashMap<String, usize>,
    users: HashMap<String, usize>,
    table: RwLock<Table>,
}

#[derive(Default)]
struct Table {
    /// By the database's name as clients call it, then by the user that its servers log in as.
    ids: HashMap<Arc<str>, HashMap<Arc<str>, PoolId>>,
    /// By id.
    entries: Vec<Entry>,
}

#[derive(Clone)]
struct Entry {
    /// Index into the configured databases.
    database: usize,
    /// As clients call it: not the configured name when that is `*`.
    name: Arc<str>,
    user: Arc<str>,
}

impl Pools {
    /// No pool yet. `tls` belongs to the same configuration.
    pub fn new(config: Arc<Config>, tls: Arc<Tls>) -> Self {
        let databases = config.databases.iter().enumerate().map(|(i, d)| (d.name.clone(), i)).collect();
        let users = config.users.iter().enumerate().map(|(i, u)| (u.name.clone(), i)).collect();
        Self { config, tls, databases, users, table: RwLock::default() }
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

    /// How connections to a pool's upstream are encrypted, and what its certificate must be like.
    pub fn upstream_tls(&self, pool: PoolId) -> &UpstreamTls {
        &self.entry(pool).1.tls
    }

    fn user(&self, name: &str) -> Option<&User> {
        self.users.get(name).map(|i| &self.config.users[*i])
    }

    /// The pool of a database under the name the client used, for a user.
    fn pool(&self, database: usize, name: &str, user: &str) -> Result<PoolId, Unknown> {
        let find = |table: &Table| table.ids.get(name).and_then(|users| users.get(user)).copied();
        if let Some(id) = find(&self.table.read().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(id);
        }
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = find(&table) {
            return Ok(id);
        }
        if table.entries.len() >= MAX_POOLS {
            return Err(Unknown::Forbidden(format!(
                "{MAX_POOLS} pairs of database and user have been asked for, and no more are possible"
            )));
        }
        let id = PoolId(table.entries.len() as u32);
        let (name, user): (Arc<str>, Arc<str>) = (name.into(), user.into());
        table.entries.push(Entry { database, name: name.clone(), user: user.clone() });
        table.ids.entry(name).or_default().insert(user, id);
        Ok(id)
    }

    /// What a pool of an earlier configuration is in this one; `None` if its database or its user is gone.
    pub fn successor(&self, earlier: &Self, pool: PoolId) -> Option<PoolId> {
        let (entry, before) = earlier.entry(pool);
        let index = *self.databases.get(&*entry.name).or_else(|| self.databases.get(FALLBACK))?;
        let user = match (&before.user, &self.config.databases[index].user) {
            // Clients share it, whoever they are.
            (Some(_), Some(user)) => user,
            (None, None) if !self.config.authenticates() || self.user(&entry.user).is_some() => &*entry.user,
            _ => return None,
        };
        self.pool(index, &entry.name, user).ok()
    }

    /// Panics for an id that was never handed out: ids come from here only.
    fn entry(&self, pool: PoolId) -> (Entry, &Database) {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let entry = table.entries.get(pool.0 as usize).expect("the pool's id was handed out here").clone();
        let database = &self.config.databases[entry.database];
        (entry, database)
    }

    /// The database's settings under the rules of the user.
    fn settings(&self, database: &Database, user: &str) -> PoolSettings {
        let mut settings = database.pool.clone();
        if let Some(user) = self.user(user) {
            settings.mode = user.mode.unwrap_or(settings.mode);
            settings.config.max_size = user.max_size.unwrap_or(settings.config.max_size);
            let min_size = user.min_size.unwrap_or(settings.config.min_size);
            settings.config.min_size = min_size.min(settings.config.effective_max_size());
        }
        settings
    }

    fn caps(&self, entry: &Entry, database: &Database) -> Vec<(String, u32)> {
        let limits = &self.config.limits;
        let (name, user) = (&entry.name, &entry.user);
        let of_user = self.user(user).and_then(|u| u.max_user_connections).unwrap_or(limits.max_user_connections);
        // The last one is the pool's own, so its size belongs there, too: what is a cap can be shared with another process.
        let size = self.settings(database, user).config.max_size;
        let of_pool = [size, database.max_user_connections].into_iter().filter(|limit| *limit > 0).min().unwrap_or(0);
        let caps = [
            ("process".to_owned(), limits.max_server_connections),
            (format!("database {name}"), database.max_connections),
            (format!("user {user}"), of_user),
            (format!("user {user} of database {name}"), of_pool),
        ];
        // Those without a limit, too: a reload may give them one.
        caps.into()
    }
}

impl Directory for Pools {
    fn encryption(&self, listener: u16) -> Encryption {
        match self.tls.acceptor(usize::from(listener)) {
            Some(_) => self.listen(listener).and_then(|listen| self.encryption_at(listen)).unwrap_or_default(),
            None => Encryption::Off,
        }
    }

    fn proof(&self, origin: Origin, user: &str) -> Result<Proof, Unknown> {
        if user.is_empty() || user.len() > MAX_NAME {
            return Err(Unknown::User);
        }
        if self.config.authenticates() {
            let user = self.user(user).ok_or(Unknown::User)?;
            if user.certificate {
                return Ok(Proof::Certificate);
            }
            return user.password.as_ref().map(proof).ok_or(Unknown::User);
        }
        match origin.is_local() || self.config.insecure_no_auth {
            true => Ok(Proof::Trust),
            false => Err(Unknown::Forbidden(
                "no users are configured, so clients are let in from this machine only: add a [[user]] with a password"
                    .to_owned(),
            )),
        }
    }

    fn route(&self, database: &str, user: &str) -> Result<Route, Unknown> {
        let found = self.databases.get(database).or_else(|| self.databases.get(FALLBACK)).copied();
        let index = found.filter(|_| !database.is_empty() && database.len() <= MAX_NAME).ok_or(Unknown::Database)?;
        let configured = &self.config.databases[index];
        let server_user = configured.user.as_deref().unwrap_or(user);
        let pool = self.pool(index, database, server_user)?;
        Ok(Route { pool, mode: mode(self.settings(configured, server_user).mode) })
    }

    fn server_login(&self, pool: PoolId) -> ServerLogin {
        let (entry, database) = self.entry(pool);
        let own = || self.user(&entry.user).and_then(|user| user.password.as_ref()).and_then(Password::plain);
        let password = database.password.as_ref().or_else(own);
        let settings = self.settings(database, &entry.user);
        ServerLogin {
            database: database.database.clone().unwrap_or_else(|| entry.name.to_string()),
            user: entry.user.to_string(),
            password: password.map(|secret| Arc::clone(secret.reveal())),
            parameters: database.parameters.clone(),
            mode: mode(settings.mode),
            state: state_policy(&settings),
            target: database.target,
            encryption: encryption(database),
        }
    }
}

impl Upstreams for Pools {
    fn spec(&self, pool: PoolId) -> PoolSpec {
        let (entry, database) = self.entry(pool);
        PoolSpec {
            database: entry.name.to_string(),
            user: entry.user.to_string(),
            hosts: database.hosts.clone(),
            tls: self.tls.connector(entry.database),
            config: self.settings(database, &entry.user).config,
            caps: self.caps(&entry, database),
            revision: 0,
        }
    }
}

fn encryption(database: &Database) -> ServerEncryption {
    let tls = &database.tls;
    match uses_tls(database) {
        true => ServerEncryption { tls: tls.mode.tls(), direct: tls.direct, binding: tls.binding },
        // Without TLS there is nothing to bind to, and nobody in between on a Unix socket.
        false => ServerEncryption::default(),
    }
}

fn mode(mode: Mode) -> PoolMode {
    match mode {
        Mode::Transaction => PoolMode::Transaction,
        Mode::Session => PoolMode::Session,
        Mode::Statement => PoolMode::Statement,
    }
}

fn state_policy(settings: &PoolSettings) -> StatePolicy {
    let state = &settings.state;
    let half = (settings.config.effective_max_size() / 2).max(1);
    StatePolicy {
        on_state: state.on_session_state,
        always_reset: state.reset == Reset::Always,
        max_pinned: state.max_pinned.unwrap_or(half),
        max_prepared: state.max_prepared_statements.unwrap_or(StatePolicy::default().max_prepared),
    }
}

fn proof(password: &Password) -> Proof {
    match password {
        Password::Md5(hash) => Proof::Md5(Arc::clone(hash.reveal())),
        Password::Plain(..) | Password::Scram(_) => {
            Proof::Scram(password.verifier().expect("a plain or SCRAM password has a verifier"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Flags, from_text, from_url};
    use std::path::Path;

    const LOCAL: Origin = Origin { listener: 0, address: None };

    fn remote() -> Origin {
        Origin { listener: 0, address: Some([10, 0, 0, 5].into()) }
    }

    fn made(config: Config) -> Pools {
        let tls = Tls::load(&config).unwrap();
        Pools::new(Arc::new(config), Arc::new(tls))
    }

    fn pools(text: &str) -> Pools {
        made(from_text(Path::new("p.toml"), text, &|_| None).unwrap())
    }

    const OWN_USERS: &str = r#"
        [limits]
        max_server_connections = 9
        [[database]]
        name = "a"
        url = "postgres://h"
        max_connections = 5
        [[database]]
        name = "*"
        url = "postgres://forced:pw@h"
        [[user]]
        name = "u"
        password = "plain"
        mode = "session"
        max_user_connections = 3
        [[user]]
        name = "v"
        password = "md50123456789abcdef0123456789abcdef"
    "#;

    #[test]
    fn a_client_is_served_under_its_own_user_when_the_url_has_none() {
        let pools = pools(OWN_USERS);
        assert!(matches!(pools.proof(remote(), "u"), Ok(Proof::Scram(_))));
        let login = pools.route("a", "u").unwrap();
        assert_eq!(login.mode, PoolMode::Session);
        let server = pools.server_login(login.pool);
        assert_eq!((server.database.as_str(), server.user.as_str()), ("a", "u"));
        assert_eq!(server.password.as_deref(), Some("plain"));
        let caps: Vec<_> = pools.spec(login.pool).caps;
        let named = |name: &str, limit| (name.to_owned(), limit);
        let of_pool = named("user u of database a", 20);
        assert_eq!(caps, [named("process", 9), named("database a", 5), named("user u", 3), of_pool]);
        assert!(matches!(pools.proof(remote(), "v"), Ok(Proof::Md5(_))));
    }

    #[test]
    fn users_of_a_database_with_a_user_of_its_own_share_a_pool() {
        let pools = pools(OWN_USERS);
        let (u, v) = (pools.route("x", "u").unwrap(), pools.route("x", "v").unwrap());
        assert_eq!(u.pool, v.pool);
        assert_ne!(u.pool, pools.route("y", "u").unwrap().pool);
        let server = pools.server_login(u.pool);
        assert_eq!((server.database.as_str(), server.user.as_str()), ("x", "forced"));
        assert_eq!(server.password.as_deref(), Some("pw"));
        assert_eq!(pools.spec(u.pool).database, "x");
    }

    #[test]
    fn who_is_not_configured_gets_no_pool() {
        let pools = pools(OWN_USERS);
        assert!(matches!(pools.proof(LOCAL, "w"), Err(Unknown::User)));
        assert!(matches!(pools.route("", "u"), Err(Unknown::Database)));
        assert!(pools.table.read().unwrap().entries.is_empty());
    }

    #[test]
    fn without_users_only_this_machine_is_let_in() {
        let config = from_url("postgres://app@h/d", &Flags::default(), &|_| None).unwrap();
        let pools = made(config);
        assert!(matches!(pools.proof(LOCAL, "anybody"), Ok(Proof::Trust)));
        assert_eq!(pools.server_login(pools.route("d", "anybody").unwrap().pool).user, "app");
        assert!(matches!(pools.proof(remote(), "app"), Err(Unknown::Forbidden(_))));
    }

    #[test]
    fn names_chosen_by_clients_cannot_make_pools_without_end() {
        let pools = pools(OWN_USERS);
        for n in 0..MAX_POOLS {
            pools.route(&format!("d{n}"), "u").unwrap();
        }
        assert!(matches!(pools.route("one more", "u"), Err(Unknown::Forbidden(_))));
        assert!(pools.route("d7", "u").is_ok());
        assert!(matches!(pools.route(&"x".repeat(256), "u"), Err(Unknown::Database)));
    }
}
