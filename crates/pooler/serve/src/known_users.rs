//! What databases have said of their users, for as long as it holds: bounded, and what strangers ask for cannot drive
//! out what is known of others. Asks nobody; time is an argument.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use postgres_session::Look;

use crate::Password;

/// Most users of one database that are remembered.
const MAX_KNOWN: usize = 10_000;
/// Most names of nobody that are remembered for one database.
const MAX_UNKNOWN: usize = 10_000;
/// A password that was looked up this recently is not looked up again because somebody gave a wrong one.
const MIN_ASK_AGAIN: Duration = Duration::from_secs(1);

/// What one database has said.
#[derive(Default)]
pub struct KnownUsers(Mutex<Table>);

#[derive(Default)]
struct Table {
    known: HashMap<Box<str>, Known>,
    /// Names that are no user's.
    unknown: HashMap<Box<str>, Held>,
    /// What those who were ever known are asked for at login.
    looks: Vec<Look>,
}

struct Known {
    password: Arc<Password>,
    held: Held,
}

/// For how long an answer holds. The rules are the same for users and for names that are none's: else the time that a
/// login takes would tell who exists.
#[derive(Clone, Copy)]
struct Held {
    since: Instant,
    until: Instant,
}

impl Held {
    fn new(now: Instant, holds: Duration) -> Self {
        Self { since: now, until: now + holds }
    }

    fn is_fresh(&self, now: Instant) -> bool {
        now < self.until
    }

    fn refuted(&mut self, now: Instant) {
        if now.saturating_duration_since(self.since) >= MIN_ASK_AGAIN {
            self.until = self.until.min(now);
        }
    }
}

impl KnownUsers {
    /// The stored password of a user, `Some(None)` for nobody; `None` if the database must be asked.
    pub fn fresh(&self, user: &str, now: Instant) -> Option<Option<Arc<Password>>> {
        let table = self.lock();
        match table.known.get(user) {
            Some(known) => known.held.is_fresh(now).then(|| Some(Arc::clone(&known.password))),
            None => table.unknown.get(user).is_some_and(|held| held.is_fresh(now)).then_some(None),
        }
    }

    /// The stored password that the database told last, however long ago.
    pub fn last(&self, user: &str) -> Option<Arc<Password>> {
        self.lock().known.get(user).map(|known| Arc::clone(&known.password))
    }

    /// The database has just told the password of a user. Gives what is to be used: the value known before, if it is
    /// the same.
    pub fn found(&self, user: &str, password: Password, now: Instant, holds: Duration) -> Arc<Password> {
        let table = &mut *self.lock();
        password.note_look(&mut table.looks);
        table.unknown.remove(user);
        let same = table.known.get(user).filter(|old| old.password.is_same(&password));
        let password = same.map_or_else(|| Arc::new(password), |old| Arc::clone(&old.password));
        make_room(&mut table.known, user, MAX_KNOWN, |known| known.held.until, now);
        let known = Known { password: Arc::clone(&password), held: Held::new(now, holds) };
        table.known.insert(user.into(), known);
        password
    }

    /// The database has just said that there is no such user, or none that may log in.
    pub fn missing(&self, user: &str, now: Instant, holds: Duration) {
        let mut table = self.lock();
        table.known.remove(user);
        make_room(&mut table.unknown, user, MAX_UNKNOWN, |held| held.until, now);
        table.unknown.insert(user.into(), Held::new(now, holds));
    }

    /// What those who exist are asked for at login, as far as is known.
    pub fn looks(&self) -> Vec<Look> {
        self.lock().looks.clone()
    }

    /// A password was wrong: it may have been changed, or its user created, since it was looked up.
    pub fn refuted(&self, user: &str, now: Instant) {
        let table = &mut *self.lock();
        let known = table.known.get_mut(user).map(|known| &mut known.held);
        if let Some(held) = known.or_else(|| table.unknown.get_mut(user)) {
            held.refuted(now);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes room for one more: first what is out of date goes, then anything.
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
        let first = users.found("app", plain("x"), start, MINUTE);
        assert!(matches!(users.fresh("app", start), Some(Some(p)) if Arc::ptr_eq(&p, &first)));
        assert!(users.fresh("app", start + MINUTE).is_none());
        assert!(users.last("app").is_some());
        let second = users.found("app", plain("x"), start + MINUTE, MINUTE);
        assert!(Arc::ptr_eq(&first, &second), "a verifier that was derived is not derived anew");
        let third = users.found("app", plain("y"), start + MINUTE, MINUTE);
        assert!(!Arc::ptr_eq(&first, &third));
    }

    #[test]
    fn nobody_is_remembered_and_may_be_created_meanwhile() {
        let (users, start) = (KnownUsers::default(), Instant::now());
        users.missing("app", start, MINUTE / 10);
        assert!(matches!(users.fresh("app", start), Some(None)));
        assert!(users.fresh("app", start + MINUTE / 10).is_none());
        users.found("app", plain("x"), start, MINUTE);
        assert!(matches!(users.fresh("app", start), Some(Some(_))));
        users.missing("app", start, MINUTE);
        assert!(users.last("app").is_none());
    }

    #[test]
    fn a_wrong_password_makes_the_next_login_ask_again_but_not_at_once() {
        let (users, start) = (KnownUsers::default(), Instant::now());
        users.found("app", plain("x"), start, MINUTE);
        users.refuted("app", start + MIN_ASK_AGAIN / 2);
        assert!(users.fresh("app", start + MIN_ASK_AGAIN).is_some());
        users.refuted("app", start + MIN_ASK_AGAIN);
        assert!(users.fresh("app", start + MIN_ASK_AGAIN).is_none());
    }

    #[test]
    fn when_the_database_is_asked_does_not_tell_whether_a_user_exists() {
        let (users, start) = (KnownUsers::default(), Instant::now());
        users.found("app", plain("x"), start, MINUTE);
        users.missing("none", start, MINUTE);
        let asked = |user: &str, now| users.fresh(user, now).is_none();
        for (after, refuted) in [(0, true), (100, true), (900, false), (1100, true), (1101, false), (70_000, false)] {
            let now = start + Duration::from_millis(after);
            assert_eq!(asked("app", now), asked("none", now), "{after} ms");
            if refuted {
                users.refuted("app", now);
                users.refuted("none", now);
            }
        }
        assert!(asked("app", start + Duration::from_millis(1101)), "a wrong password has the next login ask again");
    }

    #[test]
    fn strangers_cannot_drive_out_what_is_known() {
        let (users, start) = (KnownUsers::default(), Instant::now());
        users.found("app", plain("x"), start, MINUTE);
        for n in 0..MAX_UNKNOWN + 50 {
            users.missing(&format!("stranger{n}"), start, MINUTE);
        }
        assert!(users.fresh("app", start).is_some());
        assert_eq!(users.lock().unknown.len(), MAX_UNKNOWN);
    }
}
