//! Chance from a seed: a SplitMix64 generator (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators"). The
//! same seed gives the same load; it is no source of secrets.

/// A small deterministic generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The same seed gives the same numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in (0, 1]: never 0, so that its logarithm is finite.
    pub fn fraction(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Exponentially distributed with mean 1: the gap between two arrivals of a Poisson process of rate 1.
    pub fn exponential(&mut self) -> f64 {
        -self.fraction().ln()
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
            let x = random.fraction();
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
}
