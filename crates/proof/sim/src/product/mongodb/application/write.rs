//! A write as a driver carries it out: with one retry if it has a number and the error is retryable.

use mongodb_session::bson::Writer;

use super::{
    answer_check::{AnswerCheck, Next, SEND_NOW, write_row},
    expected_rows::{ExpectedRows, Row},
    outcome::Outcome,
};

pub struct Write {
    pub row: Row,
    /// `txnNumber`, by which the server recognises a retry.
    pub number: Option<i64>,
    /// Acknowledged by the primary alone (`w: 1`).
    pub quick: bool,
    tries: u32,
    /// Whether an attempt was executed is unknown.
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

    pub fn on_outcome(&mut self, outcome: Outcome, check: &mut AnswerCheck<'_>) -> Next {
        self.tries += 1;
        let again = match outcome {
            Outcome::Done { .. } => {
                match self.quick {
                    true => check.rows.acknowledge_quickly(self.row.clone()),
                    false => check.rows.acknowledge([self.row.clone()]),
                }
                return Next::Done;
            }
            Outcome::Refused(refusal) => {
                check.allow_error("a write", &refusal);
                assert!(self.number.is_some() || !refusal.retryable, "what would be done twice is to be repeated");
                self.unknown |= !refusal.is_not_executed();
                refusal.retryable
            }
            Outcome::Lost(why) => {
                check.allow_disconnect("a write", &why);
                self.unknown = true;
                true
            }
        };
        if again && self.number.is_some() && self.tries < 2 {
            return SEND_NOW;
        }
        self.give_up(check.rows);
        Next::Done
    }

    fn give_up(&self, rows: &mut ExpectedRows) {
        match self.unknown {
            true => rows.doubt(vec![self.row.clone()]),
            false => rows.rule_out([self.row.clone()]),
        }
    }

    /// The application vanishes. `asked`: an answer is due.
    pub fn vanish(&mut self, asked: bool, rows: &mut ExpectedRows) {
        self.unknown |= asked;
        self.give_up(rows);
    }
}
