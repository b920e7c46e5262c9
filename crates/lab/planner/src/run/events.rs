//! What will happen in a simulation, in order of time. What can no longer happen (the answer to an operation whose
//! client has given up and closed the connection) is left where it is until it is due, or until there is about as much
//! of it as of the rest: then it goes. So there is never more than twice of what could happen at a time. Knows what
//! happens as a word, not what follows from it.

use std::{cmp::Reverse, collections::BinaryHeap};

use pool::Time;

/// With fewer events than this nothing is looked for that can no longer happen.
const LEAST: usize = 1024;

/// What happens to a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum What {
    /// A login has begun, which needs a processor of the server.
    LogsIn,
    Connected,
    Refused,
    /// An operation has reached the server, which others share, or the Poolhouse in front.
    Reached,
    /// A server of the Poolhouse is done with an operation.
    Done,
    Ended,
    /// The Poolhouse has no server for an operation.
    Failed,
    Lost,
    Closed,
    /// All connections are cut.
    Cut,
    /// A connection of the Poolhouse. Its slot stands in the place of a connection's number.
    Link(Link),
}

/// What becomes of a connection of the Poolhouse in front.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Link {
    LogsIn,
    Stands,
    Refused,
    Closed,
}

/// When, its place among equals, what, to which connection, and which of those that had its number.
pub type Event = (Time, u64, What, u32, u32);

#[derive(Debug)]
pub struct Events {
    heap: BinaryHeap<Reverse<Event>>,
    sequence: u64,
    least: usize,
    /// With so many it is looked for those that can no longer happen.
    full: usize,
    most: usize,
}

impl Events {
    /// None.
    pub fn new() -> Self {
        Self::keeping(LEAST)
    }

    /// None; with fewer than so many nothing is looked for.
    pub fn keeping(least: usize) -> Self {
        Self { heap: BinaryHeap::new(), sequence: 0, least, full: least, most: 0 }
    }

    /// Something will happen then. `can_happen`: whether something still can.
    #[inline]
    pub fn push(&mut self, at: Time, what: What, conn: u32, made: u32, can_happen: impl Fn(&Event) -> bool) {
        self.sequence += 1;
        self.heap.push(Reverse((at, self.sequence, what, conn, made)));
        if self.heap.len() >= self.full {
            self.clear(can_happen);
        }
    }

    /// When something happens next, if it still can.
    #[inline]
    pub fn next(&self) -> Time {
        self.heap.peek().map_or(Time::NEVER, |Reverse((at, ..))| *at)
    }

    #[inline]
    pub fn pop(&mut self, now: Time) -> Option<Event> {
        if self.next() > now { None } else { self.heap.pop().map(|Reverse(event)| event) }
    }

    /// The most there were at a time.
    pub fn most(&self) -> usize {
        self.most.max(self.heap.len())
    }

    /// Those that can no longer happen go. As many are pushed before the next time as are left: each is looked at once
    /// or twice in all.
    #[cold]
    fn clear(&mut self, can_happen: impl Fn(&Event) -> bool) {
        self.most = self.most();
        self.heap.retain(|Reverse(event)| can_happen(event));
        self.full = (2 * self.heap.len()).max(self.least);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_no_longer_happen_takes_no_more_room_than_what_can() {
        let mut events = Events::new();
        // Of each thousand ten can happen, the latest ones.
        for n in 0..100_000_u32 {
            let now = n;
            events.push(Time(u64::MAX - 1), What::Ended, 0, n, |(.., made)| now - made < 10);
        }
        assert_eq!(events.most(), LEAST);
        // A thousand more than that can.
        for n in 0..3000_u32 {
            events.push(Time(u64::from(n)), What::Ended, 1, n, |(_, _, _, conn, _)| *conn == 1);
        }
        assert!(events.most() <= 2 * 3000, "{}", events.most());
        let order: Vec<u32> = std::iter::from_fn(|| events.pop(Time(5000))).map(|(.., made)| made).collect();
        assert_eq!(order, (0..3000).collect::<Vec<_>>(), "whoever is left comes in order");
    }

    #[test]
    fn of_equal_times_the_first_to_be_said_comes_first_whatever_went_before() {
        let mut events = Events::keeping(2);
        for n in 0..50 {
            events.push(Time(7), What::Closed, n, 1, |(_, _, _, conn, _)| conn % 2 == 0 || *conn == n);
        }
        let order: Vec<u32> = std::iter::from_fn(|| events.pop(Time(7))).map(|(_, _, _, conn, _)| conn).collect();
        let even: Vec<u32> = order.iter().copied().filter(|conn| conn % 2 == 0).collect();
        assert_eq!(even, (0..50).step_by(2).collect::<Vec<_>>());
        assert!(order.is_sorted() && order.len() < 50, "{order:?}");
        assert_eq!(events.next(), Time::NEVER);
    }
}
