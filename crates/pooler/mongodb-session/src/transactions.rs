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

const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

pub type Session = (Arc<str>, [u8; 16]);

#[derive(Default)]
pub struct Transactions(Mutex<Table>);

#[derive(Default)]
struct Table {
    now: Duration,
    last_sweep: Duration,
    /// The latest transaction of each session.
    entries: HashMap<Session, Entry>,
    quota: Quota,
    /// For each host, the number of open transactions, and until when the latest that it has accepted may be open.
    hosts: HashMap<usize, (usize, Duration)>,
}

struct Entry {
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
        let (hosts, quota) = (&mut self.hosts, &mut self.quota);
        self.entries.retain(|(user, _), entry| {
            let stays = entry.since + if entry.ended { ended } else { SESSION_TIMEOUT } > now;
            // A server aborts a transaction of this age, though its client may still send commands for it.
            if entry.is_open && (!stays || entry.since + TRANSACTION_LIFETIME <= now) {
                entry.is_open = false;
                count_closed(hosts, entry.host);
            }
            if !stays {
                quota.give_back(user, 1);
            }
            stays
        });
        self.last_sweep = now;
    }

    /// Whether a session has an entry, or may get one.
    fn reserve_entry(&mut self, session: &Session) -> bool {
        if self.entries.contains_key(session) || self.quota.take(&session.0, 1, MAX_SESSIONS) {
            return true;
        }
        if self.now <= self.last_sweep {
            return false;
        }
        self.sweep(Duration::ZERO);
        self.quota.take(&session.0, 1, MAX_SESSIONS)
    }
}

fn count_closed(hosts: &mut HashMap<usize, (usize, Duration)>, host: usize) {
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
        if table.now >= table.last_sweep + SWEEP_INTERVAL {
            table.sweep(SWEEP_INTERVAL);
        }
    }

    pub fn begin(&self, session: Session, number: i64, host: usize) {
        let mut table = self.table();
        let since = table.now;
        if table.reserve_entry(&session) {
            let before = table.entries.insert(session, Entry { number, host, since, ended: false, is_open: true });
            if let Some(before) = before.filter(|before| before.is_open) {
                count_closed(&mut table.hosts, before.host);
            }
            table.hosts.entry(host).or_default().0 += 1;
        }
    }

    pub fn note_accepted(&self, host: usize) {
        let mut table = self.table();
        let now = table.now;
        table.hosts.entry(host).or_default().1 = now + TRANSACTION_LIFETIME;
    }

    pub fn note_refused(&self, session: &Session, number: i64) {
        let mut table = self.table();
        if table.entries.get(session).is_some_and(|entry| entry.number == number)
            && let Some(entry) = table.entries.remove(session)
        {
            table.quota.give_back(&session.0, 1);
            if entry.is_open {
                count_closed(&mut table.hosts, entry.host);
            }
        }
    }

    /// Whether requests may block at a host on a transaction that is open, or that a client that has just started one
    /// may open.
    pub fn may_block_requests(&self, host: usize) -> bool {
        let table = self.table();
        table.hosts.get(&host).is_some_and(|(open, until)| *open > 0 || *until > table.now)
    }

    /// It is committed, aborted, or unknown to its host.
    pub fn end(&self, session: &Session, number: i64) {
        let mut table = self.table();
        let now = table.now;
        let Some(entry) = table.entries.get_mut(session).filter(|entry| entry.number == number) else { return };
        entry.since = now;
        entry.ended = true;
        if std::mem::take(&mut entry.is_open) {
            let host = entry.host;
            count_closed(&mut table.hosts, host);
        }
    }

    /// The session has ended, and its transaction with it.
    pub fn end_with_session(&self, session: &Session) {
        let number = self.table().entries.get(session).filter(|entry| !entry.ended).map(|entry| entry.number);
        if let Some(number) = number {
            self.end(session, number);
        }
    }

    pub fn host(&self, session: &Session, number: i64) -> Option<usize> {
        self.table().entries.get(session).filter(|entry| entry.number == number).map(|entry| entry.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_has_one_transaction_at_a_time_and_only_its_own() {
        let (transactions, session) = (Transactions::default(), (Arc::from("u"), [1; 16]));
        assert!(!transactions.may_block_requests(0));
        transactions.begin(session.clone(), 1, 0);
        assert!(transactions.may_block_requests(0) && !transactions.may_block_requests(1));
        transactions.begin(session.clone(), 2, 1);
        assert_eq!((transactions.host(&session, 1), transactions.host(&session, 2)), (None, Some(1)));
        assert_eq!(transactions.host(&(Arc::from("v"), [1; 16]), 2), None);
        transactions.end(&session, 2);
        transactions.end(&session, 2);
        assert!(!transactions.may_block_requests(0) && !transactions.may_block_requests(1));
        transactions.note_accepted(1);
        assert!(transactions.may_block_requests(1), "another may follow");
        transactions.on_tick(SWEEP_INTERVAL - Duration::from_secs(1));
        assert_eq!(transactions.host(&session, 2), Some(1), "a commit may be repeated");
        transactions.on_tick(SWEEP_INTERVAL);
        assert_eq!(transactions.host(&session, 2), None);
        transactions.begin(session.clone(), 3, 1);
        transactions.on_tick(SESSION_TIMEOUT);
        assert_eq!(transactions.host(&session, 3), Some(1));
        transactions.on_tick(SESSION_TIMEOUT + SWEEP_INTERVAL);
        assert_eq!(transactions.host(&session, 3), None);
    }

    #[test]
    fn the_sessions_of_one_user_leave_some_for_another() {
        let (transactions, [one, other]) = (Transactions::default(), ["u", "v"].map(Arc::<str>::from));
        let session = |user: &Arc<str>, number: usize| (Arc::clone(user), (number as u128).to_be_bytes());
        (0..MAX_SESSIONS).for_each(|number| transactions.begin(session(&one, number), 1, 0));
        assert_eq!(transactions.host(&session(&one, MAX_SESSIONS - 1), 1), None);
        transactions.begin(session(&other, 1), 1, 0);
        assert_eq!(transactions.host(&session(&other, 1), 1), Some(0));
        transactions.note_refused(&session(&other, 1), 1);
        // Transactions that have ended count no more.
        (0..10).for_each(|number| transactions.end(&session(&one, number), 1));
        transactions.on_tick(Duration::from_secs(1));
        transactions.begin(session(&one, MAX_SESSIONS), 1, 0);
        assert_eq!(transactions.host(&session(&one, MAX_SESSIONS), 1), Some(0));
        let table = transactions.table();
        assert_eq!(table.quota.taken(), table.entries.len());
    }
}
