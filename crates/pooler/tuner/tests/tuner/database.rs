//! Databases that exist only as a curve of throughput against the number of operations at once, under a load: second by
//! second where clients always wait, and event by event where they may not. They know no tuner.
//!
//! Operations share the server and have exponential work. With n of them at once and X(n) of them ending per second,
//! the next one ends after an exponential time of rate X(n), and each is as likely to be it: that is processor sharing
//! with a speed that depends on n.

use random::Random;

/// How throughput depends on the number of operations at once.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Course {
    /// The Universal Scalability Law: gamma, alpha, beta. A large beta is a row that all transactions lock.
    Law(f64, f64, f64),
    /// Rises in proportion up to this number, then stays.
    Knee(u32),
    /// Rises without end, ever more slowly: operations to this power.
    Power(f64),
    /// A knee, and from this number on only this share of it.
    Cliff { knee: u32, from: u32, share: f64 },
    /// The same for any number.
    Flat,
}

impl Course {
    /// Operations per second with this number at once.
    pub fn throughput(self, at_once: u32) -> f64 {
        let n = f64::from(at_once);
        match self {
            Self::Law(gamma, alpha, beta) => gamma * n / (1.0 + alpha * (n - 1.0) + beta * n * (n - 1.0)),
            Self::Knee(knee) => 25.0 * n.min(f64::from(knee)),
            Self::Power(power) => 300.0 * n.powf(power),
            Self::Cliff { knee, from, share } => {
                25.0 * n.min(f64::from(knee)) * if at_once >= from { share } else { 1.0 }
            }
            Self::Flat => 800.0 * f64::from(u32::from(at_once > 0)),
        }
    }

    /// The highest throughput that any of the sizes has.
    pub fn best(self, sizes: std::ops::RangeInclusive<u32>) -> f64 {
        sizes.map(|size| self.throughput(size)).fold(0.0, f64::max)
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Noise {
    /// The coefficient of variation of the mean of 4 s; single seconds vary twice as much, and each for itself.
    pub window: f64,
    pub weather: Weather,
}

/// What lasts longer than a second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Weather {
    Fair,
    /// Nothing ends for a while: a checkpoint, a lock on a table. Both times are means of exponential ones.
    Stalls {
        every_s: f64,
        lasts_s: f64,
    },
    /// The machine has only this share of its speed for a while, now and then.
    Shared {
        share: f64,
        lasts_s: f64,
    },
}

/// A database under a load.
#[derive(Clone, Debug)]
pub struct Database {
    pub name: &'static str,
    pub course: Course,
    pub noise: Noise,
    pub clients: u32,
    /// What it becomes after half of the time.
    pub moves: Option<Course>,
}

/// Second by second, where the load never rests.
pub struct Seconds {
    noise: Noise,
    random: Random,
    /// The weather is bad, until then.
    bad: bool,
    until_s: f64,
    now_s: f64,
}

impl Seconds {
    pub fn new(noise: Noise, seed: u64) -> Self {
        Self { noise, random: Random::new(seed), bad: true, until_s: 0.0, now_s: 0.0 }
    }

    /// Operations that end in the next second, by the noise of that second.
    pub fn next(&mut self, throughput: f64) -> f64 {
        self.now_s += 1.0;
        let noise = 1.0 + 2.0 * self.noise.window * self.random.normal();
        // What is counted varies by itself: the sum of that many events.
        let counted = throughput + throughput.max(0.0).sqrt() * self.random.normal();
        (counted * noise.max(0.0) * self.speed()).max(0.0)
    }

    fn speed(&mut self) -> f64 {
        let (good_s, bad_s, left) = match self.noise.weather {
            Weather::Fair => return 1.0,
            Weather::Stalls { every_s, lasts_s } => (every_s, lasts_s, 0.0),
            Weather::Shared { share, lasts_s } => (lasts_s, lasts_s, share),
        };
        while self.now_s >= self.until_s {
            self.bad = !self.bad;
            self.until_s += self.random.exponential() * if self.bad { bad_s } else { good_s };
        }
        if self.bad { left } else { 1.0 }
    }
}

/// Event by event, where clients come at a rate.
pub struct Events {
    course: Course,
    rate: f64,
    random: Random,
    now_s: f64,
    /// When those that are served began.
    served: Vec<f64>,
    waiting: u32,
    next_s: f64,
    pub completed: u64,
    pub held_s: f64,
    pub granted: u64,
    pub waited: u64,
}

impl Events {
    pub fn new(course: Course, rate: f64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let next_s = random.exponential() / rate;
        let served = Vec::new();
        Self {
            course,
            rate,
            random,
            now_s: 0.0,
            served,
            waiting: 0,
            next_s,
            completed: 0,
            held_s: 0.0,
            granted: 0,
            waited: 0,
        }
    }

    /// Operations that are served, and those that wait.
    pub fn present(&self) -> (u32, u32) {
        (self.served.len() as u32, self.waiting)
    }

    /// Runs until then, with this number of servers.
    pub fn until(&mut self, end_s: f64, size: u32) {
        loop {
            while self.waiting > 0 && (self.served.len() as u32) < size {
                self.waiting -= 1;
                self.waited += 1;
                self.granted += 1;
                self.served.push(self.now_s);
            }
            let speed = self.course.throughput(self.served.len() as u32);
            // Exponential times have no memory, so that one may be drawn anew at each event.
            let ends_s = if speed > 0.0 { self.now_s + self.random.exponential() / speed } else { f64::INFINITY };
            if ends_s.min(self.next_s) > end_s {
                self.now_s = end_s;
                return;
            }
            if ends_s < self.next_s {
                self.now_s = ends_s;
                let one = self.random.below(self.served.len() as u64) as usize;
                self.held_s += ends_s - self.served.swap_remove(one);
                self.completed += 1;
            } else {
                self.now_s = self.next_s;
                if (self.served.len() as u32) < size {
                    self.granted += 1;
                    self.served.push(self.now_s);
                } else {
                    self.waiting += 1;
                }
                self.next_s += self.random.exponential() / self.rate;
            }
        }
    }
}
