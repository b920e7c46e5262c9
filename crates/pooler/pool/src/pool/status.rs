//! What can be asked about a pool.

use core::time::Duration;

use crate::{
    action::Counts,
    config::PoolConfig,
    slots::{ServerId, State},
    time::Time,
    waiters::Waiters,
};

use super::{Mode, Pool};

impl Pool {
    /// Whether the pool is paused.
    pub fn is_paused(&self) -> bool {
        matches!(self.mode, Mode::Paused(_))
    }

    /// Whether the pool is closed.
    pub fn is_closed(&self) -> bool {
        self.mode == Mode::Closed
    }

    /// Whether a server was ordered to close and is not reported closed; `None` if it is gone. Where actions can
    /// overtake each other on their way, it tells which of them are void.
    pub fn is_closing(&self, server: ServerId) -> Option<bool> {
        self.slots.find(server).map(|slot| slot.state == State::Closing)
    }

    /// Whether a server is being checked or reset.
    pub fn is_checking(&self, server: ServerId) -> bool {
        self.slots.find(server).is_some_and(|slot| slot.state == State::Checking)
    }

    pub fn config(&self) -> &PoolConfig {
        &self.config
    }

    /// The number of times that the pool was cleared.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// How many servers a clear has made stale that are not gone yet: O(n).
    pub fn stale_servers(&self) -> u32 {
        self.slots.all().filter(|(_, slot)| slot.pool_generation != self.generation).count() as u32
    }

    /// Since when connects have been failing; `None` if they succeed, or a server works in spite of that.
    pub fn unavailable_since(&self) -> Option<Time> {
        let usable = self.slots.count(State::Idle) + self.slots.count(State::InUse);
        self.backoff.failing_since().filter(|_| usable == 0)
    }

    /// Whether connects fail, although earlier servers may work.
    pub fn is_connect_failing(&self) -> bool {
        self.backoff.failing_since().is_some()
    }

    /// How long the first waiter has been waiting.
    pub fn oldest_wait(&self, now: Time) -> Option<Duration> {
        let first = |waiters: &Waiters| waiters.front().map(|waiter| now - waiter.since);
        first(&self.waiters).max(first(&self.deferred)).max(first(&self.needing_fresh))
    }

    /// How many servers are in which state, and how many waiters there are.
    pub fn counts(&self) -> Counts {
        Counts {
            connecting: self.slots.count(State::Connecting),
            idle: self.slots.count(State::Idle),
            in_use: self.slots.count(State::InUse),
            checking: self.slots.count(State::Checking),
            closing: self.slots.count(State::Closing),
            waiters: self.waiting(),
            deferred: self.deferred.len(),
            total: self.slots.total(),
        }
    }
}
