//! The documents that the built-in commands ask for, in a collection of their own. Knows no load.

use std::{
    ops::RangeInclusive,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use clients::{
    blocking::{BlockingClient, CONNECT_TIMEOUT},
    mongodb::{ConnectOptions, Requester},
};
use mongodb_session::bson::{Value, Writer};

use crate::{
    plan::{MongoTarget, MongoWork},
    target::TargetError,
};

const COLLECTION: &str = "poolhouse_bench";
/// The collections that are dropped: also the one that inserts go to.
const DROPS: [&str; 2] = [COLLECTION, "poolhouse_bench.inserts"];
/// Documents of one insert.
const INSERT_BATCH: u32 = 1_000;
/// Bounds each step of making the documents.
const INIT_TIMEOUT: Duration = Duration::from_secs(60 * 60);
const COUNT_TIMEOUT: Duration = Duration::from_secs(60);

/// Whether the collection has the documents that the load asks for.
pub(super) fn check(target: &MongoTarget, documents: u32) -> Result<(), TargetError> {
    let (mut client, database) = connect(target)?;
    let mut command = Vec::new();
    Writer::new(&mut command).text("count", COLLECTION).text("$db", &database);
    let write = |requester: &mut Requester, out: &mut Vec<u8>| requester.request_reply(&command, out);
    let Some(requester) = client.try_request(write, COUNT_TIMEOUT)? else { return Ok(()) };
    if let Some(error) = requester.error().map(ToString::to_string) {
        return Err(client.error(error));
    }
    let count = requester.reply().and_then(|answer| answer.get("n").ok()?.and_then(Value::integer)).unwrap_or(0);
    if count < i64::from(documents) {
        return Err(TargetError::target(format!(
            "the collection {COLLECTION} has {count} documents, and the load asks for {documents}: make them with \
             `--init --documents {documents}`"
        )));
    }
    Ok(())
}

/// Makes the collection anew, with the documents that the target's work needs.
///
/// # Errors
/// The work needs none, or the server refuses.
pub fn init(target: &MongoTarget, stop: &AtomicBool) -> Result<(), TargetError> {
    let MongoWork::BuiltIn { documents, value_size, .. } = target.work else {
        return Err(TargetError::configuration(
            "--init makes the documents of the built-in operations: say which with --operation",
        ));
    };
    let (client, database) = connect(target)?;
    let mut client = client.with_stop(stop);
    let value = "x".repeat(value_size as usize);
    let mut command = Vec::new();
    for collection in DROPS {
        command.clear();
        Writer::new(&mut command).text("drop", collection).text("$db", &database);
        // An error may be that there is no such collection.
        client.request(|requester, out| requester.request_reply(&command, out), INIT_TIMEOUT)?;
    }
    for first in (1..=documents).step_by(INSERT_BATCH as usize) {
        command.clear();
        write_insert(&database, first..=documents.min(first + INSERT_BATCH - 1), &value, &mut command);
        let inserted = client.request(|requester, out| requester.request_reply(&command, out), INIT_TIMEOUT)?;
        if let Some(error) = inserted.error().map(ToString::to_string) {
            return Err(client.error(error));
        }
    }
    Ok(())
}

/// Connects to the target. Returns the name of its database, too.
fn connect(target: &MongoTarget) -> Result<(BlockingClient<'static, Requester>, Arc<str>), TargetError> {
    let options = ConnectOptions::of(&target.url, None)?;
    let database = options.database.clone();
    Ok((BlockingClient::connect(options, CONNECT_TIMEOUT)?, database))
}

fn write_insert(database: &str, ids: RangeInclusive<u32>, value: &str, command: &mut Vec<u8>) {
    Writer::new(command).text("insert", COLLECTION).text("$db", database).array("documents", |all| {
        for (index, id) in ids.enumerate() {
            all.document(&index.to_string(), |one| {
                // As scripts write numbers, so that an id is found whatever a server makes of their types.
                one.int32("_id", id as i32).int32("count", 0).text("value", value);
            });
        }
    });
}
