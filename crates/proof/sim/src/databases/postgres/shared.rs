//! State that all sessions share: the ledger, advisory locks, and notifications. It knows sessions by their numbers.

use std::collections::{BTreeMap, VecDeque};

use super::super::Connection;

struct Row {
    database: String,
    who: String,
    n: i64,
    /// The session that inserted it, if that has not committed yet.
    by: Option<Connection>,
}

/// Database and number of a lock.
pub(super) type Key = (String, i64);

#[derive(Default)]
struct Lock {
    holder: Connection,
    /// Times held for the session.
    session: u32,
    /// Times held for the transaction.
    transaction: u32,
    /// Sessions that wait, and whether for a transaction's lock.
    queue: VecDeque<(Connection, bool)>,
}

#[derive(Clone)]
pub(super) struct Notification {
    pub(super) database: String,
    pub(super) pid: u32,
    pub(super) channel: String,
    pub(super) payload: String,
}

#[derive(Default)]
pub(super) struct Shared {
    rows: Vec<Row>,
    locks: BTreeMap<Key, Lock>,
    /// Committed notifications that are still to be delivered.
    pub(super) notifications: Vec<Notification>,
    /// Sessions that have got the lock for which they waited.
    pub(super) granted: VecDeque<Connection>,
}

impl Shared {
    pub(super) fn insert(&mut self, by: Connection, database: &str, who: String, n: i64) {
        self.rows.push(Row { database: database.to_owned(), who, n, by: Some(by) });
    }

    /// The rows of a ledger that a session sees.
    pub(super) fn read(&self, by: Connection, database: &str) -> impl Iterator<Item = (&str, i64)> {
        let seen = move |row: &&Row| row.database == database && row.by.is_none_or(|other| other == by);
        self.rows.iter().filter(seen).map(|row| (&*row.who, row.n))
    }

    /// All committed rows.
    pub(super) fn ledger(&self) -> Vec<(String, i64)> {
        self.rows.iter().filter(|row| row.by.is_none()).map(|row| (row.who.clone(), row.n)).collect()
    }

    pub(super) fn commit(&mut self, by: Connection) {
        self.rows.iter_mut().filter(|row| row.by == Some(by)).for_each(|row| row.by = None);
    }

    /// Removes the rows that a session's transaction has inserted.
    pub(super) fn roll_back(&mut self, by: Connection) {
        self.rows.retain(|row| row.by != Some(by));
    }

    /// Takes a lock that is free or held by the same session.
    pub(super) fn try_lock(&mut self, by: Connection, key: &Key, of_transaction: bool) -> bool {
        let lock = self.locks.entry(key.clone()).or_default();
        let free = lock.session + lock.transaction == 0;
        if !free && lock.holder != by {
            return false;
        }
        lock.holder = by;
        *(if of_transaction { &mut lock.transaction } else { &mut lock.session }) += 1;
        true
    }

    pub(super) fn queue(&mut self, by: Connection, key: &Key, of_transaction: bool) {
        self.locks.entry(key.clone()).or_default().queue.push_back((by, of_transaction));
    }

    pub(super) fn leave_queues(&mut self, by: Connection) {
        self.locks.values_mut().for_each(|lock| lock.queue.retain(|(other, _)| *other != by));
        self.granted.retain(|other| *other != by);
    }

    /// Releases a lock. Returns false if the session does not hold it.
    pub(super) fn unlock(&mut self, by: Connection, key: &Key, of_transaction: bool) -> bool {
        let Some(lock) = self.locks.get_mut(key).filter(|lock| lock.holder == by) else { return false };
        let count = if of_transaction { &mut lock.transaction } else { &mut lock.session };
        if *count == 0 {
            return false;
        }
        *count -= 1;
        self.pass_on(key);
        true
    }

    /// Releases all session locks of a session.
    pub(super) fn unlock_all(&mut self, by: Connection) {
        let held: Vec<Key> = self.held(by).map(|(key, _)| key.clone()).collect();
        for key in held {
            if let Some(lock) = self.locks.get_mut(&key) {
                lock.session = 0;
            }
            self.pass_on(&key);
        }
    }

    /// Grants a free lock to the session that has waited longest.
    fn pass_on(&mut self, key: &Key) {
        let Some(lock) = self.locks.get_mut(key) else { return };
        if lock.session + lock.transaction > 0 {
            return;
        }
        let Some((next, of_transaction)) = lock.queue.pop_front() else {
            self.locks.remove(key);
            return;
        };
        lock.holder = next;
        *(if of_transaction { &mut lock.transaction } else { &mut lock.session }) = 1;
        self.granted.push_back(next);
    }

    /// Locks of a session, and whether it holds them for the session.
    pub(super) fn held(&self, by: Connection) -> impl Iterator<Item = (&Key, bool)> {
        let held = move |(_, lock): &(&Key, &Lock)| lock.holder == by && lock.session + lock.transaction > 0;
        self.locks.iter().filter(held).map(|(key, lock)| (key, lock.session > 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_seen_by_others_when_they_are_committed() {
        let mut shared = Shared::default();
        shared.insert(1, "db", "a".into(), 1);
        shared.insert(2, "db", "b".into(), 2);
        assert_eq!(shared.read(1, "db").collect::<Vec<_>>(), [("a", 1)]);
        shared.roll_back(1);
        shared.commit(2);
        assert_eq!(shared.read(1, "db").collect::<Vec<_>>(), [("b", 2)]);
        assert_eq!(shared.ledger(), [("b".to_owned(), 2)]);
    }

    #[test]
    fn a_lock_goes_to_the_session_that_has_waited_longest() {
        let mut shared = Shared::default();
        let key = ("db".to_owned(), 7);
        assert!(shared.try_lock(1, &key, false));
        assert!(shared.try_lock(1, &key, true));
        assert!(!shared.try_lock(2, &key, false));
        shared.queue(2, &key, true);
        shared.queue(3, &key, false);
        assert!(shared.unlock(1, &key, false));
        assert!(!shared.unlock(1, &key, false));
        assert!(shared.granted.is_empty());
        assert!(shared.unlock(1, &key, true));
        assert_eq!(shared.granted, [2]);
        assert!(shared.unlock(2, &key, true));
        assert_eq!(shared.granted, [2, 3]);
    }
}
