//! Transactions that are under way: which host has each. A transaction belongs to a session and not to a connection, so
//! a driver sends its next command on any. A session has one at a time.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::room::Room;

/// Sessions whose transactions are remembered at most; of a user alone, half of them. The commands of one that is not
/// go to the present primary.
const MAX_SESSIONS: usize = 200_000;

/// A server forgets a session that nobody has used for so long (`logicalSessionTimeoutMinutes`).
const LIFE: Duration = Duration::from_secs(30 * 60);

/// A server aborts a transaction that is older (`transactionLifetimeLimitSeconds`), at the latest when it looks for
/// such the next time.
const HOLDS: Duration = Duration::from_secs(120);

/// How often those that are over are looked for.
const SWEEP: Duration = Duration::from_secs(60);

/// Whose it is, and its id.
pub type Session = (Arc<str>, [u8; 16]);

#[derive(Default)]
pub struct Transactions(Mutex<Table>);

#[derive(Default)]
struct Table {
    now: Duration,
    swept: Duration,
    /// Each session's latest transaction.
    known: HashMap<Session, Known>,
    room: Room,
    /// By host: how many of them have not ended, and when the latest that it took began.
    hosts: HashMap<usize, (usize, Duration)>,
}

struct Known {
    number: i64,
    host: usize,
    /// When it began, or ended.
    since: Duration,
    ended: bool,
    /// It is one of those that are open at its host.
    counted: bool,
}

impl Table {
    /// Forgets those of sessions that are gone, and those that have ended and whose commit nobody repeats any more.
    fn sweep(&mut self, ended: Duration) {
        let now = self.now;
        let (hosts, room) = (&mut self.hosts, &mut self.room);
        self.known.retain(|(user, _), known| {
            let keeps = known.since + if known.ended { ended } else { LIFE } > now;
            // A server aborts one that is so old, though its client may still ask for it.
            if known.counted && (!keeps || known.since + HOLDS <= now) {
                known.counted = false;
                close(hosts, known.host);
            }
            if !keeps {
                room.give_back(user, 1);
            }
            keeps
        });
        self.swept = now;
    }

    /// Whether a session has a place from now on.
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

/// One fewer is open at a host.
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
        if table.now >= table.swept + SWEEP {
            table.sweep(SWEEP);
        }
    }

    pub fn begins(&self, session: Session, number: i64, host: usize) {
        let mut table = self.table();
        let since = table.now;
        if table.has_place(&session) {
            let before = table.known.insert(session, Known { number, host, since, ended: false, counted: true });
            if let Some(before) = before.filter(|before| before.counted) {
                close(&mut table.hosts, before.host);
            }
            table.hosts.entry(host).or_default().0 += 1;
        }
    }

    pub fn taken(&self, host: usize) {
        let mut table = self.table();
        let now = table.now;
        table.hosts.entry(host).or_default().1 = now + HOLDS;
    }

    /// Its host has refused it.
    pub fn refused(&self, session: &Session, number: i64) {
        let mut table = self.table();
        if table.known.get(session).is_some_and(|known| known.number == number)
            && let Some(known) = table.known.remove(session)
        {
            table.room.give_back(&session.0, 1);
            if known.counted {
                close(&mut table.hosts, known.host);
            }
        }
    }

    /// Whether requests may wait at a host for what a transaction holds, or soon will.
    pub fn may_hold_up(&self, host: usize) -> bool {
        let table = self.table();
        table.hosts.get(&host).is_some_and(|(open, until)| *open > 0 || *until > table.now)
    }

    /// It has been committed, or its host does not have it any more.
    pub fn ended(&self, session: &Session, number: i64) {
        let mut table = self.table();
        let now = table.now;
        let Some(known) = table.known.get_mut(session).filter(|known| known.number == number) else { return };
        known.since = now;
        known.ended = true;
        if std::mem::take(&mut known.counted) {
            let host = known.host;
            close(&mut table.hosts, host);
        }
    }

    /// Its session is over, and so is it.
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
        transactions.on_tick(SWEEP - Duration::from_secs(1));
        assert_eq!(transactions.host(&session, 2), Some(1), "a commit may be repeated");
        transactions.on_tick(SWEEP);
        assert_eq!(transactions.host(&session, 2), None);
        transactions.begins(session.clone(), 3, 1);
        transactions.on_tick(LIFE);
        assert_eq!(transactions.host(&session, 3), Some(1));
        transactions.on_tick(LIFE + SWEEP);
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
        // What has ended makes room.
        (0..10).for_each(|number| transactions.ended(&session(&one, number), 1));
        transactions.on_tick(Duration::from_secs(1));
        transactions.begins(session(&one, MAX_SESSIONS), 1, 0);
        assert_eq!(transactions.host(&session(&one, MAX_SESSIONS), 1), Some(0));
        let table = transactions.table();
        assert_eq!(table.room.taken(), table.known.len());
    }
}
