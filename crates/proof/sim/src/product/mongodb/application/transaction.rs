//! A transaction as a driver's convenient API carries it out: statement after statement, then a commit that is repeated
//! until its outcome is known, or an abort; and all of it once more if an error is worth that.

use std::time::Duration;

use mongodb_session::bson::Writer;

use super::{
    answer::Outcome,
    judge::{Judge, Row},
    verdicts::{ASK, Next, Verdicts, write_row},
};
use crate::databases::mongodb::HOT;

/// How often the whole is begun at most.
const MAX_BEGUN: u32 = 3;

/// How often a commit is repeated by the application, each time with its driver's own repetition.
const MAX_COMMITS: u32 = 6;

#[derive(Clone, Debug)]
pub enum Statement {
    Write(Row),
    Read(String),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Commit,
    /// And once more, though it is done.
    CommitTwice,
    Abort,
    /// Its application forgets it.
    Nothing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// This statement is next.
    At(usize),
    Commit,
    /// It is to be aborted, and then begun again or not.
    Abort {
        again: bool,
    },
}

pub struct Transaction {
    statements: Vec<Statement>,
    end: End,
    /// It is with a mongos, which another one may stand in for at the commit.
    sharded: bool,
    number: i64,
    phase: Phase,
    begun: u32,
    tries: u32,
    /// A commit was asked of which it is not known whether it was carried out.
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

    /// The database that its next command is for.
    pub fn database(&self) -> &'static str {
        if matches!(self.phase, Phase::At(_)) { "app" } else { "admin" }
    }

    pub fn take(&mut self, outcome: Outcome, verdicts: &mut Verdicts<'_>) -> Next {
        match self.phase {
            Phase::At(at) => self.take_statement(at, outcome, verdicts),
            Phase::Commit => self.take_commit(outcome, verdicts),
            Phase::Abort { again } => self.take_abort(again, &outcome, verdicts),
        }
    }

    fn take_statement(&mut self, at: usize, outcome: Outcome, verdicts: &mut Verdicts<'_>) -> Next {
        let again = match outcome {
            Outcome::Done { batch, .. } => {
                if let Statement::Read(collection) = &self.statements[at] {
                    let before = Self { statements: self.statements[..at].to_vec(), ..*self };
                    verdicts.judge.check_read(collection, &batch, &before.rows());
                }
                self.phase = Phase::At(at + 1);
                if at + 1 < self.statements.len() {
                    return self.pause(verdicts);
                }
                self.phase = match self.end {
                    End::Commit | End::CommitTwice => Phase::Commit,
                    End::Abort => Phase::Abort { again: false },
                    End::Nothing => {
                        verdicts.judge.rule_out(self.rows());
                        return Next::Over;
                    }
                };
                return self.pause(verdicts);
            }
            Outcome::Refused(refusal) => {
                assert!(!refusal.again, "a statement of a transaction is to be repeated alone: {refusal:?}");
                let conflict = refusal.code == 112
                    && matches!(&self.statements[at], Statement::Write((collection, _)) if collection == HOT);
                // A host that is the primary no longer does not know it.
                let gone = refusal.code == 251 && verdicts.hurt;
                if !conflict && !gone {
                    verdicts.excuse("a statement of a transaction", &refusal);
                }
                let lost = refusal.code == 6 || conflict || gone;
                assert!(refusal.transient || !lost, "a transaction is worth a second attempt, and it is not said");
                refusal.transient
            }
            Outcome::Lost(why) => {
                verdicts.excuse_loss("a statement of a transaction", &why);
                true
            }
        };
        self.phase = Phase::Abort { again };
        ASK
    }

    fn pause(&self, verdicts: &mut Verdicts<'_>) -> Next {
        Next::Ask(if verdicts.rng.percent(80) { Duration::ZERO } else { verdicts.rng.around(Duration::from_millis(5)) })
    }

    fn take_commit(&mut self, outcome: Outcome, verdicts: &mut Verdicts<'_>) -> Next {
        self.tries += 1;
        let again = match outcome {
            Outcome::Done { .. } => {
                if !self.committed {
                    verdicts.judge.acknowledge(self.rows());
                }
                let twice = std::mem::replace(&mut self.committed, true);
                return if self.end == End::CommitTwice && !twice { ASK } else { Next::Over };
            }
            Outcome::Refused(refusal) if refusal.code == 251 => {
                assert!(verdicts.hurt, "a transaction is missing at its commit: {refusal:?}");
                assert!(!self.committed, "what was committed is not known: {refusal:?}");
                assert!(refusal.transient, "a transaction is worth a second attempt, and it is not said");
                verdicts.judge.rule_out(self.rows());
                return self.begin_again(verdicts);
            }
            Outcome::Refused(refusal) => {
                verdicts.excuse("a commit", &refusal);
                assert!(!refusal.transient, "a transaction that may be committed is to be repeated: {refusal:?}");
                self.unknown |= !refusal.is_not_done();
                refusal.again
            }
            Outcome::Lost(why) => {
                verdicts.excuse_loss("a commit", &why);
                self.unknown = true;
                true
            }
        };
        if again && self.tries % 2 == 1 {
            return ASK;
        }
        if self.tries < MAX_COMMITS * 2 && (self.unknown || again) {
            self.tries += self.tries % 2;
            return Next::Ask(Duration::from_millis(10 << (self.tries / 2)));
        }
        if !self.committed {
            // It may still be open at its host, so it is not ruled out.
            verdicts.judge.doubt(self.rows());
        }
        Next::Over
    }

    fn take_abort(&mut self, again: bool, outcome: &Outcome, verdicts: &mut Verdicts<'_>) -> Next {
        // Drivers repeat an abort once, and take no notice of what comes of it.
        self.tries += 1;
        let repeats = match outcome {
            Outcome::Refused(refusal) => {
                let gone = refusal.code == 251 && (again || verdicts.hurt);
                if !gone {
                    verdicts.excuse("an abort", refusal);
                }
                refusal.again
            }
            Outcome::Lost(why) => {
                verdicts.excuse_loss("an abort", why);
                true
            }
            Outcome::Done { .. } => false,
        };
        if repeats && self.tries == 1 {
            return ASK;
        }
        verdicts.judge.rule_out(self.rows());
        if again { self.begin_again(verdicts) } else { Next::Over }
    }

    /// All of it once more, under another number and with other rows.
    fn begin_again(&mut self, verdicts: &mut Verdicts<'_>) -> Next {
        if self.begun >= MAX_BEGUN {
            return Next::Over;
        }
        *verdicts.last_number += 1;
        let begun = self.begun + 1;
        let anew = |statement: &Statement| match statement {
            Statement::Write((collection, row)) => Statement::Write((collection.clone(), format!("{row}+"))),
            Statement::Read(collection) => Statement::Read(collection.clone()),
        };
        let statements = self.statements.iter().map(anew).collect();
        *self = Self { begun, ..Self::new(statements, self.end, self.sharded, *verdicts.last_number) };
        Next::Ask(verdicts.rng.around(Duration::from_millis(5)))
    }

    /// The application vanishes.
    pub fn vanish(&self, asked: bool, judge: &mut Judge) {
        let commits = self.phase == Phase::Commit && (asked || self.tries > 0);
        match (self.committed, commits) {
            (true, _) => {}
            (false, true) => judge.doubt(self.rows()),
            (false, false) => judge.rule_out(self.rows()),
        }
    }
}
