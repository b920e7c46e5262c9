//! Memory of the requests that sessions hold, over all clients. One user's requests leave room for those of others.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::quota::Quota;

/// Maximum over all clients, in bytes; one user may have half of it.
const MAX_HELD_BYTES: usize = 512 << 20;

#[derive(Default)]
pub struct HeldMemory(Mutex<Quota>);

impl HeldMemory {
    fn room(&self) -> MutexGuard<'_, Quota> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves memory for more bytes of a user's request. False if there is none left.
    pub fn take(&self, user: &Arc<str>, more: usize) -> bool {
        self.room().take(user, more, MAX_HELD_BYTES)
    }

    /// The same for bytes that have already been received, and so are always counted.
    pub fn note(&self, user: &Arc<str>, more: usize) {
        if more > 0 {
            self.room().note(user, more);
        }
    }

    pub fn give_back(&self, user: &Arc<str>, count: usize) {
        if count > 0 {
            self.room().give_back(user, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_holds_so_much_that_another_finds_no_room() {
        let (holding, [one, other]) = (HeldMemory::default(), ["u", "v"].map(Arc::from));
        let takes = |user| (0..1_000).filter(|_| holding.take(user, 1 << 20)).count();
        assert_eq!([takes(&one), takes(&other), takes(&one)], [256, 128, 0]);
        holding.note(&one, MAX_HELD_BYTES);
        assert_eq!(takes(&other), 0);
        holding.give_back(&one, MAX_HELD_BYTES + (256 << 20));
        holding.give_back(&other, 128 << 20);
        assert_eq!(holding.room().taken(), 0);
        assert_eq!(takes(&other), 256);
    }
}
