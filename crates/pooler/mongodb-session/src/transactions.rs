//! Open transactions and the host of each. A transaction belongs to a session and not to a connection, so its commands
//! may come on any connection. A session has one transaction at a time.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::quota::Quota;

/// Maximum number of sessions in the table; one user may have half of them. The commands of any other session's
/// transaction go to the current primary.
const MAX_SESSIONS: usize = 200_000;

/// A server forgets an idle session after this time (`logicalSessionTimeoutMinutes`).
const SESSION_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// A server aborts an older transaction (`transactionLifetimeLimitSeconds` is 60) at its next sweep, a minute later at
/// most.
const TRANSACTION_LIFETIME: Duration = Duration::from_secs(120);

/// Time between two sweeps for expired entries.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// A user and the id of a session.
pub type Session = (Arc<str>, [u8; 16]);

#[derive(Default)]
pub struct Transactions(Mutex<Table>);

#[derive(Default)]
struct Table {
    now: Duration,
    swept: Duration,
    /// The latest transaction of each session.
    known: HashMap<Session, Known>,
    room: Quota,
    /// For each host, the number of open transactions, and until when the latest that it has accepted may be open.
    hosts: HashMap<usize, (usize, Duration)>,
}

struct Known {
    number: i64,
    host: usize,
    /// When it started, or ended.
    since: Duration,
    ended: bool,
    /// It counts as open at its host.
    is_open: bool,
}

impl Table {
    /// Removes the entries of expired sessions, and those of transactions that ended more than `ended` ago, whose
    /// commit is no longer retried.
    fn sweep(&mut self, ended: Duration) {
        let now = self.now;
        let (hosts, room) = (&mut self.hosts, &mut self.room);
        self.known.retain(|(user, _), known| {
            let keeps = known.since + if known.ended { ended } else { SESSION_TIMEOUT } > now;
            // A server aborts a transaction of this age, though its client may still send commands for it.
            if known.is_open && (!keeps || known.since + TRANSACTION_LIFETIME <= now) {
                known.is_open = false;
                close(hosts, known.host);
            }
            if !keeps {
                room.give_back(user, 1);
            }
            keeps
        });
        self.swept = now;
    }

    /// Whether a session has an entry, or may get one.
    fn has_place(&mut self, session: &Session) -> bool {
        if self.known.contains_key(session) || self.room.take(&session.0, 1, MAX_SESSIONS) {
            return true;
        }
        if self.now <= self.swept {
            return false;
        }
        self.sweep(Duration::ZERO);
        self.room.take(&session.0, 1, MAX_SESSIONS)
    }
}

fn close(hosts: &mut HashMap<usize, (usize, Duration)>, host: usize) {
    if let Some((open, _)) = hosts.get_mut(&host) {
        *open -= 1;
    }
}

impl Transactions {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn on_tick(&self, now: Duration) {
        let mut table = self.table();
        table.now = table.now.max(now);
        if table.now >= table.swept + SWEEP_INTERVAL {
            table.sweep(SWEEP_INTERVAL);
        }
    }

    pub fn begins(&self, session: Session, number: i64, host: usize) {
        let mut table = self.table();
        let since = table.now;
        if table.has_place(&session) {
            let before = table.known.insert(session, Known { number, host, since, ended: false, is_open: true });
            if let Some(before) = before.filter(|before| before.is_open) {
                close(&mut table.hosts, before.host);
            }
            table.hosts.entry(host).or_default().0 += 1;
        }
    }

    pub fn taken(&self, host: usize) {
        let mut table = self.table();
        let now = table.now;
        table.hosts.entry(host).or_default().1 = now + TRANSACTION_LIFETIME;
    }

    /// The host has refused its first command.
    pub fn refused(&self, session: &Session, number: i64) {
        let mut table = self.table();
        if table.known.get(session).is_some_and(|known| known.number == number)
            && let Some(known) = table.known.remove(session)
        {
            table.room.give_back(&session.0, 1);
            if known.is_open {
                close(&mut table.hosts, known.host);
            }
        }
    }

    /// Whether requests may block at a host on a transaction that is open, or that a client that has just started one
    /// may open.
    pub fn may_hold_up(&self, host: usize) -> bool {
        let table = self.table();
        table.hosts.get(&host).is_some_and(|(open, until)| *open > 0 || *until > table.now)
    }

    /// It is committed, aborted, or unknown to its host.
    pub fn ended(&self, session: &Session, number: i64) {
        let mut table = self.table();
        let now = table.now;
        let Some(known) = table.known.get_mut(session).filter(|known| known.number == number) else { return };
        known.since = now;
        known.ended = true;
        if std::mem::take(&mut known.is_open) {
            let host = known.host;
            close(&mut table.hosts, host);
        }
    }

    /// The session has ended, and its transaction with it.
    pub fn is_over(&self, session: &Session) {
        let number = self.table().known.get(session).filter(|known| !known.ended).map(|known| known.number);
        if let Some(number) = number {
            self.ended(session, number);
        }
    }

    pub fn host(&self, session: &Session, number: i64) -> Option<usize> {
        self.table().known.get(session).filter(|known| known.number == number).map(|known| known.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_has_one_transaction_at_a_time_and_nobody_elses() {
        let (transactions, session) = (Transactions::default(), (Arc::from("u"), [1; 16]));
        assert!(!transactions.may_hold_up(0));
        transactions.begins(session.clone(), 1, 0);
        assert!(transactions.may_hold_up(0) && !transactions.may_hold_up(1));
        transactions.begins(session.clone(), 2, 1);
        assert_eq!((transactions.host(&session, 1), transactions.host(&session, 2)), (None, Some(1)));
        assert_eq!(transactions.host(&(Arc::from("v"), [1; 16]), 2), None);
        transactions.ended(&session, 2);
        transactions.ended(&session, 2);
        assert!(!transactions.may_hold_up(0) && !transactions.may_hold_up(1));
        transactions.taken(1);
        assert!(transactions.may_hold_up(1), "another may follow");
        transactions.on_tick(SWEEP_INTERVAL - Duration::from_secs(1));
        assert_eq!(transactions.host(&session, 2), Some(1), "a commit may be repeated");
        transactions.on_tick(SWEEP_INTERVAL);
        assert_eq!(transactions.host(&session, 2), None);
        transactions.begins(session.clone(), 3, 1);
        transactions.on_tick(SESSION_TIMEOUT);
        assert_eq!(transactions.host(&session, 3), Some(1));
        transactions.on_tick(SESSION_TIMEOUT + SWEEP_INTERVAL);
        assert_eq!(transactions.host(&session, 3), None);
    }
    #[test]
    fn nobody_has_so_many_that_another_finds_no_room() {
        let (transactions, [one, other]) = (Transactions::default(), ["u", "v"].map(Arc::<str>::from));
        let session = |user: &Arc<str>, number: usize| (Arc::clone(user), (number as u128).to_be_bytes());
        (0..MAX_SESSIONS).for_each(|number| transactions.begins(session(&one, number), 1, 0));
        assert_eq!(transactions.host(&session(&one, MAX_SESSIONS - 1), 1), None);
        transactions.begins(session(&other, 1), 1, 0);
        assert_eq!(transactions.host(&session(&other, 1), 1), Some(0));
        transactions.refused(&session(&other, 1), 1);
        // Ended transactions make room.
        (0..10).for_each(|number| transactions.ended(&session(&one, number), 1));
        transactions.on_tick(Duration::from_secs(1));
        transactions.begins(session(&one, MAX_SESSIONS), 1, 0);
        assert_eq!(transactions.host(&session(&one, MAX_SESSIONS), 1), Some(0));
        let table = transactions.table();
        assert_eq!(table.room.taken(), table.known.len());
    }
}
