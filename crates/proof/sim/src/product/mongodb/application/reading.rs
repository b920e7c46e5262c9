//! A read to its end: the first batch of a cursor, and all others, each over whatever connection.

use std::time::Duration;

use mongodb_session::bson::Writer;

use super::{
    answer::Outcome,
    verdicts::{ASK, Next, Verdicts},
};

/// How often it asks again when too many wait already.
const MAX_REFUSED: u32 = 500;

pub struct Reading {
    pub label: String,
    /// Documents in all, and of a batch.
    pub count: usize,
    pub size: i32,
    pub mode: &'static str,
    /// It has all batches come unasked.
    exhausts: bool,
    refused: u32,
    read: Vec<String>,
    cursor: i64,
}

impl Reading {
    pub fn new(label: String, count: usize, size: i32, mode: &'static str, exhausts: bool) -> Self {
        Self { label, count, size, mode, exhausts, refused: 0, read: Vec::new(), cursor: 0 }
    }

    /// A host has a cursor of it.
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

    pub fn take(&mut self, outcome: Outcome, verdicts: &mut Verdicts<'_>) -> Next {
        match outcome {
            Outcome::Done { batch, cursor } => {
                self.read.extend(batch);
                self.cursor = cursor;
                if cursor != 0 {
                    return ASK;
                }
                let right: Vec<String> = (0..self.count).map(|n| format!("{}.{n} ", self.label)).collect();
                assert_eq!(self.read, right, "what a cursor gives");
            }
            Outcome::Refused(refusal) if refusal.code == 365 && self.exhausts() && self.refused < MAX_REFUSED => {
                self.refused += 1;
                return Next::Ask(Duration::from_millis(4));
            }
            Outcome::Refused(refusal) => {
                // A host that was down has no cursor of before.
                if refusal.code != 43 || !verdicts.hurt {
                    verdicts.excuse("a read", &refusal);
                }
            }
            Outcome::Lost(why) => verdicts.excuse_loss("a read", &why),
        }
        Next::Over
    }
}
