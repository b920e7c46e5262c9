//! When the operations of an open load arrive, to the nanosecond. Says when; begins nothing.
//!
//! With rates that change in straight lines, the integral of the rate over time is known in closed form. Evenly spaced,
//! the n-th operation arrives when the integral reaches n: the spacing of k6's arrival-rate executors. At random, the
//! arrivals of a Poisson process of rate 1 are carried over by the inverse of the same integral (time change of an
//! inhomogeneous Poisson process, Çinlar, "Introduction to Stochastic Processes", 1975, section 4.7).

use std::time::Duration;

use random::Random;

use crate::shape::{Spacing, Stage};

/// Sums of rates may miss a whole number by this much through rounding, and still count as having reached it.
const ROUNDING: f64 = 1e-6;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// From the beginning of the load.
    pub at: Duration,
    /// In which stage, from 0.
    pub stage: usize,
}

/// The arrivals of an open load, in order. Holds no list of them: each is computed when it is asked for.
#[derive(Clone, Debug)]
pub struct Arrivals {
    stages: Vec<Stage>,
    spacing: Spacing,
    random: Random,
    /// The stage that the last arrival fell into.
    stage: usize,
    /// Expected arrivals before that stage began.
    before: f64,
    /// When it began, in seconds.
    begun: f64,
    /// Where the next arrival is on the scale of expected arrivals.
    next: f64,
}

impl Arrivals {
    /// The arrivals of these stages. Rates must be finite and not negative.
    pub fn new(stages: &[Stage], spacing: Spacing, seed: u64) -> Self {
        for stage in stages {
            let fine = |rate: f64| rate.is_finite() && rate >= 0.0;
            assert!(fine(stage.from) && fine(stage.to), "a rate must be a number, and not below 0: {stage:?}");
        }
        let mut random = Random::new(seed);
        let next = match spacing {
            Spacing::Even => 1.0,
            Spacing::Poisson => random.exponential(),
        };
        Self { stages: stages.to_vec(), spacing, random, stage: 0, before: 0.0, begun: 0.0, next }
    }
}

impl Iterator for Arrivals {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        loop {
            let stage = *self.stages.get(self.stage)?;
            let expected = stage.expected();
            if self.next > self.before + expected + ROUNDING {
                self.before += expected;
                self.begun += stage.duration.as_secs_f64();
                self.stage += 1;
                continue;
            }
            let at = self.begun + stage.reaches(self.next - self.before);
            self.next += match self.spacing {
                Spacing::Even => 1.0,
                Spacing::Poisson => self.random.exponential(),
            };
            return Some(Arrival { at: Duration::from_secs_f64(at), stage: self.stage });
        }
    }
}

impl Stage {
    /// How many arrivals are expected in it: the integral of its rate.
    pub fn expected(&self) -> f64 {
        (self.from + self.to) / 2.0 * self.duration.as_secs_f64()
    }

    /// After how many seconds the integral of the rate reaches `count`; never beyond the stage's end.
    fn reaches(&self, count: f64) -> f64 {
        let length = self.duration.as_secs_f64();
        let count = count.max(0.0);
        if count == 0.0 || length == 0.0 {
            return 0.0;
        }
        // from t + slope t^2 / 2 = count, solved in the form that does not cancel where the slope is small.
        let slope = (self.to - self.from) / length;
        let root = (self.from * self.from + 2.0 * slope * count).max(0.0).sqrt();
        (2.0 * count / (self.from + root)).min(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stage(seconds: u64, from: f64, to: f64) -> Stage {
        Stage { duration: Duration::from_secs(seconds), from, to }
    }

    fn even(stages: &[Stage]) -> Vec<Arrival> {
        Arrivals::new(stages, Spacing::Even, 0).collect()
    }

    #[test]
    fn at_a_constant_rate_the_distances_are_equal_and_the_count_is_exact() {
        let arrivals = even(&[stage(60, 300.0, 300.0)]);
        assert_eq!(arrivals.len(), 18_000);
        for (n, arrival) in arrivals.iter().enumerate() {
            let at = (n + 1) as f64 / 300.0;
            assert!((arrival.at.as_secs_f64() - at).abs() < 1e-8, "arrival {n} at {:?}", arrival.at);
        }
    }

    #[test]
    fn on_a_ramp_the_nth_arrival_is_where_the_integral_reaches_n() {
        // From 0 to 100/s in 10 s: 5 t^2 = n.
        let arrivals = even(&[stage(10, 0.0, 100.0)]);
        assert_eq!(arrivals.len(), 500);
        for (n, arrival) in arrivals.iter().enumerate() {
            let at = ((n + 1) as f64 / 5.0).sqrt();
            assert!((arrival.at.as_secs_f64() - at).abs() < 1e-8, "arrival {n} at {:?}", arrival.at);
        }
        // Downwards too, to the last one.
        assert_eq!(even(&[stage(10, 100.0, 0.0)]).len(), 500);
    }

    #[test]
    fn what_is_left_of_an_arrival_at_the_end_of_a_stage_is_taken_into_the_next() {
        // Half an arrival per stage: one at the end of each second stage.
        let stages = [stage(1, 0.5, 0.5); 10];
        let arrivals = even(&stages);
        assert_eq!(arrivals.iter().map(|a| a.at.as_secs()).collect::<Vec<_>>(), [2, 4, 6, 8, 10]);
        assert_eq!(arrivals.iter().map(|a| a.stage).collect::<Vec<_>>(), [1, 3, 5, 7, 9]);
    }

    #[test]
    fn nothing_arrives_where_the_rate_is_zero() {
        let arrivals = even(&[stage(1, 10.0, 10.0), stage(100, 0.0, 0.0), stage(1, 10.0, 10.0)]);
        assert_eq!(arrivals.len(), 20);
        assert!(arrivals.iter().all(|a| a.at <= Duration::from_secs(1) || a.at > Duration::from_secs(101)));
        assert!(even(&[stage(100, 0.0, 0.0)]).is_empty());
        assert!(even(&[]).is_empty());
    }

    #[test]
    fn random_arrivals_have_the_expected_number_in_each_part_of_a_ramp() {
        let ramp = stage(100, 0.0, 2000.0);
        let arrivals: Vec<_> = Arrivals::new(&[ramp], Spacing::Poisson, 7).collect();
        // Expected: 100,000, standard deviation 316; by the middle of the time a quarter of them.
        assert!(arrivals.len().abs_diff(100_000) < 1600, "{}", arrivals.len());
        let early = arrivals.iter().filter(|a| a.at < Duration::from_secs(50)).count();
        assert!(early.abs_diff(25_000) < 800, "{early}");
    }

    #[test]
    fn gaps_of_a_poisson_process_are_exponential() {
        let arrivals: Vec<_> = Arrivals::new(&[stage(1000, 100.0, 100.0)], Spacing::Poisson, 3).collect();
        let gaps: Vec<f64> = arrivals.windows(2).map(|w| (w[1].at - w[0].at).as_secs_f64() * 100.0).collect();
        let longer = |x: f64| gaps.iter().filter(|gap| **gap > x).count() as f64 / gaps.len() as f64;
        for x in [0.1, 0.5, 1.0, 2.0, 4.0] {
            assert!((longer(x) - (-x).exp()).abs() < 0.01, "P(gap > {x}) = {}", longer(x));
        }
    }

    proptest! {
        #[test]
        fn arrivals_are_in_order_within_the_load_and_as_many_as_the_integral_says(
            rates in proptest::collection::vec((1u64..20, 0.0f64..200.0, 0.0f64..200.0), 1..5)
        ) {
            let stages: Vec<_> = rates.iter().map(|(seconds, from, to)| stage(*seconds, *from, *to)).collect();
            let arrivals = even(&stages);
            let expected: f64 = stages.iter().map(Stage::expected).sum();
            prop_assert!((arrivals.len() as f64 - expected).abs() <= 1.0 + 1e-3);
            prop_assert!(arrivals.windows(2).all(|w| w[0].at <= w[1].at && w[0].stage <= w[1].stage));
            let length: Duration = stages.iter().map(|s| s.duration).sum();
            prop_assert!(arrivals.last().is_none_or(|last| last.at <= length + Duration::from_nanos(10)));
        }
    }
}
