//! What is written, and which writes are known from their repetition: of every session the number of its last one, and
//! how that was answered.

use std::collections::BTreeMap;

use mongodb::bson::{Document, Value};

use super::{MongoDb, cursors::session, document, errors::fail, message::Request};

/// See the file's head.
#[derive(Default)]
pub struct Written {
    /// The rows of each collection, in the order of their writing.
    collections: BTreeMap<String, Vec<String>>,
    /// By session.
    last: BTreeMap<Vec<u8>, (i64, i32)>,
}

impl Written {
    /// The rows of a collection.
    pub fn rows(&self, collection: &str) -> Vec<String> {
        self.collections.get(collection).cloned().unwrap_or_default()
    }
}

/// What became of a write.
pub enum Outcome {
    /// Something was written.
    Done(Vec<u8>),
    /// Nothing was.
    Nothing(Vec<u8>),
}

/// The documents that a command is about, in its body or beside it.
fn documents<'a>(request: &Request<'a>, name: &str) -> Vec<Document<'a>> {
    let inside = request.body.get(name).ok().flatten().and_then(Value::array);
    let inside = inside.into_iter().flat_map(Document::elements).flatten();
    let inside = inside.filter_map(|element| element.value().ok()?.document());
    let beside = request.beside.iter().filter(|(beside, _)| *beside == name).map(|(_, document)| *document);
    inside.chain(beside).collect()
}

fn text(document: Document<'_>, name: &str) -> Option<String> {
    document.get(name).ok().flatten().and_then(Value::text).map(str::to_owned)
}

/// The row that an update adds to a document: `u` has it in `$push`.
fn pushed(update: Document<'_>) -> Option<String> {
    let change = update.get("u").ok().flatten().and_then(Value::document)?;
    text(change.get("$push").ok().flatten().and_then(Value::document)?, "v")
}

impl MongoDb {
    /// Inserts rows, or updates a document with more of them.
    pub(super) fn write(&mut self, name: &str, collection: &str, request: &Request<'_>) -> Outcome {
        let rows: Vec<String> = match name {
            "insert" => documents(request, "documents").into_iter().filter_map(|row| text(row, "v")).collect(),
            _ => documents(request, "updates").into_iter().filter_map(pushed).collect(),
        };
        if rows.is_empty() {
            return Outcome::Nothing(document(|error| {
                fail(error, "Write batch sizes must be between 1 and 100000", 16)
            }));
        }
        let number = request.body.get("txnNumber").ok().flatten().and_then(Value::integer);
        let key = session(request.body).zip(number);
        if let Some((session, number)) = &key
            && let Some((last, count)) = self.written.last.get(session)
        {
            if last == number {
                return Outcome::Nothing(done(name, *count, true));
            }
            if last > number {
                return Outcome::Nothing(document(|error| fail(error, "a later write of the session has begun", 225)));
            }
        }
        let count = rows.len() as i32;
        self.written.collections.entry(collection.into()).or_default().extend(rows);
        if let Some((session, number)) = key {
            self.written.last.insert(session, (number, count));
        }
        Outcome::Done(done(name, count, false))
    }
}

fn done(name: &str, count: i32, again: bool) -> Vec<u8> {
    document(|answer| {
        answer.int32("n", count);
        if name == "update" {
            answer.int32("nModified", count);
        }
        if again {
            answer.array("retriedStmtIds", |ids| _ = ids.int32("0", 0));
        }
        answer.double("ok", 1.0);
    })
}
