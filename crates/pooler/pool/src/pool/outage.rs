//! A pause after failed connects ends early when the same upstream has let in a server of another pool.

use crate::time::Time;

use super::Pool;

impl Pool {
    /// The upstream, which could not be reached, has let in a server of another pool. That ends a pause between tries,
    /// unless this pool's own last try was refused. The length of the next pause stays as it is. Returns whether this
    /// pool wants to connect because of it.
    pub fn handle_upstream_recovered(&mut self, now: Time) -> bool {
        let now = self.tick(now);
        let before = self.asked;
        if self.backoff.end_pause_early() {
            self.settle(now);
        }
        self.asked > before
    }
}
