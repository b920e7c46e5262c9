//! A pool's pause between two tries to connect ends early when a server of another pool was let in by the same
//! upstream.

use crate::time::Time;

use super::Pool;

impl Pool {
    /// The upstream that could not be reached has let another pool's server in: a pause ends, unless this pool was
    /// refused for itself. How long the next one may be stays. Returns whether this pool wants to connect on that
    /// account.
    pub fn upstream_is_back(&mut self, now: Time) -> bool {
        let now = self.tick(now);
        let before = self.asked;
        if !self.failures.refused && !self.failures.unknown && self.failures.retry_at.take().is_some() {
            self.settle(now);
        }
        self.asked > before
    }
}
