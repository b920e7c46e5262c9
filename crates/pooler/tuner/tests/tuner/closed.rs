//! Clients that come back after each transaction, event by event: for transactions that take longer than the windows of
//! a tuner. Knows no tuner.
//!
//! With n of them at once and X(n) of them ending per second, each goes on with a speed of X(n) / n: processor sharing
//! with a speed that depends on n.

use random::Random;

use crate::database::Course;

/// How much work transactions are; 1 on average.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Work {
    Same,
    Drawn,
}

/// A transaction under way.
struct Served {
    began_s: f64,
    left: f64,
}

pub struct Clients {
    course: Course,
    work: Work,
    random: Random,
    now_s: f64,
    served: Vec<Served>,
    waiting: u32,
    pub completed: u64,
    pub held_s: f64,
}

impl Clients {
    /// This number of clients, which all come now.
    pub fn new(course: Course, work: Work, clients: u32, seed: u64) -> Self {
        let served = Vec::new();
        Self {
            course,
            work,
            random: Random::new(seed),
            now_s: 0.0,
            served,
            waiting: clients,
            completed: 0,
            held_s: 0.0,
        }
    }

    /// Transactions under way, and clients that wait.
    pub fn present(&self) -> (u32, u32) {
        (self.served.len() as u32, self.waiting)
    }

    /// Runs until then, with this number of servers. Servers above it go when their transactions end.
    pub fn until(&mut self, end_s: f64, size: u32) {
        loop {
            while self.waiting > 0 && (self.served.len() as u32) < size {
                self.waiting -= 1;
                let left = self.drawn();
                self.served.push(Served { began_s: self.now_s, left });
            }
            let at_once = self.served.len();
            let speed = self.course.throughput(at_once as u32) / at_once as f64;
            let least = self.served.iter().map(|served| served.left).fold(f64::INFINITY, f64::min);
            let ends_s = self.now_s + least / speed;
            let done = (ends_s.min(end_s) - self.now_s) * speed;
            self.served.iter_mut().for_each(|served| served.left -= done);
            if ends_s > end_s {
                self.now_s = end_s;
                return;
            }
            self.now_s = ends_s;
            let first = |a: &(usize, &Served), b: &(usize, &Served)| a.1.left.total_cmp(&b.1.left);
            let (place, _) = self.served.iter().enumerate().min_by(first).expect("one that ends");
            self.held_s += ends_s - self.served.swap_remove(place).began_s;
            self.completed += 1;
            self.waiting += 1;
        }
    }

    fn drawn(&mut self) -> f64 {
        match self.work {
            // Those that come at the same moment must not all end at the same moment.
            Work::Same if self.now_s == 0.0 => self.random.positive_fraction(),
            Work::Same => 1.0,
            Work::Drawn => self.random.exponential(),
        }
    }
}
