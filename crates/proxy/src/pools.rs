//! Who may log in to what, and which pool serves him: the configuration as the protocol and the driver ask for it.
//! A pool gets its id when the first client asks for it; ids are never reused. Opens no connection.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
    time::Instant,
};

use driver::{PoolSpec, PoolTimeouts, Upstreams};
use postgres::{
    Ask, Directory, Encryption, PoolMode, Proof, Route, ServerEncryption, ServerLogin, StatePolicy, Unknown,
};
use protocol::{Origin, PoolId};

use crate::{
    Password, Secret,
    config::{AuthQuery, Config, Database, Endpoint, FALLBACK, Mode, PoolSettings, Reset, UpstreamTls, User},
    known_users::KnownUsers,
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
    /// No client is served here: users are looked up.
    lookups: bool,
}

impl Pools {
    /// No pool yet, but for those in which users are looked up. `tls` belongs to the same configuration.
    pub fn new(config: Arc<Config>, tls: Arc<Tls>) -> Self {
        let databases = config.databases.iter().enumerate().map(|(i, d)| (d.name.clone(), i)).collect();
        let users = config.users.iter().enumerate().map(|(i, u)| (u.name.clone(), i)).collect();
        let mut entries = Vec::new();
        let lookups = config.databases.iter().enumerate().map(|(index, database)| {
            let auth = database.auth.clone()?;
            let pool = PoolId(entries.len() as u32);
            let name = format!("{}/auth_query", database.name);
            entries.push(Entry { database: index, name: name.into(), user: auth.user.as_str().into(), lookups: true });
            Some(Lookups { pool, auth, known: Arc::default() })
        });
        let lookups = lookups.collect();
        let table = RwLock::new(Table { entries, ..Table::default() });
        Self { config, tls, databases, users, lookups, table }
    }

    /// The same as pools of a configuration that follows another: what databases have said of their users still holds, if the same
    /// ones are asked the same.
    pub fn after(self, earlier: &Self) -> Self {
        let mut pools = self;
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
        if table.entries.len() >= MAX_POOLS + self.lookups.iter().flatten().count() {
            return Err(Unknown::Forbidden(format!(
                "{MAX_POOLS} pairs of database and user have been asked for, and no more are possible"
            )));
        }
        let id = PoolId(table.entries.len() as u32);
        let (name, user): (Arc<str>, Arc<str>) = (name.into(), user.into());
        table.entries.push(Entry { database, name: name.clone(), user: user.clone(), lookups: false });
        table.ids.entry(name).or_default().insert(user, id);
        Ok(id)
    }

    /// What a pool of an earlier configuration is in this one; `None` if its database or its user is gone.
    pub fn successor(&self, earlier: &Self, pool: PoolId) -> Option<PoolId> {
        let (entry, before) = earlier.entry(pool);
        if entry.lookups {
            let index = *self.databases.get(&before.name)?;
            return self.lookups[index].as_ref().map(|lookups| lookups.pool);
        }
        let index = *self.databases.get(&*entry.name).or_else(|| self.databases.get(FALLBACK))?;
        let user = match (&before.user, &self.config.databases[index].user) {
            // Clients share it, whoever they are.
            (Some(_), Some(user)) => user,
            (None, None) if self.admits(index, &entry.user) => &*entry.user,
            _ => return None,
        };
        self.pool(index, &entry.name, user).ok()
    }

    /// Whether a user of this name may come to a database, as far as is known without asking.
    fn admits(&self, database: usize, user: &str) -> bool {
        !self.config.authenticates() || self.user(user).is_some() || self.lookups[database].is_some()
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
            settings.config.max_wait_time = user.max_wait_time.unwrap_or(settings.config.max_wait_time);
            let (own, general) = (user.timeouts, settings.timeouts);
            settings.timeouts = PoolTimeouts {
                client_idle: own.client_idle.or(general.client_idle),
                query: own.query.or(general.query),
                transaction_idle: own.transaction_idle.or(general.transaction_idle),
            };
        }
        settings
    }

    /// The pool in which users are looked up: small, outside the limits of database and user, inside the process's.
    fn lookup_spec(&self, entry: &Entry, database: &Database, auth: &AuthQuery) -> PoolSpec {
        let mut config = database.pool.config.clone();
        config.max_size = auth.pool_size;
        config.min_size = 0;
        config.max_connecting = config.max_connecting.min(auth.pool_size);
        let process = self.config.limits.max_server_connections;
        PoolSpec {
            database: entry.name.to_string(),
            user: entry.user.to_string(),
            hosts: database.hosts.clone(),
            tls: self.tls.connector(entry.database),
            config,
            caps: vec![("process".to_owned(), process)],
            timeouts: PoolTimeouts::default(),
            revision: 0,
        }
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

    fn proof(&self, origin: Origin, database: &str, user: &str) -> Result<Proof, Unknown> {
        if user.is_empty() || user.len() > MAX_NAME {
            return Err(Unknown::User);
        }
        if self.config.authenticates() {
            if self.user(user).is_some_and(|user| user.certificate) {
                return Ok(Proof::Certificate);
            }
            if let Some(password) = self.user(user).and_then(|user| user.password.as_ref()) {
                return Ok(proof(password));
            }
            let Lookups { pool, auth, known } = self.lookups(database).ok_or(Unknown::User)?;
            return match known.fresh(user, Instant::now()) {
                Some(password) => password.map(|password| proof(&password)).ok_or(Unknown::User),
                None => Ok(Proof::Ask(Ask { pool: *pool, query: Arc::clone(&auth.query) })),
            };
        }
        match origin.is_local() || self.config.insecure_no_auth {
            true => Ok(Proof::Trust),
            false => Err(Unknown::Forbidden(
                "no users are configured, so clients are let in from this machine only: add a [[user]] with a password"
                    .to_owned(),
            )),
        }
    }

    fn answered(&self, database: &str, user: &str, stored: Option<&str>) -> Result<Proof, Unknown> {
        let Lookups { auth, known, .. } = self.lookups(database).ok_or(Unknown::User)?;
        let password = stored.map(|stored| Password::parse(&Secret::new(stored))).transpose();
        let password = password.unwrap_or_else(|error| {
            tracing::warn!(user, "the auth_query gave a password that cannot be used: {error}");
            None
        });
        let now = Instant::now();
        match password {
            Some(password) => Ok(proof(&known.found(user, password, now, auth.cache_time))),
            None => {
                known.missing(user, now, auth.failure_cache_time);
                Err(Unknown::User)
            }
        }
    }

    fn refuted(&self, database: &str, user: &str) {
        if let Some(lookups) = self.lookups(database) {
            lookups.known.refuted(user, Instant::now());
        }
    }

    fn route(&self, database: &str, user: &str) -> Result<Route, Unknown> {
        let index = self.database(database).ok_or(Unknown::Database)?;
        let configured = &self.config.databases[index];
        let server_user = configured.user.as_deref().unwrap_or(user);
        let pool = self.pool(index, database, server_user)?;
        let pass_through = server_user == user && self.server_password(index, user).is_none();
        let settings = self.settings(configured, server_user);
        Ok(Route { pool, mode: mode(settings.mode), pass_through, add_host: settings.application_name_add_host })
    }

    fn server_login(&self, pool: PoolId) -> ServerLogin {
        let (entry, database) = self.entry(pool);
        let text = |secret: Secret| Arc::clone(secret.reveal());
        let lookups = self.lookups[entry.database].as_ref().filter(|_| entry.lookups);
        if let Some(Lookups { auth, .. }) = lookups {
            let own = || self.user(&entry.user)?.password.as_ref()?.plain().cloned();
            return ServerLogin {
                database: auth.database.clone(),
                user: entry.user.to_string(),
                password: auth.password.clone().or_else(own).map(text),
                parameters: database.parameters.clone(),
                encryption: encryption(database),
                ..ServerLogin::default()
            };
        }
        let md5_hash = || self.stored(entry.database, &entry.user)?.md5().cloned();
        let settings = self.settings(database, &entry.user);
        ServerLogin {
            database: database.database.clone().unwrap_or_else(|| entry.name.to_string()),
            user: entry.user.to_string(),
            password: self.server_password(entry.database, &entry.user).map(text),
            md5_hash: md5_hash().map(text),
            parameters: database.parameters.clone(),
            connect_query: database.pool.connect_query.clone(),
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
        if let Some(lookups) = self.lookups[entry.database].as_ref().filter(|_| entry.lookups) {
            return self.lookup_spec(&entry, database, &lookups.auth);
        }
        let settings = self.settings(database, &entry.user);
        PoolSpec {
            database: entry.name.to_string(),
            user: entry.user.to_string(),
            hosts: database.hosts.clone(),
            tls: self.tls.connector(entry.database),
            config: settings.config,
            caps: self.caps(&entry, database),
            timeouts: settings.timeouts,
            revision: 0,
        }
    }

    /// Pools whose login is known: of databases with a user of their own, and of users who are to have a `min_size`
    /// of their own. What depends on a client's login starts with that.
    fn at_start(&self) -> Vec<PoolId> {
        let mut pools = Vec::new();
        for (index, database) in self.config.databases.iter().enumerate().filter(|(_, d)| d.name != FALLBACK) {
            let mut add = |user: &str| {
                let known = self.server_password(index, user).is_some() || self.stored(index, user).is_none();
                if known && self.settings(database, user).config.min_size > 0 {
                    pools.extend(self.pool(index, &database.name, user));
                }
            };
            match &database.user {
                Some(user) => add(user),
                None => self.config.users.iter().filter(|u| u.min_size.is_some()).for_each(|user| add(&user.name)),
            }
        }
        pools
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
        // One that listens for all must leave one for everything else.
        share_listener: settings.config.effective_max_size() > 1,
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

    const LOCAL: Origin = Origin { listener: 0, address: None, port: 0 };

    fn remote() -> Origin {
        Origin { listener: 0, address: Some([10, 0, 0, 5].into()), port: 4711 }
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
        assert!(matches!(pools.proof(remote(), "a", "u"), Ok(Proof::Scram(_))));
        let login = pools.route("a", "u").unwrap();
        assert_eq!(login.mode, PoolMode::Session);
        let server = pools.server_login(login.pool);
        assert_eq!((server.database.as_str(), server.user.as_str()), ("a", "u"));
        assert_eq!(server.password.as_deref(), Some("plain"));
        let caps: Vec<_> = pools.spec(login.pool).caps;
        let named = |name: &str, limit| (name.to_owned(), limit);
        let of_pool = named("user u of database a", 20);
        assert_eq!(caps, [named("process", 9), named("database a", 5), named("user u", 3), of_pool]);
        assert!(matches!(pools.proof(remote(), "a", "v"), Ok(Proof::Md5(_))));
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
        assert!(matches!(pools.proof(LOCAL, "a", "w"), Err(Unknown::User)));
        assert!(matches!(pools.route("", "u"), Err(Unknown::Database)));
        assert!(pools.table.read().unwrap().entries.is_empty());
    }

    #[test]
    fn without_users_only_this_machine_is_let_in() {
        let config = from_url("postgres://app@h/d", &Flags::default(), &|_| None).unwrap();
        let pools = made(config);
        assert!(matches!(pools.proof(LOCAL, "a", "anybody"), Ok(Proof::Trust)));
        assert_eq!(pools.server_login(pools.route("d", "anybody").unwrap().pool).user, "app");
        assert!(matches!(pools.proof(remote(), "a", "app"), Err(Unknown::Forbidden(_))));
    }

    const LOOKED_UP: &str = r#"
        [auth]
        auth_user = "lookup"
        auth_password = "pw"
        [[database]]
        name = "a"
        url = "postgres://h"
        [[database]]
        name = "b"
        url = "postgres://h"
        auth_query = "off"
        [[user]]
        name = "known"
        password = "plain"
    "#;

    #[test]
    fn users_who_are_not_configured_are_looked_up_and_remembered() {
        let pools = pools(LOOKED_UP);
        let ask = |user: &str| pools.proof(remote(), "a", user);
        assert!(matches!(ask("known"), Ok(Proof::Scram(_))));
        let Ok(Proof::Ask(question)) = ask("app") else { panic!("it must be asked") };
        let login = pools.server_login(question.pool);
        assert_eq!((login.user.as_str(), login.database.as_str()), ("lookup", "a"));
        assert_eq!(login.password.as_deref(), Some("pw"));
        let spec = pools.spec(question.pool);
        assert_eq!((spec.database.as_str(), spec.config.max_size), ("a/auth_query", 2));

        let hash = "md50123456789abcdef0123456789abcdef";
        assert!(matches!(pools.answered("a", "app", Some(hash)), Ok(Proof::Md5(_))));
        assert!(matches!(ask("app"), Ok(Proof::Md5(_))));
        assert!(matches!(pools.answered("a", "nobody", None), Err(Unknown::User)));
        assert!(matches!(ask("nobody"), Err(Unknown::User)));
        let route = pools.route("a", "app").unwrap();
        assert!(route.pass_through && route.pool != question.pool);
        assert_eq!(pools.server_login(route.pool).md5_hash.as_deref(), Some(hash));
        assert!(!pools.route("a", "known").unwrap().pass_through);
    }

    #[test]
    fn users_are_looked_up_over_connections_as_safe_as_the_databases_own() {
        let text = LOOKED_UP.replacen("postgres://h", "postgres://h?sslmode=require&channel_binding=require", 1);
        let pools = pools(&text);
        let Ok(Proof::Ask(question)) = pools.proof(remote(), "a", "app") else { panic!("it must be asked") };
        let own = pools.route("a", "known").unwrap().pool;
        for pool in [question.pool, own] {
            let encryption = pools.server_login(pool).encryption;
            assert_eq!((encryption.tls, encryption.binding), (postgres::Tls::Require, postgres::Binding::Require));
            assert!(pools.spec(pool).tls.is_some());
        }
    }

    #[test]
    fn strangers_cannot_tell_which_databases_exist_by_what_is_asked() {
        let pools = pools(LOOKED_UP);
        assert!(matches!(pools.proof(remote(), "nowhere", "app"), Ok(Proof::Ask(_))));
        assert!(matches!(pools.proof(remote(), "b", "app"), Err(Unknown::User)));
        assert!(matches!(pools.proof(remote(), "b", "known"), Ok(Proof::Scram(_))));
    }

    #[test]
    fn pools_exist_from_the_start_where_the_login_is_known() {
        let pools = pools(
            r#"
            [pool]
            min_size = 1
            [[database]]
            name = "forced"
            url = "postgres://f:pw@h"
            [[database]]
            name = "own"
            url = "postgres://h"
            [[database]]
            name = "*"
            url = "postgres://f:pw@h"
            [[user]]
            name = "eager"
            password = "plain"
            min_size = 2
            [[user]]
            name = "lazy"
            password = "plain"
            [[user]]
            name = "hashed"
            password = "md50123456789abcdef0123456789abcdef"
            min_size = 2
        "#,
        );
        let specs: Vec<_> = pools.at_start().into_iter().map(|pool| pools.spec(pool)).collect();
        let found: Vec<_> = specs.iter().map(|s| (s.database.as_str(), s.user.as_str(), s.config.min_size)).collect();
        assert_eq!(found, [("forced", "f", 1), ("own", "eager", 2)]);
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
