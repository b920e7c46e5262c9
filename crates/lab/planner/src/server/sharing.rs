//! A processor-sharing queue whose speed depends on the number of operations in it. Each operation has an amount of
//! work, and all progress equally fast.
//!
//! With n operations at once and X(n) of them ending per second, each progresses at X(n) / n mean works per second. The
//! progress since the beginning is the same for all, so an operation that begins at progress p with work w ends at p +
//! w.

use std::{cmp::Reverse, collections::BinaryHeap};

use pool::Time;

use super::curve::Curve;

const SECOND: f64 = 1e9;

#[derive(Debug)]
pub struct Sharing {
    curve: Curve,
    /// Progress since the beginning, in mean works.
    progress: f64,
    at: Time,
    /// The progress at which each operation ends, its connection and generation. The progress is stored as bits, which
    /// order like the value since it is positive.
    present: BinaryHeap<Reverse<(u64, u32, u32)>>,
    most: u32,
}

impl Sharing {
    pub fn new(curve: Curve) -> Self {
        Self { curve, progress: 0.0, at: Time(0), present: BinaryHeap::new(), most: 0 }
    }

    /// Adds an operation. `work` is in multiples of the mean work.
    pub fn enter(&mut self, conn: u32, generation: u32, work: f64, now: Time) {
        self.advance(now);
        self.present.push(Reverse(((self.progress + work.max(0.0)).to_bits(), conn, generation)));
        self.most = self.most.max(self.present.len() as u32);
    }

    /// When the next operation ends, unless another one is added before.
    pub fn next(&self) -> Time {
        let Some(Reverse((ends, ..))) = self.present.peek() else { return Time::NEVER };
        let left = f64::from_bits(*ends) - self.progress;
        let nanos = (left.max(0.0) / self.speed() * SECOND).ceil();
        Time(self.at.0.saturating_add(nanos as u64))
    }

    /// Removes an operation that has ended by now.
    pub fn pop(&mut self, now: Time) -> Option<(u32, u32)> {
        if self.next() > now {
            return None;
        }
        self.advance(now);
        self.present.pop().map(|Reverse((_, conn, generation))| (conn, generation))
    }

    /// The greatest number of concurrent operations.
    pub fn most(&self) -> u32 {
        self.most
    }

    /// Progress of each operation per second, in multiples of the mean work.
    fn speed(&self) -> f64 {
        let present = self.present.len() as u32;
        self.curve.throughput(present) / f64::from(present.max(1))
    }

    fn advance(&mut self, now: Time) {
        if !self.present.is_empty() {
            self.progress += self.speed() * (now - self.at).as_secs_f64();
        }
        self.at = self.at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn ends(sharing: &mut Sharing) -> Vec<(u32, u64)> {
        std::iter::from_fn(|| {
            let now = sharing.next();
            sharing.pop(now).map(|(conn, _)| (conn, now.0.div_ceil(MS / 10) * (MS / 10) / MS))
        })
        .collect()
    }

    #[test]
    fn two_share_one_processor_and_the_one_with_less_work_is_done_first() {
        let mut sharing = Sharing::new(Curve::parallel(1, 0.010));
        sharing.enter(1, 0, 1.0, Time(0));
        sharing.enter(2, 0, 0.5, Time(0));
        // Both at half speed until 2 is done at 10 ms; 1 has 0.5 left, which takes 5 ms.
        assert_eq!(ends(&mut sharing), [(2, 10), (1, 15)]);
    }

    #[test]
    fn a_later_operation_slows_down_earlier_ones() {
        let mut sharing = Sharing::new(Curve::parallel(1, 0.010));
        sharing.enter(1, 0, 1.0, Time(0));
        sharing.enter(2, 0, 1.0, Time(5 * MS));
        assert_eq!(ends(&mut sharing), [(1, 15), (2, 20)]);
    }

    #[test]
    fn parallel_operations_do_not_slow_each_other_down() {
        let mut sharing = Sharing::new(Curve::parallel(4, 0.010));
        (0..4).for_each(|conn| sharing.enter(conn, 0, 1.0, Time(0)));
        assert!(ends(&mut sharing).iter().all(|(_, at)| *at == 10));
        assert_eq!(sharing.most(), 4);
    }
}
