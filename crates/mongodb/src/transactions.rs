//! Transactions that are under way: which host has each. A transaction belongs to a session and not to a connection, so a driver sends
//! its next command on any. A session has one at a time.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Sessions whose transactions are remembered at most. The commands of one that is not go to the present primary.
const MAX_SESSIONS: usize = 100_000;

/// A server forgets a session that nobody has used for so long (`logicalSessionTimeoutMinutes`).
const LIFE: Duration = Duration::from_secs(30 * 60);

/// How often those that are over are looked for.
const SWEEP: Duration = Duration::from_secs(60);

/// Whose it is, and its id.
pub type Session = (Arc<str>, [u8; 16]);

/// See the file's head.
#[derive(Default)]
pub struct Transactions(Mutex<Table>);

#[derive(Default)]
struct Table {
    now: Duration,
    swept: Duration,
    /// The number of each session's latest transaction, its host, and when it began.
    known: HashMap<Session, (i64, usize, Duration)>,
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
            table.known.retain(|_, (_, _, begun)| *begun + LIFE > now);
        }
    }

    /// One begins at a host.
    pub fn begins(&self, session: Session, number: i64, host: usize) {
        let mut table = self.table();
        let now = table.now;
        if table.known.len() < MAX_SESSIONS || table.known.contains_key(&session) {
            table.known.insert(session, (number, host, now));
        }
    }

    /// The host of one.
    pub fn host(&self, session: &Session, number: i64) -> Option<usize> {
        self.table().known.get(session).filter(|known| known.0 == number).map(|known| known.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_has_one_transaction_at_a_time_and_nobody_elses() {
        let (transactions, session) = (Transactions::default(), (Arc::from("u"), [1; 16]));
        transactions.begins(session.clone(), 1, 0);
        transactions.begins(session.clone(), 2, 1);
        assert_eq!((transactions.host(&session, 1), transactions.host(&session, 2)), (None, Some(1)));
        assert_eq!(transactions.host(&(Arc::from("v"), [1; 16]), 2), None);
        transactions.tell_time(LIFE + SWEEP);
        assert_eq!(transactions.host(&session, 2), None);
    }
}
