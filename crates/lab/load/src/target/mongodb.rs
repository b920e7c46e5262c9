//! MongoDB, or a pooler in front of one, as a target: carries out the engine's orders over clients of the database.
//!
//! `commands` writes the requests of scripts, `documents` makes what the built-in commands ask for.

mod commands;
mod documents;

use clients::{
    blocking::{BlockingClient, CONNECT_TIMEOUT},
    mongodb::{ConnectOptions, Requester},
};
use mongodb_session::bson::{Value, Writer};

pub(super) use self::commands::Commands;
use super::{Server, TargetError};
use crate::{
    plan::{MongoOperation, MongoTarget, MongoWork},
    script::{MONGODB_AGGREGATE, MONGODB_FIND_ONE, MONGODB_INSERT, MONGODB_PING, MONGODB_UPDATE, Scripts},
};

pub use documents::init;

/// Makes one connection before any load, so that a dead target, a wrong password or a mistake in a script are clear
/// errors. Returns the server's name and version: `MongoDB 7.0.14`.
///
/// # Errors
/// Why no load can be run against it.
pub fn check(target: &MongoTarget) -> Result<Server, TargetError> {
    scripts(target, 0)?;
    let mut client = BlockingClient::<Requester>::connect(ConnectOptions::of(&target.url, None)?, CONNECT_TIMEOUT)?;
    let info = client.try_request(|r, out| write_question("buildInfo", r, out), CONNECT_TIMEOUT)?;
    let version = info.map(|requester| version(requester)).transpose().map_err(|message| client.error(message))?;
    let is_pooled = match version {
        None => false,
        Some(_) => client
            .try_request(|r, out| write_question("isdbgrid", r, out), CONNECT_TIMEOUT)?
            .is_some_and(|requester| is_pooled(requester)),
    };
    if let MongoWork::BuiltIn { operation, documents, .. } = &target.work
        && *operation != MongoOperation::Insert
    {
        documents::check(target, *documents)?;
    }
    let name = version.flatten().map_or_else(|| "MongoDB".to_owned(), |version| format!("MongoDB {version}"));
    Ok(Server { name, is_pooled })
}

/// Appends a command that asks the server about itself.
fn write_question(command: &str, requester: &mut Requester, out: &mut Vec<u8>) {
    let mut document = Vec::new();
    Writer::new(&mut document).int32(command, 1).text("$db", "admin");
    requester.request_reply(&document, out);
}

/// Whether the server gives the host name that Poolhouse gives.
fn is_pooled(requester: &Requester) -> bool {
    let host = requester.reply().and_then(|answer| answer.get("hostname").ok()?.and_then(Value::text));
    requester.error().is_none() && host == Some("poolhouse")
}

/// The version in the answer to buildInfo. A user without the right to this command may still be allowed those of the
/// load.
fn version(requester: &Requester) -> Result<Option<String>, String> {
    const UNAUTHORIZED: i32 = 13;
    match requester.error() {
        Some(error) if error.code == UNAUTHORIZED && !requester.logs_in() => {
            Err(format!("{error}. Write the user in the URL: mongodb://user:password@host:port"))
        }
        Some(_) => Ok(None),
        None => {
            let version = requester.reply().and_then(|answer| answer.get("version").ok()?.and_then(Value::text));
            Ok(version.map(str::to_owned))
        }
    }
}

/// Reads the scripts of a target.
///
/// # Errors
/// The first mistake in a script.
pub fn scripts(target: &MongoTarget, seed: u64) -> Result<Scripts, TargetError> {
    let one = |name: &str, text| vec![((name.to_owned(), text), 1)];
    let (sources, mut variables) = match &target.work {
        MongoWork::Ping => (one("ping", MONGODB_PING), Vec::new()),
        MongoWork::BuiltIn { operation, documents, value_size } => {
            let text = match operation {
                MongoOperation::FindOne => MONGODB_FIND_ONE,
                MongoOperation::Insert => MONGODB_INSERT,
                MongoOperation::Update => MONGODB_UPDATE,
                MongoOperation::Aggregate => MONGODB_AGGREGATE,
            };
            let given = [("documents", documents.to_string()), ("value", "x".repeat(*value_size as usize))];
            (one(operation.name(), text), given.map(|(name, value)| (name.to_owned(), value)).into())
        }
        MongoWork::Scripts(scripts) => {
            let sources = scripts.iter().map(|script| ((script.name.clone(), script.text.as_str()), script.weight));
            (sources.collect(), Vec::new())
        }
    };
    variables.extend(target.variables.iter().cloned());
    Scripts::of_mongodb(&sources, &variables, seed).map_err(|error| TargetError::configuration(error.to_string()))
}
