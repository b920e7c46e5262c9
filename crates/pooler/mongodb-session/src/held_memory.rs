//! Memory of the requests that sessions hold, over all clients. One user's requests leave half of it to the others.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::quota::Quota;

/// Maximum over all clients, in bytes; one user may have half of it.
const MAX_HELD_BYTES: usize = 512 << 20;

#[derive(Default)]
pub struct HeldMemory(Mutex<Quota>);

impl HeldMemory {
    fn quota(&self) -> MutexGuard<'_, Quota> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves memory for more bytes of a user's request. False if there is none left.
    pub fn take(&self, user: &Arc<str>, more: usize) -> bool {
        self.quota().take(user, more, MAX_HELD_BYTES)
    }

    /// The same for bytes that have already been received, and so are always counted.
    pub fn note(&self, user: &Arc<str>, more: usize) {
        if more > 0 {
            self.quota().take_regardless(user, more);
        }
    }

    pub fn give_back(&self, user: &Arc<str>, count: usize) {
        if count > 0 {
            self.quota().give_back(user, count);
        }
    }
}
