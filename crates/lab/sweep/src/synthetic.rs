//! Databases that exist only as a curve, whose best number of clients is therefore known: to judge the sweep by. They
//! run in virtual time: a measurement of three seconds takes none.

use std::time::Duration;

use arrivals::Random;

use report::result::sweep::Visit;

use super::{Probe, ProbeError, fit};

/// How throughput depends on the number of clients.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Course {
    /// The Universal Scalability Law: gamma, alpha, beta.
    Law(f64, f64, f64),
    /// The law, and from a number of clients on only a share of it: a working set that no longer fits, a lock that
    /// begins to thrash.
    Cliff {
        law: (f64, f64, f64),
        /// The first number of clients beyond the cliff.
        from: u32,
        share: f64,
    },
    /// Rises in proportion up to a number of clients, then stays: a queue with that number of servers.
    Knee(u32),
    /// The same for any number.
    Flat,
    /// Rises without end, ever more slowly: clients to this power.
    Power(f64),
    /// The shape published for a PostgreSQL on 32 processors: best at 300 to 500, a steep fall after 700, less and less
    /// past 1000.
    Published,
}

/// What happens to a single measurement.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Noise {
    /// Normal, with this relative deviation.
    Normal(f64),
    /// The same, and with this probability only this share of it: a checkpoint, a neighbour.
    Bimodal { deviation: f64, probability: f64, share: f64 },
    /// The same, and the machine as a whole has only this share of its speed for a while, now and then: others use it,
    /// too.
    Weather {
        deviation: f64,
        /// What is left in bad times.
        share: f64,
        /// Mean length of good and of bad times, in seconds.
        lasts: f64,
    },
}

/// A database that exists only as a curve.
#[derive(Clone, Debug)]
pub struct SyntheticDatabase {
    pub name: &'static str,
    /// The largest number of clients that is tested.
    pub to: u32,
    pub course: Course,
    pub noise: Noise,
    /// Change of throughput per hour, as a share: 1 doubles, -0.5 halves.
    pub drift_per_hour: f64,
    /// Processors that such a machine would have, for the rules of thumb.
    pub processors: u32,
}

impl SyntheticDatabase {
    /// True throughput at the beginning.
    pub fn throughput(&self, clients: u32) -> f64 {
        let n = f64::from(clients);
        match self.course {
            Course::Law(gamma, alpha, beta) => fit::throughput(gamma, alpha, beta, n),
            Course::Cliff { law: (gamma, alpha, beta), from, share } => {
                fit::throughput(gamma, alpha, beta, n) * if clients >= from { share } else { 1.0 }
            }
            Course::Knee(at) => 250.0 * n.min(f64::from(at)),
            Course::Flat => 800.0,
            Course::Power(power) => 300.0 * n.powf(power),
            Course::Published => {
                let rise = 1.0 - (-n / 110.0).exp();
                let fall = 1.0 / (1.0 + ((n - 760.0) / 60.0).exp());
                20_000.0 * rise * (0.45 + 0.55 * fall) / (1.0 + (n / 1500.0).powi(2))
            }
        }
    }

    /// The best throughput that any number of clients has.
    pub fn best(&self) -> (u32, f64) {
        (1..=self.to)
            .map(|n| (n, self.throughput(n)))
            .reduce(|best, p| if p.1 > best.1 { p } else { best })
            .expect("a system has clients")
    }

    /// The database, to be measured with this seed.
    pub fn probe(&self, seed: u64) -> SyntheticProbe<'_> {
        SyntheticProbe { system: self, random: Random::new(seed), now_s: 0.0, bad_times: false }
    }
}

/// A synthetic database under measurement.
#[derive(Debug)]
pub struct SyntheticProbe<'a> {
    system: &'a SyntheticDatabase,
    random: Random,
    now_s: f64,
    bad_times: bool,
}

impl Probe for SyntheticProbe<'_> {
    fn measure(&mut self, clients: u32, warmup: Duration, duration: Duration) -> Result<Visit, ProbeError> {
        self.now_s += (warmup + duration).as_secs_f64();
        let drift = (1.0 + self.system.drift_per_hour).powf(self.now_s / 3600.0);
        let noise = match self.system.noise {
            Noise::Normal(deviation) => 1.0 + deviation * self.random.normal(),
            Noise::Bimodal { deviation, probability, share } => {
                let mode = if self.random.unit() < probability { share } else { 1.0 };
                mode * (1.0 + deviation * self.random.normal())
            }
            Noise::Weather { deviation, share, lasts } => {
                // Of a process that changes at random moments: the chance to be found in the other state after this
                // time.
                let other = 0.5 * (1.0 - (-2.0 * (warmup + duration).as_secs_f64() / lasts).exp());
                self.bad_times ^= self.random.unit() < other;
                let speed = if self.bad_times { share } else { 1.0 };
                speed * (1.0 + deviation * self.random.normal())
            }
        };
        let throughput = (self.system.throughput(clients) * drift * noise).max(0.0);
        let mean_ms = f64::from(clients) * 1000.0 / throughput;
        Ok(Visit {
            throughput,
            p50_ms: Some(mean_ms),
            p95_ms: Some(mean_ms * 1.5),
            p99_ms: Some(mean_ms * 2.0),
            per_second: vec![throughput; duration.as_secs_f64() as usize],
            ..Visit::default()
        })
    }

    fn now_s(&self) -> f64 {
        self.now_s
    }
}

/// The systems that the sweep is judged by.
pub fn systems() -> Vec<SyntheticDatabase> {
    let system = |name, to, course, noise, drift_per_hour, processors| SyntheticDatabase {
        name,
        to,
        course,
        noise,
        drift_per_hour,
        processors,
    };
    let law = |alpha, beta| Course::Law(1000.0, alpha, beta);
    let usual = Noise::Normal(0.03);
    let bimodal = Noise::Bimodal { deviation: 0.02, probability: 0.1, share: 0.7 };
    let weather = Noise::Weather { deviation: 0.03, share: 0.6, lasts: 40.0 };
    vec![
        system("law, early peak", 256, law(0.05, 4e-3), usual, 0.0, 4),
        system("law, middle peak", 256, law(0.02, 2e-4), usual, 0.0, 16),
        system("law, late peak", 256, law(0.005, 2e-5), usual, 0.0, 32),
        system("law, narrow peak", 256, law(0.0, 1e-3), usual, 0.0, 8),
        system("law, much noise", 256, law(0.02, 1e-3), Noise::Normal(0.08), 0.0, 8),
        system("published shape", 1000, Course::Published, usual, 0.0, 32),
        system("cliff at 41", 256, Course::Cliff { law: (1000.0, 0.03, 0.0), from: 41, share: 0.5 }, usual, 0.0, 16),
        system("cliff at 150", 256, Course::Cliff { law: (1000.0, 0.01, 1e-5), from: 150, share: 0.5 }, usual, 0.0, 32),
        system("knee at 24", 256, Course::Knee(24), usual, 0.0, 8),
        system("flat", 256, Course::Flat, usual, 0.0, 4),
        system("no peak", 256, Course::Power(0.8), usual, 0.0, 16),
        system("bimodal noise", 256, law(0.02, 1e-3), bimodal, 0.0, 8),
        system(
            "bimodal noise, cliff",
            256,
            Course::Cliff { law: (1000.0, 0.01, 1e-4), from: 60, share: 0.6 },
            bimodal,
            0.0,
            16,
        ),
        // A quarter is lost, or half is gained, during the three minutes that a sweep takes.
        system("becomes slower", 256, law(0.02, 1e-3), usual, -0.9975, 8),
        system("becomes faster", 256, law(0.02, 1e-3), usual, 3000.0, 8),
        // A machine that others use, too; the second has a contended row.
        system("shared machine", 256, law(0.02, 1e-3), weather, 0.0, 8),
        system("shared machine, lock", 64, law(0.5, 0.15), weather, 0.0, 2),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_shape_has_its_published_marks() {
        let system = systems().into_iter().find(|s| s.course == Course::Published).unwrap();
        let (best, top) = system.best();
        assert!((300..=500).contains(&best), "{best}");
        assert!((300..=500).step_by(10).all(|n| system.throughput(n) > 0.95 * top), "best at 300 to 500");
        assert!(system.throughput(700) > 0.75 * top && system.throughput(850) < 0.5 * top, "a steep fall after 700");
    }

    #[test]
    fn a_measurement_varies_as_much_as_its_system_says_and_takes_virtual_time() {
        let system = &systems()[0];
        let mut probe = system.probe(5);
        let truth = system.throughput(8);
        let second = Duration::from_secs(1);
        let ratios: Vec<f64> =
            (0..2000).map(|_| probe.measure(8, second, second).unwrap().throughput / truth).collect();
        let deviation = (ratios.iter().map(|r| (r - 1.0).powi(2)).sum::<f64>() / 2000.0).sqrt();
        assert!((deviation - 0.03).abs() < 0.002, "{deviation}");
        assert_eq!(probe.now_s(), 4000.0);
    }
}
