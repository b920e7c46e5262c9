//! What a configuration for Redis cannot say: keys and values that mean something to PostgreSQL only.

use settings::Section;

use super::{
    AutoSize, Database, FALLBACK, Mode, PoolSettings, User, auth::LOGIN_KEYS, auth_query::AUTH_QUERY_KEYS,
    options::AUTO_KEYS,
};

/// Keys without a meaning here, in whatever section, beside those of `[auth]`.
const FOREIGN: &[&str] = &[
    "mode",
    "on_session_state",
    "reset",
    "max_pinned",
    "max_replication_size",
    "max_prepared_statements",
    "connect_query",
    "trusted_functions",
    "application_name_add_host",
    "cancel_wait_time",
    "fast_close",
    "certificate",
];

/// The user of a client that sends a password without a name.
pub const DEFAULT_USER: &str = "default";

/// Why a URL has no number of a database.
pub const NO_NUMBER: &str = "clients choose their logical database with SELECT: take the number off the url";

/// Reports keys that are for PostgreSQL, but for these.
pub fn refuse_foreign(section: &Section<'_>, but: &[&str]) {
    let given = section.spots();
    let foreign = FOREIGN.iter().chain(AUTH_QUERY_KEYS).chain(LOGIN_KEYS).filter(|key| !but.contains(key));
    for key in foreign.filter(|key| given.contains_key(*key)) {
        section.error(key, format!("`{key}` is for PostgreSQL, and the url is not"));
    }
}

/// Many clients share one connection, so that the number of connections says nothing about how many operations are
/// under way.
pub fn refuse_auto(section: &Section<'_>, settings: &PoolSettings) {
    if settings.auto.enabled && section.has("max_size") {
        section.error(
            "max_size",
            "clients of Redis share connections, which leaves nothing to tune: give `max_size` a number",
        );
    }
    for key in AUTO_KEYS.iter().filter(|key| section.has(key)) {
        section.error(key, format!("`{key}` is for max_size = \"auto\", which is not for Redis"));
    }
}

/// A `[[database]]` of Redis, whose logical databases have numbers and no rules of their own.
pub fn database(section: &Section<'_>, url_key: &'static str, mut database: Database) -> Option<Database> {
    refuse_foreign(section, &[]);
    refuse_auto(section, &database.pool);
    if section.has("name") && database.name != FALLBACK {
        section.error("name", "clients of Redis ask for numbers, not names: leave `name` out");
        return None;
    }
    if database.database.as_deref().is_some_and(|number| number != "0") {
        section.error(url_key, NO_NUMBER);
    }
    database.name = FALLBACK.to_owned();
    database.database = None;
    // What [pool] says of these is meant for the databases of PostgreSQL in the same file.
    (database.pool.mode, database.pool.connect_query) = (Mode::default(), None);
    database.pool.auto = AutoSize::default();
    default_user(&mut database);
    Some(database)
}

/// A password alone is that of the user `default`.
pub fn default_user(database: &mut Database) {
    if database.password.is_some() {
        database.user.get_or_insert_with(|| DEFAULT_USER.to_owned());
    }
}

/// Clients of Redis send their password as it is, so that is what must be known; Poolhouse logs in with it, too.
pub fn refuse_hashed(users: &[User], mut error: impl FnMut(&User, String)) {
    for user in users {
        let mut all = user.password.iter().chain(user.other_passwords.iter());
        if all.any(|password| password.plain().is_none()) {
            error(
                user,
                format!("the password of `{}` is a hash of PostgreSQL's: for Redis give it as it is", user.name),
            );
        }
    }
}
