//! Distributions of durations at the server.

use std::time::Duration;

use ::report::histogram::Histogram;
use arrivals::Random;

/// The 99th percentile of the standard normal distribution.
const NORMAL_P99: f64 = 2.326_347_874;
/// Highest ratio of the 99th percentile to the mean of a lognormal distribution, rounded down.
pub const MAX_P99_RATIO: f64 = 14.0;

/// Relative precision of a cut.
const BOUND_PRECISION: f64 = 1e-6;
/// A thousand days, in nanoseconds.
const MAX_BOUND_NS: f64 = 86_400e12;

/// A distribution of durations.
#[derive(Clone, PartialEq, Debug)]
pub enum Times {
    Constant(Duration),
    /// Exponential, with this mean.
    Exponential(Duration),
    /// Lognormal, with this mean and this deviation of the logarithm.
    Lognormal(Duration, f64),
    Measured(MeasuredTimes),
}

/// Measured durations in nanoseconds, each after the share of all that are at most as long.
#[derive(Clone, PartialEq, Debug)]
pub struct MeasuredTimes {
    steps: Vec<(f64, f64)>,
    mean: Duration,
    count: u64,
}

impl Times {
    /// The lognormal distribution with this mean and this 99th percentile.
    ///
    /// # Errors
    /// No such distribution exists.
    pub fn lognormal(mean: Duration, p99: Duration) -> Result<Self, String> {
        let ratio = p99.as_secs_f64() / mean.as_secs_f64();
        if !(1.0..=MAX_P99_RATIO).contains(&ratio) {
            return Err(format!(
                "the 99th percentile must be from 1 to {MAX_P99_RATIO} times the mean, not {ratio:.2} times"
            ));
        }
        // p99 / mean = exp(2.326 s - s^2 / 2), solved for the smaller s.
        let root = NORMAL_P99 * NORMAL_P99 - 2.0 * ratio.ln();
        Ok(Self::Lognormal(mean, NORMAL_P99 - root.max(0.0).sqrt()))
    }

    /// The distribution of a histogram. `None` if empty.
    pub fn measured(histogram: &Histogram) -> Option<Self> {
        let count = histogram.len();
        let (mut steps, mut seen, mut sum) = (Vec::new(), 0, 0.0);
        for (duration, times) in histogram.counted() {
            seen += times;
            sum += duration.as_secs_f64() * times as f64;
            steps.push((seen as f64 / count as f64, duration.as_secs_f64() * 1e9));
        }
        let mean = Duration::from_secs_f64(sum / count.max(1) as f64);
        (count > 0).then_some(Self::Measured(MeasuredTimes { steps, mean, count }))
    }

    /// Shortens each measured duration, but not below zero. Other distributions stay as they are.
    #[must_use]
    pub fn shortened_by(self, part: Duration) -> Self {
        let Self::Measured(mut measured) = self else { return self };
        let part_ns = part.as_nanos() as f64;
        measured.steps.iter_mut().for_each(|(_, ns)| *ns = (*ns - part_ns).max(0.0));
        measured.mean = measured.mean.saturating_sub(part);
        Self::Measured(measured)
    }

    /// The same distribution with another mean.
    #[must_use]
    pub fn with_mean(self, mean: Duration) -> Self {
        match self {
            Self::Constant(_) => Self::Constant(mean),
            Self::Exponential(_) => Self::Exponential(mean),
            Self::Lognormal(_, deviation) => Self::Lognormal(mean, deviation),
            Self::Measured(mut measured) => {
                let factor = mean.as_secs_f64() / measured.mean.as_secs_f64().max(1e-9);
                measured.steps.iter_mut().for_each(|(_, ns)| *ns *= factor);
                Self::Measured(MeasuredTimes { mean, ..measured })
            }
        }
    }

    /// Draws a duration in nanoseconds.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> f64 {
        match self {
            Self::Constant(time) => time.as_nanos() as f64,
            Self::Exponential(mean) => mean.as_nanos() as f64 * random.exponential(),
            Self::Lognormal(mean, deviation) => {
                mean.as_nanos() as f64 * (deviation * random.normal() - deviation * deviation / 2.0).exp()
            }
            Self::Measured(measured) => measured.draw(random),
        }
    }

    pub fn mean(&self) -> Duration {
        match self {
            Self::Constant(time) => *time,
            Self::Exponential(mean) | Self::Lognormal(mean, _) => *mean,
            Self::Measured(measured) => measured.mean,
        }
    }

    /// The bound in nanoseconds with which bounded durations have this mean. Infinite if the mean is not below their
    /// own.
    pub fn bound_for_mean(&self, mean: Duration) -> f64 {
        let mean = mean.as_nanos() as f64;
        let (mut low, mut high) = (0.0, mean.max(1.0));
        while self.bounded_mean(high) < mean * (1.0 - BOUND_PRECISION) {
            (low, high) = (high, 2.0 * high);
            if high > MAX_BOUND_NS {
                return f64::INFINITY;
            }
        }
        while high - low > high * BOUND_PRECISION {
            let middle = f64::midpoint(low, high);
            if self.bounded_mean(middle) < mean { low = middle } else { high = middle }
        }
        high
    }

    /// The mean in nanoseconds of durations with this bound.
    fn bounded_mean(&self, bound_ns: f64) -> f64 {
        match self {
            Self::Constant(time) => (time.as_nanos() as f64).min(bound_ns),
            Self::Exponential(mean) => {
                let mean = mean.as_nanos().max(1) as f64;
                -mean * (-bound_ns / mean).exp_m1()
            }
            Self::Lognormal(mean, deviation) => {
                let mean = mean.as_nanos() as f64;
                // Small steps of the normal distribution, up to where even its product with the duration is negligible.
                let steps = (-120..=200).map(|step| f64::from(step) / 20.0);
                let (sum, weights) = steps.fold((0.0, 0.0), |(sum, weights), normal| {
                    let weight = (-normal * normal / 2.0).exp();
                    let time = mean * (deviation * normal - deviation * deviation / 2.0).exp();
                    (sum + weight * time.min(bound_ns), weights + weight)
                });
                sum / weights
            }
            Self::Measured(measured) => {
                let mut before = 0.0;
                let parts = measured
                    .steps
                    .iter()
                    .map(|(until, ns)| (until - std::mem::replace(&mut before, *until)) * ns.min(bound_ns));
                parts.sum()
            }
        }
    }

    pub fn words(&self) -> String {
        let mean = crate::words::time(self.mean());
        match self {
            Self::Constant(_) => format!("{mean} each"),
            Self::Exponential(_) => format!("{mean} on average, exponentially distributed"),
            Self::Lognormal(_, deviation) => {
                let p99 = self.mean().as_secs_f64() * (NORMAL_P99 * deviation - deviation * deviation / 2.0).exp();
                format!(
                    "{mean} on average, p99 {}, lognormally distributed",
                    crate::words::time(Duration::from_secs_f64(p99))
                )
            }
            Self::Measured(measured) => format!("{mean} on average, as measured {} times", measured.count),
        }
    }
}

impl MeasuredTimes {
    fn draw(&self, random: &mut Random) -> f64 {
        let share = random.positive_fraction();
        let at = self.steps.partition_point(|(until, _)| *until < share);
        let (until, longest) = self.steps[at.min(self.steps.len() - 1)];
        let (from, shortest) = if at == 0 { return longest } else { self.steps[at - 1] };
        // Only between adjacent values of the histogram's precision may there have been others.
        if longest > shortest * 1.01 {
            longest
        } else {
            shortest + (longest - shortest) * (share - from) / (until - from)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(times: &Times) -> Vec<f64> {
        let mut random = Random::new(5);
        let mut all: Vec<f64> = (0..200_000).map(|_| times.draw(&mut random) / 1e6).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    fn near(value: f64, expected: f64, part: f64) {
        assert!((value - expected).abs() <= expected * part, "{value} is not within {part} of {expected}");
    }

    #[test]
    fn a_lognormal_distribution_has_the_given_mean_and_99th_percentile() {
        let times = Times::lognormal(Duration::from_millis(10), Duration::from_millis(42)).unwrap();
        let all = drawn(&times);
        near(all.iter().sum::<f64>() / all.len() as f64, 10.0, 0.02);
        near(all[all.len() * 99 / 100], 42.0, 0.03);
        assert!(Times::lognormal(Duration::from_millis(10), Duration::from_millis(9)).is_err());
        assert!(Times::lognormal(Duration::from_millis(10), Duration::from_millis(900)).is_err());
    }

    #[test]
    fn a_pause_shortens_measured_durations_only() {
        let mut histogram = Histogram::new();
        (0..1000).for_each(|n| histogram.record(Duration::from_micros(400_000 + n)));
        let times = Times::measured(&histogram).unwrap().shortened_by(Duration::from_millis(400));
        assert!(times.mean() < Duration::from_micros(900), "{:?}", times.mean());
        let all = drawn(&times);
        assert!(all[0] >= 0.0 && *all.last().unwrap() < 5.0, "{:?}", all.last());
        let given = Times::Constant(Duration::from_millis(3));
        assert_eq!(given.clone().shortened_by(Duration::from_millis(1)), given);
    }

    #[test]
    fn another_mean_keeps_the_distribution() {
        let mut histogram = Histogram::new();
        (1..=1000).for_each(|n| histogram.record(Duration::from_micros(n * 100)));
        let measured = Times::measured(&histogram).unwrap().with_mean(Duration::from_millis(5));
        let long = Times::lognormal(Duration::from_millis(20), Duration::from_millis(84)).unwrap();
        let long = long.with_mean(Duration::from_millis(5));
        for (times, p99) in [(measured, 9.9), (long, 21.0)] {
            let all = drawn(&times);
            near(times.mean().as_secs_f64() * 1e3, 5.0, 0.001);
            near(all.iter().sum::<f64>() / all.len() as f64, 5.0, 0.02);
            near(all[all.len() * 99 / 100], p99, 0.03);
        }
    }

    #[test]
    fn a_measured_distribution_is_that_of_its_histogram() {
        let mut histogram = Histogram::new();
        (1..=1000).for_each(|n| histogram.record(Duration::from_micros(n * 100)));
        let times = Times::measured(&histogram).unwrap();
        near(times.mean().as_secs_f64(), 0.05005, 0.001);
        let all = drawn(&times);
        for (share, expected) in [(0.5, 50.0), (0.9, 90.0), (0.99, 99.0)] {
            near(all[(all.len() as f64 * share) as usize], expected, 0.01);
        }
        assert_eq!(Times::measured(&Histogram::new()), None);
    }

    #[test]
    fn bounded_durations_have_the_given_mean() {
        let ms = Duration::from_millis(10);
        // Of an exponential distribution, the mean m (1 - e^(-c/m)).
        near(Times::Exponential(ms).bound_for_mean(Duration::from_millis(8)) / 1e6, 10.0 * 5f64.ln(), 0.001);
        near(Times::Constant(ms).bound_for_mean(Duration::from_millis(8)) / 1e6, 8.0, 0.001);
        let mut histogram = Histogram::new();
        (1..=1000).for_each(|n| histogram.record(Duration::from_micros(n * 100)));
        let measured = Times::measured(&histogram).unwrap();
        for times in [Times::Exponential(ms), Times::lognormal(ms, Duration::from_millis(60)).unwrap(), measured] {
            let half = times.mean() / 2;
            let cut = times.bound_for_mean(half) / 1e6;
            let all = drawn(&times);
            near(all.iter().map(|ms| ms.min(cut)).sum::<f64>() / all.len() as f64, half.as_secs_f64() * 1e3, 0.01);
            assert_eq!(times.bound_for_mean(times.mean() * 2), f64::INFINITY);
            assert!(
                times.bound_for_mean(times.mean()) > 1.9e9 * times.mean().as_secs_f64(),
                "hardly any duration is above it"
            );
        }
    }

    #[test]
    fn an_exponential_distribution_has_its_mean_and_median() {
        let all = drawn(&Times::Exponential(Duration::from_millis(8)));
        near(all.iter().sum::<f64>() / all.len() as f64, 8.0, 0.02);
        near(all[all.len() / 2], 8.0 * 2f64.ln(), 0.02);
    }
}
