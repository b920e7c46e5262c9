//! How long servers have been held. Which waiter gets a server that is free does not depend on it.

use core::time::Duration;

use crate::{slots::ServerId, time::Time};

use super::Pool;

impl Pool {
    /// Sets whether a server in use is held for another reason than a transaction, until it is checked in: by its own
    /// session, or pinned to its client. [`Pool::oldest_hold`] leaves it out, and its client is asked last to give it
    /// back. A server that is not in use is left as it is.
    pub fn set_pinned(&mut self, server: ServerId, pinned: bool) {
        self.slots.set_pinned(server, pinned);
    }

    /// The longest time that a server has been in use, without servers that are [pinned](Pool::set_pinned) or
    /// [lasting](crate::Need::Lasting). A large value is a transaction that does not end. O(n) in the servers.
    pub fn oldest_hold(&self, now: Time) -> Option<Duration> {
        self.slots.oldest_hold().map(|since| now - since)
    }
}
