//! Checks of the answers to a task: which errors a fault allows, and what the task does next.

use std::time::Duration;

use mongodb_session::bson::Writer;

use super::{
    expected_rows::{ExpectedRows, Row},
    outcome::Refusal,
};
use crate::{
    databases::mongodb::{HOT, MongoDb},
    random::Rng,
};

pub struct AnswerCheck<'a> {
    pub rows: &'a mut ExpectedRows,
    pub product_database: &'a MongoDb,
    /// There was a fault after the command was sent, or shortly before.
    pub after_fault: bool,
    /// For pauses of a task.
    pub rng: &'a mut Rng,
    /// The number of the session's last write or transaction (`txnNumber`).
    pub last_number: &'a mut i64,
}

pub enum Next {
    /// Send the next command after this time.
    Send(Duration),
    Done,
}

/// Send the next command at once.
pub const SEND_NOW: Next = Next::Send(Duration::ZERO);

impl AnswerCheck<'_> {
    /// Allows an error after a fault. Any other is a violation.
    pub fn allow_error(&self, what: &str, refusal: &Refusal) {
        let known = refusal.text.starts_with("Poolhouse:") || refusal.code == 6;
        assert!(self.after_fault && known, "{what} is refused: {refusal:?}");
    }

    /// Allows the loss of a connection after a fault.
    pub fn allow_disconnect(&self, what: &str, why: &str) {
        assert!(self.after_fault, "{what} loses its connection: {why}");
    }
}

/// Appends the command that writes a row.
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
