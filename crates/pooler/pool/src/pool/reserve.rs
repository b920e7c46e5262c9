//! The reserve: servers above `max_size`, for waiters that have waited for `reserve_wait_time`. A server of the reserve
//! is one like the others; the pool closes servers until it has `max_size` again, as soon as one is idle for that time.

use crate::{slots::State, time::Time};

use super::{Mode, Pool};

/// The most connections above `max_size` that are asked for at a time. It bounds the search for overdue waiters.
const MAX_RESERVE_REQUESTS: u32 = 16;

impl Pool {
    /// The most servers that the pool may have, the reserve included.
    pub(super) fn size_with_reserve(&self) -> u32 {
        self.limits.max_size.saturating_add(self.limits.reserve)
    }

    /// How many connections may be made beyond `max_size` for waiters that have waited for long. `covered`: waiters for
    /// which a server is on its way. `free`: connections that may be made within `max_size`.
    #[inline]
    pub(super) fn wanted_of_reserve(&self, covered: u32, free: u32) -> u32 {
        if self.limits.reserve == 0 || self.waiters.len() <= covered.saturating_add(free) {
            return 0;
        }
        let above = self.slots.total().saturating_sub(self.limits.max_size);
        let left = self.limits.reserve.saturating_sub(above).min(MAX_RESERVE_REQUESTS);
        let from = covered.saturating_add(free);
        (from..from.saturating_add(left)).take_while(|n| self.overdue_at(*n) <= self.settled_at).count() as u32
    }

    /// When the next waiter will have waited for so long that the reserve is for it, if the reserve has a server left.
    #[inline]
    pub(super) fn reserve_due(&self) -> Time {
        if self.limits.reserve == 0 || self.mode != Mode::Ready || self.slots.total() >= self.size_with_reserve() {
            return Time::NEVER;
        }
        let covered = self.covered_waiters();
        let next = (covered..covered.saturating_add(MAX_RESERVE_REQUESTS)).map(|n| self.overdue_at(n));
        next.into_iter().find(|due| *due > self.settled_at).unwrap_or(Time::NEVER)
    }

    /// How many waiters there are for which a server is being made or checked.
    pub(super) fn covered_waiters(&self) -> u32 {
        let connecting = self.slots.count(State::Connecting).saturating_sub(self.needing_fresh.len());
        connecting + self.slots.count(State::Checking)
    }

    /// When the waiter at this place will have waited for `reserve_wait_time`; [`Time::NEVER`] without one.
    fn overdue_at(&self, place: u32) -> Time {
        self.waiters.nth(place).map_or(Time::NEVER, |waiter| waiter.since.after(self.limits.reserve_wait))
    }

    /// After how many nanoseconds without use a server is closed: sooner while there are more than `max_size`.
    #[inline]
    pub(super) fn idle_limit(&self) -> u64 {
        let above = self.limits.reserve > 0 && self.slots.live() > self.limits.max_size;
        if above { self.limits.idle.min(self.limits.reserve_wait) } else { self.limits.idle }
    }
}
