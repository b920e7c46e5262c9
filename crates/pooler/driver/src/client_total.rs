//! The clients of all listeners together, and how many there may be. Each of them has a place at the gate of its
//! listener, too.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

pub(crate) struct ClientTotal {
    clients: AtomicU32,
    /// `u32::MAX`: no limit.
    limit: AtomicU32,
}

impl ClientTotal {
    /// `limit`: 0 is no limit.
    pub(crate) fn new(limit: u32) -> Self {
        let total = Self { clients: AtomicU32::new(0), limit: AtomicU32::new(0) };
        total.set_limit(limit);
        total
    }

    /// Sets another limit; 0 is none. Clients beyond it stay.
    pub(crate) fn set_limit(&self, limit: u32) {
        self.limit.store(if limit == 0 { u32::MAX } else { limit }, SeqCst);
    }

    pub(crate) fn limit(&self) -> u32 {
        self.limit.load(SeqCst)
    }

    /// Takes a place for one more client, if there is one.
    pub(crate) fn try_take(&self) -> bool {
        let limit = self.limit();
        self.clients.fetch_update(SeqCst, SeqCst, |clients| (clients < limit).then_some(clients + 1)).is_ok()
    }

    pub(crate) fn give_back(&self) {
        let before = self.clients.fetch_sub(1, SeqCst);
        assert!(before > 0, "more clients have left than came");
    }

    /// Whether there are more clients than there may be, as after a reload.
    pub(crate) fn is_over(&self) -> bool {
        self.clients.load(SeqCst) > self.limit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_client_comes_in_beyond_the_limit() {
        let total = ClientTotal::new(2);
        assert!(total.try_take() && total.try_take() && !total.try_take());
        total.set_limit(1);
        assert!(total.is_over());
        total.give_back();
        assert!(!total.is_over() && !total.try_take());
        total.set_limit(0);
        assert!((0..9).all(|_| total.try_take()) && !total.is_over());
    }
}
