//! A cursor that goes on for ever, each of whose batches is waited for. It is read for a while, and closed.

use std::time::Duration;

use mongodb_session::bson::Writer;

use super::{
    answer::Outcome,
    verdicts::{ASK, Next, Verdicts},
};

/// How often it asks again when too many wait already.
const MAX_REFUSED: u32 = 500;

pub struct Tailing {
    collection: String,
    mode: &'static str,
    /// Batches that it still waits for.
    rounds: u32,
    patience: i64,
    cursor: i64,
    read: Vec<String>,
    refused: u32,
}

impl Tailing {
    pub fn new(collection: String, mode: &'static str, rounds: u32, patience: i64) -> Self {
        Self { collection, mode, rounds, patience, cursor: 0, read: Vec::new(), refused: 0 }
    }

    /// A host has a cursor of it.
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
            body.int64("maxTimeMS", self.patience);
        } else {
            body.text("killCursors", &self.collection).array("cursors", |cursors| _ = cursors.int64("0", self.cursor));
        }
    }

    pub fn take(&mut self, outcome: Outcome, verdicts: &mut Verdicts<'_>) -> Next {
        match outcome {
            Outcome::Done { .. } if self.cursor != 0 && self.rounds == 0 => return Next::Over,
            Outcome::Done { batch, cursor } => {
                let same = self.cursor == 0 || self.cursor == cursor;
                assert!(cursor != 0 && same, "cursor {} that goes on for ever is {cursor} now", self.cursor);
                self.rounds -= u32::from(self.cursor != 0);
                self.cursor = cursor;
                self.read.extend(batch);
                let rows = verdicts.real.rows(&self.collection);
                assert!(rows.starts_with(&self.read), "read are {:?} of {rows:?}", self.read);
                return ASK;
            }
            Outcome::Refused(refusal) if refusal.code == 365 && refusal.text.contains("max_pinned") => {
                self.refused += 1;
                assert!(self.refused < MAX_REFUSED || verdicts.hurt, "no host lets it wait: {refusal:?}");
                if self.refused < MAX_REFUSED {
                    return Next::Ask(Duration::from_millis(4));
                }
            }
            Outcome::Refused(refusal) if refusal.code == 43 && verdicts.hurt => {}
            Outcome::Refused(refusal) => verdicts.excuse("a cursor that goes on for ever", &refusal),
            Outcome::Lost(why) => verdicts.excuse_loss("a cursor that goes on for ever", &why),
        }
        Next::Over
    }
}
