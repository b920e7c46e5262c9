//! Random numbers from a seed, for simulations and statistics: the same seed gives the same numbers. The bits are those
//! of `pool`'s generator.
#![forbid(unsafe_code)]

/// A small deterministic generator.
#[derive(Clone, Debug)]
pub struct Random(pool::Random);

impl Random {
    /// The same seed gives the same numbers.
    pub fn new(seed: u64) -> Self {
        Self(pool::Random::new(seed))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.bits()
    }

    /// Uniform in (0, 1]: never 0, so that its logarithm is finite.
    pub fn positive_fraction(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Normal with mean 0 and deviation 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Brings a slice into random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, slice: &mut [T]) {
        for i in (1..slice.len()).rev() {
            let other = (self.unit() * (i + 1) as f64) as usize;
            slice.swap(i, other);
        }
    }

    /// Uniform in `0..count`, where 0 stands for 2^64. The bias is below `count` / 2^64.
    pub fn below(&mut self, count: u64) -> u64 {
        match count {
            0 => self.bits(),
            _ => ((u128::from(self.bits()) * u128::from(count)) >> 64) as u64,
        }
    }

    /// Exponentially distributed with mean 1: the gap between two arrivals of a Poisson process of rate 1.
    pub fn exponential(&mut self) -> f64 {
        -self.positive_fraction().ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_uniform_and_never_zero() {
        let mut random = Random::new(1);
        let mut tenths = [0u32; 10];
        for _ in 0..100_000 {
            let x = random.positive_fraction();
            assert!(x > 0.0 && x <= 1.0);
            tenths[((x * 10.0) as usize).min(9)] += 1;
        }
        // 10,000 each, with a standard deviation of 95.
        assert!(tenths.iter().all(|&n| n.abs_diff(10_000) < 500), "{tenths:?}");
    }

    #[test]
    fn exponential_gaps_have_mean_and_variance_one() {
        let mut random = Random::new(2);
        let n = 200_000;
        let gaps: Vec<f64> = (0..n).map(|_| random.exponential()).collect();
        let mean = gaps.iter().sum::<f64>() / f64::from(n);
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / f64::from(n);
        assert!((mean - 1.0).abs() < 0.01 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
    }

    #[test]
    fn normal_numbers_have_mean_zero_and_deviation_one() {
        let mut random = Random::new(3);
        let numbers: Vec<f64> = (0..20_000).map(|_| random.normal()).collect();
        let mean = numbers.iter().sum::<f64>() / 20_000.0;
        let variance = numbers.iter().map(|n| (n - mean).powi(2)).sum::<f64>() / 20_000.0;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.04, "{mean} {variance}");
    }

    #[test]
    fn a_shuffle_keeps_everything_and_every_place_can_come_first() {
        let mut random = Random::new(4);
        let mut first = [0; 4];
        for _ in 0..4000 {
            let mut numbers = [0, 1, 2, 3];
            random.shuffle(&mut numbers);
            first[numbers[0]] += 1;
            numbers.sort_unstable();
            assert_eq!(numbers, [0, 1, 2, 3]);
        }
        assert!(first.iter().all(|&n| (850..1150).contains(&n)), "{first:?}");
    }
}
