//! What of each limit is left to other processes: to those before this one, which let their clients finish, and to the one after
//! it. Moves no client and speaks with nobody.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use driver::{CapUsage, Handle};

/// So much under each limit, by its name.
pub type Held = HashMap<String, u32>;

/// See the file's head.
pub struct Limits {
    handle: Handle,
    left: Mutex<Left>,
}

#[derive(Default)]
struct Left {
    /// To all processes before this one; `None`: there is none.
    before: Option<Held>,
    /// To the one after it.
    after: Held,
}

impl Limits {
    /// All of every limit is this process's own.
    pub fn new(handle: Handle) -> Self {
        Self { handle, left: Mutex::default() }
    }

    fn change(&self, change: impl FnOnce(&mut Left)) {
        let mut left = self.left();
        change(&mut left);
        let mut sum = left.after.clone();
        for (name, held) in left.before.iter().flatten() {
            *sum.entry(name.clone()).or_default() += held;
        }
        self.handle.reserve(sum);
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So much is held by those before this one; `None`: they have ended.
    pub fn leave_before(&self, held: Option<Held>) {
        self.change(|left| left.before = held);
    }

    /// Whether a process before this one has not ended.
    pub fn has_before(&self) -> bool {
        self.left().before.is_some()
    }

    /// The process after this one has ended, or there is none any more.
    pub fn lose_after(&self) {
        self.change(|left| left.after.clear());
    }

    /// Leaves the process after this one its share of each limit. Returns what that one cannot have, which is held here and by
    /// those before.
    pub fn share(&self) -> Held {
        let clients: u64 = self.handle.pools(None).iter().map(|pool| pool.clients).sum();
        let caps = self.handle.caps();
        let mut held = Held::new();
        self.change(|left| {
            left.after.clear();
            // A limit under which nothing was ever asked for here is not known here.
            held = left.before.clone().unwrap_or_default();
            for CapUsage { name, used, limit } in caps.into_iter().filter(|cap| cap.limit > 0) {
                let before = held.get(&name).copied().unwrap_or_default();
                let rest = limit.saturating_sub(before);
                let own = share(rest, clients);
                left.after.insert(name.clone(), rest - own.min(rest));
                held.insert(name, before + used.max(own));
            }
        });
        held
    }
}

/// What the old process keeps of a limit: half at most, and not more than it has clients. One at least, as long as it
/// has any.
fn share(limit: u32, clients: u64) -> u32 {
    if clients == 0 {
        return 0;
    }
    (limit / 2).min(u32::try_from(clients).unwrap_or(u32::MAX)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_process_keeps_half_at_most_and_no_more_than_it_has_clients() {
        assert_eq!([share(20, 1000), share(20, 3), share(20, 0), share(1, 5), share(3, 5)], [10, 3, 0, 1, 1]);
    }
}
