//! PostgreSQL, or a pooler in front of one, as a target: carries out the engine's orders over the driver's outgoing connections, with the
//! requester's side of the wire protocol. Decides nothing about when.
//!
//! `place` reads the URL, `link` is one connection, `run` a whole run; `cancel` ends what is given up; `once` asks single questions before it,
//! `asker` asks them for who has no load at all, `tables` makes the tables of the built-in scripts.

mod asker;
mod cancel;
mod link;
mod once;
mod place;
mod run;
mod tables;

use std::{sync::atomic::AtomicBool, time::Duration};

use super::{Server, Surroundings, TargetError, make_room, not_begun};
use crate::{
    engine::Engine,
    plan::{Plan, PostgresTarget, Script},
    script::Scripts,
};
pub use ::postgres_session::Row;
pub use asker::{Asker, Rows};
use once::Once;
use place::Place;
use run::Run;

/// A target that takes longer to let one connection in is taken for dead.
const CHECK_TIME: Duration = Duration::from_secs(10);

/// One connection before any load: a dead target, a wrong password, missing tables or a mistake in a script are clear errors. Returns the
/// server's name and version: `PostgreSQL 15.3`.
///
/// # Errors
/// Why no load can be run against it.
pub fn check(target: &PostgresTarget) -> Result<Server, TargetError> {
    scripts(target, 0)?;
    let place = Place::of(target, None)?;
    let mut once = Once::connect(place, CHECK_TIME)?;
    if asks_tables(target) {
        tables::check(&mut once, target, CHECK_TIME)?;
    }
    // One that does not tell its process may be loaded all the same.
    let is_pooled = once.is_pooled(CHECK_TIME).unwrap_or(false);
    let name = once.version().map_or_else(|| "PostgreSQL".to_owned(), |version| format!("PostgreSQL {version}"));
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
    let place = Place::of(target, None)?;
    let scale = tables::scale(&mut Once::connect(place, CHECK_TIME)?, target, CHECK_TIME)?;
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
    let place = Place::of(target, None)?;
    tables::init(&mut Once::connect(place, CHECK_TIME)?.until(stop), target)
}

/// Asks one thing over a connection of its own, and returns the first row; empty: there was none.
///
/// # Errors
/// The server's error, or why it cannot be asked, or that the answer took longer than `within`.
pub fn ask(target: &PostgresTarget, sql: &str, within: Duration) -> Result<Vec<Option<String>>, TargetError> {
    let place = Place::of(target, None)?;
    let answer = Once::connect(place, CHECK_TIME)?.ask(sql, within)?;
    let row = answer.kept.into_iter().next().unwrap_or_default();
    Ok(row.into_iter().map(|(_, value)| value.map(String::from)).collect())
}

/// Carries out the engine's orders until it is done.
///
/// # Errors
/// What makes going on impossible, or kept the load from beginning. Errors of single connections and operations are reported to the
/// engine.
pub fn run(
    target: &PostgresTarget,
    plan: &Plan,
    engine: &mut Engine,
    mut around: Surroundings<'_>,
) -> Result<(), TargetError> {
    let scripts = scripts(target, plan.seed)?;
    let place = Place::of(target, around.via)?;
    make_room(plan)?;
    let mut run = Run::new(&place, &scripts, target.protocol, &around)?;
    run.run(engine, &mut around)?;
    engine.failure().map_or(Ok(()), |failure| Err(not_begun(failure, run.refusal())))
}

fn scripts(target: &PostgresTarget, seed: u64) -> Result<Scripts, TargetError> {
    Scripts::new(&target.scripts, target.protocol, target.scale, &target.variables, seed)
        .map_err(|error| TargetError::configuration(error.to_string()))
}
