//! PostgreSQL, or a pooler in front of one, as a target: carries out the engine's orders over the driver's outgoing connections, with the
//! requester's side of the wire protocol. Decides nothing about when.

use super::{Surroundings, TargetError};
use crate::{
    engine::Engine,
    plan::{Plan, PostgresTarget},
};

/// One connection before any load: a dead target, a wrong password or missing tables are clear errors. Returns the server's name and
/// version: `PostgreSQL 15.3`.
///
/// # Errors
/// Why no load can be run against it.
#[expect(unused_variables, reason = "to be written")]
pub fn check(target: &PostgresTarget) -> Result<String, TargetError> {
    todo!()
}

/// Makes the built-in scripts' tables anew, in the schema of the target and nowhere else.
///
/// # Errors
/// Why that was not possible.
#[expect(unused_variables, reason = "to be written")]
pub fn init(target: &PostgresTarget) -> Result<(), TargetError> {
    todo!()
}

/// Carries out the engine's orders until it is done.
///
/// # Errors
/// What makes going on impossible. Errors of single connections and operations are reported to the engine.
#[expect(unused_variables, reason = "to be written")]
pub fn run(
    target: &PostgresTarget,
    plan: &Plan,
    engine: &mut Engine,
    around: Surroundings<'_>,
) -> Result<(), TargetError> {
    todo!()
}
