//! What a pool does for other pools under the same limits, and what it asks of them: which server it can give up, and
//! when its waiters have waited for so long that the budget has to know. It does not know the other pools.

use crate::{
    action::Action,
    budget::Claim,
    reasons::Closed,
    slots::{ServerId, Slot, State},
    time::Time,
};

use super::{Mode, Pool};

/// A last server that was idle for this fraction of a turn is given up before the turn ends. If it were a smaller one,
/// two pools with one client each would open a connection for each request. It is also the interval between reports of
/// congestion.
const TURN_FRACTION: u64 = 16;

/// What a pool and the budget have reported to each other, beside requests for permits.
#[derive(Debug)]
pub(super) struct Sharing {
    /// What the budget has asked for in vain. It is told when there is such a server.
    sought: Option<Claim>,
    /// A server within `min_size` was given up, and no client has come since: nothing is made for `min_size` now.
    pub(super) yields_minimum: bool,
    /// When a client last got a server.
    pub(super) last_grant: Time,
    /// Since when there has always been a waiter.
    queued_since: Time,
    /// When starvation was last reported.
    starvation_reported_at: Time,
    reports_starvation: bool,
    /// When congestion was last reported.
    congestion_reported_at: Time,
    reports_congestion: bool,
}

impl Sharing {
    pub(super) fn new(now: Time) -> Self {
        Self {
            sought: None,
            yields_minimum: false,
            last_grant: now,
            queued_since: now,
            starvation_reported_at: now,
            reports_starvation: false,
            congestion_reported_at: now,
            reports_congestion: false,
        }
    }
}

impl Pool {
    // ---- what other pools get ----

    /// The budget wants one such server back. Returns true if an idle one is being closed. Otherwise,
    /// [`Action::ReportSpare`] tells when there is one to give up, and [`Pool::can_spare`] whether one that comes back
    /// will do.
    pub fn reclaim(&mut self, claim: Claim, now: Time) -> bool {
        let now = self.tick(now);
        let Some(server) = self.slots.oldest_idle().filter(|server| self.satisfies(claim, *server, now)) else {
            self.sharing.sought = self.sharing.sought.max(Some(claim));
            return false;
        };
        // What another pool lacks is not asked back before a client comes.
        self.sharing.yields_minimum |= self.slots.established() <= self.config.min_size;
        self.order_close(server, Closed::Reclaimed, now);
        self.settle(now);
        true
    }

    /// Whether this server, which is in use and about to come back, can be given up for another pool, and the budget
    /// has asked for one in vain. If so, ask [`crate::Budget::offer_returning`]; if that is true, check the server in
    /// with [`crate::CheckIn::Reclaim`].
    pub fn can_spare(&self, server: ServerId, now: Time) -> bool {
        self.sharing.sought >= Some(Claim::Spare) && self.is_spare(server, now.max(self.now))
    }

    /// Whether this idle server is one for such a claim.
    fn satisfies(&self, claim: Claim, server: ServerId, now: Time) -> bool {
        match claim {
            Claim::LongIdle => self.slots.established() > self.config.min_size && self.long_idle_from(server) <= now,
            Claim::Spare => self.is_spare(server, now),
            Claim::Kept => self.is_spare(server, now) || self.spare_from(server) <= now,
        }
    }

    /// Whether this server, idle or about to come back, can be given up for another pool: there are more than
    /// `min_size`, and either other servers of this pool come free, too, or this one has served for a turn, or it is
    /// idle.
    fn is_spare(&self, server: ServerId, now: Time) -> bool {
        self.slots.established() > self.config.min_size
            && (self.spare_from(server) <= now || self.another_comes_free(server, now))
    }

    /// When a server can be given up although no other one comes free.
    fn spare_from(&self, server: ServerId) -> Time {
        let slot = self.slots.get(server);
        let over = slot.ready_at.after(self.limits.turn);
        if slot.state == State::Idle { over.min(slot.since.after(self.limits.turn / TURN_FRACTION)) } else { over }
    }

    /// When an idle server counts as idle for long.
    fn long_idle_from(&self, server: ServerId) -> Time {
        self.slots.get(server).since.after(self.limits.long_idle)
    }

    /// Whether this pool has another server that is idle, or was not held for a whole turn: O(n). The caller asks only
    /// when another pool lacks servers.
    fn another_comes_free(&self, server: ServerId, now: Time) -> bool {
        self.slots.all().any(|(id, slot)| {
            let brief =
                matches!(slot.state, State::InUse | State::Checking) && slot.since.after(self.limits.turn) > now;
            id != server && (brief || slot.state == State::Idle)
        })
    }

    /// Tells the budget that there is an idle server such as it has asked for in vain.
    #[inline]
    pub(super) fn report_spare(&mut self, now: Time) {
        if let Some(claim) = self.sharing.sought
            && self.slots.oldest_idle().is_some_and(|server| self.satisfies(claim, server, now))
        {
            self.sharing.sought = None;
            self.actions.push_back(Action::ReportSpare);
        }
    }

    /// When there will be an idle server such as the budget seeks.
    #[inline]
    pub(super) fn spare_at(&self) -> Time {
        let Some(claim) = self.sharing.sought else { return Time::NEVER };
        let due = claim == Claim::Kept || self.slots.established() > self.config.min_size;
        let server = self.slots.oldest_idle().filter(|_| due);
        server.map_or(Time::NEVER, |server| match claim {
            Claim::LongIdle => self.long_idle_from(server),
            Claim::Spare | Claim::Kept => self.spare_from(server),
        })
    }

    // ---- what it asks of other pools ----

    /// A waiter is about to be queued.
    pub(super) fn note_wait_begins(&mut self, now: Time) {
        if self.waiters.len() == 0 && self.needing_fresh.len() == 0 {
            self.sharing.queued_since = now;
        }
    }

    /// A server came back, and a waiter gets it. If there was always a waiter for a whole turn, servers come back here,
    /// but there are too few of them: the pool reports that from time to time. A pool whose servers are all held for
    /// long never reports congestion, because servers that other pools gave up for it might be held as well. (It may
    /// get such servers all the same, by its own request.)
    #[inline]
    pub(super) fn note_congestion(&mut self, now: Time) {
        let waits = self.waiters.len() > 0 || self.needing_fresh.len() > 0;
        let since = self.sharing.queued_since.max(self.available_since);
        let again = self.sharing.congestion_reported_at.after(self.limits.turn / TURN_FRACTION);
        self.sharing.reports_congestion |=
            self.permits_wanted > 0 && waits && since.after(self.limits.turn) <= now && again <= now;
    }

    /// Notes for a report if a waiter has waited for a whole turn in which no client of this pool got a server. The
    /// report is repeated each turn, because nothing else may happen meanwhile.
    pub(super) fn note_starvation(&mut self, now: Time) {
        if self.starvation_due() <= now {
            self.sharing.starvation_reported_at = now;
            self.sharing.reports_starvation = true;
        }
    }

    /// When starvation is reported: not while a connection is being made, because that is what the waiter waits for.
    #[inline]
    pub(super) fn starvation_due(&self) -> Time {
        if self.permits_wanted == 0 || self.slots.count(State::Connecting) > 0 {
            return Time::NEVER;
        }
        self.unserved_since()
            .map_or(Time::NEVER, |since| since.max(self.sharing.starvation_reported_at).after(self.limits.turn))
    }

    /// Whether a waiter has waited for a turn in which no server came free, and none is about to: no connection is
    /// being made, no server is being checked, and none began to close within a turn, which would make room for
    /// another.
    pub fn is_stuck(&self, now: Time) -> bool {
        let comes = |slot: &Slot| match slot.state {
            State::Connecting | State::Checking => true,
            // The upstream may take long to close a connection.
            State::Closing => slot.since.after(self.limits.turn) > now,
            State::Idle | State::InUse | State::Free => false,
        };
        let since = self.unserved_since().filter(|_| self.mode == Mode::Ready);
        since.is_some_and(|since| since.max(self.available_since).after(self.limits.turn) <= now)
            && !self.slots.all().any(|(_, slot)| comes(slot))
    }

    /// Since when no waiter has got a server, if there are waiters that are not deferred.
    #[inline]
    fn unserved_since(&self) -> Option<Time> {
        let fronts = [self.waiters.front(), self.needing_fresh.front()];
        let first = fronts.into_iter().flatten().map(|waiter| waiter.since).min();
        first.map(|since| since.max(self.sharing.last_grant))
    }

    /// The report about the permits that this pool waits for, if it waits for any.
    #[inline]
    pub(super) fn poll_report(&mut self) -> Option<Action> {
        if core::mem::take(&mut self.sharing.reports_starvation) && self.permits_wanted > 0 {
            return Some(Action::ReportStarvation);
        }
        if core::mem::take(&mut self.sharing.reports_congestion) && self.permits_wanted > 0 {
            self.sharing.congestion_reported_at = self.now;
            return Some(Action::ReportCongestion);
        }
        None
    }
}
