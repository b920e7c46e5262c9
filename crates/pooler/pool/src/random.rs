//! Random numbers from a seed: a SplitMix64 generator (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number
//! generators"). They are for jitter, not for secrets.

/// A small deterministic generator; the same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator with this seed. Neighbouring seeds give unrelated numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A uniform number in `0..=limit`. Its bias is below 2^-11 of a step, which is small enough for jitter.
    pub(crate) fn up_to(&mut self, limit: u64) -> u64 {
        let wide = u128::from(self.bits()) * (u128::from(limit) + 1);
        u64::try_from(wide >> 64).expect("the product of two 64 bit numbers, shifted by 64")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_within_the_limit_and_reach_both_halves() {
        let mut random = Random::new(7);
        let (mut low, mut high) = (0, 0);
        for _ in 0..1000 {
            let n = random.up_to(9);
            assert!(n <= 9);
            if n < 5 { low += 1 } else { high += 1 }
        }
        assert!(low > 400 && high > 400, "{low} {high}");
        assert_eq!(random.up_to(0), 0);
        let _ = random.up_to(u64::MAX);
    }
}
