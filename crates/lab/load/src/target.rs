//! Targets carry out the engine's orders: the part of a run that touches the network. The plan and the engine know the
//! requests and when they begin, and the engine counts; targets send bytes and measure times.

pub mod http;
pub mod mongodb;
pub mod postgres;
pub mod redis;
mod run;

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

pub use clients::{Blame, TargetError};
use driver::raise_descriptor_limit;
use pool::Time;

use crate::{
    engine::{Engine, StartFailure},
    plan::{Plan, Target},
};

/// Bounds the time between two calls of [`RunContext::watch`].
pub const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// Descriptors that a run needs besides connections, generously.
const OTHER_DESCRIPTORS: u64 = 64;

/// SQLSTATE too_many_connections, as errors of this kind are counted.
pub const TOO_MANY_CONNECTIONS: &str = "sqlstate 53300";

/// What a run needs besides the plan and the engine.
pub struct RunContext<'a> {
    /// The origin of all [`Time`]s.
    pub origin: Instant,
    /// Set when the run is to end early (Ctrl-C): begin nothing more, let what is under way end.
    pub stop: &'a AtomicBool,
    /// The relay with faults, which takes the place of the URL's own address.
    pub via: Option<SocketAddr>,
    /// Called at least every [`WATCH_INTERVAL`], for the live display.
    pub watch: &'a mut dyn FnMut(&Engine, Time),
}

impl RunContext<'_> {
    pub fn now(&self) -> Time {
        Time(u64::try_from(self.origin.elapsed().as_nanos()).expect("584 years fit"))
    }

    /// The run is to end early.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }
}

/// The server that answers at a target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Server {
    /// Its name and version: `PostgreSQL 17.2`.
    pub name: String,
    /// A pooler answers in its place.
    pub is_pooled: bool,
}

/// The warning where a load for the database meets a pooler.
pub const POOLER_WARNING: &str = "A pooler answers at this address, so that what is measured is that pool: for the \
                                  database itself, give the database's own address.";

/// Makes one connection before any load. Returns the server that answers.
///
/// # Errors
/// Why no load can be run against it.
pub fn check(target: &Target) -> Result<Server, TargetError> {
    match target {
        Target::Postgres(target) => postgres::check(target),
        Target::Redis(target) => redis::check(target),
        Target::MongoDb(target) => mongodb::check(target),
        Target::Http(target) => http::check(target),
    }
}

/// Carries out the engine's orders until it is done.
///
/// # Errors
/// Why the run cannot continue, or the load could not begin.
pub fn run(target: &Target, plan: &Plan, engine: &mut Engine, context: RunContext<'_>) -> Result<(), TargetError> {
    match target {
        Target::Postgres(target) => postgres::run(target, plan, engine, context),
        Target::Redis(target) => {
            let scripts = redis::scripts(target, plan.seed)?;
            let options = clients::redis::ConnectOptions::of(&target.url, context.via)?;
            run::carry_out(redis::Commands::new(), &options, &scripts, plan, engine, context)
        }
        Target::MongoDb(target) => {
            let scripts = mongodb::scripts(target, plan.seed)?;
            let options = clients::mongodb::ConnectOptions::of(&target.url, context.via)?;
            let commands = mongodb::Commands::new(options.database.clone());
            run::carry_out(commands, &options, &scripts, plan, engine, context)
        }
        Target::Http(target) => http::run(target, plan, engine, context),
    }
}

/// Makes the tables or documents of the built-in loads anew. Given up when `stop` is set.
///
/// # Errors
/// Why that was not possible, or that the target has nothing to make.
pub fn init(target: &Target, stop: &AtomicBool) -> Result<(), TargetError> {
    match target {
        Target::Postgres(target) => postgres::init(target, stop),
        Target::MongoDb(target) => mongodb::init(target, stop),
        Target::Redis(_) | Target::Http(_) => {
            Err(TargetError::configuration("--init has nothing to make there: it is for postgres:// and mongodb://"))
        }
    }
}

/// The error of a load that could not begin without connections. `reason`: the message of the target.
pub fn start_error(failure: &StartFailure, reason: Option<&str>) -> TargetError {
    let StartFailure { kind, made, wanted } = failure;
    let how_many = match (*made, *wanted) {
        (0, _) | (_, 0) => "no connection could be made to begin with".to_owned(),
        (made, wanted) => format!("only {made} of {wanted} connections could be made to begin with"),
    };
    let why = reason.map_or_else(|| kind.0.to_string(), str::to_owned);
    let cure = if kind.0 == TOO_MANY_CONNECTIONS {
        "; use fewer --clients, or raise the server's max_connections"
    } else {
        ""
    };
    TargetError::target(format!("{how_many}: {why}{cure}"))
}

/// Raises the limit of descriptors for the connections of a run.
///
/// # Errors
/// The limit of this process is too low.
pub fn reserve_descriptors(plan: &Plan) -> Result<(), TargetError> {
    let needed = plan.sure_connections() + OTHER_DESCRIPTORS;
    match raise_descriptor_limit() {
        Some(limit) if limit < needed => Err(TargetError::machine(format!(
            "{needed} descriptors are needed and this process may have {limit}: raise the limit (`ulimit -Hn \
             {needed}`), or use fewer connections"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::ErrorKind;

    #[test]
    fn a_server_that_is_full_is_quoted_with_a_cure() {
        let full = StartFailure { kind: ErrorKind(TOO_MANY_CONNECTIONS.into()), made: 97, wanted: 100 };
        let said = start_error(&full, Some("sorry, too many clients already (SQLSTATE 53300)")).message;
        for words in ["only 97 of 100", "sorry, too many clients already", "fewer --clients", "max_connections"] {
            assert!(said.contains(words), "{words}: {said}");
        }
        let refused = StartFailure { kind: ErrorKind("connect refused".into()), made: 0, wanted: 100 };
        assert_eq!(start_error(&refused, None).message, "no connection could be made to begin with: connect refused");
    }
}
