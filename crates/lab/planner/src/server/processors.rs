//! A queue for the server's processors: an operation needs one for part of its time, and waits in order of arrival if
//! all are busy. It keeps its processor until it needs none any more, like operations that are shorter than a time
//! slice.
//!
//! The configured processor time is a mean and part of the service time: the beginning of an operation needs a
//! processor, and an operation that runs alone takes as long as was drawn for it. All operations need a processor for
//! equally long, except for shorter ones. That length is the one with the given mean: for a mean of 0.8 ms of
//! exponentially distributed operations of 1 ms it is 1.61 ms, which 20% of them reach. So what makes a few operations
//! long is not work (but locks, disks, the network), unless all of the time is work. A measurement by bursts
//! (`bench/prediction.py`) gives only the mean, because each operation waits for the work of the operations before it,
//! whatever the share of each.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use super::times::Times;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Processors {
    /// At least 1.
    pub count: u32,
    /// Mean time for which an operation needs a processor.
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
    max_work_ns: u64,
    /// When each processor becomes free, earliest first.
    free: BinaryHeap<Reverse<u64>>,
}

impl Queue {
    /// Idle processors. `service`: the service times of operations that run alone.
    pub fn new(processors: Processors, service: &Times) -> Self {
        let free = (0..processors.count.max(1)).map(|_| Reverse(0)).collect();
        Self { max_work_ns: service.bound_for_mean(processors.work).round() as u64, free }
    }

    /// When an operation ends that arrives now, takes `alone` nanoseconds by itself and `more` nanoseconds of processor
    /// time besides. Calls are in order of time.
    pub fn serve(&mut self, now: u64, alone: u64, more: u64) -> u64 {
        let waits = self.occupy(now, alone.min(self.max_work_ns) + more);
        now + waits + alone + more
    }

    /// Occupies a processor for `work` nanoseconds. Returns the wait before, in nanoseconds. Calls are in order of
    /// time.
    pub fn occupy(&mut self, now: u64, work: u64) -> u64 {
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
    fn operations_beyond_the_processors_wait_in_order() {
        let mut queue = Queue::new(TWO, &ALONE);
        let done: Vec<u64> = (0..5).map(|_| queue.serve(1000, 400, 0)).collect();
        assert_eq!(done, [1400, 1400, 1500, 1500, 1600]);
        assert_eq!(queue.serve(5000, 400, 0), 5400, "an operation that finds a free processor does not wait");
    }

    #[test]
    fn extra_work_delays_later_operations_and_a_shorter_one_needs_less() {
        let mut queue = Queue::new(Processors { count: 1, ..TWO }, &ALONE);
        assert_eq!([queue.serve(0, 400, 250), queue.serve(0, 400, 0), queue.serve(0, 20, 0)], [650, 750, 470]);
    }

    #[test]
    fn an_operation_alone_takes_its_drawn_time_and_the_mean_work_is_kept() {
        let (ms, work) = (Duration::from_millis(1), Duration::from_micros(800));
        let long = Times::lognormal(ms, Duration::from_millis(5)).unwrap();
        for service in [Times::Constant(ms), Times::Exponential(ms), long] {
            let mut random = Random::new(3);
            let drawn: Vec<u64> = (0..200_000).map(|_| service.draw(&mut random) as u64).collect();
            let mean = |sum: u64| sum as f64 / drawn.len() as f64 / 1e6;
            // An hour apart they are alone.
            let mut queue = Queue::new(Processors { count: 2, work }, &service);
            let hours = (0..).map(|n: u64| n * 3_600_000_000_000);
            let taken: u64 = drawn.iter().zip(hours).map(|(alone, now)| queue.serve(now, *alone, 0) - now).sum();
            assert!((mean(taken) - 1.0).abs() < 0.02, "{service:?}: {}", mean(taken));
            // All at once, one processor is busy for as long as all of them need one.
            let mut queue = Queue::new(Processors { count: 1, work }, &service);
            drawn.iter().for_each(|alone| _ = queue.serve(0, *alone, 0));
            let busy = queue.free.peek().map_or(0, |Reverse(free)| *free);
            assert!((mean(busy) - 0.8).abs() < 0.01, "{service:?}: {}", mean(busy));
        }
    }

    #[test]
    fn the_best_throughput_is_that_of_busy_processors() {
        let (most, at_once) = Processors { count: 2, work: Duration::from_micros(250) }.best(Duration::from_millis(1));
        assert_eq!((most.round(), at_once), (8000.0, 8));
    }
}
