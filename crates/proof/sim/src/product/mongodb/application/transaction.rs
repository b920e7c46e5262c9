//! A transaction as a driver's convenient API carries it out: statements, then an abort, or a commit that is repeated
//! until its outcome is known; after a transient error, the whole transaction again.

use std::time::Duration;

use mongodb_session::bson::Writer;

use super::{
    answer_check::{AnswerCheck, Next, SEND_NOW, write_row},
    expected_rows::{ExpectedRows, Row},
    outcome::Outcome,
};
use crate::databases::mongodb::HOT;

/// Attempts at the whole transaction.
const MAX_BEGUN: u32 = 3;

/// Commits by the application, each with a retry by its driver.
const MAX_COMMITS: u32 = 6;

#[derive(Clone, Debug)]
pub enum Statement {
    Write(Row),
    Read(String),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Commit,
    /// Commits again after a successful commit.
    CommitTwice,
    Abort,
    /// The application forgets it.
    Nothing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// This statement is next.
    At(usize),
    Commit,
    Abort {
        begins_again: bool,
    },
}

pub struct Transaction {
    statements: Vec<Statement>,
    end: End,
    /// Another mongos may take over at the commit.
    sharded: bool,
    number: i64,
    phase: Phase,
    begun: u32,
    tries: u32,
    /// Whether a commit was executed is unknown.
    unknown: bool,
    committed: bool,
}

impl Transaction {
    pub fn new(statements: Vec<Statement>, end: End, sharded: bool, number: i64) -> Self {
        let (phase, begun, tries) = (Phase::At(0), 1, 0);
        Self { statements, end, sharded, number, phase, begun, tries, unknown: false, committed: false }
    }

    pub fn is_begun(&self) -> bool {
        self.phase != Phase::At(0)
    }

    fn rows(&self) -> Vec<Row> {
        let write = |statement: &Statement| match statement {
            Statement::Write(row) => Some(row.clone()),
            Statement::Read(_) => None,
        };
        self.statements.iter().filter_map(write).collect()
    }

    pub fn command(&self, body: &mut Writer<'_>) {
        match self.phase {
            Phase::At(at) => {
                match &self.statements[at] {
                    Statement::Write(row) => write_row(body, row),
                    Statement::Read(collection) => _ = body.text("find", collection).int32("batchSize", 1000),
                }
                if at == 0 {
                    body.bool("startTransaction", true);
                }
            }
            Phase::Commit => {
                body.int32("commitTransaction", 1);
                if self.sharded {
                    body.document("recoveryToken", |token| _ = token.text("recoveryShardId", "shard0"));
                }
            }
            Phase::Abort { .. } => _ = body.int32("abortTransaction", 1),
        }
        body.int64("txnNumber", self.number).bool("autocommit", false);
    }

    /// The database of its next command.
    pub fn database(&self) -> &'static str {
        if matches!(self.phase, Phase::At(_)) { "app" } else { "admin" }
    }

    pub fn on_outcome(&mut self, outcome: Outcome, check: &mut AnswerCheck<'_>) -> Next {
        match self.phase {
            Phase::At(at) => self.on_statement_outcome(at, outcome, check),
            Phase::Commit => self.on_commit_outcome(outcome, check),
            Phase::Abort { begins_again } => self.on_abort_outcome(begins_again, &outcome, check),
        }
    }

    fn on_statement_outcome(&mut self, at: usize, outcome: Outcome, check: &mut AnswerCheck<'_>) -> Next {
        let again = match outcome {
            Outcome::Done { batch, .. } => {
                if let Statement::Read(collection) = &self.statements[at] {
                    let before = Self { statements: self.statements[..at].to_vec(), ..*self };
                    check.rows.check_read(collection, &batch, &before.rows());
                }
                self.phase = Phase::At(at + 1);
                if at + 1 < self.statements.len() {
                    return self.pause(check);
                }
                self.phase = match self.end {
                    End::Commit | End::CommitTwice => Phase::Commit,
                    End::Abort => Phase::Abort { begins_again: false },
                    End::Nothing => {
                        check.rows.rule_out(self.rows());
                        return Next::Done;
                    }
                };
                return self.pause(check);
            }
            Outcome::Refused(refusal) => {
                assert!(!refusal.retryable, "a statement of a transaction is to be repeated alone: {refusal:?}");
                let conflict = refusal.code == 112
                    && matches!(&self.statements[at], Statement::Write((collection, _)) if collection == HOT);
                // A former primary has lost its transactions.
                let gone = refusal.code == 251 && check.after_fault;
                if !conflict && !gone {
                    check.allow_error("a statement of a transaction", &refusal);
                }
                let lost = refusal.code == 6 || conflict || gone;
                assert!(refusal.transient || !lost, "a transaction is worth a second attempt, and it is not said");
                refusal.transient
            }
            Outcome::Lost(why) => {
                check.allow_disconnect("a statement of a transaction", &why);
                true
            }
        };
        self.phase = Phase::Abort { begins_again: again };
        SEND_NOW
    }

    fn pause(&self, check: &mut AnswerCheck<'_>) -> Next {
        Next::Send(if check.rng.percent(80) { Duration::ZERO } else { check.rng.exponential(Duration::from_millis(5)) })
    }

    fn on_commit_outcome(&mut self, outcome: Outcome, check: &mut AnswerCheck<'_>) -> Next {
        self.tries += 1;
        let again = match outcome {
            Outcome::Done { .. } => {
                if !self.committed {
                    check.rows.acknowledge(self.rows());
                }
                let twice = std::mem::replace(&mut self.committed, true);
                return if self.end == End::CommitTwice && !twice { SEND_NOW } else { Next::Done };
            }
            Outcome::Refused(refusal) if refusal.code == 251 => {
                assert!(check.after_fault, "a transaction is missing at its commit: {refusal:?}");
                assert!(!self.committed, "what was committed is not known: {refusal:?}");
                assert!(refusal.transient, "a transaction is worth a second attempt, and it is not said");
                check.rows.rule_out(self.rows());
                return self.begin_again(check);
            }
            Outcome::Refused(refusal) => {
                check.allow_error("a commit", &refusal);
                assert!(!refusal.transient, "a transaction that may be committed is to be repeated: {refusal:?}");
                self.unknown |= !refusal.is_not_executed();
                refusal.retryable
            }
            Outcome::Lost(why) => {
                check.allow_disconnect("a commit", &why);
                self.unknown = true;
                true
            }
        };
        if again && self.tries % 2 == 1 {
            return SEND_NOW;
        }
        if self.tries < MAX_COMMITS * 2 && (self.unknown || again) {
            self.tries += self.tries % 2;
            return Next::Send(Duration::from_millis(10 << (self.tries / 2)));
        }
        if !self.committed {
            // The transaction may still be open at its host, and be committed later.
            check.rows.doubt(self.rows());
        }
        Next::Done
    }

    fn on_abort_outcome(&mut self, begins_again: bool, outcome: &Outcome, check: &mut AnswerCheck<'_>) -> Next {
        // Drivers retry an abort once, and ignore the outcome.
        self.tries += 1;
        let repeats = match outcome {
            Outcome::Refused(refusal) => {
                let gone = refusal.code == 251 && (begins_again || check.after_fault);
                if !gone {
                    check.allow_error("an abort", refusal);
                }
                refusal.retryable
            }
            Outcome::Lost(why) => {
                check.allow_disconnect("an abort", why);
                true
            }
            Outcome::Done { .. } => false,
        };
        if repeats && self.tries == 1 {
            return SEND_NOW;
        }
        check.rows.rule_out(self.rows());
        if begins_again { self.begin_again(check) } else { Next::Done }
    }

    /// Begins the whole transaction again, with another number and other rows.
    fn begin_again(&mut self, check: &mut AnswerCheck<'_>) -> Next {
        if self.begun >= MAX_BEGUN {
            return Next::Done;
        }
        *check.last_number += 1;
        let begun = self.begun + 1;
        let anew = |statement: &Statement| match statement {
            Statement::Write((collection, row)) => Statement::Write((collection.clone(), format!("{row}+"))),
            Statement::Read(collection) => Statement::Read(collection.clone()),
        };
        let statements = self.statements.iter().map(anew).collect();
        *self = Self { begun, ..Self::new(statements, self.end, self.sharded, *check.last_number) };
        Next::Send(check.rng.exponential(Duration::from_millis(5)))
    }

    pub fn vanish(&self, asked: bool, rows: &mut ExpectedRows) {
        let commits = self.phase == Phase::Commit && (asked || self.tries > 0);
        match (self.committed, commits) {
            (true, _) => {}
            (false, true) => rows.doubt(self.rows()),
            (false, false) => rows.rule_out(self.rows()),
        }
    }
}
