//! What of each limit is left to other processes: to those before this one, which let their clients finish, and to the
//! one after it. Moves no client and speaks with nobody.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use driver::{CapUsage, Handle};

use super::{Word, meeting};

/// So much under each limit, by its name.
pub type Held = HashMap<String, u32>;

pub struct Limits {
    handle: Handle,
    process: u64,
    left: Mutex<Left>,
}

#[derive(Default)]
struct Left {
    /// To each process before this one that has not ended, as it says; by its number.
    before: HashMap<usize, Word>,
    after: Held,
}

impl Limits {
    /// Leaves all processes before this one what they hold, as the driver does from its start.
    pub(super) fn new(handle: Handle, before: HashMap<usize, Word>) -> Self {
        let left = Left { before, after: Held::new() };
        Self { handle, process: meeting::unguessable(), left: Mutex::new(left) }
    }

    fn change(&self, change: impl FnOnce(&mut Left)) {
        let mut left = self.left();
        change(&mut left);
        let mut sum = left.after.clone();
        for (name, held) in held_before(left.before.values()) {
            *sum.entry(name).or_default() += held;
        }
        self.handle.reserve(sum);
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process before this one that has this number, until it has ended.
    pub(super) fn before(self: &Arc<Self>, number: usize) -> Before {
        Before { limits: Arc::clone(self), number }
    }

    /// The process before this one that has this number holds so much now.
    pub(super) fn hold(&self, number: usize, word: Word) {
        self.change(|left| _ = left.before.insert(number, word));
    }

    /// No process follows after all.
    pub fn take_back(&self) {
        self.change(|left| left.after.clear());
    }

    /// Leaves the process after this one its share of each limit, though this one still serves and gets clients.
    pub(super) fn begin_to_share(&self) -> Word {
        self.share_as_with(u64::MAX)
    }

    /// Leaves the process after this one its share of each limit. Returns what that one cannot have.
    pub(super) fn share(&self) -> Word {
        self.share_as_with(self.handle.pools(None).iter().map(|pool| pool.clients).sum())
    }

    fn share_as_with(&self, clients: u64) -> Word {
        let limited = || self.handle.caps().into_iter().filter(|cap| cap.limit > 0);
        let mut word = Word { process: self.process, ..Word::default() };
        self.change(|left| {
            left.after.clear();
            // A limit under which nothing was ever asked for here is not known here.
            word.held = held_before(left.before.values());
            for CapUsage { name, limit, .. } in limited() {
                let rest = limit.saturating_sub(word.held.get(&name).copied().unwrap_or_default());
                let own = share(rest, clients);
                left.after.insert(name.clone(), rest - own.min(rest));
                word.own.insert(name, own);
            }
        });
        // No more than the share can be asked for from here on, so what is used beyond it can only become less.
        for CapUsage { name, used, .. } in limited() {
            let own = word.own.entry(name.clone()).or_default();
            *own = used.max(*own);
            *word.held.entry(name).or_default() += *own;
        }
        word
    }
}

/// One of the processes before this one, until it has ended: when this is dropped, nothing is left to it any more.
pub(super) struct Before {
    limits: Arc<Limits>,
    number: usize,
}

impl Before {
    /// So much is held by it now.
    pub(super) fn holds(&self, word: Word) {
        self.limits.hold(self.number, word);
    }

    /// It has ended. Returns how many others have not.
    pub(super) fn end(self) -> usize {
        self.remove()
    }

    fn remove(&self) -> usize {
        let mut others = 0;
        self.limits.change(|left| {
            left.before.remove(&self.number);
            others = left.before.len();
        });
        others
    }
}

impl Drop for Before {
    fn drop(&mut self) {
        self.remove();
    }
}

/// What all processes before this one hold.
///
/// It is the sum of what each has. When one gives something up, another one may take part of that, and this process
/// hears of the two in any order. So it is not less than what any of them says of itself and those before it.
pub(super) fn held_before<'a>(words: impl Iterator<Item = &'a Word> + Clone) -> Held {
    let mut all = Held::new();
    for (name, own) in words.clone().flat_map(|word| &word.own) {
        *all.entry(name.clone()).or_default() += own;
    }
    for (name, held) in words.flat_map(|word| &word.held) {
        let sum = all.entry(name.clone()).or_default();
        *sum = (*sum).max(*held);
    }
    all
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

    fn word(held: u32, own: u32) -> Word {
        let of = |value| Held::from([("all".to_owned(), value)]);
        Word { held: of(held), own: of(own), ..Word::default() }
    }

    fn sum(words: &[Word]) -> u32 {
        held_before(words.iter())["all"]
    }

    #[test]
    fn what_one_gives_up_is_not_free_before_the_next_one_has_said_what_it_takes_of_it() {
        assert_eq!(sum(&[word(8, 8), word(10, 2)]), 10);
        assert_eq!(sum(&[word(4, 4), word(10, 2)]), 10, "the second may take two of the four");
        assert_eq!(sum(&[word(4, 4), word(8, 4)]), 8);
        assert_eq!(sum(&[word(4, 4)]), 4, "the second has ended");
        assert_eq!(sum(&[word(8, 4)]), 8, "the first has ended, and the second does not know yet");
    }
}
