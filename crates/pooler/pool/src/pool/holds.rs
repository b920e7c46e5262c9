//! For how long servers have been held, for who looks from time to time. It changes nothing about who gets which
//! server.

use core::time::Duration;

use crate::{slots::ServerId, time::Time};

use super::Pool;

impl Pool {
    /// Whether a server in use is known to be kept for another reason than a transaction, until it is checked in: by
    /// its own session, or pinned to its client. [`Pool::oldest_hold`] leaves it out. Void for a server that is not in
    /// use.
    pub fn set_kept(&mut self, server: ServerId, kept: bool) {
        self.slots.set_kept(server, kept);
    }

    /// For how long the server has been in use that has been so for longest; a transaction that never ends is seen in
    /// this alone. Servers that are known to be [kept](Pool::set_kept), or were wanted [for
    /// long](crate::Wish::Lasting), do not count. O(n) in the servers.
    pub fn oldest_hold(&self, now: Time) -> Option<Duration> {
        self.slots.oldest_hold().map(|since| now - since)
    }
}
