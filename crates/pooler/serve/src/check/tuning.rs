//! Pools with `max_size = "auto"`: tuning needs transactions to count, and a database may have only one tuned pool,
//! because a tuner would mistake the effect of another tuner's step for that of its own.

use settings::Problem;
use upstream::Kind;

use crate::config::{Config, Database, FALLBACK, Mode, User};

pub fn tuning(config: &Config, found: &mut Vec<Problem>) {
    for database in config.databases.iter().filter(|database| database.pool.auto.enabled) {
        countable(config, database, found);
        one_process(config, database, found);
        one_user(config, database, found);
    }
    one_name(config, found);
}

/// A tuned pool without transactions to count.
fn countable(config: &Config, database: &Database, found: &mut Vec<Problem>) {
    let name = &database.name;
    if database.pool.mode == Mode::Session {
        let message = format!("max_size of `{name}` is \"auto\", which has nothing to count in session mode");
        let problem = Problem::error(message).hint("use transaction mode, or give max_size a number");
        found.push(config.locate(problem, &database.spots, "max_size"));
    }
    let in_sessions = |user: &&User| {
        let reached = database.user.as_ref().is_none_or(|name| *name == user.name);
        reached && user.mode == Some(Mode::Session) && user.max_size.is_none()
    };
    if let Some(user) = config.users.iter().find(in_sessions) {
        let message = format!("max_size of `{name}` is \"auto\", and user `{}` has session mode there", user.name);
        let problem = Problem::error(message).hint("give this user a max_size");
        found.push(config.locate(problem, &user.spots, "mode"));
    }
}

/// Several Poolhouses that tune the same database.
fn one_process(config: &Config, database: &Database, found: &mut Vec<Problem>) {
    let name = &database.name;
    let node = config.serve.node_id;
    if node > 0 {
        let message =
            format!("max_size of `{name}` is \"auto\", and this is Poolhouse number {node} of several (node_id)");
        let problem = Problem::error(message).hint("only the one with node_id 0 tunes: give max_size a number here");
        found.push(config.locate(problem, &database.spots, "max_size"));
    }
}

/// A database without a user in its URL, which has a pool for each user.
fn one_user(config: &Config, database: &Database, found: &mut Vec<Problem>) {
    // Clients of MongoDB that need not log in share one pool.
    let open = !config.authenticates(database.kind);
    if database.user.is_some() || (open && database.kind == Kind::MongoDb) {
        return;
    }
    let name = &database.name;
    let mut tuned = config.users.iter().filter(|user| user.max_size.is_none());
    if let (Some(one), Some(other)) = (tuned.next(), tuned.next()) {
        let message = format!(
            "max_size of `{name}` is \"auto\", and the users `{}` and `{}` have a pool each there: \
             only one may be tuned",
            one.name, other.name
        );
        let problem = Problem::error(message).hint(
            "put one user into its url, with whom all clients share a pool; or give all these users but one \
             a max_size, or max_size a number",
        );
        found.push(config.locate(problem, &database.spots, "max_size"));
    } else if open || database.auth.is_some() {
        let message = format!(
            "max_size of `{name}` is \"auto\", and each user who comes has a pool there: only one may be tuned"
        );
        let problem = Problem::warning(message)
            .hint("put one user into its url, with whom all clients share a pool, unless only one ever comes");
        found.push(config.locate(problem, &database.spots, "max_size"));
    }
}

/// Two names of the same database, both tuned.
fn one_name(config: &Config, found: &mut Vec<Problem>) {
    let tuned: Vec<&Database> = config.databases.iter().filter(|database| database.pool.auto.enabled).collect();
    for (place, database) in tuned.iter().enumerate() {
        let Some(other) = tuned[..place].iter().find(|other| is_same(other, database)) else { continue };
        let message = format!(
            "max_size of `{}` and of `{}` is \"auto\", and both are the same database: only one may be tuned",
            other.name, database.name
        );
        let problem = Problem::error(message).hint("give one of them a number");
        found.push(config.locate(problem, &database.spots, "max_size"));
    }
}

/// Whether two names lead to the same database of the same server, as far as the configuration tells.
fn is_same(one: &Database, other: &Database) -> bool {
    let there = |database: &Database| {
        let own = (database.name != FALLBACK).then(|| database.name.clone());
        database.database.clone().or(own)
    };
    // MongoDB has a pool per host, whatever database clients use.
    let is_named_so = one.kind == Kind::MongoDb || there(one).is_some_and(|name| there(other) == Some(name));
    let is_there = (one.kind, one.target) == (other.kind, other.target) && one.hosts.addresses == other.hosts.addresses;
    is_there && is_named_so
}
