//! What a pool does for the sake of others under the same limits, and what it may ask of them: which server it can give
//! up, and when its waiters have waited for so long that the budget has to hear of it. It does not know the others.

use crate::{
    action::Action,
    event::Closed,
    slots::{ServerId, Slot, State},
    time::Time,
};

use super::{Mode, Pool};

/// The last server is given up before its turn is over if nobody has used it for this part of a turn. Shorter, and two
/// pools with one client each would open a connection for each request. Also how often the budget hears of a pool that
/// presses.
const QUIET_PART: u64 = 16;

/// What a pool and the budget have told each other, beside wishes and permits.
#[derive(Debug)]
pub(super) struct Sharing {
    /// What the budget has asked for in vain.
    sought: Sought,
    /// When somebody last got a server.
    pub(super) served: Time,
    /// Since when somebody has waited here, if anybody does: always somebody, but not the same one.
    queued: Time,
    /// When the budget was last told that nobody got a server for long.
    insisted: Time,
    insists: bool,
    /// When the budget was last told that there are too few servers for those who wait.
    pressed: Time,
    presses: bool,
}

/// What the budget has asked for in vain, and wants to hear of when there is one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Sought {
    Nothing,
    /// A server that nobody has used for long.
    Unused,
    /// Any that can be spared, which such a one can.
    Spare,
}

impl Sharing {
    pub(super) fn new(now: Time) -> Self {
        Self {
            sought: Sought::Nothing,
            served: now,
            queued: now,
            insisted: now,
            insists: false,
            pressed: now,
            presses: false,
        }
    }
}

impl Pool {
    // ---- what others get ----

    /// The budget wants one server back. True if an idle one is being closed. False if there is none to spare; then
    /// [`Action::Spare`] tells when there is, and [`Pool::may_spare`] whether one that comes back will do.
    pub fn reclaim(&mut self, now: Time) -> bool {
        self.give_up(Sought::Spare, now)
    }

    /// The budget wants one server back, but only one that nobody has used for [`crate::UNUSED_TURNS`]. True if such a
    /// one is being closed. False if there is none; then [`Action::Spare`] tells when there may be.
    pub fn reclaim_unused(&mut self, now: Time) -> bool {
        self.give_up(Sought::Unused, now)
    }

    fn give_up(&mut self, sought: Sought, now: Time) -> bool {
        let now = self.tick(now);
        let Some(server) = self.slots.oldest_idle().filter(|server| self.is_sought(sought, *server, now)) else {
            self.sharing.sought = self.sharing.sought.max(sought);
            return false;
        };
        self.order_close(server, Closed::Reclaimed, now);
        self.settle(now);
        true
    }

    /// Whether this server, which is in use and about to come back, can be given up for another pool, and the budget
    /// has asked in vain for one. If so, ask [`crate::Budget::comes_free`]; if that is true, check it in with
    /// [`crate::CheckIn::Reclaim`].
    pub fn may_spare(&self, server: ServerId, now: Time) -> bool {
        self.sharing.sought == Sought::Spare && self.is_spare(server, now.max(self.now))
    }

    /// Whether this server, which is idle, is one that the budget would take.
    fn is_sought(&self, sought: Sought, server: ServerId, now: Time) -> bool {
        match sought {
            Sought::Nothing => false,
            Sought::Unused => self.slots.established() > self.config.min_size && self.unused_from(server) <= now,
            Sought::Spare => self.is_spare(server, now),
        }
    }

    /// Whether this server, idle or coming back, can be given up for another pool: there are more than `min_size`, and
    /// either others here come free as well, or this one has had its turn, or nobody needs it.
    fn is_spare(&self, server: ServerId, now: Time) -> bool {
        self.slots.established() > self.config.min_size
            && (self.spare_from(server) <= now || self.another_comes_free(server, now))
    }

    /// From when on a server can be given up though no other comes free.
    fn spare_from(&self, server: ServerId) -> Time {
        let slot = self.slots.get(server);
        let over = slot.ready_at.after(self.limits.turn);
        if slot.state == State::Idle { over.min(slot.since.after(self.limits.turn / QUIET_PART)) } else { over }
    }

    /// From when on an idle server counts as one that nobody uses.
    fn unused_from(&self, server: ServerId) -> Time {
        self.slots.get(server).since.after(self.limits.unused)
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

    /// Tells the budget, which asked in vain before, that there is an idle server such as it asked for.
    #[inline]
    pub(super) fn tell_spare(&mut self, now: Time) {
        let sought = self.sharing.sought;
        if sought != Sought::Nothing
            && self.slots.oldest_idle().is_some_and(|server| self.is_sought(sought, server, now))
        {
            self.sharing.sought = Sought::Nothing;
            self.actions.push_back(Action::Spare);
        }
    }

    /// When there will be an idle server such as the budget asked for.
    #[inline]
    pub(super) fn spare_at(&self) -> Time {
        let sought = self.sharing.sought;
        let due = sought != Sought::Nothing && self.slots.established() > self.config.min_size;
        let server = self.slots.oldest_idle().filter(|_| due);
        server.map_or(Time::NEVER, |server| match sought {
            Sought::Unused => self.unused_from(server),
            Sought::Nothing | Sought::Spare => self.spare_from(server),
        })
    }

    // ---- what it asks of others ----

    /// Somebody is about to wait for the next server that comes free or is made.
    pub(super) fn begins_to_wait(&mut self, now: Time) {
        if self.waiters.len() == 0 && self.demanding.len() == 0 {
            self.sharing.queued = now;
        }
    }

    /// A server came back for somebody who waited. If others still wait, and always somebody has for a whole turn, then
    /// servers come back here, but there are too few of them: the budget is told, now and then. A pool whose servers
    /// are all kept never says so, since what others gave up for it might be kept, too. (What they give up for another
    /// pool may reach it all the same, by its own wish.)
    #[inline]
    pub(super) fn press(&mut self, now: Time) {
        let waits = self.waiters.len() > 0 || self.demanding.len() > 0;
        let since = self.sharing.queued.max(self.good_since);
        let again = self.sharing.pressed.after(self.limits.turn / QUIET_PART);
        self.sharing.presses |= self.asked > 0 && waits && since.after(self.limits.turn) <= now && again <= now;
    }

    /// Tells the budget if somebody has waited for a whole turn in which nobody here got a server. Again and again,
    /// since nothing else may happen meanwhile.
    pub(super) fn insist(&mut self, now: Time) {
        if self.starves_at() <= now {
            self.sharing.insisted = now;
            self.sharing.insists = true;
        }
    }

    /// When that is so. Not while a connection is being made, which is then what is waited for.
    #[inline]
    pub(super) fn starves_at(&self) -> Time {
        if self.asked == 0 || self.slots.count(State::Connecting) > 0 {
            return Time::NEVER;
        }
        self.unserved_since().map_or(Time::NEVER, |since| since.max(self.sharing.insisted).after(self.limits.turn))
    }

    /// Whether a waiter has waited for a turn in which no server came free, and none is about to: no connection is
    /// being made, no server is in a check, and none began within a turn to close, which would make room for another.
    pub fn is_stuck(&self, now: Time) -> bool {
        let comes = |slot: &Slot| match slot.state {
            State::Connecting | State::Checking => true,
            // Its database may take long to end the session.
            State::Closing => slot.since.after(self.limits.turn) > now,
            State::Idle | State::InUse | State::Free => false,
        };
        let since = self.unserved_since().filter(|_| self.mode == Mode::Ready);
        since.is_some_and(|since| since.max(self.good_since).after(self.limits.turn) <= now)
            && !self.slots.all().any(|(_, slot)| comes(slot))
    }

    /// Since when no waiter has got a server, if there are waiters (beside those that are held back).
    #[inline]
    fn unserved_since(&self) -> Option<Time> {
        let fronts = [self.waiters.front(), self.demanding.front()];
        let first = fronts.into_iter().flatten().map(|waiter| waiter.since).min();
        first.map(|since| since.max(self.sharing.served))
    }

    /// What the budget is to be told of the wishes that it knows. If they are gone, so is the reason.
    #[inline]
    pub(super) fn plea(&mut self) -> Option<Action> {
        let (insists, presses) = (self.sharing.insists, self.sharing.presses);
        self.sharing.insists = false;
        if insists && self.asked > 0 {
            return Some(Action::Insist);
        }
        self.sharing.presses = false;
        if presses && self.asked > 0 {
            self.sharing.pressed = self.now;
            return Some(Action::Press);
        }
        None
    }
}
