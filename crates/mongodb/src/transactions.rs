//! Transactions that are under way: which host has each. A transaction belongs to a session and not to a connection, so a driver sends
//! its next command on any.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Transactions that are remembered at most. The commands of one that is not go to the present primary.
const MAX_TRANSACTIONS: usize = 100_000;

/// A server aborts a transaction after a minute (`transactionLifetimeLimitSeconds`), unless it is told otherwise.
const LIFE: Duration = Duration::from_secs(30 * 60);

/// How often those that are over are looked for.
const SWEEP: Duration = Duration::from_secs(60);

/// Whose it is, in which session, and its number there.
pub type Key = (Arc<str>, [u8; 16], i64);

/// See the file's head.
#[derive(Default)]
pub struct Transactions(Mutex<Table>);

#[derive(Default)]
struct Table {
    now: Duration,
    swept: Duration,
    known: HashMap<Key, (usize, Duration)>,
}

impl Transactions {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn tell_time(&self, now: Duration) {
        let mut table = self.table();
        table.now = table.now.max(now);
        if table.now >= table.swept + SWEEP {
            table.swept = table.now;
            let now = table.now;
            table.known.retain(|_, (_, begun)| *begun + LIFE > now);
        }
    }

    /// One begins at a host.
    pub fn begins(&self, key: Key, host: usize) {
        let mut table = self.table();
        let now = table.now;
        if table.known.len() < MAX_TRANSACTIONS {
            table.known.insert(key, (host, now));
        }
    }

    /// The host of one.
    pub fn host(&self, key: &Key) -> Option<usize> {
        self.table().known.get(key).map(|(host, _)| *host)
    }
}
