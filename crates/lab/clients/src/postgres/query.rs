//! Questions in SQL over one connection, before a load or without one.

use std::time::Duration;

use super::{link::Link, place::Place, requester::Answer};
use crate::{TargetError, connection::Connection};

/// A connection for questions in SQL.
pub type Questions<'a> = Connection<'a, Link>;

/// Connects and logs in.
///
/// # Errors
/// Why that was not possible within `timeout`.
pub fn connect<'a>(place: Place, timeout: Duration) -> Result<Questions<'a>, TargetError> {
    let address = place.hosts[0].address.to_string();
    Connection::connect(place, address, timeout)
}

impl Questions<'_> {
    /// The server's version, as it says.
    pub fn version(&mut self) -> Option<String> {
        self.link()?.requester().version().map(str::to_owned)
    }

    /// The process that answers here, as the server says.
    pub fn process(&mut self) -> Option<u32> {
        self.link()?.requester().process()
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

    /// Asks a query and keeps the first row of its answer.
    ///
    /// # Errors
    /// The server's error, or that it is gone or takes longer than `timeout`.
    pub fn query(&mut self, sql: &str, timeout: Duration) -> Result<Answer, TargetError> {
        self.query_rows(sql, 1, timeout)
    }

    /// Asks a query and keeps up to `max_rows` rows of its answer.
    pub fn query_rows(&mut self, sql: &str, max_rows: usize, timeout: Duration) -> Result<Answer, TargetError> {
        let write = |link: &mut Link, out: &mut Vec<u8>| {
            link.requester().query(sql, out);
            link.requester().keep_rows(max_rows);
        };
        let answer = self.ask(write, timeout)?.requester().answer().clone();
        match &answer.error {
            Some(error) => Err(TargetError::target(error.to_string())),
            None => Ok(answer),
        }
    }
}
