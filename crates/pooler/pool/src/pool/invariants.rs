//! Checks the whole state of a pool, for tests and the simulator, after each step.

use crate::{slots::State, time::Time};

use super::{Mode, Pool};

impl Pool {
    /// Checks the whole state: O(n). It may be called between any two calls.
    ///
    /// # Panics
    /// If the state is inconsistent.
    pub fn check_invariants(&self) {
        self.slots.check_invariants();
        self.waiters.check_invariants();
        self.deferred.check_invariants();
        self.needing_fresh.check_invariants();
        assert!(
            self.deferred.len() == 0 || !self.admits_lasting(),
            "a waiter is deferred although it may have a server"
        );
        self.check_sizes();
        self.check_waiters_are_served();
        for (server, slot) in self.slots.all() {
            let current = slot.pool_generation == self.generation;
            match slot.state {
                State::Connecting | State::Idle | State::Checking => {
                    assert!(current, "{server:?} is stale but neither in use nor closing");
                    assert!(self.mode != Mode::Closed, "{server:?} outlives the pool's close");
                }
                State::InUse | State::Closing | State::Free => {}
            }
            assert!(!slot.interrupted || slot.state == State::InUse, "{server:?} is to be interrupted but not in use");
            assert!(slot.since <= self.now, "{server:?} is in a state from the future");
            if matches!(slot.state, State::Idle | State::Checking | State::InUse) {
                let seen = slot.expires <= self.now || slot.expires >= self.next_expiry;
                assert!(seen, "the end of {server:?}'s life would be missed");
            }
        }
    }

    fn check_sizes(&self) {
        let total = self.slots.total();
        assert!(total <= self.ceiling, "{total} servers, of at most {}", self.ceiling);
        assert!(self.waiting() == 0 || self.mode != Mode::Closed, "a waiter waits for a closed pool");
        assert_eq!(self.permits_wanted, self.wanted(), "other connections are asked for than are wanted");
        let connecting = self.slots.count(State::Connecting);
        assert!(
            connecting + self.permits_wanted <= self.config.max_connecting.max(connecting),
            "{connecting} are connecting, {} more are asked for",
            self.permits_wanted
        );
        assert!(
            self.permits_wanted == 0 || total + self.permits_wanted <= self.size_with_reserve(),
            "{total} servers and {} asked for, of at most {}",
            self.permits_wanted,
            self.limits.max_size
        );
    }

    /// In a pool that is ready, a server must be on its way to each waiter.
    fn check_waiters_are_served(&self) {
        let wanting = self.waiters.len() + self.needing_fresh.len();
        if self.mode != Mode::Ready || wanting == 0 {
            return;
        }
        assert!(
            !self.needs_slot_for_fresh(Time(0)) || self.slots.count(State::Idle) == 0,
            "a waiter needs room that an idle server takes: {:?}",
            self.counts()
        );
        let coming = self.slots.count(State::Connecting) + self.slots.count(State::Checking);
        assert!(
            self.slots.count(State::Idle) == 0 || coming >= self.waiters.len(),
            "a waiter waits beside an idle server: {:?}",
            self.counts()
        );
        let hope = self.slots.total() + self.permits_wanted > 0 || self.backoff.is_pausing();
        assert!(hope, "no server will come for a waiter: {:?}", self.counts());
        let room = self.slots.total() < self.limits.max_size
            && self.slots.count(State::Connecting) < self.config.max_connecting;
        let overdue =
            self.waiters.nth(self.covered_waiters()).map(|waiter| waiter.since.after(self.limits.reserve_wait));
        assert!(
            overdue.is_none_or(|due| due > self.settled_at)
                || self.slots.total() >= self.size_with_reserve()
                || self.slots.count(State::Connecting) >= self.config.max_connecting
                || self.permits_wanted > 0
                || self.backoff.is_pausing()
                || self.limits.reserve == 0,
            "the reserve has room for an overdue waiter, and no connection is asked for"
        );
        assert!(
            coming + self.permits_wanted >= wanting || !room || self.permits_wanted > 0 || self.backoff.is_pausing(),
            "there is room for a connection that a waiter needs, but none is asked for"
        );
    }
}
