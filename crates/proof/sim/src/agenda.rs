//! Virtual time: what will happen, in order. The clock jumps from one event to the next. It knows nothing of what
//! the events mean.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use pool::Time;

use crate::random::Rng;

/// More events than this pending at a time means that a world feeds itself.
pub const MAX_PENDING: usize = 1 << 20;

struct Entry<E> {
    at: Time,
    /// Order among events of the same moment: random, so that no order is taken for granted.
    lot: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.lot) == (other.at, other.lot)
    }
}
impl<E> Eq for Entry<E> {}
impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.lot).cmp(&(other.at, other.lot))
    }
}

/// The clock and the events to come.
pub struct Agenda<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    now: Time,
    lots: Rng,
}

impl<E> Agenda<E> {
    /// An empty agenda at time zero; `seed` decides the order of simultaneous events.
    pub fn new(seed: u64) -> Self {
        Self { heap: BinaryHeap::new(), now: Time(0), lots: Rng::new(seed) }
    }

    pub fn now(&self) -> Time {
        self.now
    }

    /// Something that happens `after` from now.
    pub fn after(&mut self, after: Duration, event: E) {
        self.at(self.now + after, event);
    }

    /// Something that happens at a moment; the past counts as now.
    pub fn at(&mut self, at: Time, event: E) {
        assert!(self.heap.len() < MAX_PENDING, "the agenda overflows: a world feeds itself");
        let lot = self.lots.next();
        self.heap.push(Reverse(Entry { at: at.max(self.now), lot, event }));
    }

    /// When the next event is due.
    pub fn next_at(&self) -> Option<Time> {
        self.heap.peek().map(|e| e.0.at)
    }

    /// Takes the next event and sets the clock to it.
    pub fn pop(&mut self) -> Option<E> {
        let Reverse(entry) = self.heap.pop()?;
        self.now = entry.at;
        Some(entry.event)
    }

    /// Moves the clock on to `to` without an event. It must not jump over one, nor go back.
    pub fn advance(&mut self, to: Time) {
        assert!(to >= self.now && self.next_at().is_none_or(|at| at >= to), "time neither jumps nor goes back");
        self.now = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_of_time() {
        let mut agenda = Agenda::new(1);
        agenda.after(Duration::from_nanos(9), 'b');
        agenda.after(Duration::from_nanos(3), 'a');
        assert_eq!((agenda.pop(), agenda.now()), (Some('a'), Time(3)));
        agenda.at(Time(1), 'c');
        assert_eq!((agenda.pop(), agenda.now()), (Some('c'), Time(3)), "the past counts as now");
        assert_eq!(agenda.pop(), Some('b'));
        assert_eq!(agenda.pop(), None);
    }
}
