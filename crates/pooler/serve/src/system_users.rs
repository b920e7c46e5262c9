//! The names of the users of this machine.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use nix::unistd::{Uid, User};

/// How long a name is remembered: looking it up may ask a server of the network.
const NAME_CACHE_TIME: Duration = Duration::from_secs(60);

/// Most names that are remembered.
const MAX_CACHED_NAMES: usize = 1000;

/// A name, and until when it is remembered.
type CachedName = (Option<String>, Instant);

static NAMES: Mutex<Option<HashMap<u32, CachedName>>> = Mutex::new(None);

/// The name of a user; `None` if there is none.
pub fn name_of(uid: u32) -> Option<String> {
    let now = Instant::now();
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let names = names.get_or_insert_default();
    if let Some((name, _)) = names.get(&uid).filter(|(_, until)| *until > now) {
        return name.clone();
    }
    let name = User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name);
    if names.len() >= MAX_CACHED_NAMES {
        names.clear();
    }
    names.insert(uid, (name.clone(), now + NAME_CACHE_TIME));
    name
}
