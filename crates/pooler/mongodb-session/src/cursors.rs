//! Open cursors of all clients: which host has each. A driver asks for the next batch on any of its connections, so
//! they belong to the user and not to a connection. Hosts number their cursors without regard to each other; where two
//! have the same number, the client of the later one is told another.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::room::Room;

/// Cursors that are remembered at most; of a user alone, half of them. A client whose cursor is not is served where
/// hosts are asked one after the other.
const MAX_CURSORS: usize = 200_000;

/// A server closes a cursor that nobody has used for ten minutes (`cursorTimeoutMillis`), or a session's for thirty.
const LIFE: Duration = Duration::from_secs(31 * 60);

/// How often those that are over are looked for.
const SWEEP: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    pub host: usize,
    pub id: i64,
    /// Its next batch is waited for, and may be long in coming.
    pub waits: bool,
}

#[derive(Default)]
pub struct Cursors(Mutex<Table>);

#[derive(Default)]
struct Table {
    now: Duration,
    swept: Duration,
    /// By what clients were told: whose it is, where, and when it was used last. Users with one login at MongoDB may
    /// have one number each.
    known: HashMap<i64, Vec<Known>>,
    room: Room,
    last: i64,
}

struct Known {
    user: Arc<str>,
    place: Place,
    used: Duration,
}

impl Table {
    fn get(&mut self, user: &Arc<str>, told: i64) -> Option<&mut Known> {
        self.known.get_mut(&told)?.iter_mut().find(|known| known.user == *user)
    }

    /// A user's cursor is at this place.
    fn put(&mut self, user: &Arc<str>, told: i64, place: Place) {
        let used = self.now;
        if let Some(known) = self.get(user, told) {
            (known.place, known.used) = (place, used);
        } else if self.room.take(user, 1, MAX_CURSORS) {
            self.known.entry(told).or_default().push(Known { user: Arc::clone(user), place, used });
        }
    }

    /// Forgets those for which this is true.
    fn forget(&mut self, told: Option<i64>, is: impl Fn(&Known) -> bool) {
        let room = &mut self.room;
        let mut keep = |known: &mut Vec<Known>| {
            known.retain(|known| {
                let goes = is(known);
                if goes {
                    room.give_back(&known.user, 1);
                }
                !goes
            });
            !known.is_empty()
        };
        match told {
            None => self.known.retain(|_, known| keep(known)),
            Some(told) => {
                if self.known.get_mut(&told).is_some_and(|known| !keep(known)) {
                    self.known.remove(&told);
                }
            }
        }
    }
}

impl Cursors {
    /// Numbers that are made up count down from here. Each process has another place to begin, so that one that takes
    /// over does not take a cursor of the one before for its own.
    pub fn new(begin: u64) -> Self {
        let last = (begin >> 2) as i64;
        Self(Mutex::new(Table { last, ..Table::default() }))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn on_tick(&self, now: Duration) {
        let mut table = self.table();
        table.now = table.now.max(now);
        if table.now >= table.swept + SWEEP {
            table.swept = table.now;
            let now = table.now;
            table.forget(None, |known| known.used + LIFE <= now);
        }
    }

    /// A host has opened a cursor for a user. Returns what the client is to be told as its id.
    pub fn opened(&self, user: &Arc<str>, place: Place) -> i64 {
        let mut table = self.table();
        let mut told = place.id;
        let at = |place: Place| (place.host, place.id);
        while table.get(user, told).is_some_and(|known| at(known.place) != at(place)) {
            // Servers' own ids are random, so that a collision with one of these is as improbable as any.
            table.last += 1;
            told = i64::MAX - table.last;
        }
        table.put(user, told, place);
        told
    }

    /// A user's cursor is at this place.
    pub fn keep(&self, user: &Arc<str>, told: i64, place: Place) {
        self.table().put(user, told, place);
    }

    /// Where a user's cursor is, by what the client was told.
    pub fn find(&self, user: &Arc<str>, told: i64) -> Option<Place> {
        let mut table = self.table();
        let now = table.now;
        let known = table.get(user, told)?;
        known.used = now;
        Some(known.place)
    }

    /// Whether a user's cursor is known, by what the client was told. It is not used by that.
    pub fn knows(&self, user: &Arc<str>, told: i64) -> bool {
        self.table().get(user, told).is_some()
    }

    /// Whether a cursor of this number is known, and none of this user's.
    pub fn is_anothers(&self, user: &Arc<str>, told: i64) -> bool {
        let table = self.table();
        table.known.get(&told).is_some_and(|known| known.iter().all(|known| known.user != *user))
    }

    /// A cursor has come to its end.
    pub fn closed(&self, user: &Arc<str>, told: i64) {
        self.table().forget(Some(told), |known| known.user == *user);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_of_two_hosts_with_one_number_are_told_apart() {
        let (cursors, user) = (Cursors::default(), Arc::from("u"));
        let at = |host| Place { host, id: 5, waits: false };
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
        let (one, other) = (Arc::from("u"), Arc::from("v"));
        cursors.opened(&one, Place { host: 0, id: 5, waits: false });
        assert_eq!(cursors.find(&other, 5), None);
        assert!(cursors.is_anothers(&other, 5) && !cursors.is_anothers(&one, 5) && !cursors.is_anothers(&other, 6));
        cursors.closed(&other, 5);
        assert!(cursors.find(&one, 5).is_some());
        cursors.closed(&one, 5);
        assert!(!cursors.is_anothers(&other, 5));
    }

    #[test]
    fn nobody_has_so_many_that_another_finds_no_room() {
        let (cursors, [one, other]) = (Cursors::default(), ["u", "v"].map(Arc::from));
        let at = |id| Place { host: 0, id, waits: false };
        (1..=MAX_CURSORS as i64).for_each(|id| _ = cursors.opened(&one, at(id)));
        assert!(cursors.knows(&one, 1) && !cursors.knows(&one, MAX_CURSORS as i64));
        cursors.opened(&other, at(5));
        assert!(cursors.knows(&other, 5));
        cursors.on_tick(LIFE);
        cursors.opened(&one, at(7));
        assert!(cursors.knows(&one, 7) && cursors.table().room.taken() == 1, "all others are forgotten");
    }

    #[test]
    fn what_is_not_used_is_forgotten() {
        let (cursors, user) = (Cursors::default(), Arc::from("u"));
        cursors.opened(&user, Place { host: 0, id: 5, waits: false });
        cursors.on_tick(LIFE - SWEEP);
        assert!(cursors.find(&user, 5).is_some(), "and it was used");
        cursors.on_tick(LIFE);
        assert!(cursors.find(&user, 5).is_some());
        cursors.on_tick(LIFE * 2 + SWEEP);
        assert_eq!(cursors.find(&user, 5), None);
    }
}
