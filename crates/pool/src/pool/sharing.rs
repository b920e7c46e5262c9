//! What a pool does for the sake of others under the same limits, and what it may ask of them: which server it can give
//! up, and when its waiters have waited for so long that the budget has to hear of it. It does not know the others.

use crate::{
    action::Action,
    slots::{ServerId, State},
    time::Time,
};

use super::Pool;

/// The last server is given up before its turn is over if nobody has used it for this part of a turn. Shorter, and two pools
/// with one client each would open a connection for each request.
const QUIET_PART: u64 = 16;

impl Pool {
    /// Whether this server, idle or coming back, can be given up for another pool: there are more than `min_size`, and
    /// either others here come free as well, or this one has had its turn, or nobody needs it.
    pub(super) fn is_spare(&self, server: ServerId, now: Time) -> bool {
        self.slots.established() > self.config.min_size
            && (self.spare_from(server) <= now || self.another_comes_free(server, now))
    }

    /// From when on a server can be given up though no other comes free.
    fn spare_from(&self, server: ServerId) -> Time {
        let slot = self.slots.get(server);
        let over = slot.ready_at.after(self.limits.turn);
        if slot.state == State::Idle { over.min(slot.since.after(self.limits.turn / QUIET_PART)) } else { over }
    }

    /// Whether this pool has another server beside this one that is idle, or that nobody has kept for a whole turn:
    /// O(n), and only asked when another pool lacks servers.
    fn another_comes_free(&self, server: ServerId, now: Time) -> bool {
        self.slots.all().any(|(id, slot)| {
            let brief =
                matches!(slot.state, State::InUse | State::Checking) && slot.since.after(self.limits.turn) > now;
            id != server && (brief || slot.state == State::Idle)
        })
    }

    /// Tells the budget, which asked in vain before, that there is an idle server to spare.
    #[inline]
    pub(super) fn tell_spare(&mut self, now: Time) {
        if self.refused && self.slots.oldest_idle().is_some_and(|server| self.is_spare(server, now)) {
            self.refused = false;
            self.actions.push_back(Action::Spare);
        }
    }

    /// When there will be an idle server to spare.
    #[inline]
    pub(super) fn spare_at(&self) -> Time {
        let due = self.refused && self.slots.established() > self.config.min_size;
        let server = self.slots.oldest_idle().filter(|_| due);
        server.map_or(Time::NEVER, |server| self.spare_from(server))
    }

    /// Tells the budget if somebody has waited for a whole turn in which nobody here got a server. Again and again, since
    /// nothing else may happen meanwhile.
    pub(super) fn insist(&mut self, now: Time) {
        if self.starves_at() <= now {
            self.insisted = now;
            self.insists = true;
        }
    }

    /// When that is so. Not while a connection is being made, which is then what is waited for.
    #[inline]
    pub(super) fn starves_at(&self) -> Time {
        if self.asked == 0 || self.slots.count(State::Connecting) > 0 {
            return Time::NEVER;
        }
        let first =
            [self.waiters.front(), self.demanding.front()].into_iter().flatten().map(|waiter| waiter.since).min();
        first.map_or(Time::NEVER, |since| since.max(self.served).max(self.insisted).after(self.limits.turn))
    }
}
