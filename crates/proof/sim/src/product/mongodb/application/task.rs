//! A task of an application, with its driver's retries: it decides the next command, and checks the outcome.

use mongodb_session::bson::Writer;

use super::{
    answer_check::{AnswerCheck, Next},
    await_cleanup::AwaitCleanup,
    cursor_read::CursorRead,
    end_session::EndSession,
    expected_rows::ExpectedRows,
    outcome::Outcome,
    tailable_read::TailableRead,
    transaction::Transaction,
    write::Write,
};

pub enum Task {
    Write(Write),
    Transaction(Transaction),
    Read(CursorRead),
    Tail(TailableRead),
    AwaitCleanup(AwaitCleanup),
    EndSession(EndSession),
}

impl Task {
    /// Writes the next command.
    pub fn command(&self, body: &mut Writer<'_>) {
        match self {
            Self::Write(write) => write.command(body),
            Self::Transaction(transaction) => transaction.command(body),
            Self::Read(reading) => reading.command(body),
            Self::Tail(tailing) => tailing.command(body),
            Self::AwaitCleanup(await_cleanup) => await_cleanup.command(body),
            Self::EndSession(end) => end.command(body),
        }
    }

    /// Whether its next command sets `exhaustAllowed`.
    pub fn exhausts(&self) -> bool {
        matches!(self, Self::Read(reading) if reading.exhausts())
    }

    /// The database of its next command.
    pub fn database(&self) -> &'static str {
        match self {
            Self::Transaction(transaction) => transaction.database(),
            Self::EndSession(_) => "admin",
            Self::Write(_) | Self::Read(_) | Self::Tail(_) | Self::AwaitCleanup(_) => "app",
        }
    }

    pub fn on_outcome(&mut self, outcome: Outcome, check: &mut AnswerCheck<'_>) -> Next {
        match self {
            Self::Write(write) => write.on_outcome(outcome, check),
            Self::Transaction(transaction) => transaction.on_outcome(outcome, check),
            Self::Read(reading) => reading.on_outcome(outcome, check),
            Self::Tail(tailing) => tailing.on_outcome(outcome, check),
            Self::AwaitCleanup(await_cleanup) => await_cleanup.on_outcome(&outcome, check),
            Self::EndSession(end) => end.on_outcome(&outcome, check),
        }
    }

    /// The application vanishes. `asked`: an answer is due.
    pub fn vanish(&mut self, asked: bool, rows: &mut ExpectedRows) {
        match self {
            Self::Write(write) => write.vanish(asked, rows),
            Self::Transaction(transaction) => transaction.vanish(asked, rows),
            Self::Read(_) | Self::Tail(_) | Self::AwaitCleanup(_) | Self::EndSession(_) => {}
        }
    }

    /// Whether a driver configured for a load balancer keeps to one connection.
    pub fn is_bound(&self) -> bool {
        match self {
            Self::Transaction(transaction) => transaction.is_begun(),
            Self::Read(reading) => reading.is_open(),
            Self::Tail(tailing) => tailing.is_open(),
            Self::Write(_) | Self::AwaitCleanup(_) | Self::EndSession(_) => false,
        }
    }
}
