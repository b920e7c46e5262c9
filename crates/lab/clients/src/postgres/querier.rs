//! Queries in SQL over one connection, one after the other.

use std::time::Duration;

use settings::Secret;

use super::{
    options::ConnectOptions,
    requester::{Answer, Requester},
};
use crate::{TargetError, blocking::BlockingClient};

/// A connection for queries.
pub type Querier<'a> = BlockingClient<'a, Requester>;

impl Querier<'_> {
    /// Connects to a URL and logs in. The connection calls itself `name` unless the URL gives another name.
    ///
    /// # Errors
    /// What is wrong with the URL, or why there is no connection within `timeout`; without the password.
    pub fn connect_to(url: &Secret, name: &str, timeout: Duration) -> Result<Self, TargetError> {
        Self::connect(ConnectOptions::at(url.reveal(), name, None, None)?, timeout)
    }

    /// The server's version as the server reports it.
    pub fn version(&mut self) -> Option<String> {
        self.protocol()?.version().map(str::to_owned)
    }

    /// The process that answers here, as the server reports it. Behind a pooler another process runs the queries.
    pub fn process(&mut self) -> Option<u32> {
        self.protocol()?.process()
    }

    /// Whether a pooler is between: another process carries out a query than the one that answers here.
    ///
    /// # Errors
    /// The server's error, or that it is gone or takes longer than `timeout`.
    pub fn is_pooled(&mut self, timeout: Duration) -> Result<bool, TargetError> {
        let Some(here) = self.process() else { return Ok(false) };
        let answer = self.query("SELECT pg_catalog.pg_backend_pid() AS pid", timeout)?;
        let there = answer.row().and_then(|row| row.first()?.1.as_deref()?.parse::<u32>().ok());
        Ok(there.is_some_and(|there| there != here))
    }

    /// Runs a query and keeps the first row of its answer.
    ///
    /// # Errors
    /// The server's error, or that it is gone or takes longer than `timeout`.
    pub fn query(&mut self, sql: &str, timeout: Duration) -> Result<Answer, TargetError> {
        self.query_rows(sql, 1, timeout)
    }

    /// Runs a query and keeps up to `max_rows` rows of its answer. After an error that is not the server's the
    /// connection is of no use.
    ///
    /// # Errors
    /// The server's error, or that it is gone or takes longer than `timeout`.
    pub fn query_rows(&mut self, sql: &str, max_rows: usize, timeout: Duration) -> Result<Answer, TargetError> {
        let write = |requester: &mut Requester, out: &mut Vec<u8>| {
            requester.query(sql, out);
            requester.keep_rows(max_rows);
        };
        let answer = self.request(write, timeout)?.answer().clone();
        match &answer.error {
            Some(error) => Err(TargetError::target(error.to_string())),
            None => Ok(answer),
        }
    }
}
