//! What all sessions share: the ledger, sequences, advisory locks, and notifications on their way. It knows no session
//! but by its number.

use std::collections::{BTreeMap, VecDeque};

use super::super::Connection;

struct Row {
    database: String,
    who: String,
    n: i64,
    /// Whose transaction it is of, if that has not ended.
    by: Option<Connection>,
}

/// The name of a lock: database and number.
pub(super) type Key = (String, i64);

/// Who holds a lock, and who waits for it.
#[derive(Default)]
struct Lock {
    holder: Connection,
    /// How often, for the session.
    session: u32,
    /// How often, for its transaction.
    transaction: u32,
    /// Who waits, and whether for a transaction's lock.
    queue: VecDeque<(Connection, bool)>,
}

/// A notification that was committed.
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
    sequences: BTreeMap<(String, String), i64>,
    locks: BTreeMap<Key, Lock>,
    /// To be handed to those who listen.
    pub(super) notifications: Vec<Notification>,
    /// Who has got the lock that it has waited for.
    pub(super) granted: VecDeque<Connection>,
}

impl Shared {
    pub(super) fn insert(&mut self, by: Connection, database: &str, who: String, n: i64) {
        self.rows.push(Row { database: database.to_owned(), who, n, by: Some(by) });
    }

    /// What a session sees of a database's ledger.
    pub(super) fn read(&self, by: Connection, database: &str) -> impl Iterator<Item = (&str, i64)> {
        let seen = move |row: &&Row| row.database == database && row.by.is_none_or(|other| other == by);
        self.rows.iter().filter(seen).map(|row| (&*row.who, row.n))
    }

    /// All rows that are there for good.
    pub(super) fn ledger(&self) -> Vec<(String, i64)> {
        self.rows.iter().filter(|row| row.by.is_none()).map(|row| (row.who.clone(), row.n)).collect()
    }

    /// Where the next row will stand.
    pub(super) fn row_mark(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn commit(&mut self, by: Connection) {
        self.rows.iter_mut().filter(|row| row.by == Some(by)).for_each(|row| row.by = None);
    }

    /// Takes back what a session's transaction has inserted from this place on. Places stay: others may remember some.
    pub(super) fn roll_back(&mut self, by: Connection, from: usize) {
        for row in self.rows.iter_mut().skip(from).filter(|row| row.by == Some(by)) {
            row.by = Some(Connection::MAX);
        }
        while self.rows.last().is_some_and(|row| row.by == Some(Connection::MAX)) {
            self.rows.pop();
        }
    }

    /// The next value of a sequence.
    pub(super) fn advance(&mut self, database: &str, name: &str) -> i64 {
        let value = self.sequences.entry((database.to_owned(), name.to_owned())).or_default();
        *value += 1;
        *value
    }

    /// Takes a lock if it is free, or held by the same session.
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

    /// Gives a lock back; false if the session does not hold it.
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

    /// Gives back all of a session's own locks.
    pub(super) fn unlock_all(&mut self, by: Connection) {
        let held: Vec<Key> = self.held(by).map(|(key, _)| key.clone()).collect();
        for key in held {
            if let Some(lock) = self.locks.get_mut(&key) {
                lock.session = 0;
            }
            self.pass_on(&key);
        }
    }

    /// A free lock goes to the session that has waited for it longest.
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

    /// Locks that a session holds, and whether for itself.
    pub(super) fn held(&self, by: Connection) -> impl Iterator<Item = (&Key, bool)> {
        let held = move |(_, lock): &(&Key, &Lock)| lock.holder == by && lock.session + lock.transaction > 0;
        self.locks.iter().filter(held).map(|(key, lock)| (key, lock.session > 0))
    }

    /// Whether a session waits, over however many others, for itself.
    pub(super) fn is_deadlocked(&self, who: Connection) -> bool {
        let mut seen = Vec::new();
        let mut next = who;
        loop {
            let waited = self.locks.values().find(|lock| lock.queue.iter().any(|(other, _)| *other == next));
            match waited {
                Some(lock) if lock.holder == who => return true,
                Some(lock) if !seen.contains(&lock.holder) => {
                    next = lock.holder;
                    seen.push(next);
                }
                _ => return false,
            }
        }
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
        shared.roll_back(1, 0);
        shared.commit(2);
        assert_eq!(shared.read(1, "db").collect::<Vec<_>>(), [("b", 2)]);
        assert_eq!(shared.ledger(), [("b".to_owned(), 2)]);
    }

    #[test]
    fn locks_go_to_who_has_waited_longest() {
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

    #[test]
    fn who_waits_for_itself_is_found() {
        let mut shared = Shared::default();
        let keys = [("db".to_owned(), 1), ("db".to_owned(), 2)];
        assert!(shared.try_lock(1, &keys[0], false) && shared.try_lock(2, &keys[1], false));
        shared.queue(1, &keys[1], false);
        assert!(!shared.is_deadlocked(1));
        shared.queue(2, &keys[0], false);
        assert!(shared.is_deadlocked(1) && shared.is_deadlocked(2));
    }
}
