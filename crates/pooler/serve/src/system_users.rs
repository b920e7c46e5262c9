//! The names of the users of this machine.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use nix::unistd::{Uid, User};

/// How long a name is remembered: looking it up may ask a server of the network.
const NAME_CACHE_TIME: Duration = Duration::from_secs(60);

/// Most names that are remembered.
const MAX_CACHED_NAMES: usize = 1000;

/// A name, and until when it is remembered.
type CachedName = (Option<String>, Instant);

/// Held for no longer than it takes to read or write an entry.
static NAMES: Mutex<Option<HashMap<u32, CachedName>>> = Mutex::new(None);

fn names() -> MutexGuard<'static, Option<HashMap<u32, CachedName>>> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The name of a user, `Some(None)` if there is none; `None` if it has to be [looked up](look_up_name) first.
pub fn known_name(uid: u32) -> Option<Option<String>> {
    let names = names();
    let (name, _) = names.as_ref()?.get(&uid).filter(|(_, until)| *until > Instant::now())?;
    Some(name.clone())
}

/// Has the system tell a name. May block for long.
///
/// # Errors
/// When the system cannot tell.
pub fn look_up_name(uid: u32) -> Result<(), String> {
    if known_name(uid).is_some() {
        return Ok(());
    }
    let name = User::from_uid(Uid::from_raw(uid))
        .map_err(|error| format!("the system cannot tell the name of its user {uid}: {error}"))?
        .map(|user| user.name);
    let mut names = names();
    let names = names.get_or_insert_default();
    if names.len() >= MAX_CACHED_NAMES {
        names.clear();
    }
    names.insert(uid, (name, Instant::now() + NAME_CACHE_TIME));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_known_once_it_was_looked_up() {
        const NO_USER: u32 = 4_000_000_000;
        assert_eq!(known_name(0), None);
        look_up_name(0).unwrap();
        assert_eq!(known_name(0), Some(Some("root".to_owned())));
        look_up_name(NO_USER).unwrap();
        assert_eq!(known_name(NO_USER), Some(None));
    }
}
