//! PostgreSQL, or a pooler in front of one, as a target: carries out the engine's orders over clients of the database.
//!
//! `statements` writes the requests of scripts, `tables` makes the tables of the built-in ones.

mod statements;
mod tables;

use std::{net::SocketAddr, sync::atomic::AtomicBool, time::Duration};

use clients::{
    blocking::CONNECT_TIMEOUT,
    postgres::{ConnectOptions, MAX_PREPARED, Querier},
};

use super::{RunContext, Server, TargetError, run::carry_out};
use crate::{
    engine::Engine,
    plan::{Plan, PostgresTarget, QueryProtocol, Script},
    script::Scripts,
};
use statements::Statements;

/// What connections call themselves where the URL gives no name.
const APPLICATION_NAME: &str = "poolhouse bench";
/// The schema on every search path.
const DEFAULT_SCHEMA: &str = "public";

/// Makes one connection before any load, so that a dead target, a wrong password, missing tables or a mistake in a
/// script are clear errors. Returns the server's name and version: `PostgreSQL 15.3`.
///
/// # Errors
/// Why no load can be run against it.
pub fn check(target: &PostgresTarget) -> Result<Server, TargetError> {
    scripts(target, 0)?;
    let mut connection = connect(target)?;
    if asks_tables(target) {
        tables::check(&mut connection, target, CONNECT_TIMEOUT)?;
    }
    // A server that does not tell its process can be loaded, too.
    let is_pooled = connection.is_pooled(CONNECT_TIMEOUT).unwrap_or(false);
    let name = connection.version().map_or_else(|| "PostgreSQL".to_owned(), |version| format!("PostgreSQL {version}"));
    Ok(Server { name, is_pooled })
}

/// The scale of the tables that built-in scripts are to ask, at least 1; `None`: no such script is asked.
///
/// # Errors
/// The target cannot be asked, or has no such tables.
pub fn scale_of_tables(target: &PostgresTarget) -> Result<Option<u32>, TargetError> {
    if !asks_tables(target) {
        return Ok(None);
    }
    let scale = tables::scale(&mut connect(target)?, target, CONNECT_TIMEOUT)?;
    Ok(Some(scale.max(1)))
}

/// Whether a script is asked that is built in.
fn asks_tables(target: &PostgresTarget) -> bool {
    target.scripts.iter().any(|(script, _)| !matches!(script, Script::File(..)))
}

/// Makes the built-in scripts' tables anew, in the schema of the target and nowhere else. Given up when `stop` is set.
///
/// # Errors
/// Why that was not possible.
pub fn init(target: &PostgresTarget, stop: &AtomicBool) -> Result<(), TargetError> {
    tables::init(&mut connect(target)?.with_stop(stop), target)
}

/// Asks one thing over a connection of its own, and returns the first row; empty: there was none.
///
/// # Errors
/// The server's error, or why it cannot be asked, or that the answer took longer than `timeout`.
pub fn ask(target: &PostgresTarget, sql: &str, timeout: Duration) -> Result<Vec<Option<String>>, TargetError> {
    let answer = connect(target)?.query(sql, timeout)?;
    let row = answer.kept.into_iter().next().unwrap_or_default();
    Ok(row.into_iter().map(|(_, value)| value.map(String::from)).collect())
}

/// Carries out the engine's orders until it is done.
///
/// # Errors
/// What makes going on impossible, or kept the load from beginning. Errors of single connections and operations are
/// reported to the engine.
pub fn run(
    target: &PostgresTarget,
    plan: &Plan,
    engine: &mut Engine,
    context: RunContext<'_>,
) -> Result<(), TargetError> {
    let scripts = scripts(target, plan.seed)?;
    let options = options(target, context.via)?;
    if target.protocol == QueryProtocol::Prepared && scripts.statements() > MAX_PREPARED {
        let message = format!("the scripts have more than {MAX_PREPARED} statements to prepare");
        return Err(TargetError::configuration(message));
    }
    carry_out(Statements::new(target.protocol), &options, &scripts, plan, engine, context)
}

fn scripts(target: &PostgresTarget, seed: u64) -> Result<Scripts, TargetError> {
    Scripts::new(&target.scripts, target.protocol, target.scale, &target.variables, seed)
        .map_err(|error| TargetError::configuration(error.to_string()))
}

fn connect(target: &PostgresTarget) -> Result<Querier<'static>, TargetError> {
    Querier::connect(options(target, None)?, CONNECT_TIMEOUT)
}

/// Reads the URL of a target. `via`: connections go there instead.
fn options(target: &PostgresTarget, via: Option<SocketAddr>) -> Result<ConnectOptions, TargetError> {
    let parameters = search_path(target).map(|path| ("search_path".to_owned(), path));
    ConnectOptions::at(target.url.reveal(), APPLICATION_NAME, parameters, via)
}

/// What a target needs its tables to be found: the built-in scripts' own first. Where only the user's own scripts run,
/// whatever is set for him stays.
fn search_path(target: &PostgresTarget) -> Option<String> {
    let built_in = target.scripts.iter().any(|(script, _)| !matches!(script, Script::File(..)));
    let own = target.scripts.iter().any(|(script, _)| matches!(script, Script::File(..)));
    let schema = quote(&target.schema);
    match (built_in && target.schema != DEFAULT_SCHEMA, own) {
        (false, _) => None,
        (true, false) => Some(schema),
        (true, true) => Some(format!("{schema}, \"$user\", {DEFAULT_SCHEMA}")),
    }
}

/// An SQL identifier.
fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_built_in_scripts_change_where_tables_are_looked_for() {
        let path = |scripts: Vec<Script>| {
            let scripts = scripts.into_iter().map(|script| (script, 1)).collect();
            let target = PostgresTarget::new(settings::Secret::new("postgres://"), scripts);
            search_path(&PostgresTarget { schema: "a\"b".to_owned(), ..target })
        };
        let file = Script::File("x.sql".into(), String::new());
        assert_eq!(path(vec![Script::SelectOnly]).unwrap(), "\"a\"\"b\"");
        assert_eq!(path(vec![file.clone()]), None);
        assert_eq!(path(vec![Script::TpcbLike, file]).unwrap(), "\"a\"\"b\", \"$user\", public");
    }
}
