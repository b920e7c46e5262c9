//! The cursors and the transaction that end with a client's connection, if its driver uses `loadBalanced=true`. See the
//! drivers' specification "Load Balancer Support".

use std::collections::BTreeSet;

use crate::{cleanup_tasks::Namespace, command::Transaction, request::StartedTransaction};

/// The number of cursors from which on closed ones are removed. That happens again at twice the number that remains, so
/// that a connection has at most twice as many entries as the table of all cursors.
const MIN_CHECKED_CURSORS: usize = 1_000;

#[derive(Default, Debug)]
pub struct ConnectionResources {
    /// The namespace of the current request, until a cursor is opened.
    namespace: Option<Namespace>,
    /// Includes cursors that other connections have closed.
    cursors: Vec<OwnedCursor>,
    /// The number of cursors at which closed ones are removed next.
    next_check: usize,
    transaction: Option<StartedTransaction>,
}

#[derive(Debug)]
pub struct OwnedCursor {
    /// The id that the client knows. After the cursor is closed, another cursor may get it.
    pub client_id: i64,
    pub host: usize,
    pub host_id: i64,
    pub namespace: Namespace,
}

impl ConnectionResources {
    /// A request begins, which closes the cursors in `closed`.
    pub fn begin_request(&mut self, namespace: Option<Namespace>, closed: &BTreeSet<i64>) {
        self.namespace = namespace;
        if !closed.is_empty() {
            self.cursors.retain(|cursor| !closed.contains(&cursor.client_id));
        }
    }

    pub fn end_request(&mut self) {
        self.namespace = None;
    }

    /// The current request has opened a cursor. `is_open` tells whether a cursor is in the table.
    pub fn cursor_opened(&mut self, client_id: i64, host: usize, host_id: i64, is_open: impl Fn(i64) -> bool) {
        let Some(namespace) = self.namespace.take() else { return };
        if self.cursors.len() >= self.next_check.max(MIN_CHECKED_CURSORS) {
            self.cursors.retain(|cursor| is_open(cursor.client_id));
            self.next_check = 2 * self.cursors.len();
        }
        self.cursors.push(OwnedCursor { client_id, host, host_id, namespace });
    }

    pub fn cursor_closed(&mut self, client_id: i64) {
        self.cursors.retain(|cursor| cursor.client_id != client_id);
    }

    #[cfg(test)]
    pub fn cursors(&self) -> Vec<i64> {
        self.cursors.iter().map(|cursor| cursor.client_id).collect()
    }

    pub fn set_transaction(&mut self, transaction: Option<StartedTransaction>) {
        self.transaction = transaction;
    }

    /// The current request took too long, and may still be running.
    pub fn request_timed_out(&mut self, part: Transaction, started: Option<StartedTransaction>) {
        match part {
            Transaction::Starts => self.transaction = started,
            Transaction::Commits => self.transaction = None,
            // The abort may be repeated.
            _ => {}
        }
    }

    /// Returns what is to be ended.
    pub fn end(self) -> (Vec<OwnedCursor>, Option<StartedTransaction>) {
        (self.cursors, self.transaction)
    }
}
