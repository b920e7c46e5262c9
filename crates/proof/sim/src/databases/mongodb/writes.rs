//! Rows, and each session's last write, by which retried writes are recognised. A majority has all rows except those of
//! recent writes with the concern `w: 1`.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use mongodb_session::bson::{Document, Value};

use super::{MongoDb, document, errors::write_error, message::Request};
use crate::databases::Connection;

/// Time until a majority has a write.
const REPLICATION: Duration = Duration::from_millis(20);

/// A logical session: its user, and its id.
pub type SessionKey = (usize, Vec<u8>);

/// A session's last write or transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Record {
    pub number: i64,
    /// Number of rows written, or [`Self::COMMITTED`].
    pub what: i32,
}

impl Record {
    /// A committed transaction.
    pub const COMMITTED: i32 = -1;
}

/// A write that only the primary has.
pub struct Recent {
    since: Duration,
    collection: String,
    rows: Vec<String>,
    record: Option<(SessionKey, Record)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowState {
    /// A majority has it, this many times.
    Kept(usize),
    Recent,
    /// An election has lost it.
    RolledBack,
    /// It was not written, or its transaction was aborted.
    Absent,
}

#[derive(Default)]
pub struct Written {
    /// The rows of each collection, in the order of their writing.
    collections: BTreeMap<String, Vec<String>>,
    last: BTreeMap<SessionKey, Record>,
    /// Writes that no majority has yet.
    recent: Vec<Recent>,
    rolled_back: BTreeSet<(String, String)>,
}

impl Written {
    /// The rows of a collection that a majority has.
    pub fn rows(&self, collection: &str) -> Vec<String> {
        self.collections.get(collection).cloned().unwrap_or_default()
    }

    /// All rows of a collection.
    pub fn visible(&self, collection: &str) -> Vec<String> {
        let recent = self.recent.iter().filter(|recent| recent.collection == collection);
        self.rows(collection).into_iter().chain(recent.flat_map(|recent| recent.rows.clone())).collect()
    }

    /// The state of a row; `others` are writes that only a former primary has.
    pub fn row_state<'a>(&'a self, collection: &str, row: &str, others: impl Iterator<Item = &'a Recent>) -> RowState {
        let is = |found: &&String| *found == row;
        let kept = self.collections.get(collection).map_or(0, |rows| rows.iter().filter(is).count());
        let mut recent = self.recent.iter().chain(others);
        match kept {
            1.. => RowState::Kept(kept),
            0 if recent
                .any(|recent| recent.collection == collection && recent.rows.iter().any(|found| found == row)) =>
            {
                RowState::Recent
            }
            0 if self.rolled_back.contains(&(collection.to_owned(), row.to_owned())) => RowState::RolledBack,
            0 => RowState::Absent,
        }
    }

    /// Number of rows that elections have lost.
    pub fn rolled_back(&self) -> u64 {
        self.rolled_back.len() as u64
    }

    /// A session's last write.
    pub fn record(&self, session: &SessionKey) -> Option<Record> {
        last_of(&self.recent, session).or_else(|| self.last.get(session).copied())
    }

    /// Adds rows to what a majority has, after all earlier writes.
    pub fn add(&mut self, rows: impl IntoIterator<Item = (String, String)>, record: Option<(SessionKey, Record)>) {
        self.replicate();
        for (collection, row) in rows {
            self.collections.entry(collection).or_default().push(row);
        }
        self.last.extend(record);
    }

    pub fn replicate(&mut self) {
        for Recent { collection, rows, record, .. } in std::mem::take(&mut self.recent) {
            self.collections.entry(collection).or_default().extend(rows);
            self.last.extend(record);
        }
    }

    /// When the next write reaches a majority.
    pub fn due(&self) -> Option<Duration> {
        self.recent.first().map(|recent| recent.since + REPLICATION)
    }

    /// The primary steps down, and the writes that only it has are lost.
    pub fn roll_back(&mut self) {
        let lost = std::mem::take(&mut self.recent);
        self.lose(lost);
    }

    pub fn lose(&mut self, lost: Vec<Recent>) {
        for Recent { collection, rows, .. } in lost {
            self.rolled_back.extend(rows.into_iter().map(|row| (collection.clone(), row)));
        }
    }
}

/// The last of these writes of a session.
pub fn last_of(recent: &[Recent], session: &SessionKey) -> Option<Record> {
    let records = recent.iter().rev().filter_map(|recent| recent.record.as_ref());
    records.into_iter().find(|(of, _)| of == session).map(|(_, record)| *record)
}

/// The outcome of a write, with the answer.
pub enum Outcome {
    Done(Vec<u8>),
    Nothing(Vec<u8>),
}

/// A command's documents, in its body or in other sections.
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

/// The row that an update adds by `$push`.
fn pushed(update: Document<'_>) -> Option<String> {
    let change = update.get("u").ok().flatten().and_then(Value::document)?;
    text(change.get("$push").ok().flatten().and_then(Value::document)?, "v")
}

/// The rows of an `insert` or an `update`.
pub fn rows_of(name: &str, request: &Request<'_>) -> Vec<String> {
    match name {
        "insert" => documents(request, "documents").into_iter().filter_map(|row| text(row, "v")).collect(),
        _ => documents(request, "updates").into_iter().filter_map(pushed).collect(),
    }
}

/// Whether the primary alone acknowledges a write.
fn is_quick(body: Document<'_>) -> bool {
    let concern = body.get("writeConcern").ok().flatten().and_then(Value::document);
    concern.and_then(|concern| concern.get("w").ok().flatten()?.integer()) == Some(1)
}

impl MongoDb {
    /// Executes an `insert` or an `update`; `None` if it is not answered now.
    pub(super) fn write(
        &mut self,
        from: Connection,
        name: &str,
        collection: &str,
        request: &Request<'_>,
    ) -> Option<Outcome> {
        let host = self.sessions.get(&from).expect("it speaks").host;
        let nothing = |answer| Some(Outcome::Nothing(answer));
        let rows = rows_of(name, request);
        if rows.is_empty() {
            let empty = |error: &mut mongodb_session::bson::Writer<'_>| {
                write_error(error, "Write batch sizes must be between 1 and 100000", 16);
            };
            return nothing(document(empty));
        }
        let (stale, quick) = (self.is_stale(host), is_quick(request.body));
        if stale && !quick {
            self.wait_for_majority(from, request);
            return None;
        }
        let number = request.body.get("txnNumber").ok().flatten().and_then(Value::integer);
        let count = rows.len() as i32;
        let record = self.session_of(from, request.body).zip(number);
        let record = record.map(|(session, number)| (session, Record { number, what: count }));
        if let Some((session, Record { number, .. })) = &record {
            let here = self.stale.as_ref().filter(|_| stale).and_then(|stale| stale.last_of(session));
            match here.or_else(|| self.written.record(session)) {
                Some(last) if last.number == *number => return nothing(done(name, last.what, true)),
                Some(last) if last.number > *number => {
                    return nothing(document(|error| {
                        write_error(error, "a later write of the session has begun", 225)
                    }));
                }
                _ => {}
            }
        }
        if quick && !self.is_reference {
            let recent = Recent { since: self.now, collection: collection.into(), rows, record };
            match self.stale.as_mut().filter(|_| stale) {
                Some(stale) => stale.recent.push(recent),
                None => self.written.recent.push(recent),
            }
        } else {
            self.written.add(rows.into_iter().map(|row| (collection.to_owned(), row)), record);
        }
        Some(Outcome::Done(done(name, count, false)))
    }
}

/// The answer to a write. `retried`: the write was executed before.
pub fn done(name: &str, count: i32, retried: bool) -> Vec<u8> {
    document(|answer| {
        answer.int32("n", count);
        if name == "update" {
            answer.int32("nModified", count);
        }
        if retried {
            answer.array("retriedStmtIds", |ids| _ = ids.int32("0", 0));
        }
        answer.double("ok", 1.0);
    })
}
