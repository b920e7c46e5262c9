//! Operations that need a processor of the server for some of their time: as many have one as there are, and the others wait in the order in
//! which they came. Each keeps its processor until it needs none any more, as operations do that are shorter than the time for which a
//! system lets a process run. Knows times, no connection.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

/// What is said of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Processors {
    /// How many there are; at least 1.
    pub count: u32,
    /// For how long an operation needs one.
    pub work: Duration,
}

impl Processors {
    /// The most operations per second, and how many at once they are if each takes this long alone.
    pub fn best(&self, alone: Duration) -> (f64, u32) {
        let most = f64::from(self.count) / self.work.as_secs_f64().max(1e-9);
        (most, (most * alone.as_secs_f64()).ceil().max(1.0) as u32)
    }
}

/// See the module.
#[derive(Debug)]
pub struct Queue {
    work: u64,
    /// When each of them will be free, the first one first.
    free: BinaryHeap<Reverse<u64>>,
}

impl Queue {
    /// All of them are free.
    pub fn new(processors: Processors) -> Self {
        let free = (0..processors.count.max(1)).map(|_| Reverse(0)).collect();
        Self { work: processors.work.as_nanos() as u64, free }
    }

    /// One comes that takes `alone` nanoseconds by itself, and `more` with a processor besides; when it is done. They come in order.
    pub fn done(&mut self, now: u64, alone: u64, more: u64) -> u64 {
        let Reverse(free) = self.free.pop().expect("there is a processor");
        let needs_none = free.max(now) + self.work + more;
        self.free.push(Reverse(needs_none));
        needs_none + alone.saturating_sub(self.work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: Processors = Processors { count: 2, work: Duration::from_nanos(100) };

    #[test]
    fn as_many_as_there_are_take_as_long_as_alone_and_the_others_wait_in_order() {
        let mut queue = Queue::new(TWO);
        let done: Vec<u64> = (0..5).map(|_| queue.done(1000, 400, 0)).collect();
        assert_eq!(done, [1400, 1400, 1500, 1500, 1600]);
        assert_eq!(queue.done(5000, 400, 0), 5400, "whoever comes when all are free waits for nobody");
    }

    #[test]
    fn more_work_makes_the_next_ones_wait_and_a_shorter_operation_takes_its_work_all_the_same() {
        let mut queue = Queue::new(Processors { count: 1, ..TWO });
        assert_eq!([queue.done(0, 400, 250), queue.done(0, 400, 0), queue.done(0, 20, 0)], [650, 750, 550]);
    }

    #[test]
    fn the_most_is_what_the_processors_can_do() {
        let (most, at_once) = Processors { count: 2, work: Duration::from_micros(250) }.best(Duration::from_millis(1));
        assert_eq!((most.round(), at_once), (8000.0, 8));
    }
}
