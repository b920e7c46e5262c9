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
    last_sweep: Duration,
    /// By client id. Users that share a login at MongoDB may have a cursor with the same id each.
    entries: HashMap<i64, Vec<Entry>>,
    quota: Quota,
    last_generated: i64,
}

struct Entry {
    user: Arc<str>,
    location: CursorLocation,
    used: Duration,
}

impl Table {
    fn get(&mut self, user: &Arc<str>, client_id: i64) -> Option<&mut Entry> {
        self.entries.get_mut(&client_id)?.iter_mut().find(|entry| entry.user == *user)
    }

    fn put(&mut self, user: &Arc<str>, client_id: i64, location: CursorLocation) {
        let used = self.now;
        if let Some(entry) = self.get(user, client_id) {
            (entry.location, entry.used) = (location, used);
        } else if self.quota.take(user, 1, MAX_CURSORS) {
            self.entries.entry(client_id).or_default().push(Entry { user: Arc::clone(user), location, used });
        }
    }

    /// Removes the cursors that `is` matches, among those with `client_id` if that is given.
    fn remove_if(&mut self, client_id: Option<i64>, is: impl Fn(&Entry) -> bool) {
        let quota = &mut self.quota;
        let mut keep = |entry: &mut Vec<Entry>| {
            entry.retain(|entry| {
                let matches = is(entry);
                if matches {
                    quota.give_back(&entry.user, 1);
                }
                !matches
            });
            !entry.is_empty()
        };
        match client_id {
            None => self.entries.retain(|_, entry| keep(entry)),
            Some(client_id) => {
                if self.entries.get_mut(&client_id).is_some_and(|entry| !keep(entry)) {
                    self.entries.remove(&client_id);
                }
            }
        }
    }
}

impl Cursors {
    /// Generated ids count down from a start that differs between processes: a process that takes over must not mistake
    /// a cursor of its predecessor for its own.
    pub fn new(begin: u64) -> Self {
        let last_generated = (begin >> 2) as i64;
        Self(Mutex::new(Table { last_generated, ..Table::default() }))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn on_tick(&self, now: Duration) {
        let mut table = self.table();
        table.now = table.now.max(now);
        if table.now >= table.last_sweep + SWEEP_INTERVAL {
            table.last_sweep = table.now;
            let now = table.now;
            table.remove_if(None, |entry| entry.used + CURSOR_TIMEOUT <= now);
        }
    }

    /// A host has opened a cursor for a user. Returns the id that the client is told.
    pub fn add(&self, user: &Arc<str>, location: CursorLocation) -> i64 {
        let mut table = self.table();
        let mut client_id = location.id;
        let at = |location: CursorLocation| (location.host, location.id);
        while table.get(user, client_id).is_some_and(|entry| at(entry.location) != at(location)) {
            // Servers' ids are random, so a collision with a generated id is as unlikely as any.
            table.last_generated += 1;
            client_id = i64::MAX - table.last_generated;
        }
        if client_id == location.id {
            table.put(user, client_id, location);
        } else {
            // No host knows a generated id, so the table must, even beyond the quota. Collisions are rare.
            table.quota.take_regardless(user, 1);
            let entry = Entry { user: Arc::clone(user), location, used: table.now };
            table.entries.entry(client_id).or_default().push(entry);
        }
        client_id
    }

    pub fn set_location(&self, user: &Arc<str>, client_id: i64, location: CursorLocation) {
        self.table().put(user, client_id, location);
    }

    /// The location of a user's cursor. This counts as a use of the cursor.
    pub fn find(&self, user: &Arc<str>, client_id: i64) -> Option<CursorLocation> {
        let mut table = self.table();
        let now = table.now;
        let entry = table.get(user, client_id)?;
        entry.used = now;
        Some(entry.location)
    }

    /// Whether a user's cursor is in the table. This does not count as a use of the cursor.
    pub fn contains(&self, user: &Arc<str>, client_id: i64) -> bool {
        self.table().get(user, client_id).is_some()
    }

    /// Whether only other users have a cursor with this id.
    pub fn belongs_to_another_user(&self, user: &Arc<str>, client_id: i64) -> bool {
        let table = self.table();
        table.entries.get(&client_id).is_some_and(|entry| entry.iter().all(|entry| entry.user != *user))
    }

    pub fn remove(&self, user: &Arc<str>, client_id: i64) {
        self.table().remove_if(Some(client_id), |entry| entry.user == *user);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cursors_of_one_user_leave_some_for_another() {
        let (cursors, [one, other]) = (Cursors::default(), ["u", "v"].map(Arc::from));
        let at = |id| CursorLocation { host: 0, id, awaits_data: false };
        (1..=MAX_CURSORS as i64).for_each(|id| _ = cursors.add(&one, at(id)));
        assert!(cursors.contains(&one, 1) && !cursors.contains(&one, MAX_CURSORS as i64));
        cursors.add(&other, at(5));
        assert!(cursors.contains(&other, 5));
        cursors.on_tick(CURSOR_TIMEOUT);
        cursors.add(&one, at(7));
        assert!(cursors.contains(&one, 7) && cursors.table().quota.taken() == 1, "all others are forgotten");
    }

    #[test]
    fn a_generated_id_is_known_though_the_users_quota_is_full() {
        let (cursors, user) = (Cursors::default(), Arc::from("u"));
        let at = |host, id| CursorLocation { host, id, awaits_data: false };
        (1..=MAX_CURSORS as i64).for_each(|id| _ = cursors.add(&user, at(0, id)));
        let client_id = cursors.add(&user, at(1, 1));
        assert_ne!(client_id, 1, "the client has a cursor of this id at host 0");
        assert_eq!(cursors.find(&user, client_id), Some(at(1, 1)));
        cursors.on_tick(CURSOR_TIMEOUT);
        assert_eq!(cursors.table().quota.taken(), 0);
    }

    #[test]
    fn what_is_not_used_is_forgotten() {
        let (cursors, user) = (Cursors::default(), Arc::from("u"));
        cursors.add(&user, CursorLocation { host: 0, id: 5, awaits_data: false });
        cursors.on_tick(CURSOR_TIMEOUT - SWEEP_INTERVAL);
        assert!(cursors.find(&user, 5).is_some(), "and it was used");
        cursors.on_tick(CURSOR_TIMEOUT);
        assert!(cursors.find(&user, 5).is_some());
        cursors.on_tick(CURSOR_TIMEOUT * 2 + SWEEP_INTERVAL);
        assert_eq!(cursors.find(&user, 5), None);
    }
}
