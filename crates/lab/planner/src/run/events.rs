//! The event queue of a simulation, ordered by time. A stale event (the answer to an operation whose client has given
//! up and closed the connection) stays in the queue until it is due, or until about half of the queue is stale: then
//! all stale events are removed. The queue therefore never holds more than twice as many events as are live.

use std::{cmp::Reverse, collections::BinaryHeap};

use pool::Time;

/// Stale events are not removed while the queue is shorter than this.
const MIN_PURGE_LEN: usize = 1024;

/// The kind of an event of one connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum EventKind {
    /// A login reaches the server and needs one of its processors.
    LoginStarts,
    Connected,
    Refused,
    /// An operation arrives at the shared server, or at the Poolhouse in front.
    Arrived,
    /// The database has served an operation that came through the Poolhouse.
    Served,
    /// The answer to an operation arrives at the client.
    Answered,
    /// The Poolhouse rejects an operation for want of a server connection.
    Rejected,
    Lost,
    Closed,
    /// A network fault ends all connections.
    AllCut,
    /// An event of a connection between the Poolhouse and the database, which is identified by its slot.
    Upstream(UpstreamEvent),
}

/// The kind of an event of a connection between the Poolhouse in front and the database.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum UpstreamEvent {
    LoginStarts,
    Established,
    Refused,
    Closed,
}

/// Time, sequence number (orders events of equal time), kind, connection, and generation of the connection, which tells
/// it from earlier connections with the same number.
pub type Event = (Time, u64, EventKind, u32, u32);

#[derive(Debug)]
pub struct Events {
    heap: BinaryHeap<Reverse<Event>>,
    sequence: u64,
    min_purge_len: usize,
    /// The length at which stale events are removed next.
    purge_len: usize,
    max_len: usize,
}

impl Events {
    pub fn new() -> Self {
        Self::with_min_purge_len(MIN_PURGE_LEN)
    }

    pub fn with_min_purge_len(min_purge_len: usize) -> Self {
        Self { heap: BinaryHeap::new(), sequence: 0, min_purge_len, purge_len: min_purge_len, max_len: 0 }
    }

    /// Schedules an event. `is_live` tells whether an event is still relevant.
    #[inline]
    pub fn push(&mut self, at: Time, kind: EventKind, conn: u32, generation: u32, is_live: impl Fn(&Event) -> bool) {
        self.sequence += 1;
        self.heap.push(Reverse((at, self.sequence, kind, conn, generation)));
        if self.heap.len() >= self.purge_len {
            self.remove_stale(is_live);
        }
    }

    /// The time of the next event, which may be stale.
    #[inline]
    pub fn next_time(&self) -> Time {
        self.heap.peek().map_or(Time::NEVER, |Reverse((at, ..))| *at)
    }

    #[inline]
    pub fn pop(&mut self, now: Time) -> Option<Event> {
        if self.next_time() > now { None } else { self.heap.pop().map(|Reverse(event)| event) }
    }

    /// The greatest length of the queue so far.
    pub fn max_len(&self) -> usize {
        self.max_len.max(self.heap.len())
    }

    /// Removes stale events. At least as many events as remain are pushed before the next removal, so an event is
    /// examined once or twice on average.
    #[cold]
    fn remove_stale(&mut self, is_live: impl Fn(&Event) -> bool) {
        self.max_len = self.max_len();
        self.heap.retain(|Reverse(event)| is_live(event));
        self.purge_len = (2 * self.heap.len()).max(self.min_purge_len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_events_take_no_more_room_than_live_ones() {
        let mut events = Events::new();
        // Only the ten latest events are live.
        for n in 0..100_000_u32 {
            let now = n;
            events.push(Time(u64::MAX - 1), EventKind::Answered, 0, n, |(.., generation)| now - generation < 10);
        }
        assert_eq!(events.max_len(), MIN_PURGE_LEN);
        // All of these are live.
        for n in 0..3000_u32 {
            events.push(Time(u64::from(n)), EventKind::Answered, 1, n, |(_, _, _, conn, _)| *conn == 1);
        }
        assert!(events.max_len() <= 2 * 3000, "{}", events.max_len());
        let order: Vec<u32> =
            std::iter::from_fn(|| events.pop(Time(5000))).map(|(.., generation)| generation).collect();
        assert_eq!(order, (0..3000).collect::<Vec<_>>(), "live events come in order");
    }

    #[test]
    fn events_of_equal_time_come_in_the_order_of_scheduling() {
        let mut events = Events::with_min_purge_len(2);
        for n in 0..50 {
            events.push(Time(7), EventKind::Closed, n, 1, |(_, _, _, conn, _)| conn % 2 == 0 || *conn == n);
        }
        let order: Vec<u32> = std::iter::from_fn(|| events.pop(Time(7))).map(|(_, _, _, conn, _)| conn).collect();
        let even: Vec<u32> = order.iter().copied().filter(|conn| conn % 2 == 0).collect();
        assert_eq!(even, (0..50).step_by(2).collect::<Vec<_>>());
        assert!(order.is_sorted() && order.len() < 50, "{order:?}");
        assert_eq!(events.next_time(), Time::NEVER);
    }
}
