//! How many bytes all connections hold together, and how many of them one may hold.
//!
//! What a connection holds are bodies on their way, what its owner holds for its requests, and answers that the client has not taken. A
//! fixed share for each would be too small for the few that need much, or too much for all together. So each may hold twice as much as is
//! left then: one alone has two thirds of the room, and many that come together have equal parts. Who holds more than that when others come
//! keeps it, and gets no more.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Bytes that all connections may hold. Or so many times the largest body, if that is more.
const MAX_HELD: usize = 256 * 1024 * 1024;
const MAX_BODIES: usize = 4;

/// Bytes that each connection may hold besides, whatever the others hold: they are not counted.
const FREE: usize = 64 * 1024;

/// What all connections of a process hold.
#[derive(Default, Debug)]
pub struct Room {
    /// Bytes, without those that are free.
    taken: AtomicUsize,
}

/// What one connection has of it.
#[derive(Debug)]
pub(crate) struct Share {
    room: Arc<Room>,
    taken: usize,
    /// Bytes that all may hold.
    most: usize,
}

impl Share {
    pub(crate) fn new(room: Arc<Room>) -> Self {
        Self { room, taken: 0, most: MAX_HELD }
    }

    /// Bodies have at most so many bytes here.
    pub(crate) fn set_max_request(&mut self, bytes: usize) {
        self.most = MAX_HELD.max(bytes.saturating_mul(MAX_BODIES));
    }

    /// So many bytes may the connection hold now. Workers look at the same moment, so all together may hold a little more.
    pub(crate) fn limit(&self) -> usize {
        let others = self.room.taken.load(Relaxed).saturating_sub(self.taken);
        FREE + self.most.saturating_sub(others) / 3 * 2
    }

    /// So many does it hold now.
    pub(crate) fn hold(&mut self, bytes: usize) {
        let taken = bytes.saturating_sub(FREE);
        if taken > self.taken {
            self.room.taken.fetch_add(taken - self.taken, Relaxed);
        } else if taken < self.taken {
            self.room.taken.fetch_sub(self.taken - taken, Relaxed);
        }
        self.taken = taken;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.hold(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: usize = 64 * 1024;

    /// Has each of them take a little in turn, until nobody may take more.
    fn fill(shares: &mut [Share]) -> usize {
        let mut grows = true;
        while std::mem::take(&mut grows) {
            for share in shares.iter_mut() {
                let next = FREE + share.taken + STEP;
                if next <= share.limit() {
                    share.hold(next);
                    grows = true;
                }
            }
        }
        shares.iter().map(|share| share.taken).sum()
    }

    fn shares(count: usize) -> (Arc<Room>, Vec<Share>) {
        let room = Arc::new(Room::default());
        let shares = (0..count).map(|_| Share::new(Arc::clone(&room))).collect();
        (room, shares)
    }

    #[test]
    fn one_alone_has_two_thirds_and_many_leave_something() {
        for count in [1, 2, 8, 100] {
            let (room, mut shares) = shares(count);
            let held = fill(&mut shares);
            assert!(held <= MAX_HELD && held > MAX_HELD / 3 * 2 - STEP, "{count} hold {held}");
            let parts = || shares.iter().map(|share| share.taken);
            assert!(parts().max() <= parts().min().map(|least| least + STEP), "{count} have equal parts");
            let next = Share::new(room);
            assert!(next.limit() > FREE + MAX_HELD / (4 * count + 2), "{count} leave {}", next.limit());
        }
    }

    #[test]
    fn what_is_free_is_there_whatever_the_others_hold() {
        let (room, mut shares) = shares(1);
        shares[0].hold(10 * MAX_HELD);
        let mut small = Share::new(Arc::clone(&room));
        assert_eq!(small.limit(), FREE);
        small.hold(FREE);
        assert_eq!(room.taken.load(Relaxed), 10 * MAX_HELD - FREE);
        shares.clear();
        assert_eq!(room.taken.load(Relaxed), 0, "who goes gives all back");
        assert!(small.limit() > MAX_HELD / 2);
    }

    #[test]
    fn where_bodies_may_be_large_there_is_room_for_some() {
        let (_, mut shares) = shares(1);
        shares[0].set_max_request(MAX_HELD);
        assert!(shares[0].limit() > 2 * MAX_HELD);
        shares[0].set_max_request(1);
        assert!(shares[0].limit() < MAX_HELD);
    }
}
