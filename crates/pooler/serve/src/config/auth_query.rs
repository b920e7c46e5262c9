//! The `auth_*` keys, which configure how users are looked up in a database: in `[auth]` for all databases, in a
//! `[[database]]` for that one.

use std::{sync::Arc, time::Duration};

use settings::Secret;
use settings::{Problem, Section};
use upstream::UpstreamUrl;

use super::{FALLBACK, options::MAX_COUNT};
use crate::compatibility::Compatibility;

/// The keys, in `[auth]` and in `[[database]]`.
pub const AUTH_QUERY_KEYS: &[&str] = &[
    "auth_query",
    "auth_user",
    "auth_password",
    "auth_password_file",
    "auth_server",
    "auth_database",
    "auth_pool_size",
    "auth_cache_time",
    "auth_failure_cache_time",
];

/// The default query, which takes a superuser. An expired password counts as none.
pub const DEFAULT_AUTH_QUERY: &str = "SELECT rolname, rolpassword FROM pg_catalog.pg_authid \
     WHERE rolname = $1 AND rolcanlogin AND (rolvaliduntil IS NULL OR rolvaliduntil > pg_catalog.now())";

/// How users of a database are looked up there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuthQuery {
    /// SQL with the user as parameter `$1`; gives user and stored password.
    pub query: Arc<str>,
    pub user: String,
    /// The password of that user, if it is configured.
    pub password: Option<Secret>,
    /// The `[[database]]` at whose server the query runs; `None` is that of the users' own database.
    pub server: Option<String>,
    /// The database's name there; `None` is the name that `server` has there.
    pub database: Option<String>,
    /// Most servers that run the query.
    pub pool_size: u32,
    /// How long a found user is cached; zero is not at all.
    pub cache_time: Duration,
    /// How long an unknown name is cached. If this differs from `cache_time`, the time of a login tells who exists.
    pub failure_cache_time: Duration,
}

/// The keys of one section; what it does not say is inherited.
#[derive(Clone, Debug, Default)]
pub struct AuthKeys {
    /// `Some(None)` is off.
    query: Option<Option<String>>,
    user: Option<String>,
    password: Option<Secret>,
    server: Option<String>,
    database: Option<String>,
    pool_size: Option<u32>,
    cache_time: Option<Duration>,
    failure_cache_time: Option<Duration>,
}

impl AuthKeys {
    /// Reads a section's keys.
    pub fn read(section: &Section<'_>) -> Self {
        let query = section.text("auth_query", |text| match text {
            "off" => Ok(None),
            _ if text.contains("$1") => Ok(Some(text.to_owned())),
            _ => Err("the query takes the user's name as parameter $1 (or \"off\")".to_owned()),
        });
        Self {
            query,
            user: section.string("auth_user").filter(|user| !user.is_empty()),
            password: section.secret("auth_password", "auth_password_file", false),
            server: section.string("auth_server").filter(|name| !name.is_empty()),
            database: section.string("auth_database"),
            pool_size: section.number("auth_pool_size", 1..=MAX_COUNT),
            cache_time: cache_time(section, "auth_cache_time"),
            failure_cache_time: cache_time(section, "auth_failure_cache_time"),
        }
    }

    /// These keys; in PgBouncer's place a database is asked at each login unless they say otherwise.
    pub fn with_defaults_of(mut self, compatible_with: Compatibility) -> Self {
        if compatible_with == Compatibility::PgBouncer {
            self.cache_time.get_or_insert(Duration::ZERO);
        }
        self
    }

    /// How a database's users are looked up; `None` if they are not.
    pub fn resolve(&self, general: &Self, section: &Section<'_>, name: &str, url: &UpstreamUrl) -> Option<AuthQuery> {
        let keys = self.over(general);
        let query = keys.query()?;
        // The user of the url is one of the database's own server.
        let of_url = || url.user.clone().filter(|_| keys.server.is_none());
        let Some(user) = keys.user.clone().or_else(of_url) else {
            let problem = Problem::error(format!("`{name}` has an auth_query and no user to run it as"));
            section.report("auth_query", problem.hint("add `auth_user`, or a user to the url"));
            return None;
        };
        let own = || url.database.clone().or_else(|| (name != FALLBACK).then(|| name.to_owned()));
        let database = if keys.server.is_some() { keys.database.clone() } else { keys.database.clone().or_else(own) };
        if keys.server.is_none() && database.is_none() {
            let problem = Problem::error("the database \"*\" has an auth_query and no database to run it in");
            section.report("auth_query", problem.hint("add `auth_database`: names that strangers choose are not used"));
            return None;
        }
        let is_of_url = keys.server.is_none() && url.user.as_ref() == Some(&user);
        let password = keys.password.clone().or_else(|| url.password.clone().filter(|_| is_of_url));
        Some(keys.auth_query(query, user, password, database))
    }

    /// How users of the console are looked up: at the server that `[auth]` names, if it names one.
    pub fn of_console(&self) -> Option<AuthQuery> {
        self.server.as_ref()?;
        let (query, user) = (self.query()?, self.user.clone()?);
        Some(self.auth_query(query, user, self.password.clone(), self.database.clone()))
    }

    /// The keys, and what is inherited.
    fn over(&self, general: &Self) -> Self {
        let Self { query, user, password, server, database, pool_size, cache_time, failure_cache_time } = self.clone();
        // A password belongs to the user it is told with.
        let general_password = general.password.clone().filter(|_| user.is_none());
        Self {
            query: query.or_else(|| general.query.clone()),
            password: password.or(general_password),
            user: user.or_else(|| general.user.clone()),
            server: server.or_else(|| general.server.clone()),
            database: database.or_else(|| general.database.clone()),
            pool_size: pool_size.or(general.pool_size),
            cache_time: cache_time.or(general.cache_time),
            failure_cache_time: failure_cache_time.or(general.failure_cache_time),
        }
    }

    /// The query; `None` if users are not looked up.
    fn query(&self) -> Option<String> {
        match (&self.query, &self.user) {
            (Some(None), _) | (None, None) => None,
            (Some(Some(query)), _) => Some(query.clone()),
            (None, Some(_)) => Some(DEFAULT_AUTH_QUERY.to_owned()),
        }
    }

    fn auth_query(&self, query: String, user: String, password: Option<Secret>, database: Option<String>) -> AuthQuery {
        let cache_time = self.cache_time.unwrap_or(Duration::from_secs(60));
        AuthQuery {
            query: query.into(),
            user,
            password,
            server: self.server.clone(),
            database,
            pool_size: self.pool_size.unwrap_or(2),
            cache_time,
            failure_cache_time: self.failure_cache_time.unwrap_or(cache_time),
        }
    }
}

fn cache_time(section: &Section<'_>, key: &'static str) -> Option<Duration> {
    section.duration(key).map(Option::unwrap_or_default)
}
