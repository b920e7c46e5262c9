//! Operations that need a processor of the server for some of their time: as many have one as there are, and the others
//! wait in the order in which they came. Each keeps its processor until it needs none any more, as operations do that
//! are shorter than the time for which a system lets a process run. Knows times, no connection.
//!
//! What is said is the mean of that time, and it is part of the operation's own: alone on the server an operation takes
//! as long as was drawn for it, and its beginning is the part that needs a processor. All need one for equally long,
//! but for those that are over before: the length is the one with which the mean is kept, so that a mean of 0.8 ms of
//! operations of 1 ms that are exponentially distributed is 1.61 ms, which 20% of them reach. What makes a few
//! operations long is so taken to be anything but work (locks, disks, the network), unless all of the time is work. A
//! measurement by bursts (`bench/prediction.py`) tells the mean alone: of a crowd each waits for the work of those
//! before it, whatever the share of each.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use super::times::Times;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Processors {
    /// How many there are; at least 1.
    pub count: u32,
    /// For how long an operation needs one, on average.
    pub work: Duration,
}

impl Processors {
    /// The highest throughput in operations per second, and the concurrency it takes if each takes `alone` by itself.
    pub fn best(&self, alone: Duration) -> (f64, u32) {
        let most = f64::from(self.count) / self.work.as_secs_f64().max(1e-9);
        (most, (most * alone.as_secs_f64()).ceil().max(1.0) as u32)
    }
}

#[derive(Debug)]
pub struct Queue {
    /// The longest processor time of an operation, in nanoseconds.
    most: u64,
    /// When each processor becomes free, earliest first.
    free: BinaryHeap<Reverse<u64>>,
}

impl Queue {
    /// Idle processors. `service`: the service times of operations that run alone.
    pub fn new(processors: Processors, service: &Times) -> Self {
        let free = (0..processors.count.max(1)).map(|_| Reverse(0)).collect();
        Self { most: service.cut_to(processors.work).round() as u64, free }
    }

    /// When an operation ends that arrives now, takes `alone` nanoseconds by itself and `more` nanoseconds of processor
    /// time besides. Calls are in order of time.
    pub fn done(&mut self, now: u64, alone: u64, more: u64) -> u64 {
        let waits = self.take(now, alone.min(self.most) + more);
        now + waits + alone + more
    }

    /// Occupies a processor for `work` nanoseconds. Returns the wait before, in nanoseconds. Calls are in order of
    /// time.
    pub fn take(&mut self, now: u64, work: u64) -> u64 {
        let Reverse(free) = self.free.pop().expect("there is a processor");
        let begins = free.max(now);
        self.free.push(Reverse(begins + work));
        begins - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrivals::Random;

    const TWO: Processors = Processors { count: 2, work: Duration::from_nanos(100) };
    const ALONE: Times = Times::Constant(Duration::from_nanos(400));

    #[test]
    fn as_many_as_there_are_take_as_long_as_alone_and_the_others_wait_in_order() {
        let mut queue = Queue::new(TWO, &ALONE);
        let done: Vec<u64> = (0..5).map(|_| queue.done(1000, 400, 0)).collect();
        assert_eq!(done, [1400, 1400, 1500, 1500, 1600]);
        assert_eq!(queue.done(5000, 400, 0), 5400, "whoever comes when all are free waits for nobody");
    }

    #[test]
    fn more_work_makes_the_next_ones_wait_and_a_shorter_operation_is_over_when_it_was_to_be() {
        let mut queue = Queue::new(Processors { count: 1, ..TWO }, &ALONE);
        assert_eq!([queue.done(0, 400, 250), queue.done(0, 400, 0), queue.done(0, 20, 0)], [650, 750, 470]);
    }

    #[test]
    fn an_operation_alone_takes_as_long_as_was_said_and_needs_a_processor_for_as_long_as_was_said() {
        let (ms, work) = (Duration::from_millis(1), Duration::from_micros(800));
        let long = Times::lognormal(ms, Duration::from_millis(5)).unwrap();
        for service in [Times::Constant(ms), Times::Exponential(ms), long] {
            let mut random = Random::new(3);
            let drawn: Vec<u64> = (0..200_000).map(|_| service.draw(&mut random) as u64).collect();
            let mean = |sum: u64| sum as f64 / drawn.len() as f64 / 1e6;
            // An hour apart they are alone.
            let mut queue = Queue::new(Processors { count: 2, work }, &service);
            let hours = (0..).map(|n: u64| n * 3_600_000_000_000);
            let taken: u64 = drawn.iter().zip(hours).map(|(alone, now)| queue.done(now, *alone, 0) - now).sum();
            assert!((mean(taken) - 1.0).abs() < 0.02, "{service:?}: {}", mean(taken));
            // All at once, one processor is busy for as long as all of them need one.
            let mut queue = Queue::new(Processors { count: 1, work }, &service);
            drawn.iter().for_each(|alone| _ = queue.done(0, *alone, 0));
            let busy = queue.free.peek().map_or(0, |Reverse(free)| *free);
            assert!((mean(busy) - 0.8).abs() < 0.01, "{service:?}: {}", mean(busy));
        }
    }

    #[test]
    fn the_most_is_what_the_processors_can_do() {
        let (most, at_once) = Processors { count: 2, work: Duration::from_micros(250) }.best(Duration::from_millis(1));
        assert_eq!((most.round(), at_once), (8000.0, 8));
    }
}
