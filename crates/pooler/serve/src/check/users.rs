//! Settings of users and of `auth_query` that cannot work with the rest.

use std::time::Duration;

use driver::Address;
use settings::{Problem, show_duration};
use upstream::Kind;

use crate::config::{Config, Database, Mode, User};

pub fn users(config: &Config, found: &mut Vec<Problem>) {
    for user in &config.users {
        rules_that_never_apply(config, user, found);
        sizes(config, user, found);
        waits(config, user, found);
    }
    for database in &config.databases {
        let own = database.pool.timeouts.query.flatten();
        let (name, wait) = (format!("`{}`", database.name), database.pool.config.max_wait_time);
        if let Some(problem) = wait_above_query(&name, own, wait) {
            found.push(config.locate(problem, &database.spots, "query_time"));
        }
        lookups(config, database, found);
    }
}

/// Databases whose servers log in as this user.
fn reached_as<'c>(config: &'c Config, user: &'c User) -> impl Iterator<Item = &'c Database> {
    config.databases.iter().filter(|database| database.user.as_ref().is_none_or(|name| *name == user.name))
}

fn rules_that_never_apply(config: &Config, user: &User, found: &mut Vec<Problem>) {
    let times = &user.timeouts;
    let rules = [
        ("mode", user.mode.is_some()),
        ("max_size", user.max_size.is_some()),
        ("min_size", user.min_size.is_some()),
        ("max_wait_time", user.max_wait_time.is_some()),
        ("client_idle_time", times.client_idle.is_some()),
        ("query_time", times.query.is_some()),
        ("transaction_idle_time", times.transaction_idle.is_some()),
        ("max_user_connections", user.max_user_connections.is_some()),
    ];
    let Some((key, _)) = rules.iter().find(|(_, there)| *there) else { return };
    if reached_as(config, user).next().is_none() {
        let problem = Problem::warning(format!("{key} of user `{}` never applies", user.name));
        let problem =
            problem.hint("every url has a user of its own, whose rules count: take it off, or give that user rules");
        found.push(config.locate(problem, &user.spots, key));
    }
}

fn sizes(config: &Config, user: &User, found: &mut Vec<Problem>) {
    let name = &user.name;
    if let Some(min_size) = user.min_size {
        let too_small = |database: &&Database| user.max_size.unwrap_or(database.pool.largest_size()) < min_size;
        if let Some(database) = reached_as(config, user).find(too_small) {
            let max_size = user.max_size.unwrap_or(database.pool.largest_size());
            let key = if database.pool.auto.enabled && user.max_size.is_none() { "auto_max_size" } else { "max_size" };
            let message = format!(
                "min_size {min_size} of user `{name}` is above the {key} {max_size} that holds for `{}`",
                database.name
            );
            found.push(config.locate(Problem::error(message), &user.spots, "min_size"));
        }
    }
    if let Some(database) = reached_as(config, user).find(|database| database.pool.auto.enabled)
        && user.reserve_size.is_some_and(|size| size > 0)
        && user.max_size.is_none()
    {
        let message = format!("reserve_size of user `{name}` has no effect for `{}`", database.name);
        let problem = Problem::warning(message).hint("the size of its pool is tuned: give the user a max_size, too");
        found.push(config.locate(problem, &user.spots, "reserve_size"));
    }
    if let (Some(max_size), Some(limit)) = (user.max_size, user.max_user_connections)
        && limit > 0
        && max_size > limit
    {
        let message =
            format!("max_size {max_size} of user `{name}` is above max_user_connections {limit} and never reached");
        found.push(config.locate(Problem::warning(message), &user.spots, "max_size"));
    }
    let shared = user.max_user_connections.unwrap_or(config.limits.max_user_connections);
    if user.mode == Some(Mode::Session) && shared == 1 {
        let message = format!("user `{name}` has session mode and one server: one client of his is served at a time");
        found.push(config.locate(Problem::warning(message), &user.spots, "mode"));
    }
}

fn waits(config: &Config, user: &User, found: &mut Vec<Problem>) {
    for database in reached_as(config, user) {
        let query = user.timeouts.query.or(database.pool.timeouts.query).flatten();
        let wait = user.max_wait_time.unwrap_or(database.pool.config.max_wait_time);
        let own = user.timeouts.query.is_some() || user.max_wait_time.is_some();
        if let Some(problem) = wait_above_query(&format!("user `{}`", user.name), query, wait).filter(|_| own) {
            let key = if user.timeouts.query.is_some() { "query_time" } else { "max_wait_time" };
            return found.push(config.locate(problem, &user.spots, key));
        }
    }
}

fn wait_above_query(whose: &str, query: Option<Duration>, wait: Option<Duration>) -> Option<Problem> {
    let (query, wait) = (query?, wait?);
    let (shown, waits) = (show_duration(query), show_duration(wait));
    let message = format!("query_time {shown} of {whose} is not above max_wait_time {waits}");
    (wait >= query).then(|| Problem::warning(message).hint("a query may wait longer than it may take"))
}

fn lookups(config: &Config, database: &Database, found: &mut Vec<Problem>) {
    let Some(auth) = &database.auth else { return };
    let name = &database.name;
    if auth.failure_cache_time != auth.cache_time {
        let (failure, cache) = (show_duration(auth.failure_cache_time), show_duration(auth.cache_time));
        let message = format!("auth_failure_cache_time {failure} of `{name}` is not auth_cache_time {cache}");
        let problem = Problem::warning(message).hint("leave it out: else the time that a login takes tells who exists");
        found.push(config.locate(problem, &database.spots, "auth_failure_cache_time"));
    }
    let known = || config.users.iter().any(|user| user.name == auth.user && user.password.is_some());
    // The database may authenticate Poolhouse by the process's user at a Unix socket, or by a certificate.
    let named = |name: &String| config.databases_of(Kind::Postgres).find(|database| database.name == *name);
    let at = auth.server.as_ref().and_then(named).unwrap_or(database);
    let on_sockets = at.hosts.addresses.iter().all(|host| matches!(host, Address::Unix(_)));
    let of_url = at.user.as_ref() == Some(&auth.user) && at.password.is_some();
    if auth.password.is_none() && !known() && !of_url && !on_sockets && at.tls.identity.is_none() {
        let message = format!("users of `{name}` are looked up as `{}`, of whom no password is known", auth.user);
        let problem = Problem::warning(message)
            .hint("add `auth_password` or `auth_password_file`, unless the database trusts Poolhouse");
        found.push(config.locate(problem, &database.spots, "auth_user"));
    }
    let process = config.limits.max_server_connections;
    if process > 0 && auth.pool_size >= process {
        let message =
            format!("auth_pool_size {} of `{name}` leaves nothing of max_server_connections {process}", auth.pool_size);
        found.push(config.locate(Problem::warning(message), &database.spots, "auth_pool_size"));
    }
    if let (Some(user), None) = (&database.user, &database.password)
        && config.users.iter().all(|known| known.name != *user)
        && *user != auth.user
    {
        let message =
            format!("the servers of `{name}` open only after `{user}` has logged in: its url has no password");
        let problem = Problem::warning(message)
            .hint("other users of it have to wait for that, unless the upstream trusts Poolhouse");
        found.push(config.locate(problem, &database.spots, "url"));
    }
}
