//! The memory that all connections of a listener hold, and the share of each. Listeners have equal parts of a process's
//! memory for this, so that clients of one cannot exhaust that of another.
//!
//! A connection holds bodies that are arriving, what its owner holds for its requests, and answers that the client has
//! not read. A fixed share would be too small for the few connections that need much, or too large for all together. So
//! each may hold twice as much as it leaves free: a single connection may have two thirds, and many that arrive
//! together have equal shares. A connection that holds more than its share when others come keeps that, and gets no
//! more.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Maximum for all connections of a process, in bytes. A listener has its part of this, or `MAX_BODIES` times its
/// largest body if that is more.
const MAX_HELD_BYTES: usize = 256 * 1024 * 1024;
const MAX_BODIES: usize = 4;

/// Bytes that each connection may hold in any case: they are not counted.
const UNCOUNTED_BYTES: usize = 64 * 1024;

/// The memory of a listener's connections.
#[derive(Debug)]
pub struct MemoryBudget {
    /// Bytes that are counted.
    taken: AtomicUsize,
    /// The listener's part of the process's maximum.
    part: usize,
    /// The maximum of the listener.
    most: AtomicUsize,
}

impl MemoryBudget {
    /// The budget of one of `listeners` listeners.
    pub fn for_one_of(listeners: usize) -> Self {
        let part = MAX_HELD_BYTES / listeners.max(1);
        Self { taken: AtomicUsize::new(0), part, most: AtomicUsize::new(part) }
    }

    /// Bytes that are held, without the first 64 KB of each connection.
    pub fn held(&self) -> usize {
        self.taken.load(Relaxed)
    }

    /// Maximum number of bytes.
    pub fn most(&self) -> usize {
        self.most.load(Relaxed)
    }

    fn set_max_request(&self, bytes: usize) {
        let most = self.part.max(bytes.saturating_mul(MAX_BODIES));
        if most != self.most() {
            self.most.store(most, Relaxed);
        }
    }
}

impl Default for MemoryBudget {
    fn default() -> Self {
        Self::for_one_of(1)
    }
}

/// The share of one connection.
#[derive(Debug)]
pub(crate) struct MemoryShare {
    budget: Arc<MemoryBudget>,
    taken: usize,
}

impl MemoryShare {
    pub(crate) fn new(budget: Arc<MemoryBudget>) -> Self {
        Self { budget, taken: 0 }
    }

    /// Sets the maximum size of a body.
    pub(crate) fn set_max_request(&self, bytes: usize) {
        self.budget.set_max_request(bytes);
    }

    /// How many bytes the connection may hold now. Workers check concurrently, so the total may exceed the maximum a
    /// little.
    pub(crate) fn limit(&self) -> usize {
        let others = self.budget.held().saturating_sub(self.taken);
        UNCOUNTED_BYTES + self.budget.most().saturating_sub(others) / 3 * 2
    }

    /// Counts the bytes that the connection holds now.
    pub(crate) fn hold(&mut self, bytes: usize) {
        let taken = bytes.saturating_sub(UNCOUNTED_BYTES);
        if taken > self.taken {
            self.budget.taken.fetch_add(taken - self.taken, Relaxed);
        } else if taken < self.taken {
            self.budget.taken.fetch_sub(self.taken - taken, Relaxed);
        }
        self.taken = taken;
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.hold(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: usize = 64 * 1024;

    /// Each share takes a little in turn, until none may take more. Returns the total.
    fn fill(shares: &mut [MemoryShare]) -> usize {
        let mut grows = true;
        while std::mem::take(&mut grows) {
            for share in shares.iter_mut() {
                let next = UNCOUNTED_BYTES + share.taken + STEP;
                if next <= share.limit() {
                    share.hold(next);
                    grows = true;
                }
            }
        }
        shares.iter().map(|share| share.taken).sum()
    }

    fn shares(count: usize) -> (Arc<MemoryBudget>, Vec<MemoryShare>) {
        let budget = Arc::new(MemoryBudget::default());
        let shares = (0..count).map(|_| MemoryShare::new(Arc::clone(&budget))).collect();
        (budget, shares)
    }

    #[test]
    fn one_alone_has_two_thirds_and_many_leave_something() {
        for count in [1, 2, 8, 100] {
            let (budget, mut shares) = shares(count);
            let held = fill(&mut shares);
            assert!(held <= MAX_HELD_BYTES && held > MAX_HELD_BYTES / 3 * 2 - STEP, "{count} hold {held}");
            let parts = || shares.iter().map(|share| share.taken);
            assert!(parts().max() <= parts().min().map(|least| least + STEP), "{count} have equal parts");
            let next = MemoryShare::new(budget);
            assert!(
                next.limit() > UNCOUNTED_BYTES + MAX_HELD_BYTES / (4 * count + 2),
                "{count} leave {}",
                next.limit()
            );
        }
    }

    #[test]
    fn listeners_have_equal_parts_and_take_nothing_from_each_other() {
        let budgets = [0; 4].map(|_| Arc::new(MemoryBudget::for_one_of(4)));
        let of = |budget: &Arc<MemoryBudget>| (0..8).map(|_| MemoryShare::new(Arc::clone(budget))).collect::<Vec<_>>();
        let (mut greedy, mut modest) = (of(&budgets[0]), of(&budgets[1]));
        let held = fill(&mut greedy);
        assert!(held <= MAX_HELD_BYTES / 4 && held > MAX_HELD_BYTES / 6 - STEP, "{held}");
        assert_eq!((budgets[0].held(), budgets[0].most()), (held, MAX_HELD_BYTES / 4));
        assert!(modest[0].limit() > MAX_HELD_BYTES / 7, "one alone has two thirds of its listener's part");
        assert_eq!(fill(&mut modest), held);
        greedy.clear();
        assert_eq!(budgets.each_ref().map(|budget| budget.held()), [0, held, 0, 0]);
    }

    #[test]
    fn what_is_free_is_there_whatever_the_others_hold() {
        let (budget, mut shares) = shares(1);
        shares[0].hold(10 * MAX_HELD_BYTES);
        let mut small = MemoryShare::new(Arc::clone(&budget));
        assert_eq!(small.limit(), UNCOUNTED_BYTES);
        small.hold(UNCOUNTED_BYTES);
        assert_eq!(budget.taken.load(Relaxed), 10 * MAX_HELD_BYTES - UNCOUNTED_BYTES);
        shares.clear();
        assert_eq!(budget.taken.load(Relaxed), 0, "who goes gives all back");
        assert!(small.limit() > MAX_HELD_BYTES / 2);
    }

    #[test]
    fn where_bodies_may_be_large_there_is_room_for_some() {
        let (_, shares) = shares(1);
        shares[0].set_max_request(MAX_HELD_BYTES);
        assert!(shares[0].limit() > 2 * MAX_HELD_BYTES);
        shares[0].set_max_request(1);
        assert!(shares[0].limit() < MAX_HELD_BYTES);
    }
}
