//! A read of all batches of a cursor, each over any connection.

use std::time::Duration;

use mongodb_session::bson::Writer;

use super::{
    answer_check::{AnswerCheck, Next, SEND_NOW},
    outcome::Outcome,
};

/// Retries after an error that too many requests wait.
const MAX_REFUSED: u32 = 500;

pub struct CursorRead {
    pub label: String,
    /// Number of documents, and of documents in a batch.
    pub count: usize,
    pub size: i32,
    pub mode: &'static str,
    /// It requests all batches at once (`exhaustAllowed`).
    exhausts: bool,
    refused: u32,
    read: Vec<String>,
    cursor: i64,
}

impl CursorRead {
    pub fn new(label: String, count: usize, size: i32, mode: &'static str, exhausts: bool) -> Self {
        Self { label, count, size, mode, exhausts, refused: 0, read: Vec::new(), cursor: 0 }
    }

    /// Whether its cursor is open.
    pub fn is_open(&self) -> bool {
        self.cursor != 0
    }

    pub fn exhausts(&self) -> bool {
        self.exhausts && self.is_open()
    }

    pub fn command(&self, body: &mut Writer<'_>) {
        if self.cursor != 0 {
            body.int64("getMore", self.cursor).text("collection", "numbers").int32("batchSize", self.size.max(1));
            return;
        }
        body.text("find", "numbers").int32("batchSize", self.size);
        body.document("filter", |filter| _ = filter.text("label", &self.label).int32("count", self.count as i32));
        body.document("$readPreference", |preference| _ = preference.text("mode", self.mode));
    }

    pub fn on_outcome(&mut self, outcome: Outcome, check: &mut AnswerCheck<'_>) -> Next {
        match outcome {
            Outcome::Done { batch, cursor } => {
                self.read.extend(batch);
                self.cursor = cursor;
                if cursor != 0 {
                    return SEND_NOW;
                }
                let right: Vec<String> = (0..self.count).map(|n| format!("{}.{n} ", self.label)).collect();
                assert_eq!(self.read, right, "what a cursor gives");
            }
            Outcome::Refused(refusal) if refusal.code == 365 && self.exhausts() && self.refused < MAX_REFUSED => {
                self.refused += 1;
                return Next::Send(Duration::from_millis(4));
            }
            Outcome::Refused(refusal) => {
                // A host that was down has lost its cursors.
                if refusal.code != 43 || !check.after_fault {
                    check.allow_error("a read", &refusal);
                }
            }
            Outcome::Lost(why) => check.allow_disconnect("a read", &why),
        }
        Next::Done
    }
}
