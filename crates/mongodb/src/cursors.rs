//! Open cursors of all clients: which host has each. A driver asks for the next batch on any of its connections, so they belong to the
//! user and not to a connection. Hosts number their cursors without regard to each other; where two have the same number, the client of
//! the later one is told another.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Cursors that are remembered at most. A client whose cursor is not is served where hosts are asked one after the other.
const MAX_CURSORS: usize = 100_000;

/// A server closes a cursor that nobody has used for ten minutes (`cursorTimeoutMillis`), or a session's for thirty.
const LIFE: Duration = Duration::from_secs(31 * 60);

/// How often those that are over are looked for.
const SWEEP: Duration = Duration::from_secs(60);

/// Where a cursor is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    pub host: usize,
    /// Its id there.
    pub id: i64,
}

/// See the file's head.
#[derive(Default)]
pub struct Cursors(Mutex<Table>);

#[derive(Default)]
struct Table {
    now: Duration,
    swept: Duration,
    /// By user, and by what the client was told.
    known: HashMap<(Arc<str>, i64), (Place, Duration)>,
    /// What was made up last.
    last: i64,
}

impl Cursors {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn tell_time(&self, now: Duration) {
        let mut table = self.table();
        table.now = table.now.max(now);
        if table.now >= table.swept + SWEEP {
            table.swept = table.now;
            let now = table.now;
            table.known.retain(|_, (_, used)| *used + LIFE > now);
        }
    }

    /// A host has opened a cursor for a user. Returns what the client is to be told as its id.
    pub fn opened(&self, user: &Arc<str>, place: Place) -> i64 {
        let mut table = self.table();
        let now = table.now;
        let mut told = place.id;
        loop {
            match table.known.get(&(Arc::clone(user), told)) {
                Some((known, _)) if *known != place => {
                    // Servers' own ids are random and below 2^62, so that a collision with one of these is as improbable as any.
                    table.last += 1;
                    told = i64::MAX - table.last;
                }
                _ => break,
            }
        }
        if table.known.len() < MAX_CURSORS {
            table.known.insert((Arc::clone(user), told), (place, now));
        }
        told
    }

    /// A user's cursor is at this place.
    pub fn keep(&self, user: &Arc<str>, told: i64, place: Place) {
        let mut table = self.table();
        let now = table.now;
        if table.known.len() < MAX_CURSORS {
            table.known.insert((Arc::clone(user), told), (place, now));
        }
    }

    /// Where a user's cursor is, by what the client was told.
    pub fn find(&self, user: &Arc<str>, told: i64) -> Option<Place> {
        let mut table = self.table();
        let now = table.now;
        let (place, used) = table.known.get_mut(&(Arc::clone(user), told))?;
        *used = now;
        Some(*place)
    }

    /// A cursor has come to its end.
    pub fn closed(&self, user: &Arc<str>, told: i64) {
        self.table().known.remove(&(Arc::clone(user), told));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_of_two_hosts_with_one_number_are_told_apart() {
        let (cursors, user) = (Cursors::default(), Arc::from("u"));
        let at = |host| Place { host, id: 5 };
        assert_eq!(cursors.opened(&user, at(0)), 5);
        let told = cursors.opened(&user, at(1));
        assert_ne!(told, 5);
        assert_eq!((cursors.find(&user, 5), cursors.find(&user, told)), (Some(at(0)), Some(at(1))));
        cursors.closed(&user, 5);
        assert_eq!((cursors.find(&user, 5), cursors.find(&user, told)), (None, Some(at(1))));
    }

    #[test]
    fn nobody_finds_the_cursor_of_another_user() {
        let cursors = Cursors::default();
        cursors.opened(&"u".into(), Place { host: 0, id: 5 });
        assert_eq!(cursors.find(&"v".into(), 5), None);
    }

    #[test]
    fn what_is_not_used_is_forgotten() {
        let (cursors, user) = (Cursors::default(), Arc::from("u"));
        cursors.opened(&user, Place { host: 0, id: 5 });
        cursors.tell_time(LIFE - SWEEP);
        assert!(cursors.find(&user, 5).is_some(), "and it was used");
        cursors.tell_time(LIFE);
        assert!(cursors.find(&user, 5).is_some());
        cursors.tell_time(LIFE * 2 + SWEEP);
        assert_eq!(cursors.find(&user, 5), None);
    }
}
