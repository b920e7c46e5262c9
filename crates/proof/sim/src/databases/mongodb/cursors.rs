//! Cursors of a host. An open cursor holds the rest of the documents that existed when it was opened.

use std::collections::VecDeque;

use mongodb_session::bson::{Document, Value, Writer};

use super::{FIRST_CURSOR, MongoDb, document, errors::write_error, message::Request, writes::SessionKey};
use crate::databases::Connection;

/// Default number of documents in a first batch.
const BATCH: usize = 101;

/// The most documents of the collection of numbers.
const MAX_NUMBERS: i64 = 500;

/// The most bytes of a document's text.
const MAX_WIDTH: i64 = 8000;

pub struct Cursor {
    collection: String,
    session: Option<SessionKey>,
    rest: VecDeque<Vec<u8>>,
    /// A tailable cursor: the number of rows read so far.
    read: Option<usize>,
}

impl Cursor {
    pub fn is_of(&self, session: &SessionKey) -> bool {
        self.session.as_ref() == Some(session)
    }
}

/// The id of a command's session.
pub fn session(body: Document<'_>) -> Option<Vec<u8>> {
    let lsid = body.get("lsid").ok().flatten().and_then(Value::document)?;
    match lsid.get("id").ok().flatten()? {
        Value::Binary(_, id) => Some(id.to_vec()),
        _ => None,
    }
}

fn count(body: Document<'_>, name: &str) -> Option<i64> {
    body.get(name).ok().flatten().and_then(Value::integer)
}

/// A document {_id, v}. Every second `_id` has 64 bits.
fn row(number: i64, text: &str) -> Vec<u8> {
    document(|row| {
        match number % 2 {
            0 => row.int32("_id", number as i32),
            _ => row.int64("_id", number),
        };
        row.text("v", text);
    })
}

/// Documents of the collection of numbers: the filter sets their number, label and width.
fn numbers(filter: Document<'_>) -> VecDeque<Vec<u8>> {
    let label = filter.get("label").ok().flatten().and_then(Value::text).unwrap_or_default();
    let width = count(filter, "width").unwrap_or(0).clamp(0, MAX_WIDTH) as usize;
    let count = count(filter, "count").unwrap_or(0).clamp(0, MAX_NUMBERS);
    (0..count).map(|n| row(n, &format!("{label}.{n} {}", "=".repeat(width)))).collect()
}

fn batch(answer: &mut Writer<'_>, name: &str, documents: &[Vec<u8>], id: i64, collection: &str) {
    answer.document("cursor", |cursor| {
        cursor.array(name, |batch| {
            for (index, bytes) in documents.iter().enumerate() {
                batch.document(&index.to_string(), |row| {
                    for element in Document::read(bytes).expect("it was written here").elements() {
                        row.copy(&element.expect("it was written here"));
                    }
                });
            }
        });
        cursor.int64("id", id).text("ns", &format!("app.{collection}"));
    });
    answer.double("ok", 1.0);
}

impl MongoDb {
    /// Opens a cursor, unless the first batch has all documents.
    pub(super) fn find(&mut self, from: Connection, collection: &str, body: Document<'_>) -> Vec<u8> {
        let (host, session) = (self.sessions[&from].host, self.session_of(from, body));
        let size = count(body, "batchSize").map_or(BATCH, |size| size.clamp(0, 1000) as usize);
        let filter = body.get("filter").ok().flatten().and_then(Value::document);
        let mut rest: VecDeque<_> = match (collection, filter) {
            ("numbers", Some(filter)) => numbers(filter),
            _ => self.visible(from, collection, body).iter().enumerate().map(|(n, text)| row(n as i64, text)).collect(),
        };
        let first: Vec<_> = rest.drain(..size.min(rest.len())).collect();
        let mut id = 0;
        if !rest.is_empty() {
            let host = &mut self.hosts[host];
            id = FIRST_CURSOR + host.cursors_opened;
            host.cursors_opened += 1;
            host.cursors.insert(id, Cursor { collection: collection.into(), session, rest, read: None });
        }
        document(|answer| batch(answer, "firstBatch", &first, id, collection))
    }

    /// Opens a tailable cursor over the rows that a majority has.
    pub(super) fn tail(&mut self, from: Connection, collection: &str, body: Document<'_>) -> Vec<u8> {
        let (host, session) = (self.sessions[&from].host, self.session_of(from, body));
        let size = count(body, "batchSize").map_or(BATCH, |size| size.clamp(0, 1000) as usize);
        let rows = self.rows(collection);
        let first: Vec<_> = rows.iter().take(size).enumerate().map(|(number, text)| row(number as i64, text)).collect();
        let host = &mut self.hosts[host];
        let id = FIRST_CURSOR + host.cursors_opened;
        host.cursors_opened += 1;
        let (rest, read) = (VecDeque::new(), Some(first.len()));
        host.cursors.insert(id, Cursor { collection: collection.into(), session, rest, read });
        document(|answer| batch(answer, "firstBatch", &first, id, collection))
    }

    /// Whether the next batch of a tailable cursor would be empty.
    pub(super) fn has_nothing_new(&self, host: usize, id: i64) -> bool {
        let cursor = self.hosts[host].cursors.get(&id);
        let tail = cursor.and_then(|cursor| cursor.read.map(|read| (read, &cursor.collection)));
        tail.is_some_and(|(read, collection)| read >= self.rows(collection).len())
    }

    pub(super) fn get_more(&mut self, from: Connection, id: i64, body: Document<'_>) -> Vec<u8> {
        let (host, session) = (self.sessions[&from].host, self.session_of(from, body));
        let tailed = self.hosts[host].cursors.get(&id).filter(|cursor| cursor.read.is_some());
        let rows = tailed.map(|cursor| self.rows(&cursor.collection)).unwrap_or_default();
        let cursors = &mut self.hosts[host].cursors;
        let Some(cursor) = cursors.get_mut(&id) else {
            return document(|error| write_error(error, &format!("cursor id {id} not found"), 43));
        };
        let collection = body.get("collection").ok().flatten().and_then(Value::text);
        if cursor.session != session || collection != Some(&cursor.collection) {
            return document(|error| write_error(error, "the cursor is another session's or collection's", 13));
        }
        let size = count(body, "batchSize").map_or(BATCH, |size| size.clamp(1, 1000) as usize);
        if let Some(read) = &mut cursor.read {
            let next = rows.iter().enumerate().skip(*read).take(size);
            let next: Vec<_> = next.map(|(number, text)| row(number as i64, text)).collect();
            *read += next.len();
            let collection = cursor.collection.clone();
            return document(|answer| batch(answer, "nextBatch", &next, id, &collection));
        }
        let next: Vec<_> = cursor.rest.drain(..size.min(cursor.rest.len())).collect();
        let collection = cursor.collection.clone();
        let over = cursor.rest.is_empty();
        if over {
            cursors.remove(&id);
        }
        document(|answer| batch(answer, "nextBatch", &next, if over { 0 } else { id }, &collection))
    }

    /// Closes cursors of the session. A real server compares only the users; here many clients are the same user, and
    /// raw clients guess ids. The pooler's own requests have no session, and negative ids.
    pub(super) fn kill_cursors(&mut self, from: Connection, request: &Request<'_>) -> Vec<u8> {
        let body = request.body;
        let (host, user, session) = (self.sessions[&from].host, self.sessions[&from].user, self.session_of(from, body));
        let any = request.answers.id < 0 && session.is_none();
        let asked = body.get("cursors").ok().flatten().and_then(Value::array);
        let ids = asked.into_iter().flat_map(Document::elements).flatten();
        let ids: Vec<i64> = ids.filter_map(|id| id.value().ok()?.integer()).collect();
        let cursors = &mut self.hosts[host].cursors;
        let own = |cursor: &Cursor| {
            cursor.session == session || (any && cursor.session.as_ref().is_some_and(|(of, _)| *of == user))
        };
        let (killed, unknown): (Vec<i64>, Vec<i64>) =
            ids.into_iter().partition(|id| cursors.get(id).is_some_and(own) && cursors.remove(id).is_some());
        document(|answer| {
            for (name, ids) in [("cursorsKilled", &killed), ("cursorsNotFound", &unknown)] {
                answer.array(name, |array| {
                    for (index, id) in ids.iter().enumerate() {
                        array.int64(&index.to_string(), *id);
                    }
                });
            }
            answer.array("cursorsAlive", |_| ()).array("cursorsUnknown", |_| ()).double("ok", 1.0);
        })
    }
}
