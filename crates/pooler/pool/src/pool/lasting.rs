//! Servers that clients hold without a time limit ([`crate::Need::Lasting`]): how many there may be, and which client
//! gives one back when the pool has become too small for all of them.

use alloc::vec::Vec;

use crate::{action::Action, slots::ServerId, time::Time};

use super::{Mode, Pool};

/// Nanoseconds after which a client that was asked to give its server back is asked again.
const RETURN_REQUEST_INTERVAL: u64 = 5_000_000_000;

impl Pool {
    /// The number of servers that the pool can have under limits that it shares with other pools, if the other pools
    /// have none; `u32::MAX`: any number. Lasting clients have one less. It takes effect with the next call, which may
    /// be [`Pool::handle_timeout`].
    pub fn set_shared_limit(&mut self, limit: u32) {
        self.shared_limit = limit;
    }

    /// The number of servers that the pool can have.
    fn max_servers(&self) -> u32 {
        self.limits.max_size.min(self.shared_limit)
    }

    /// Whether one more client may have a server without a time limit, or wait for one.
    pub(super) fn admits_lasting(&self) -> bool {
        self.slots.lasting() + self.waiters.lasting() < self.max_servers().saturating_sub(1).max(1)
    }

    /// Moves deferred waiters to the queue, as far as they may have servers now. Their wait begins again.
    #[inline]
    pub(super) fn admit_deferred(&mut self, now: Time) {
        while self.deferred.len() > 0 && self.admits_lasting() {
            let waiter = self.deferred.pop_front().expect("a waiter, just seen");
            self.note_wait_begins(now);
            self.waiters.push(waiter.id, waiter.home, true, now);
        }
    }

    /// How many lasting servers must be given back: the pool has become smaller, lasting clients hold all of it, and a
    /// client waits that would not hold a server for long.
    #[inline]
    fn excess(&self) -> u32 {
        let lasting = self.slots.lasting();
        if lasting == 0 || self.slots.live() != lasting || self.waiters.len() == self.waiters.lasting() {
            return 0;
        }
        // The only server of a pool may be lasting.
        let fits = self.mode != Mode::Ready || self.limits.max_size == 1;
        if fits { 0 } else { lasting.saturating_sub(self.max_servers().saturating_sub(1)) }
    }

    /// Requests the return of lasting servers, if there are too many of them. Each has been held for a turn at least.
    #[inline]
    pub(super) fn request_excess_returns(&mut self, now: Time) {
        let excess = self.excess();
        if excess > 0 {
            self.request_returns(excess, now);
        }
    }

    #[cold]
    fn request_returns(&mut self, excess: u32, now: Time) {
        for (server, due) in self.servers_to_request(excess, now) {
            if due <= now {
                let slot = self.slots.get_mut(server);
                slot.return_requested_at = Some(now);
                let home = slot.home;
                self.actions.push_back(Action::RequestReturn { server, home });
            }
        }
    }

    /// When the next client is to be asked.
    #[inline]
    pub(super) fn next_return_request(&self) -> Time {
        match self.excess() {
            0 => Time::NEVER,
            excess => {
                let due = self.servers_to_request(excess, self.now).into_iter().map(|(_, due)| due).min();
                due.unwrap_or(Time::NEVER).min(self.next_repetition())
            }
        }
    }

    /// The servers whose clients are to be asked beside those that were, and when: first those that were held for
    /// longest, and last those that are known to be held for another reason than a request.
    fn servers_to_request(&self, excess: u32, now: Time) -> Vec<(ServerId, Time)> {
        let (requested, mut others): (Vec<_>, Vec<_>) = self
            .slots
            .all_lasting()
            .partition(|(_, slot)| slot.return_requested_at.is_some_and(|at| at.after(RETURN_REQUEST_INTERVAL) > now));
        others.sort_by_key(|(_, slot)| (slot.pinned, slot.since));
        let missing = (excess as usize).saturating_sub(requested.len());
        others.into_iter().take(missing).map(|(server, slot)| (server, slot.since.after(self.limits.turn))).collect()
    }

    /// When the first client is asked again.
    fn next_repetition(&self) -> Time {
        let due = self
            .slots
            .all_lasting()
            .filter_map(|(_, slot)| slot.return_requested_at)
            .map(|at| at.after(RETURN_REQUEST_INTERVAL));
        due.filter(|at| *at > self.now).min().unwrap_or(Time::NEVER)
    }
}
