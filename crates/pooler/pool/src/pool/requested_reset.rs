//! A reset that the caller requests of any one server, such as one in which the session has work to do that no client
//! waits for.

use crate::{action::Action, reasons::Closed, slots::State, time::Time};

use super::{Mode, Pool};

impl Pool {
    /// One server that no waiter needs is to be reset, now or as soon as there is one: it gets an [`Action::Reset`]. If
    /// the pool has no server that comes free, one is connected. If that fails, the request is dropped.
    pub fn request_reset(&mut self, now: Time) {
        let now = self.tick(now);
        if self.mode != Mode::Closed {
            self.reset_requested = true;
            self.settle(now);
        }
    }

    /// Whether a connection has to be made for a requested reset: servers that are held for long do not come free soon.
    #[inline]
    pub(super) fn needs_server_for_reset(&self) -> bool {
        self.reset_requested && self.slots.live() == self.slots.lasting()
    }

    /// Resets the server that has been idle longest, if waiters need none.
    #[cold]
    pub(super) fn reset_oldest_idle(&mut self, now: Time) {
        while self.mode == Mode::Ready
            && self.waiters.len() == 0
            && let Some(server) = self.slots.oldest_idle()
        {
            if self.slots.get(server).expires <= now {
                self.order_close(server, Closed::Life, now);
                continue;
            }
            self.reset_requested = false;
            let home = self.slots.get(server).home;
            self.slots.set_state(server, State::Checking, now);
            self.actions.push_back(Action::Reset { server, home });
            return;
        }
    }
}
