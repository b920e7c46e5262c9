//! How far the means of two series may lie apart by chance.
//!
//! Seconds that follow each other are alike, so they are not resampled one by one but in blocks: a moving-block
//! bootstrap (Künsch 1989) of each series, whose blocks go round at the end. The blocks are as long as the root of the
//! series, which is longer than the cube root that is best for many values (Hall, Horowitz and Jing 1995): of few
//! values short blocks are too sure of themselves.
//!
//! Left as it is, that interval is too narrow for short series, for two reasons. Blocks that are taken from a series
//! vary around its own mean, which has followed their noise: their variance is too small by about 1 - b/n, for n values
//! in blocks of b. And how much they vary is itself known from n/b blocks only: Student's quantile with n/b - 1 degrees
//! of freedom for each series stands in the place of the normal one. Both are put right by widening. How often two runs
//! without any difference are called different is measured by the test
//! `runs_without_a_difference_seldom_seem_to_differ`.

use arrivals::Random;

/// Fewer values say nothing about noise.
pub(super) const FEWEST: usize = 8;
/// How often the series are resampled.
const RESAMPLES: usize = 2000;
/// The part of the resampled differences that lies outside of the interval, half on each side.
const OUTSIDE: f64 = 0.01;
/// Resampling is seeded, so that the same two files give the same answer.
const SEED: u64 = 0x1987;

/// The 99% interval of the difference of means, b - a; `None` if a series is too short.
pub(super) fn interval(a: &[f64], b: &[f64]) -> Option<(f64, f64)> {
    if a.len().min(b.len()) < FEWEST {
        return None;
    }
    let (a, b) = (Series::new(a), Series::new(b));
    let mut random = Random::new(SEED);
    let mut deviations: Vec<f64> =
        (0..RESAMPLES).map(|_| b.deviation(&mut random) - a.deviation(&mut random)).collect();
    deviations.sort_by(f64::total_cmp);
    let at = |part: f64| deviations[((RESAMPLES - 1) as f64 * part).round() as usize];
    let wider = student_to_normal(a.blocks() + b.blocks() - 2.0);
    let difference = b.mean() - a.mean();
    Some((difference + wider * at(OUTSIDE / 2.0), difference + wider * at(1.0 - OUTSIDE / 2.0)))
}

/// A series, ready to be resampled.
struct Series {
    length: usize,
    block: usize,
    /// The sums of the first 0, 1, 2, ... values, twice round.
    sums: Vec<f64>,
    /// By how much resampled means vary too little.
    wider: f64,
}

impl Series {
    fn new(values: &[f64]) -> Self {
        let length = values.len();
        let block = ((length as f64).sqrt().ceil() as usize).max(1);
        let mut sums = vec![0.0; 2 * length + 1];
        for at in 0..2 * length {
            sums[at + 1] = sums[at] + values[at % length];
        }
        Self { length, block, sums, wider: (length as f64 / (length - block) as f64).sqrt() }
    }

    fn mean(&self) -> f64 {
        self.sums[self.length] / self.length as f64
    }

    fn blocks(&self) -> f64 {
        self.length as f64 / self.block as f64
    }

    /// How far the mean of as many values lies from the series' own, taken in blocks from random places.
    fn deviation(&self, random: &mut Random) -> f64 {
        let (mut sum, mut taken) = (0.0, 0);
        while taken < self.length {
            let size = self.block.min(self.length - taken);
            let from = random.below(self.length as u64) as usize;
            sum += self.sums[from + size] - self.sums[from];
            taken += size;
        }
        (sum / self.length as f64 - self.mean()) * self.wider
    }
}

/// How many times as far out the 99.5% quantile of Student's distribution lies as that of the normal one. Between the
/// degrees of freedom of the table it is read off a straight line in their inverse, which is a little too far out.
fn student_to_normal(freedom: f64) -> f64 {
    const NORMAL: f64 = 2.5758;
    const TABLE: [(f64, f64); 13] = [
        (1.0, 63.657),
        (2.0, 9.925),
        (3.0, 5.841),
        (4.0, 4.604),
        (5.0, 4.032),
        (6.0, 3.707),
        (8.0, 3.355),
        (10.0, 3.169),
        (15.0, 2.947),
        (20.0, 2.845),
        (30.0, 2.750),
        (60.0, 2.660),
        (f64::INFINITY, NORMAL),
    ];
    let freedom = freedom.max(1.0);
    let above = TABLE.iter().position(|(known, _)| *known >= freedom).expect("the last one is");
    if TABLE[above].0 == freedom {
        return TABLE[above].1 / NORMAL;
    }
    let ((few, far), (many, near)) = (TABLE[above - 1], TABLE[above]);
    let part = (1.0 / freedom - 1.0 / many) / (1.0 / few - 1.0 / many);
    (near + part * (far - near)) / NORMAL
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds around a level, of which each keeps a part of what the one before was off.
    fn series(length: usize, kept: f64, random: &mut Random) -> Vec<f64> {
        let mut off = random.normal() / (1.0 - kept * kept).sqrt();
        (0..length)
            .map(|_| {
                off = kept * off + random.normal();
                100.0 + off
            })
            .collect()
    }

    /// Of 2,000 pairs of runs that do not differ, the part that is called different.
    fn false_alarms(length: usize, kept: f64) -> f64 {
        let mut random = Random::new(length as u64);
        let wrong = (0..2000).filter(|_| {
            let (a, b) = (series(length, kept, &mut random), series(length, kept, &mut random));
            let (low, high) = interval(&a, &b).expect("long enough");
            low > 0.0 || high < 0.0
        });
        wrong.count() as f64 / 2000.0
    }

    /// Measured over 10, 30 and 60 s, 2,000 pairs each: 0%, 0.6% and 0.65% of independent seconds; 0.45%, 2.1% and 1.7%
    /// of seconds that keep half of the one before.
    #[test]
    fn runs_without_a_difference_seldom_seem_to_differ() {
        for (kept, most) in [(0.0, 0.02), (0.5, 0.05)] {
            let parts = [10, 30, 60].map(|length| false_alarms(length, kept));
            println!("each second keeps {kept} of the one before: {parts:?}");
            assert!(parts.iter().all(|part| *part <= most), "{kept}: {parts:?}");
        }
    }

    #[test]
    fn a_difference_of_a_fifth_is_found_in_half_a_minute() {
        let mut random = Random::new(7);
        let found = (0..500).filter(|_| {
            let noisy = |mean: f64, random: &mut Random| {
                (0..30).map(|_| mean * (1.0 + 0.05 * random.normal())).collect::<Vec<f64>>()
            };
            let (a, b) = (noisy(100.0, &mut random), noisy(120.0, &mut random));
            interval(&a, &b).expect("long enough").0 > 0.0
        });
        let found = found.count();
        assert!(found >= 475, "{found} of 500");
    }

    #[test]
    fn few_degrees_of_freedom_lie_far_out() {
        let near = |freedom: f64, quantile: f64| {
            let found = student_to_normal(freedom) * 2.5758;
            assert!((found - quantile).abs() < 1e-3, "{freedom}: {found}");
        };
        near(3.0, 5.841);
        near(10.0, 3.169);
        near(1e12, 2.5758);
        // Between them never nearer than the true ones (from the table: 7, 12, 40).
        for (freedom, quantile) in [(7.0, 3.499), (12.0, 3.055), (40.0, 2.704)] {
            let found = student_to_normal(freedom) * 2.5758;
            assert!((quantile - 1e-3..quantile * 1.01).contains(&found), "{freedom}: {found}");
        }
    }

    #[test]
    fn seconds_without_any_noise_are_certain() {
        assert_eq!(interval(&[2.0; 9], &[2.0; 9]), Some((0.0, 0.0)));
        let (low, high) = interval(&[2.0; 9], &[3.0; 20]).unwrap();
        assert!((low - 1.0).abs() < 1e-9 && (high - 1.0).abs() < 1e-9);
        assert_eq!(interval(&[2.0; 7], &[3.0; 20]), None);
    }
}
