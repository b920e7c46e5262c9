//! Keys learned from clients' own logins, with which servers are logged in to where no password is configured. They
//! live in memory only.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use scram::LoginKeys;

/// Most users whose keys are kept. Beyond that, another user's keys are forgotten until that user logs in again.
const MAX_USERS: usize = 8192;

/// Most keys of one user: one for each database server with a verifier of its own, and one from before a change of the
/// password.
const MAX_PER_USER: usize = 4;

#[derive(Default)]
pub(crate) struct Keyring {
    users: Mutex<HashMap<Box<str>, VecDeque<Arc<LoginKeys>>>>,
}

impl Keyring {
    /// Keeps the keys of a user who has just logged in, in place of earlier ones of the same verifier.
    pub(crate) fn learn(&self, user: &str, keys: LoginKeys) {
        let mut users = self.lock();
        if users.len() >= MAX_USERS
            && !users.contains_key(user)
            && let Some(other) = users.keys().next().cloned()
        {
            users.remove(&other);
        }
        let known = users.entry(user.into()).or_default();
        known.retain(|old| !old.same_verifier(&keys));
        known.truncate(MAX_PER_USER - 1);
        known.push_front(Arc::new(keys));
    }

    /// The keys of a user that fit a server's salt and iterations.
    pub(crate) fn find(&self, user: &str, salt: &[u8], iterations: u32) -> Option<Arc<LoginKeys>> {
        self.lock().get(user)?.iter().find(|keys| keys.fit(salt, iterations)).cloned()
    }

    pub(crate) fn knows(&self, user: &str) -> bool {
        self.lock().contains_key(user)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, VecDeque<Arc<LoginKeys>>>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use scram::{Client, KeyCache, Server, Verifier};

    use super::*;

    fn keys(salt: &[u8]) -> LoginKeys {
        let mut server = Server::new(Arc::new(Verifier::from_password("x", salt, 1)), "server".into());
        let (mut client, first) = Client::new("client".into());
        let last = client.respond(&server.first(&first).unwrap(), "x", &KeyCache::default()).unwrap();
        server.last(&last).unwrap();
        server.take_keys().unwrap()
    }

    #[test]
    fn keys_are_found_by_user_salt_and_iterations() {
        let ring = Keyring::default();
        ring.learn("app", keys(b"one"));
        ring.learn("app", keys(b"two"));
        assert!(ring.find("app", b"one", 1).is_some() && ring.find("app", b"two", 1).is_some());
        assert!(ring.find("app", b"one", 2).is_none() && ring.find("other", b"one", 1).is_none());
        assert!(ring.knows("app") && !ring.knows("other"));
    }

    #[test]
    fn a_user_has_a_few_keys_and_the_latest_stay() {
        let ring = Keyring::default();
        for salt in 0..10u8 {
            ring.learn("app", keys(&[salt]));
            ring.learn("app", keys(&[salt]));
        }
        let known: Vec<u8> = (0..10).filter(|salt| ring.find("app", &[*salt], 1).is_some()).collect();
        assert_eq!(known, [6, 7, 8, 9]);
    }

    #[test]
    fn users_without_end_do_not_take_memory_without_end() {
        let ring = Keyring::default();
        for n in 0..MAX_USERS + 10 {
            ring.learn(&format!("user{n}"), keys(b"salt"));
        }
        assert_eq!(ring.lock().len(), MAX_USERS);
        assert!(ring.knows(&format!("user{}", MAX_USERS + 9)));
    }
}
