//! Judges the answers to an application's task: which errors are excused, and what the task does next.

use std::time::Duration;

use mongodb_session::bson::Writer;

use super::{
    answer::Refusal,
    judge::{Judge, Row},
};
use crate::{
    databases::mongodb::{HOT, MongoDb},
    random::Rng,
};

pub struct Verdicts<'a> {
    pub judge: &'a mut Judge,
    pub real: &'a MongoDb,
    /// A fault happened after the command was sent, or shortly before.
    pub hurt: bool,
    /// For the pauses that a task makes when another has locked the hot row.
    pub rng: &'a mut Rng,
    /// The number of the session's last write or transaction.
    pub last_number: &'a mut i64,
}

pub enum Next {
    /// Send the next command after this time.
    Ask(Duration),
    Over,
}

/// Send the next command at once.
pub const ASK: Next = Next::Ask(Duration::ZERO);

impl Verdicts<'_> {
    /// Accepts an error that a fault explains; any other is a violation.
    pub fn excuse(&self, what: &str, refusal: &Refusal) {
        let known = refusal.text.starts_with("Poolhouse:") || refusal.code == 6;
        assert!(self.hurt && known, "{what} is refused: {refusal:?}");
    }

    /// Accepts the loss of a connection if a fault explains it.
    pub fn excuse_loss(&self, what: &str, why: &str) {
        assert!(self.hurt, "{what} loses its connection: {why}");
    }
}

/// Writes the command that writes a row.
pub fn write_row(body: &mut Writer<'_>, (collection, row): &Row) {
    if collection == HOT {
        body.text("update", collection);
        body.array("updates", |updates| {
            updates.document("0", |update| {
                update.document("q", |q| _ = q.int32("_id", 1));
                update.document("u", |u| _ = u.document("$push", |push| _ = push.text("v", row)));
            });
        });
    } else {
        body.text("insert", collection);
        body.array("documents", |documents| _ = documents.document("0", |document| _ = document.text("v", row)));
    }
}
