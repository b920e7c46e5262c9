//! A tailable cursor, whose batches are awaited (`awaitData`). It is read for a while, then closed.

use std::time::Duration;

use mongodb_session::bson::Writer;

use super::{
    answer_check::{AnswerCheck, Next, SEND_NOW},
    outcome::Outcome,
};

/// Retries after an error that too many requests wait.
const MAX_REFUSED: u32 = 500;

pub struct TailableRead {
    collection: String,
    mode: &'static str,
    /// Batches still to be read.
    rounds: u32,
    max_time_ms: i64,
    cursor: i64,
    read: Vec<String>,
    refused: u32,
}

impl TailableRead {
    pub fn new(collection: String, mode: &'static str, rounds: u32, max_time_ms: i64) -> Self {
        Self { collection, mode, rounds, max_time_ms, cursor: 0, read: Vec::new(), refused: 0 }
    }

    /// Whether its cursor is open.
    pub fn is_open(&self) -> bool {
        self.cursor != 0
    }

    pub fn command(&self, body: &mut Writer<'_>) {
        if self.cursor == 0 {
            body.text("find", &self.collection).int32("batchSize", 2);
            body.bool("tailable", true).bool("awaitData", true);
            body.document("$readPreference", |preference| _ = preference.text("mode", self.mode));
        } else if self.rounds > 0 {
            body.int64("getMore", self.cursor).text("collection", &self.collection).int32("batchSize", 3);
            body.int64("maxTimeMS", self.max_time_ms);
        } else {
            body.text("killCursors", &self.collection).array("cursors", |cursors| _ = cursors.int64("0", self.cursor));
        }
    }

    pub fn on_outcome(&mut self, outcome: Outcome, check: &mut AnswerCheck<'_>) -> Next {
        match outcome {
            Outcome::Done { .. } if self.cursor != 0 && self.rounds == 0 => return Next::Done,
            Outcome::Done { batch, cursor } => {
                let same = self.cursor == 0 || self.cursor == cursor;
                assert!(cursor != 0 && same, "cursor {} that goes on for ever is {cursor} now", self.cursor);
                self.rounds -= u32::from(self.cursor != 0);
                self.cursor = cursor;
                self.read.extend(batch);
                let rows = check.product_database.rows(&self.collection);
                assert!(rows.starts_with(&self.read), "read are {:?} of {rows:?}", self.read);
                return SEND_NOW;
            }
            Outcome::Refused(refusal) if refusal.code == 365 && refusal.text.contains("max_pinned") => {
                self.refused += 1;
                assert!(self.refused < MAX_REFUSED || check.after_fault, "no host lets it wait: {refusal:?}");
                if self.refused < MAX_REFUSED {
                    return Next::Send(Duration::from_millis(4));
                }
            }
            Outcome::Refused(refusal) if refusal.code == 43 && check.after_fault => {}
            Outcome::Refused(refusal) => check.allow_error("a cursor that goes on for ever", &refusal),
            Outcome::Lost(why) => check.allow_disconnect("a cursor that goes on for ever", &why),
        }
        Next::Done
    }
}
