//! What an application does as one thing, with its driver's repetitions: a write, a read to its end, a transaction. It
//! says what is to be asked next, and judges what comes of it.

use mongodb_session::bson::Writer;

use super::{
    answer::Outcome,
    judge::Judge,
    leave::Leave,
    reading::Reading,
    tailing::Tailing,
    transaction::Transaction,
    verdicts::{Next, Verdicts},
    verify::Verify,
    write::Write,
};

pub enum Task {
    Write(Write),
    Transaction(Transaction),
    Read(Reading),
    Tail(Tailing),
    /// What a connection had open ends with it, for its driver believed in a load balancer.
    Verify(Verify),
    /// The session ends.
    Leave(Leave),
}

impl Task {
    /// Writes what is to be asked.
    pub fn command(&self, body: &mut Writer<'_>) {
        match self {
            Self::Write(write) => write.command(body),
            Self::Transaction(transaction) => transaction.command(body),
            Self::Read(reading) => reading.command(body),
            Self::Tail(tailing) => tailing.command(body),
            Self::Verify(verify) => verify.command(body),
            Self::Leave(leave) => leave.command(body),
        }
    }

    /// All answers to its next command may come unasked, one behind the other.
    pub fn exhausts(&self) -> bool {
        matches!(self, Self::Read(reading) if reading.exhausts())
    }

    /// The database that this is for.
    pub fn database(&self) -> &'static str {
        match self {
            Self::Transaction(transaction) => transaction.database(),
            Self::Leave(_) => "admin",
            Self::Write(_) | Self::Read(_) | Self::Tail(_) | Self::Verify(_) => "app",
        }
    }

    pub fn take(&mut self, outcome: Outcome, verdicts: &mut Verdicts<'_>) -> Next {
        match self {
            Self::Write(write) => write.take(outcome, verdicts),
            Self::Transaction(transaction) => transaction.take(outcome, verdicts),
            Self::Read(reading) => reading.take(outcome, verdicts),
            Self::Tail(tailing) => tailing.take(outcome, verdicts),
            Self::Verify(verify) => verify.take(&outcome, verdicts),
            Self::Leave(leave) => leave.take(&outcome, verdicts),
        }
    }

    /// The application vanishes. `asked`: an answer was due.
    pub fn vanish(&mut self, asked: bool, judge: &mut Judge) {
        match self {
            Self::Write(write) => write.vanish(asked, judge),
            Self::Transaction(transaction) => transaction.vanish(asked, judge),
            Self::Read(_) | Self::Tail(_) | Self::Verify(_) | Self::Leave(_) => {}
        }
    }

    /// All commands of it go over one connection where a load balancer is believed to stand between.
    pub fn is_bound(&self) -> bool {
        match self {
            Self::Transaction(transaction) => transaction.is_begun(),
            Self::Read(reading) => reading.is_open(),
            Self::Tail(tailing) => tailing.is_open(),
            Self::Write(_) | Self::Verify(_) | Self::Leave(_) => false,
        }
    }
}
