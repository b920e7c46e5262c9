//! A connection for repeated questions about a server, as `poolhouse doctor` asks them. Knows no question.

use std::time::Duration;

use settings::Secret;

use super::{
    place::Place,
    query::{Questions, connect},
    requester::Row,
};
use crate::TargetError;

/// A connection.
pub struct Asker {
    connection: Questions<'static>,
}

/// The answer to a query.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rows {
    /// Names and values of the columns, row by row.
    pub rows: Vec<Row>,
    /// Rows beyond those.
    pub left_out: u64,
}

impl Asker {
    /// Connects and logs in within so long, and calls itself `name` unless the URL gives another name.
    ///
    /// # Errors
    /// What is wrong with the URL, or why there is no connection; without the password.
    pub fn connect(url: &Secret, name: &str, within: Duration) -> Result<Self, TargetError> {
        let place = Place::at(url.reveal(), name, None, None)?;
        Ok(Self { connection: connect(place, within)? })
    }

    /// The server's version, as it says.
    pub fn version(&mut self) -> Option<String> {
        self.connection.version()
    }

    /// The process that answers here, as the server says. Behind a pooler another process runs the queries.
    pub fn process(&mut self) -> Option<u32> {
        self.connection.process()
    }

    /// Asks a query, and keeps up to `most` rows of the answer. After an error that is not the server's the connection
    /// is of no use.
    ///
    /// # Errors
    /// The server's error, or that it is gone or takes longer than `within`.
    pub fn ask(&mut self, sql: &str, most: usize, within: Duration) -> Result<Rows, TargetError> {
        let answer = self.connection.query_rows(sql, most, within)?;
        let left_out = answer.last_rows.saturating_sub(answer.kept.len() as u64);
        Ok(Rows { rows: answer.kept, left_out })
    }
}
