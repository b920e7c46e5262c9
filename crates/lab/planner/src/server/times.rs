//! How long something takes at the server: a distribution to draw from. Knows nothing of what takes so long.

use std::time::Duration;

use ::report::histogram::Histogram;
use arrivals::Random;

/// The 99th percentile of the standard normal distribution.
const NORMAL_P99: f64 = 2.326_347_874;
/// A lognormal distribution whose 99th percentile is more than this many times its mean does not exist.
pub const MAX_P99_RATIO: f64 = 14.0;

/// How exactly a cut is found, as a share of it.
const CUT_PRECISION: f64 = 1e-6;
/// Nothing is cut to more: a thousand days, in nanoseconds.
const LONGEST_CUT: f64 = 86_400e12;

/// A distribution of durations.
#[derive(Clone, PartialEq, Debug)]
pub enum Times {
    Constant(Duration),
    /// Exponential, with this mean.
    Exponential(Duration),
    /// Lognormal: its mean, and the deviation of its logarithm.
    Lognormal(Duration, f64),
    Measured(Measured),
}

/// Durations that were measured: each with the share of all that were at most as long.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    steps: Vec<(f64, f64)>,
    mean: Duration,
    count: u64,
}

impl Times {
    /// The lognormal distribution with this mean and this 99th percentile.
    ///
    /// # Errors
    /// There is none, in words.
    pub fn lognormal(mean: Duration, p99: Duration) -> Result<Self, String> {
        let ratio = p99.as_secs_f64() / mean.as_secs_f64();
        if !(1.0..=MAX_P99_RATIO).contains(&ratio) {
            return Err(format!(
                "the 99th percentile must be from 1 to {MAX_P99_RATIO} times the mean, not {ratio:.2} times"
            ));
        }
        // p99 / mean = exp(2.326 s - s^2 / 2), of which the smaller root is meant.
        let root = NORMAL_P99 * NORMAL_P99 - 2.0 * ratio.ln();
        Ok(Self::Lognormal(mean, NORMAL_P99 - root.max(0.0).sqrt()))
    }

    /// As a histogram has them; `None`: it is empty.
    pub fn measured(histogram: &Histogram) -> Option<Self> {
        let count = histogram.len();
        let (mut steps, mut seen, mut sum) = (Vec::new(), 0, 0.0);
        for (duration, times) in histogram.counted() {
            seen += times;
            sum += duration.as_secs_f64() * times as f64;
            steps.push((seen as f64 / count as f64, duration.as_secs_f64() * 1e9));
        }
        let mean = Duration::from_secs_f64(sum / count.max(1) as f64);
        (count > 0).then_some(Self::Measured(Measured { steps, mean, count }))
    }

    /// Each that was measured is shorter by this, and none is shorter than nothing; others stay as they are.
    #[must_use]
    pub fn without(self, part: Duration) -> Self {
        let Self::Measured(mut measured) = self else { return self };
        let part_ns = part.as_nanos() as f64;
        measured.steps.iter_mut().for_each(|(_, ns)| *ns = (*ns - part_ns).max(0.0));
        measured.mean = measured.mean.saturating_sub(part);
        Self::Measured(measured)
    }

    /// Distributed as these are, with another mean.
    #[must_use]
    pub fn with_mean(self, mean: Duration) -> Self {
        match self {
            Self::Constant(_) => Self::Constant(mean),
            Self::Exponential(_) => Self::Exponential(mean),
            Self::Lognormal(_, deviation) => Self::Lognormal(mean, deviation),
            Self::Measured(mut measured) => {
                let factor = mean.as_secs_f64() / measured.mean.as_secs_f64().max(1e-9);
                measured.steps.iter_mut().for_each(|(_, ns)| *ns *= factor);
                Self::Measured(Measured { mean, ..measured })
            }
        }
    }

    /// One of them, in nanoseconds.
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

    /// So long, in nanoseconds, that their mean is this if each is cut to it; infinite where it is their own mean or
    /// more.
    pub fn cut_to(&self, mean: Duration) -> f64 {
        let mean = mean.as_nanos() as f64;
        let (mut low, mut high) = (0.0, mean.max(1.0));
        while self.mean_cut(high) < mean * (1.0 - CUT_PRECISION) {
            (low, high) = (high, 2.0 * high);
            if high > LONGEST_CUT {
                return f64::INFINITY;
            }
        }
        while high - low > high * CUT_PRECISION {
            let middle = f64::midpoint(low, high);
            if self.mean_cut(middle) < mean { low = middle } else { high = middle }
        }
        high
    }

    /// Their mean in nanoseconds, if each is cut to this.
    fn mean_cut(&self, most: f64) -> f64 {
        match self {
            Self::Constant(time) => (time.as_nanos() as f64).min(most),
            Self::Exponential(mean) => {
                let mean = mean.as_nanos().max(1) as f64;
                -mean * (-most / mean).exp_m1()
            }
            Self::Lognormal(mean, deviation) => {
                let mean = mean.as_nanos() as f64;
                // The normal distribution in small steps, to where it is next to nothing even if it is weighted by the
                // longest times.
                let steps = (-120..=200).map(|step| f64::from(step) / 20.0);
                let (sum, weights) = steps.fold((0.0, 0.0), |(sum, weights), normal| {
                    let weight = (-normal * normal / 2.0).exp();
                    let time = mean * (deviation * normal - deviation * deviation / 2.0).exp();
                    (sum + weight * time.min(most), weights + weight)
                });
                sum / weights
            }
            Self::Measured(measured) => {
                let mut before = 0.0;
                let parts = measured
                    .steps
                    .iter()
                    .map(|(until, ns)| (until - std::mem::replace(&mut before, *until)) * ns.min(most));
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

impl Measured {
    fn draw(&self, random: &mut Random) -> f64 {
        let share = random.fraction();
        let at = self.steps.partition_point(|(until, _)| *until < share);
        let (until, longest) = self.steps[at.min(self.steps.len() - 1)];
        // Between two lengths that were told apart anything may have been; the first of them is what was counted.
        let (from, shortest) = if at == 0 { return longest } else { self.steps[at - 1] };
        // Only neighbours that the histogram could not tell apart by more than its precision are filled in.
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
    fn a_lognormal_one_has_the_mean_and_the_99th_percentile_that_were_asked_for() {
        let times = Times::lognormal(Duration::from_millis(10), Duration::from_millis(42)).unwrap();
        let all = drawn(&times);
        near(all.iter().sum::<f64>() / all.len() as f64, 10.0, 0.02);
        near(all[all.len() * 99 / 100], 42.0, 0.03);
        assert!(Times::lognormal(Duration::from_millis(10), Duration::from_millis(9)).is_err());
        assert!(Times::lognormal(Duration::from_millis(10), Duration::from_millis(900)).is_err());
    }

    #[test]
    fn what_the_client_did_itself_is_taken_off_what_was_measured() {
        let mut histogram = Histogram::new();
        (0..1000).for_each(|n| histogram.record(Duration::from_micros(400_000 + n)));
        let times = Times::measured(&histogram).unwrap().without(Duration::from_millis(400));
        assert!(times.mean() < Duration::from_micros(900), "{:?}", times.mean());
        let all = drawn(&times);
        assert!(all[0] >= 0.0 && *all.last().unwrap() < 5.0, "{:?}", all.last());
        let said = Times::Constant(Duration::from_millis(3));
        assert_eq!(said.clone().without(Duration::from_millis(1)), said, "what was said is the server's alone");
    }

    #[test]
    fn with_another_mean_they_vary_as_before() {
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
    fn a_measured_one_gives_back_what_was_measured() {
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
    fn those_cut_to_a_length_have_the_mean_that_was_asked_for() {
        let ms = Duration::from_millis(10);
        // Of an exponential distribution, the mean m (1 - e^(-c/m)).
        near(Times::Exponential(ms).cut_to(Duration::from_millis(8)) / 1e6, 10.0 * 5f64.ln(), 0.001);
        near(Times::Constant(ms).cut_to(Duration::from_millis(8)) / 1e6, 8.0, 0.001);
        let mut histogram = Histogram::new();
        (1..=1000).for_each(|n| histogram.record(Duration::from_micros(n * 100)));
        let measured = Times::measured(&histogram).unwrap();
        for times in [Times::Exponential(ms), Times::lognormal(ms, Duration::from_millis(60)).unwrap(), measured] {
            let half = times.mean() / 2;
            let cut = times.cut_to(half) / 1e6;
            let all = drawn(&times);
            near(all.iter().map(|ms| ms.min(cut)).sum::<f64>() / all.len() as f64, half.as_secs_f64() * 1e3, 0.01);
            assert_eq!(times.cut_to(times.mean() * 2), f64::INFINITY);
            assert!(times.cut_to(times.mean()) > 1.9e9 * times.mean().as_secs_f64(), "next to nothing is cut");
        }
    }

    #[test]
    fn an_exponential_one_has_its_mean_as_deviation() {
        let all = drawn(&Times::Exponential(Duration::from_millis(8)));
        near(all.iter().sum::<f64>() / all.len() as f64, 8.0, 0.02);
        near(all[all.len() / 2], 8.0 * 2f64.ln(), 0.02);
    }
}
