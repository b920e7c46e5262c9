//! The documents that the built-in commands ask for, in a collection of their own. Knows no load.

use std::{
    cell::Cell,
    ops::RangeInclusive,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use clients::{
    connection::ask_once,
    mongodb::{Link, Place},
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
    let place = Place::of(&target.url, None)?;
    let (address, database) = (place.endpoint.address.to_string(), place.database.clone());
    let ask = |link: &mut Link, out: &mut Vec<u8>| {
        let mut command = Vec::new();
        Writer::new(&mut command).text("count", COLLECTION).text("$db", &database);
        link.ask_for(&command, out);
    };
    let count = |link: &mut Link| {
        said(link)?;
        let count = link.kept().and_then(|answer| answer.get("n").ok()?.and_then(Value::integer));
        Ok(Some(count.unwrap_or(0)))
    };
    match ask_once(place, address, COUNT_TIMEOUT, ask, count)? {
        Some(count) if count < i64::from(documents) => Err(TargetError::target(format!(
            "the collection {COLLECTION} has {count} documents, and the load asks for {documents}: make them with \
             `--init --documents {documents}`"
        ))),
        _ => Ok(()),
    }
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
    let place = Place::of(&target.url, None)?;
    let (address, database) = (place.endpoint.address.to_string(), place.database.clone());
    let value = "x".repeat(value_size as usize);
    let steps = DROPS.len() as u32 + documents.div_ceil(INSERT_BATCH);
    let step = Cell::new(0);
    let ask = |link: &mut Link, out: &mut Vec<u8>| {
        let mut command = Vec::new();
        match DROPS.get(step.get() as usize) {
            Some(collection) => _ = Writer::new(&mut command).text("drop", collection).text("$db", &database),
            None => {
                let first = (step.get() - DROPS.len() as u32) * INSERT_BATCH + 1;
                let ids = first..=documents.min(first + INSERT_BATCH - 1);
                write_insert(&database, ids, &value, &mut command);
            }
        }
        link.ask_for(&command, out);
    };
    let told = |link: &mut Link| {
        // What is not there cannot be dropped.
        if step.get() >= DROPS.len() as u32 {
            said(link)?;
        }
        if stop.load(Relaxed) {
            return Err("interrupted".to_owned());
        }
        step.set(step.get() + 1);
        Ok((step.get() == steps).then_some(()))
    };
    ask_once(place, address, INIT_TIMEOUT, ask, told).map(|_| ())
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

fn said(link: &Link) -> Result<(), String> {
    link.said().map_or(Ok(()), |error| Err(error.to_string()))
}
