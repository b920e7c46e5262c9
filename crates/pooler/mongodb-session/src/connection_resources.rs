//! What ends with the connection of a client whose driver believes in a load balancer (`loadBalanced=true`): its
//! cursors and its transaction. See the drivers' specification "Load Balancer Support".

use std::collections::BTreeSet;

use crate::{chores::Collection, command::Transaction, request::StartedTransaction};

/// Cursors of a connection before it is checked which of them are closed. Where many are open, the next check is when
/// there are twice as many, so that a connection has no more than twice what is remembered of all.
const MIN_CHECKED_CURSORS: usize = 1_000;

#[derive(Default, Debug)]
pub struct ConnectionResources {
    /// The collection that the present request is about, until a cursor is opened.
    collection: Option<Collection>,
    /// Its cursors, and some that other connections have closed.
    cursors: Vec<OwnedCursor>,
    /// The number of cursors at which it is checked which of them are closed.
    next_check: usize,
    transaction: Option<StartedTransaction>,
}

#[derive(Debug)]
pub struct OwnedCursor {
    /// Its id as the client knows it, which may be another cursor's when this one is closed.
    pub told: i64,
    pub host: usize,
    /// Its id at that host.
    pub id: i64,
    pub collection: Collection,
}

impl ConnectionResources {
    /// A request is about this collection, and closes these cursors.
    pub fn begin_request(&mut self, collection: Option<Collection>, closed: &BTreeSet<i64>) {
        self.collection = collection;
        if !closed.is_empty() {
            self.cursors.retain(|cursor| !closed.contains(&cursor.told));
        }
    }

    pub fn end_request(&mut self) {
        self.collection = None;
    }

    /// The present request has opened a cursor. `is_open` tells whether one is still known.
    pub fn cursor_opened(&mut self, told: i64, host: usize, id: i64, is_open: impl Fn(i64) -> bool) {
        let Some(collection) = self.collection.take() else { return };
        if self.cursors.len() >= self.next_check.max(MIN_CHECKED_CURSORS) {
            self.cursors.retain(|cursor| is_open(cursor.told));
            self.next_check = 2 * self.cursors.len();
        }
        self.cursors.push(OwnedCursor { told, host, id, collection });
    }

    pub fn cursor_closed(&mut self, told: i64) {
        self.cursors.retain(|cursor| cursor.told != told);
    }

    #[cfg(test)]
    pub fn cursors(&self) -> Vec<i64> {
        self.cursors.iter().map(|cursor| cursor.told).collect()
    }

    pub fn set_transaction(&mut self, transaction: Option<StartedTransaction>) {
        self.transaction = transaction;
    }

    /// The present request, which has this part in a transaction, has taken too long, and may be under way.
    pub fn request_timed_out(&mut self, part: Transaction, started: Option<StartedTransaction>) {
        match part {
            Transaction::Starts => self.transaction = started,
            Transaction::Commits => self.transaction = None,
            // An abort may be asked for once more.
            _ => {}
        }
    }

    /// Its cursors and its transaction, to be ended.
    pub fn end(self) -> (Vec<OwnedCursor>, Option<StartedTransaction>) {
        (self.cursors, self.transaction)
    }
}
