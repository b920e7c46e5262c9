//! How many bytes all connections of a listener hold together, and how many of them one may hold. Listeners have equal
//! parts of what a process may hold, so that what comes to one takes nothing from the others.
//!
//! What a connection holds are bodies on their way, what its owner holds for its requests, and answers that the client
//! has not taken. A fixed share for each would be too small for the few that need much, or too much for all together.
//! So each may hold twice as much as is left then: one alone has two thirds of the room, and many that come together
//! have equal parts. Who holds more than that when others come keeps it, and gets no more.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Bytes that all connections of a process may hold; those of a listener its part, or this multiple of its largest
/// body, if that is more.
const MAX_HELD: usize = 256 * 1024 * 1024;
const MAX_BODIES: usize = 4;

/// Bytes that each connection may hold besides, whatever the others hold: they are not counted.
const FREE: usize = 64 * 1024;

/// What all connections of a listener hold.
#[derive(Debug)]
pub struct Room {
    /// Bytes, without those that are free.
    taken: AtomicUsize,
    /// The part that it has of what a process may hold.
    part: usize,
    /// Bytes that all may hold.
    most: AtomicUsize,
}

impl Room {
    /// That of one of this number of listeners.
    pub fn of_one_in(listeners: usize) -> Self {
        let part = MAX_HELD / listeners.max(1);
        Self { taken: AtomicUsize::new(0), part, most: AtomicUsize::new(part) }
    }

    /// Bytes that are held now, without the first 64 KB of each connection.
    pub fn held(&self) -> usize {
        self.taken.load(Relaxed)
    }

    /// Bytes that may be held.
    pub fn most(&self) -> usize {
        self.most.load(Relaxed)
    }

    /// The largest body here, in bytes.
    fn set_max_request(&self, bytes: usize) {
        let most = self.part.max(bytes.saturating_mul(MAX_BODIES));
        if most != self.most() {
            self.most.store(most, Relaxed);
        }
    }
}

impl Default for Room {
    fn default() -> Self {
        Self::of_one_in(1)
    }
}

/// What one connection has of it.
#[derive(Debug)]
pub(crate) struct Share {
    room: Arc<Room>,
    taken: usize,
}

impl Share {
    pub(crate) fn new(room: Arc<Room>) -> Self {
        Self { room, taken: 0 }
    }

    /// Bodies have at most so many bytes here.
    pub(crate) fn set_max_request(&self, bytes: usize) {
        self.room.set_max_request(bytes);
    }

    /// So many bytes may the connection hold now. Workers look at the same moment, so all together may hold a little
    /// more.
    pub(crate) fn limit(&self) -> usize {
        let others = self.room.held().saturating_sub(self.taken);
        FREE + self.room.most().saturating_sub(others) / 3 * 2
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
    fn listeners_have_equal_parts_and_take_nothing_from_each_other() {
        let rooms = [0; 4].map(|_| Arc::new(Room::of_one_in(4)));
        let of = |room: &Arc<Room>| (0..8).map(|_| Share::new(Arc::clone(room))).collect::<Vec<_>>();
        let (mut greedy, mut modest) = (of(&rooms[0]), of(&rooms[1]));
        let held = fill(&mut greedy);
        assert!(held <= MAX_HELD / 4 && held > MAX_HELD / 6 - STEP, "{held}");
        assert_eq!((rooms[0].held(), rooms[0].most()), (held, MAX_HELD / 4));
        assert!(modest[0].limit() > MAX_HELD / 7, "one alone has two thirds of its listener's part");
        assert_eq!(fill(&mut modest), held);
        greedy.clear();
        assert_eq!(rooms.each_ref().map(|room| room.held()), [0, held, 0, 0]);
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
        let (_, shares) = shares(1);
        shares[0].set_max_request(MAX_HELD);
        assert!(shares[0].limit() > 2 * MAX_HELD);
        shares[0].set_max_request(1);
        assert!(shares[0].limit() < MAX_HELD);
    }
}
