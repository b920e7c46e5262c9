//! A cache of looked-up users. It is bounded, and lookups of unknown names cannot evict known users. Sends no query;
//! time is an argument.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use postgres_session::Look;

use crate::Password;

/// Known users of one database.
const MAX_KNOWN: usize = 10_000;
/// Names without a user in one database.
const MAX_UNKNOWN: usize = 10_000;
/// Distinct looks of logins that are kept.
const MAX_LOOKS: usize = 16;
/// Time after a lookup in which a wrong password does not cause another one.
const MIN_LOOKUP_INTERVAL: Duration = Duration::from_secs(1);

/// The looked-up users of one database.
#[derive(Default)]
pub struct KnownUsers(Mutex<Table>);

#[derive(Default)]
struct Table {
    known: HashMap<Box<str>, Known>,
    unknown: HashMap<Box<str>, Validity>,
    /// How the logins of all users look that were ever known.
    looks: Vec<Look>,
}

struct Known {
    password: Arc<Password>,
    validity: Validity,
}

/// How long an answer is valid. The rules are the same for users and for unknown names: otherwise the time that a login
/// takes would tell whether a user exists.
#[derive(Clone, Copy)]
struct Validity {
    since: Instant,
    until: Instant,
}

impl Validity {
    fn new(now: Instant, holds: Duration) -> Self {
        Self { since: now, until: now + holds }
    }

    fn is_fresh(&self, now: Instant) -> bool {
        now < self.until
    }

    fn note_refuted(&mut self, now: Instant) {
        if now.saturating_duration_since(self.since) >= MIN_LOOKUP_INTERVAL {
            self.until = self.until.min(now);
        }
    }
}

impl KnownUsers {
    /// The stored password of a user; `Some(None)` if there is no such user, `None` if the database must be asked.
    pub fn fresh(&self, user: &str, now: Instant) -> Option<Option<Arc<Password>>> {
        let table = self.lock();
        match table.known.get(user) {
            Some(known) => known.validity.is_fresh(now).then(|| Some(Arc::clone(&known.password))),
            None => table.unknown.get(user).is_some_and(|validity| validity.is_fresh(now)).then_some(None),
        }
    }

    /// The password of the last lookup, valid or not.
    pub fn last(&self, user: &str) -> Option<Arc<Password>> {
        self.lock().known.get(user).map(|known| Arc::clone(&known.password))
    }

    /// Records a password that was just looked up. Returns the value to use: the one known before, if it is equal.
    pub fn note_found(&self, user: &str, password: Password, now: Instant, holds: Duration) -> Arc<Password> {
        let table = &mut *self.lock();
        let look = password.look();
        if table.looks.len() < MAX_LOOKS && !table.looks.contains(&look) {
            table.looks.push(look);
        }
        table.unknown.remove(user);
        let same = table.known.get(user).filter(|old| old.password.is_same_text(&password));
        let password = same.map_or_else(|| Arc::new(password), |old| Arc::clone(&old.password));
        make_room(&mut table.known, user, MAX_KNOWN, |known| known.validity.until, now);
        let known = Known { password: Arc::clone(&password), validity: Validity::new(now, holds) };
        table.known.insert(user.into(), known);
        password
    }

    /// Records that the database has no such user, or none that may log in.
    pub fn note_missing(&self, user: &str, now: Instant, holds: Duration) {
        let mut table = self.lock();
        table.known.remove(user);
        make_room(&mut table.unknown, user, MAX_UNKNOWN, |validity| validity.until, now);
        table.unknown.insert(user.into(), Validity::new(now, holds));
    }

    /// Has the database asked again about every name. The last passwords stay known.
    pub fn expire(&self, now: Instant) {
        let table = &mut *self.lock();
        table.unknown.clear();
        table.known.values_mut().for_each(|known| known.validity.until = known.validity.until.min(now));
    }

    /// How the logins of existing users look, as far as is known.
    pub fn looks(&self) -> Vec<Look> {
        self.lock().looks.clone()
    }

    /// Records a wrong password. The password may have been changed, or the user created, since the last lookup.
    pub fn note_refuted(&self, user: &str, now: Instant) {
        let table = &mut *self.lock();
        let known = table.known.get_mut(user).map(|known| &mut known.validity);
        if let Some(validity) = known.or_else(|| table.unknown.get_mut(user)) {
            validity.note_refuted(now);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes room for one more entry: expired entries go first, then any.
fn make_room<V>(map: &mut HashMap<Box<str>, V>, user: &str, most: usize, until: fn(&V) -> Instant, now: Instant) {
    if map.len() < most || map.contains_key(user) {
        return;
    }
    map.retain(|_, value| until(value) > now);
    if map.len() >= most
        && let Some(other) = map.keys().next().cloned()
    {
        map.remove(&other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::Secret;

    const MINUTE: Duration = Duration::from_secs(60);

    fn plain(text: &str) -> Password {
        Password::parse(&Secret::new(text)).unwrap()
    }

    #[test]
    fn an_answer_holds_for_its_time_and_is_remembered_beyond() {
        let (users, start) = (KnownUsers::default(), Instant::now());
        assert!(users.fresh("app", start).is_none());
        let first = users.note_found("app", plain("x"), start, MINUTE);
        assert!(matches!(users.fresh("app", start), Some(Some(p)) if Arc::ptr_eq(&p, &first)));
        assert!(users.fresh("app", start + MINUTE).is_none());
        assert!(users.last("app").is_some());
        let second = users.note_found("app", plain("x"), start + MINUTE, MINUTE);
        assert!(Arc::ptr_eq(&first, &second), "a verifier that was derived is not derived anew");
        let third = users.note_found("app", plain("y"), start + MINUTE, MINUTE);
        assert!(!Arc::ptr_eq(&first, &third));
    }

    #[test]
    fn an_unknown_name_is_remembered_and_may_become_a_user() {
        let (users, start) = (KnownUsers::default(), Instant::now());
        users.note_missing("app", start, MINUTE / 10);
        assert!(matches!(users.fresh("app", start), Some(None)));
        assert!(users.fresh("app", start + MINUTE / 10).is_none());
        users.note_found("app", plain("x"), start, MINUTE);
        assert!(matches!(users.fresh("app", start), Some(Some(_))));
        users.note_missing("app", start, MINUTE);
        assert!(users.last("app").is_none());
    }

    #[test]
    fn a_wrong_password_makes_the_next_login_ask_again_but_not_at_once() {
        let (users, start) = (KnownUsers::default(), Instant::now());
        users.note_found("app", plain("x"), start, MINUTE);
        users.note_refuted("app", start + MIN_LOOKUP_INTERVAL / 2);
        assert!(users.fresh("app", start + MIN_LOOKUP_INTERVAL).is_some());
        users.note_refuted("app", start + MIN_LOOKUP_INTERVAL);
        assert!(users.fresh("app", start + MIN_LOOKUP_INTERVAL).is_none());
    }

    #[test]
    fn nothing_holds_once_it_has_expired() {
        let (users, start) = (KnownUsers::default(), Instant::now());
        users.note_found("app", plain("x"), start, MINUTE);
        users.note_missing("none", start, MINUTE);
        users.expire(start);
        assert!(users.fresh("app", start).is_none() && users.fresh("none", start).is_none());
        assert!(users.last("app").is_some(), "servers may still log in with it");
    }

    #[test]
    fn the_time_of_a_lookup_does_not_tell_whether_a_user_exists() {
        let (users, start) = (KnownUsers::default(), Instant::now());
        users.note_found("app", plain("x"), start, MINUTE);
        users.note_missing("none", start, MINUTE);
        let asked = |user: &str, now| users.fresh(user, now).is_none();
        for (after, refuted) in [(0, true), (100, true), (900, false), (1100, true), (1101, false), (70_000, false)] {
            let now = start + Duration::from_millis(after);
            assert_eq!(asked("app", now), asked("none", now), "{after} ms");
            if refuted {
                users.note_refuted("app", now);
                users.note_refuted("none", now);
            }
        }
        assert!(asked("app", start + Duration::from_millis(1101)), "a wrong password has the next login ask again");
    }

    #[test]
    fn lookups_of_unknown_names_evict_no_known_user() {
        let (users, start) = (KnownUsers::default(), Instant::now());
        users.note_found("app", plain("x"), start, MINUTE);
        for n in 0..MAX_UNKNOWN + 50 {
            users.note_missing(&format!("unknown{n}"), start, MINUTE);
        }
        assert!(users.fresh("app", start).is_some());
        assert_eq!(users.lock().unknown.len(), MAX_UNKNOWN);
    }
}
