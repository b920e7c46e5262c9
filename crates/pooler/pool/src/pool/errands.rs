//! What a server sees to that no client waits for: the next one that nobody needs is reset for it. What there is to be
//! done its session knows.

use crate::{action::Action, event::Closed, slots::State, time::Time};

use super::{Mode, Pool};

impl Pool {
    /// A server that nobody needs is to be reset, now or as soon as there is one. If the pool has none that comes free,
    /// one is connected; if that fails, nothing is done.
    pub fn errand(&mut self, now: Time) {
        let now = self.tick(now);
        if self.mode != Mode::Closed {
            self.errand = true;
            self.settle(now);
        }
    }

    /// Whether a connection has to be made for an errand: who keeps a server for long does not come back soon.
    #[inline]
    pub(super) fn misses_errand(&self) -> bool {
        self.errand && self.slots.live() == self.slots.lasting()
    }

    /// Sends a server that is idle.
    #[cold]
    pub(super) fn run_errand(&mut self, now: Time) {
        while self.mode == Mode::Ready
            && self.waiters.len() == 0
            && let Some(server) = self.slots.oldest_idle()
        {
            if self.slots.get(server).expires <= now {
                self.order_close(server, Closed::Life, now);
                continue;
            }
            self.errand = false;
            let home = self.slots.get(server).home;
            self.slots.set_state(server, State::Checking, now);
            self.actions.push_back(Action::Reset { server, home });
            return;
        }
    }
}
