//! A write as a driver carries it out: once more if its server knows it from its repetition, and an error is worth
//! that.

use mongodb_session::bson::Writer;

use super::{
    answer::Outcome,
    judge::{Judge, Row},
    verdicts::{ASK, Next, Verdicts, write_row},
};

/// A row that is written, again if the driver's rules say so.
pub struct Write {
    pub row: Row,
    /// The server knows it from its repetition by this.
    pub number: Option<i64>,
    /// It is acknowledged before a majority has it.
    pub quick: bool,
    tries: u32,
    /// Whether an attempt was carried out is not known.
    unknown: bool,
}

impl Write {
    pub fn new(row: Row, number: Option<i64>, quick: bool) -> Self {
        Self { row, number, quick, tries: 0, unknown: false }
    }

    pub fn command(&self, body: &mut Writer<'_>) {
        write_row(body, &self.row);
        if let Some(number) = self.number {
            body.int64("txnNumber", number);
        }
        if self.quick {
            body.document("writeConcern", |concern| _ = concern.int32("w", 1));
        }
    }

    pub fn take(&mut self, outcome: Outcome, verdicts: &mut Verdicts<'_>) -> Next {
        self.tries += 1;
        let again = match outcome {
            Outcome::Done { .. } => {
                match self.quick {
                    true => verdicts.judge.acknowledge_quickly(self.row.clone()),
                    false => verdicts.judge.acknowledge([self.row.clone()]),
                }
                return Next::Over;
            }
            Outcome::Refused(refusal) => {
                verdicts.excuse("a write", &refusal);
                assert!(self.number.is_some() || !refusal.again, "what would be done twice is to be repeated");
                self.unknown |= !refusal.is_not_done();
                refusal.again
            }
            Outcome::Lost(why) => {
                verdicts.excuse_loss("a write", &why);
                self.unknown = true;
                true
            }
        };
        if again && self.number.is_some() && self.tries < 2 {
            return ASK;
        }
        self.give_up(verdicts.judge);
        Next::Over
    }

    fn give_up(&self, judge: &mut Judge) {
        match self.unknown {
            true => judge.doubt(vec![self.row.clone()]),
            false => judge.rule_out([self.row.clone()]),
        }
    }

    /// The application vanishes. `asked`: an answer was due.
    pub fn vanish(&mut self, asked: bool, judge: &mut Judge) {
        self.unknown |= asked;
        self.give_up(judge);
    }
}
