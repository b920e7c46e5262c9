//! Bytes of requests that are held here: of those whose bodies come behind much else, until it is known where they go,
//! and of those that may have to be sent to several hosts. Nobody holds so much that another finds no room.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::room::Room;

/// Bytes that all clients may have Poolhouse hold; those of one user alone, half of them.
const MAX_HOLDING: usize = 512 << 20;

#[derive(Default)]
pub struct Holding(Mutex<Room>);

impl Holding {
    fn room(&self) -> MutexGuard<'_, Room> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many more bytes of a user's request are to be held. False if there is no room for them.
    pub fn take(&self, user: &Arc<str>, more: usize) -> bool {
        self.room().take(user, more, MAX_HOLDING)
    }

    /// The same, of bytes that are here already: there has to be room for them.
    pub fn note(&self, user: &Arc<str>, more: usize) {
        if more > 0 {
            self.room().note(user, more);
        }
    }

    /// So many of them are held no longer.
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
        let (holding, [one, other]) = (Holding::default(), ["u", "v"].map(Arc::from));
        let takes = |user| (0..1_000).filter(|_| holding.take(user, 1 << 20)).count();
        assert_eq!([takes(&one), takes(&other), takes(&one)], [256, 128, 0]);
        holding.note(&one, MAX_HOLDING);
        assert_eq!(takes(&other), 0);
        holding.give_back(&one, MAX_HOLDING + (256 << 20));
        holding.give_back(&other, 128 << 20);
        assert_eq!(holding.room().taken(), 0);
        assert_eq!(takes(&other), 256);
    }
}
