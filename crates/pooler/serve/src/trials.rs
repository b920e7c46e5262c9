//! The logins of a configuration that `poolhouse check --connect` tries. Connects to nothing itself.

use std::sync::Arc;

use driver::Address;
use postgres_session::{Directory, ServerLogin};
use settings::Problems;
use upstream::{Kind, UpstreamTls};

use crate::{
    Tls,
    config::{Config, Database, FALLBACK},
    password_commands::PasswordCommands,
    pools::ConfigPools,
};

/// Most users of a database that are tried, if it has none of its own.
const MAX_USERS: usize = 5;

/// A login to be tried.
pub struct Trial {
    /// The database, as clients call it.
    pub database: String,
    pub user: String,
    /// The user is one of the console's, who need not be a role of the database.
    pub is_of_console: bool,
    pub hosts: Vec<Address>,
    pub tls: UpstreamTls,
    pub login: ServerLogin,
}

/// The logins to try, and a sentence for each database of which none can be tried.
///
/// # Errors
/// What is wrong with the TLS files.
pub fn trials(config: &Config) -> Result<(Vec<Trial>, Vec<String>), Problems> {
    let config = Arc::new(config.clone());
    let tls = Arc::new(Tls::load(&config)?);
    let pools = ConfigPools::new(Arc::clone(&config), tls).with_commands(PasswordCommands::of(&config));
    let (mut trials, mut untried) = (Vec::new(), Vec::new());
    for database in &config.databases {
        match logins(&pools, &config, database) {
            Ok(found) => trials.extend(found),
            Err(why) => untried.push(format!("{}: not tried, because {why}", database.name)),
        }
    }
    Ok((trials, untried))
}

fn logins(pools: &ConfigPools, config: &Config, database: &Database) -> Result<Vec<Trial>, &'static str> {
    if database.kind != Kind::Postgres {
        return Err("only logins to PostgreSQL are tried");
    }
    if database.is_console {
        return Ok(Vec::new());
    }
    if database.name == FALLBACK {
        return Err("it is of any name");
    }
    let known = |user: &&crate::config::User| user.password.as_ref().is_some_and(|password| password.plain().is_some());
    let users: Vec<&str> = match &database.user {
        Some(user) => vec![user],
        None => config.users.iter().filter(known).map(|user| &*user.name).take(MAX_USERS).collect(),
    };
    if users.is_empty() {
        return Err("it is logged in to as the clients' own users, and no password of theirs is known");
    }
    let trial = |user: &str| {
        let pool = pools.route(&database.name, user).ok()?.pool;
        Some(Trial {
            database: database.name.clone(),
            user: user.to_owned(),
            is_of_console: config.console.role(user).is_some(),
            hosts: database.hosts.addresses.clone(),
            tls: database.tls.clone(),
            login: pools.server_login(pool),
        })
    };
    Ok(users.into_iter().filter_map(trial).collect())
}
