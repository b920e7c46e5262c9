//! Open cursors of all clients, and the host of each. A driver may send a `getMore` on any of its connections, so a
//! cursor belongs to a user and not to a connection. Two hosts may give the same id to two cursors: the client of the
//! later cursor gets another id.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::quota::Quota;

/// Maximum number of cursors in the table; one user may have half of them. A `getMore` of any other cursor is tried at
/// one host after the other.
const MAX_CURSORS: usize = 200_000;

/// MongoDB closes an idle cursor after 10 minutes (`cursorTimeoutMillis`), and one of a session after 30.
const CURSOR_TIMEOUT: Duration = Duration::from_secs(31 * 60);

/// Time between two sweeps for expired cursors.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CursorLocation {
    pub host: usize,
    pub id: i64,
    /// Its `getMore` waits for data.
    pub awaits_data: bool,
}

#[derive(Default)]
pub struct Cursors(Mutex<Table>);

#[derive(Default)]
struct Table {
    now: Duration,
    swept: Duration,
    /// By client id. Users that share a login at MongoDB may have a cursor with the same id each.
    known: HashMap<i64, Vec<Known>>,
    room: Quota,
    last: i64,
}

struct Known {
    user: Arc<str>,
    location: CursorLocation,
    used: Duration,
}

impl Table {
    fn get(&mut self, user: &Arc<str>, client_id: i64) -> Option<&mut Known> {
        self.known.get_mut(&client_id)?.iter_mut().find(|known| known.user == *user)
    }

    /// Sets the location of a user's cursor.
    fn put(&mut self, user: &Arc<str>, client_id: i64, location: CursorLocation) {
        let used = self.now;
        if let Some(known) = self.get(user, client_id) {
            (known.location, known.used) = (location, used);
        } else if self.room.take(user, 1, MAX_CURSORS) {
            self.known.entry(client_id).or_default().push(Known { user: Arc::clone(user), location, used });
        }
    }

    /// Removes the cursors that `is` matches, among those with `client_id` if that is given.
    fn forget(&mut self, client_id: Option<i64>, is: impl Fn(&Known) -> bool) {
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
        match client_id {
            None => self.known.retain(|_, known| keep(known)),
            Some(client_id) => {
                if self.known.get_mut(&client_id).is_some_and(|known| !keep(known)) {
                    self.known.remove(&client_id);
                }
            }
        }
    }
}

impl Cursors {
    /// Generated ids count down from a start that differs between processes: a process that takes over must not mistake
    /// a cursor of its predecessor for its own.
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
        if table.now >= table.swept + SWEEP_INTERVAL {
            table.swept = table.now;
            let now = table.now;
            table.forget(None, |known| known.used + CURSOR_TIMEOUT <= now);
        }
    }

    /// A host has opened a cursor for a user. Returns the id that the client is told.
    pub fn opened(&self, user: &Arc<str>, location: CursorLocation) -> i64 {
        let mut table = self.table();
        let mut client_id = location.id;
        let at = |location: CursorLocation| (location.host, location.id);
        while table.get(user, client_id).is_some_and(|known| at(known.location) != at(location)) {
            // Servers' ids are random, so a collision with a generated id is as unlikely as any.
            table.last += 1;
            client_id = i64::MAX - table.last;
        }
        table.put(user, client_id, location);
        client_id
    }

    /// Sets the location of a user's cursor.
    pub fn keep(&self, user: &Arc<str>, client_id: i64, location: CursorLocation) {
        self.table().put(user, client_id, location);
    }

    /// The location of a user's cursor. This counts as a use of the cursor.
    pub fn find(&self, user: &Arc<str>, client_id: i64) -> Option<CursorLocation> {
        let mut table = self.table();
        let now = table.now;
        let known = table.get(user, client_id)?;
        known.used = now;
        Some(known.location)
    }

    /// Whether a user's cursor is in the table. This does not count as a use of the cursor.
    pub fn knows(&self, user: &Arc<str>, client_id: i64) -> bool {
        self.table().get(user, client_id).is_some()
    }

    /// Whether only other users have a cursor with this id.
    pub fn belongs_to_another_user(&self, user: &Arc<str>, client_id: i64) -> bool {
        let table = self.table();
        table.known.get(&client_id).is_some_and(|known| known.iter().all(|known| known.user != *user))
    }

    pub fn closed(&self, user: &Arc<str>, client_id: i64) {
        self.table().forget(Some(client_id), |known| known.user == *user);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_of_two_hosts_with_one_number_are_told_apart() {
        let (cursors, user) = (Cursors::default(), Arc::from("u"));
        let at = |host| CursorLocation { host, id: 5, awaits_data: false };
        assert_eq!(cursors.opened(&user, at(0)), 5);
        let client_id = cursors.opened(&user, at(1));
        assert_ne!(client_id, 5);
        assert_eq!((cursors.find(&user, 5), cursors.find(&user, client_id)), (Some(at(0)), Some(at(1))));
        cursors.closed(&user, 5);
        assert_eq!((cursors.find(&user, 5), cursors.find(&user, client_id)), (None, Some(at(1))));
    }

    #[test]
    fn nobody_finds_the_cursor_of_another_user() {
        let cursors = Cursors::default();
        let (one, other) = (Arc::from("u"), Arc::from("v"));
        cursors.opened(&one, CursorLocation { host: 0, id: 5, awaits_data: false });
        assert_eq!(cursors.find(&other, 5), None);
        assert!(
            cursors.belongs_to_another_user(&other, 5)
                && !cursors.belongs_to_another_user(&one, 5)
                && !cursors.belongs_to_another_user(&other, 6)
        );
        cursors.closed(&other, 5);
        assert!(cursors.find(&one, 5).is_some());
        cursors.closed(&one, 5);
        assert!(!cursors.belongs_to_another_user(&other, 5));
    }

    #[test]
    fn nobody_has_so_many_that_another_finds_no_room() {
        let (cursors, [one, other]) = (Cursors::default(), ["u", "v"].map(Arc::from));
        let at = |id| CursorLocation { host: 0, id, awaits_data: false };
        (1..=MAX_CURSORS as i64).for_each(|id| _ = cursors.opened(&one, at(id)));
        assert!(cursors.knows(&one, 1) && !cursors.knows(&one, MAX_CURSORS as i64));
        cursors.opened(&other, at(5));
        assert!(cursors.knows(&other, 5));
        cursors.on_tick(CURSOR_TIMEOUT);
        cursors.opened(&one, at(7));
        assert!(cursors.knows(&one, 7) && cursors.table().room.taken() == 1, "all others are forgotten");
    }

    #[test]
    fn what_is_not_used_is_forgotten() {
        let (cursors, user) = (Cursors::default(), Arc::from("u"));
        cursors.opened(&user, CursorLocation { host: 0, id: 5, awaits_data: false });
        cursors.on_tick(CURSOR_TIMEOUT - SWEEP_INTERVAL);
        assert!(cursors.find(&user, 5).is_some(), "and it was used");
        cursors.on_tick(CURSOR_TIMEOUT);
        assert!(cursors.find(&user, 5).is_some());
        cursors.on_tick(CURSOR_TIMEOUT * 2 + SWEEP_INTERVAL);
        assert_eq!(cursors.find(&user, 5), None);
    }
}
