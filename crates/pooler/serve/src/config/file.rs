//! Reads a configuration file into a [`Config`], or into the list of its errors.

mod listed_users;

use std::{
    collections::{BTreeSet, HashMap},
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::Duration,
};

use driver::{PoolTimeouts, Timeouts};
use pool::GateConfig;
use postgres_session::ListenerRules;
use settings::{Document, Problem, Secret, Section, Variables, choose, read_in_part};
use upstream::{Kind, UpstreamUrl};

use super::{
    AuthType, Config, Database, Endpoint, FALLBACK, Limits, Listener, Mode, PoolSettings, Preset, Source, Token, User,
    addresses::{endpoints, parse_mode, proxies},
    admin_address::admin,
    auth::{LOGIN_KEYS, auth_type},
    auth_query::{AUTH_QUERY_KEYS, AuthKeys},
    console::{self, CONSOLE_KEYS},
    http::{self, HTTP_KEYS, TOKEN_KEYS},
    keys::{self, AUTH_KEYS, DATABASE_KEYS, LIMITS_KEYS, LISTENER_KEYS, ROOT_KEYS, SERVE_KEYS, USER_KEYS},
    listener_rules::{self, RULE_KEYS, listener_rules},
    log::{LOG_KEYS, log},
    mongodb,
    network::{self, DNS_KEYS, TCP_KEYS},
    options::{MAX_COUNT, POOL_KEYS, listener_limits, own_timeouts, pool_settings, tenant_limits},
    password_command::{PASSWORD_COMMAND_KEYS, password_command},
    passwords,
    peers::peers,
    process::serve,
    redis,
    refusals::{
        refuse_duplicates, refuse_impossible_logins, refuse_monitors_only, refuse_shadowed, refuse_unreachable,
    },
    tls::{LISTENER_TLS_KEYS, listener_tls},
};
use crate::compatibility::Compatibility;

/// What `listen` takes, as far as this crate knows; the kernel may have a lower maximum.
const MAX_BACKLOG: u32 = 65_535;

/// Rounds that a SCRAM verifier may have. More would keep a worker busy for longer than a tenth of a second.
const SCRAM_ITERATIONS: RangeInclusive<u32> = 1..=200_000;

/// The outcome of reading a file.
pub struct Reading {
    /// The configuration, without the parts that have errors. `None` for a text that is not TOML.
    pub config: Option<Config>,
    /// The sections without errors.
    pub intact: IntactSections,
    /// The errors, in the order of the text.
    pub problems: Vec<Problem>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IntactSections {
    /// All of `[[database]]`, and `[pool]`.
    pub databases: bool,
    /// All of `[[listener]]`.
    pub listeners: bool,
    /// All of `[[user]]`, and `[auth]`.
    pub users: bool,
}

/// Reads a file's text; the file need not exist. Relative paths in the text start at the file's folder.
pub fn read(path: &Path, text: &str, variables: Variables<'_>) -> Reading {
    let mut intact = IntactSections { databases: true, listeners: true, users: true };
    let foreign = keys::advice;
    let (config, problems) = read_in_part(path, text, variables, foreign, &[ROOT_KEYS], |document, root| {
        let mut reader = Reader {
            document,
            secret_files: vec![path.to_owned()],
            rule_files: Vec::new(),
            warnings: Vec::new(),
            auth: AuthType::default(),
            compatible_with: Compatibility::default(),
            intact,
        };
        let config = reader.config(root);
        intact = reader.intact;
        let Reader { secret_files, rule_files, warnings, .. } = reader;
        let (path, text) = (path.to_owned(), Secret::new(text));
        let source = Source { path, text, secret_files, rule_files, warnings, translation: None };
        Config { source: Some(source), ..config }
    });
    Reading { config, intact, problems }
}

struct Reader<'d> {
    document: &'d Document<'d>,
    secret_files: Vec<PathBuf>,
    rule_files: Vec<PathBuf>,
    /// What is left out, where that is no error.
    warnings: Vec<Problem>,
    auth: AuthType,
    compatible_with: Compatibility,
    intact: IntactSections,
}

impl Reader<'_> {
    fn config(&mut self, root: &Section<'_>) -> Config {
        let serve = root.table("serve", &[SERVE_KEYS]).map(|section| serve(&section)).unwrap_or_default();
        self.compatible_with = serve.compatible_with;
        let limits = root.table("limits", &[LIMITS_KEYS]).map(|section| limits(&section)).unwrap_or_default();
        let at_first = self.error_count();
        let general = root.table("pool", &[POOL_KEYS]);
        let none = PoolSettings::default();
        let pool = general.as_ref().map_or(PoolSettings::default(), |section| pool_settings(section, &none));
        let before_auth = self.error_count();
        let auth = root.table("auth", &[AUTH_KEYS, LOGIN_KEYS, AUTH_QUERY_KEYS]);
        let asked = auth.as_ref().map(|auth| self.auth(auth)).unwrap_or_default();
        let asked = asked.with_defaults_of(serve.compatible_with);
        let auth_is_intact = before_auth == self.error_count();
        let served = root.tables("database", &[POOL_KEYS, DATABASE_KEYS, PASSWORD_COMMAND_KEYS, AUTH_QUERY_KEYS]);
        let mut kinds = Kinds::default();
        let databases: Vec<_> =
            served.iter().filter_map(|section| self.database(section, (&pool, &limits), &asked, &mut kinds)).collect();
        let (kinds, before_listeners) = (kinds, self.error_count());
        self.require_database(root);
        let listeners = listeners(root, &kinds);
        let listeners_are_intact = before_listeners == self.error_count();
        if listeners_are_intact {
            refuse_unreachable(self.document, &databases, &listeners);
        }
        let before_users = self.error_count();
        let known = root.tables("user", &[USER_KEYS]);
        let users: Vec<_> = known.iter().filter_map(|section| self.user(section)).collect();
        let (users, scram_iterations) = self.all_users(auth.as_ref(), users);
        let databases_are_intact = at_first == before_listeners;
        // Users that a database was to be asked for may be unknown.
        let all_asked_for = databases_are_intact || !served.iter().any(|section| section.has("auth_query"));
        self.intact = IntactSections {
            databases: databases_are_intact,
            listeners: listeners_are_intact,
            users: auth_is_intact && all_asked_for && before_users == self.error_count(),
        };
        refuse_duplicates(self.document, &databases, &users);
        let tokens = self.tokens(root, &kinds, &listeners, &users, &databases);
        if !kinds.has(Kind::Postgres) {
            self.refuse_of_postgres(&kinds, general.iter().chain(&auth).chain(&known), &users);
            if !kinds.has(Kind::MongoDb) {
                general.iter().for_each(|section| redis::refuse_auto(section, &pool));
            }
        }
        self.refuse_impossible_logins(auth.as_ref(), &users, &databases);
        refuse_monitors_only(self.document, &limits, &databases);
        let console = root.table("console", &[CONSOLE_KEYS]);
        let console = console.map(|section| console::read(&section, &asked)).unwrap_or_default();
        refuse_shadowed(self.document, &console, &databases);
        Config {
            source: None,
            peers: peers(root, &serve, kinds.has(Kind::Postgres), pool.config.max_size),
            serve,
            admin: admin(root, self.document, &mut self.secret_files),
            log: root.table("log", &[LOG_KEYS]).map(|s| log(&s)).unwrap_or_default(),
            console,
            limits,
            auth: self.auth.clone(),
            tcp: root.table("tcp", &[TCP_KEYS]).map(|s| network::tcp(&s)).unwrap_or_default(),
            dns: root.table("dns", &[DNS_KEYS]).map(|s| network::dns(&s)).unwrap_or_default(),
            scram_iterations,
            pool,
            insecure_no_auth: false,
            listeners,
            databases,
            users,
            tokens,
        }
    }

    fn refuse_impossible_logins(&self, auth: Option<&Section<'_>>, users: &[User], databases: &[Database]) {
        let may_lack_passwords = self.takes_users_without_password();
        refuse_impossible_logins(self.document, (&self.auth, may_lack_passwords), auth, users, databases);
    }

    /// Reads how clients log in, and returns how users are looked up.
    fn auth(&mut self, section: &Section<'_>) -> AuthKeys {
        self.auth = auth_type(section, self.document, &mut self.rule_files);
        self.note_files(section, &["auth_password_file"]);
        AuthKeys::read(section)
    }

    /// Refuses keys that only PostgreSQL has, in a file without one.
    fn refuse_of_postgres<'s, 'd: 's>(
        &self,
        kinds: &Kinds,
        sections: impl Iterator<Item = &'s Section<'d>>,
        users: &[User],
    ) {
        let but: &[&str] = if kinds.has(Kind::MongoDb) { &["max_pinned"] } else { &[] };
        sections.for_each(|section| redis::refuse_foreign(section, but));
        redis::refuse_hashed(users, |user, message| {
            let span = user.spots.get("password").or_else(|| user.spots.get("name")).cloned().unwrap_or_default();
            self.document.error(span, message);
        });
    }

    /// Errors found so far.
    fn error_count(&self) -> usize {
        self.document.problems.borrow().len()
    }

    fn tokens(
        &mut self,
        root: &Section<'_>,
        kinds: &Kinds,
        listeners: &[Listener],
        users: &[User],
        databases: &[Database],
    ) -> Vec<Token> {
        let sections = root.tables("token", &[TOKEN_KEYS]);
        sections.iter().for_each(|section| self.note_files(section, &["token_file"]));
        let tokens: Vec<_> = sections.iter().filter_map(http::token).collect();
        let http = listeners.iter().find(|listener| listener.http.is_some());
        if let (Some(section), true) = (sections.first(), !kinds.has(Kind::Redis)) {
            section.error("", "tokens are for Redis over HTTP");
        }
        if let (Some(listener), true) = (http, sections.is_empty()) {
            let span = listener.spots.get("protocol").cloned().unwrap_or_default();
            let problem = Problem::error("no client can ask here: there is no [[token]]");
            self.document.report(span, problem.hint("see docs/rest.md for one"));
        }
        http::refuse_impossible(&tokens, users, databases, |token, key, message| {
            let span = token.spots.get(key).or_else(|| token.spots.get("")).cloned().unwrap_or_default();
            self.document.error(span, message);
        });
        tokens
    }

    fn database(
        &mut self,
        section: &Section<'_>,
        (pool, limits): (&PoolSettings, &Limits),
        asked: &AuthKeys,
        kinds: &mut Kinds,
    ) -> Option<Database> {
        self.note_files(section, &["url_file", "password_file", "auth_password_file"]);
        let mut settings = pool_settings(section, pool);
        let number = |key: &'static str| section.number(key, 0..=MAX_COUNT);
        let max_connections = number("max_connections").unwrap_or(limits.max_database_connections);
        let max_user_connections = number("max_user_connections").unwrap_or(0);
        let given_name = section.string("name");
        let password = section.secret("password", "password_file", false);
        let key = if section.has("url_file") { "url_file" } else { "url" };
        let Some(url) = database_url(section, key) else {
            kinds.is_one_unread = true;
            return None;
        };
        let kind = url.kind;
        kinds.note(kind);
        let name = database_name(section, given_name, &url)?;
        let passes_name_on = name == FALLBACK && !self.is_in_place_of_pgbouncer();
        if kind == Kind::Postgres && passes_name_on && url.database.is_some() {
            section.error(key, "the database \"*\" passes the client's name on: take the database's name off the url");
        }
        if password.is_some() && url.password.is_some() {
            section.error("password", "the url has a password already");
        }
        let password_command = password_command(section, &url, password.is_some());
        if let (Some(time), false) = (url.connect_time, section.has("connect_time")) {
            settings.config.connect_timeout = time;
        }
        let auth = AuthKeys::read(section).resolve(asked, section, &name, &url);
        let hosts = dial::hosts(&url);
        let database = url.database.or_else(|| (name != FALLBACK).then(|| name.clone()));
        let database = Database {
            kind,
            name,
            hosts,
            sentinel: url.sentinel,
            mongo: url.mongo.clone(),
            target: dial::target(url.session_attrs),
            database,
            user: url.user,
            password: password.or(url.password),
            password_command,
            tls: url.tls.within(&self.document.resolve("")),
            parameters: url.parameters,
            pool: settings,
            auth,
            max_connections,
            max_user_connections,
            clients: tenant_limits(section),
            is_console: false,
            ignored: url.ignored,
            srv: url.srv,
            mongo_of_url: url.mongo,
            spots: section.spots(),
        };
        match kind {
            Kind::Postgres => Some(database),
            Kind::Redis => redis::database(section, key, database),
            Kind::MongoDb => mongodb::database(section, database),
        }
    }

    fn user(&mut self, section: &Section<'_>) -> Option<User> {
        self.note_files(section, &["password_file"]);
        let files = section.texts("password_files").unwrap_or_default();
        self.secret_files.extend(files.iter().map(|path| self.document.resolve(path)));
        let (password, other_passwords) = passwords::of_user(section).unwrap_or_default();
        let user = User {
            name: String::new(),
            password,
            other_passwords,
            certificate: section.truth("certificate").unwrap_or(false),
            rules_only: section.truth("rules_only").unwrap_or(false),
            mode: section.choice("mode", Mode::WORDS),
            max_size: section.number("max_size", 1..=MAX_COUNT),
            reserve_size: section.number("reserve_size", 0..=MAX_COUNT),
            reserve_wait_time: reserve_wait_time(section),
            min_size: section.number("min_size", 0..=MAX_COUNT),
            max_wait_time: section.duration("max_wait_time"),
            timeouts: own_timeouts(section, &PoolTimeouts::default()),
            max_user_connections: section.number("max_user_connections", 0..=MAX_COUNT),
            clients: tenant_limits(section),
            spots: section.spots(),
        };
        match section.string("name").filter(|name| !name.is_empty()) {
            Some(name) => Some(User { name, ..user }),
            None => {
                section.error("name", "this [[user]] has no `name`");
                None
            }
        }
    }

    /// The configured users and those of `[auth] file`. The verifiers of plain passwords get as many rounds as `[auth]`
    /// asks for, which are returned, too.
    fn all_users(&mut self, auth: Option<&Section<'_>>, users: Vec<User>) -> (Vec<User>, u32) {
        let Some(auth) = auth else { return (users, scram::DEFAULT_ITERATIONS) };
        let iterations = auth.number("scram_iterations", SCRAM_ITERATIONS).unwrap_or(scram::DEFAULT_ITERATIONS);
        let mut users = self.listed_users(auth, users);
        users.iter_mut().for_each(|user| user.derive_with(iterations));
        (users, iterations)
    }

    /// Whether there may be users without a password, who cannot log in where one is asked for.
    fn takes_users_without_password(&self) -> bool {
        self.auth.takes_users_without_password() || self.is_in_place_of_pgbouncer()
    }

    /// A file without databases is a mistake; PgBouncer starts with one, and databases may come with a reload.
    fn require_database(&self, root: &Section<'_>) {
        if !root.has("database") && !self.is_in_place_of_pgbouncer() {
            root.error("", "no [[database]] is configured");
        }
    }

    fn is_in_place_of_pgbouncer(&self) -> bool {
        self.compatible_with == Compatibility::PgBouncer
    }

    fn note_files(&mut self, section: &Section<'_>, keys: &[&'static str]) {
        let paths = keys.iter().filter_map(|key| section.string(key));
        self.secret_files.extend(paths.map(|path| self.document.resolve(&path)));
    }
}

/// A user's `reserve_wait_time`.
fn reserve_wait_time(section: &Section<'_>) -> Option<Option<Duration>> {
    let time = section.duration("reserve_wait_time");
    if time == Some(Some(Duration::ZERO)) {
        section.error("reserve_wait_time", "`reserve_wait_time`: this must be a duration above 0, or \"off\"");
        return None;
    }
    time
}

/// The URL of a `[[database]]`, at `key`.
fn database_url(section: &Section<'_>, key: &'static str) -> Option<UpstreamUrl> {
    if !section.has(key) {
        section.error("", "this [[database]] has no `url`");
    }
    let url = section.secret("url", "url_file", true)?;
    UpstreamUrl::parse_any(url.reveal()).map_err(|message| section.error(key, message)).ok()
}

/// The name that clients use: `given`, or the one in the URL.
fn database_name(section: &Section<'_>, given: Option<String>, url: &UpstreamUrl) -> Option<String> {
    if section.has("name") && given.is_none() {
        return None;
    }
    let own = match url.kind {
        Kind::Postgres => url.database.clone(),
        Kind::Redis | Kind::MongoDb => Some(FALLBACK.to_owned()),
    };
    let name = given.or(own).filter(|name| !name.is_empty());
    if name.is_none() {
        section.error(if section.has("name") { "name" } else { "" }, "this [[database]] has no `name`");
    }
    name
}

/// The kinds of the databases in a file.
#[derive(Default)]
struct Kinds {
    known: BTreeSet<Kind>,
    /// There is a database of a kind that is not known, because its URL is at fault.
    is_one_unread: bool,
}

impl Kinds {
    fn note(&mut self, kind: Kind) {
        self.known.insert(kind);
    }

    /// Whether there is, or may be, a database of this kind. Of a file without a database, which is at fault anyway, it
    /// is taken to be for PostgreSQL.
    fn has(&self, kind: Kind) -> bool {
        self.is_one_unread || self.all().any(|known| known == kind)
    }

    fn all(&self) -> impl Iterator<Item = Kind> {
        let none = self.known.is_empty().then(Kind::default);
        self.known.iter().copied().chain(none)
    }

    /// The only one, if there is no other.
    fn only(&self) -> Option<Kind> {
        if self.known.len() > 1 { None } else { self.all().next() }
    }
}

/// The default port of a listener: a thousand above the port of the database itself.
pub fn default_port(kind: Kind) -> u16 {
    match kind {
        Kind::Postgres => 6432,
        Kind::Redis => 7379,
        Kind::MongoDb => 28_017,
    }
}

impl Listener {
    /// A listener with the defaults of such clients.
    pub fn new(kind: Kind, listen: Endpoint) -> Self {
        let hard_limit = super::DEFAULT_HARD_LIMIT;
        let soft_limit = super::default_soft_limit(hard_limit);
        let mut timeouts = Timeouts { newcomer_wait: Some(super::NEWCOMER_WAIT), ..Timeouts::default() };
        if kind == Kind::Redis {
            timeouts.client_idle = Some(Preset::Serverless.client_idle_time());
        }
        Self {
            kind,
            listen,
            more: Vec::new(),
            socket_mode: 0o770,
            socket_group: None,
            backlog: super::DEFAULT_BACKLOG,
            reuse_port: false,
            gate: GateConfig { soft_limit, hard_limit, evict_min_idle: super::EVICT_MIN_IDLE },
            timeouts,
            tls: None,
            proxies: Vec::new(),
            rules: ListenerRules::default(),
            http: None,
            spots: HashMap::new(),
        }
    }

    /// What its clients speak, in the word of metrics and of the admin address.
    pub fn protocol(&self) -> &'static str {
        if self.http.is_some() { "http" } else { self.kind.word() }
    }
}

/// The listeners of a file, or one at the default port for each kind of database.
fn listeners(root: &Section<'_>, kinds: &Kinds) -> Vec<Listener> {
    let sections = root.tables("listener", &[LISTENER_KEYS, RULE_KEYS, LISTENER_TLS_KEYS, HTTP_KEYS]);
    if root.has("listener") {
        return sections.iter().map(|section| listener(section, kinds)).collect();
    }
    let place = |kind| Endpoint::Tcp(([127, 0, 0, 1], default_port(kind)).into());
    kinds.all().map(|kind| Listener::new(kind, place(kind))).collect()
}

fn listener(section: &Section<'_>, kinds: &Kinds) -> Listener {
    let protocols = [
        ("postgres", (Kind::Postgres, false)),
        ("redis", (Kind::Redis, false)),
        ("mongodb", (Kind::MongoDb, false)),
        ("http", (Kind::Redis, true)),
    ];
    let protocol = section.text("protocol", |text| choose(text, &protocols));
    let kind = match protocol {
        Some((kind, _)) => Some(kind),
        None if section.has("protocol") => None,
        None => kinds.only().or_else(|| {
            let problem = Problem::error("this [[listener]] does not say which `protocol` its clients speak");
            section.report("", problem.hint("this file has databases of several kinds"));
            None
        }),
    };
    if let Some(kind) = kind.filter(|kind| !kinds.has(*kind)) {
        section.error("protocol", format!("no [[database]] in this file is of {}", kind.name()));
    }
    let mut endpoints = endpoints(section).into_iter();
    let (listen, more) = (endpoints.next(), endpoints.collect());
    if !section.has("listen") {
        section.error("", "this [[listener]] has no `listen`");
    }
    // One without an address is an error already; all else in it is read, too.
    let anywhere = Endpoint::Tcp(([127, 0, 0, 1], 0).into());
    let is_tcp = matches!(listen, Some(Endpoint::Tcp(_)));
    let mut listener = Listener { more, ..Listener::new(kind.unwrap_or_default(), listen.unwrap_or(anywhere)) };
    listener_limits(section, &mut listener);
    listener.backlog = section.number("backlog", 1..=MAX_BACKLOG).unwrap_or(listener.backlog);
    listener.reuse_port = section.truth("reuse_port").unwrap_or(false);
    if !is_tcp && listener.reuse_port {
        section.error("reuse_port", "reuse_port is for addresses, and not for Unix sockets");
    }
    listener.socket_group = section.string("socket_group");
    if is_tcp && section.has("socket_group") {
        section.error("socket_group", "socket_group is for Unix sockets only");
    }
    if let Some(mode) = section.text("socket_mode", parse_mode) {
        listener.socket_mode = mode;
        if is_tcp {
            section.error("socket_mode", "socket_mode is for Unix sockets only");
        }
    }
    for key in
        ["socket_mode", "socket_group"].into_iter().filter(|key| listener.listen.is_abstract() && section.has(key))
    {
        section.error(key, format!("a socket in the abstract namespace has no file, and so no {key}"));
    }
    listener.tls = listener_tls(section, &listener.listen);
    listener.proxies = proxies(section, is_tcp);
    match protocol {
        Some((_, true)) => listener.http = Some(http::rules(section)),
        _ => http::refuse_keys(section),
    }
    match listener.kind {
        Kind::Postgres => listener.rules = listener_rules(section),
        Kind::Redis | Kind::MongoDb => listener_rules::refuse_keys(section),
    }
    listener.spots = section.spots();
    listener
}

fn limits(section: &Section<'_>) -> Limits {
    Limits {
        max_server_connections: section.number("max_server_connections", 0..=MAX_COUNT).unwrap_or(0),
        max_user_connections: section.number("max_user_connections", 0..=MAX_COUNT).unwrap_or(0),
        max_database_connections: section.number("max_database_connections", 0..=MAX_COUNT).unwrap_or(0),
        max_clients: section.number("max_clients", 0..=MAX_COUNT).unwrap_or(0),
        max_database_clients: section.number("max_database_clients", 0..=MAX_COUNT).unwrap_or(0),
        max_user_clients: section.number("max_user_clients", 0..=MAX_COUNT).unwrap_or(0),
        spots: section.spots(),
    }
}
