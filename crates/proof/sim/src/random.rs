//! Random decisions of the simulator. The same seed gives the same schedule on every machine. The bits are those of
//! `pool`'s generator.

use core::time::Duration;

/// Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng(pool::Random);

impl Rng {
    /// The numbers of neighbouring seeds are unrelated.
    pub fn new(seed: u64) -> Self {
        let mut rng = Self(pool::Random::new(seed ^ 0x6a09_e667_f3bc_c909));
        rng.next();
        rng
    }

    /// 64 random bits.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0.bits()
    }

    /// A number below `n`, which must not be zero.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "nothing is below zero");
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// True in `percent` of a hundred cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// True in `n` of ten thousand cases.
    pub fn per_myriad(&mut self, n: u64) -> bool {
        self.below(10_000) < n
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// An index of a sequence of `len` elements.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Exponentially distributed around `mean`, at least a nanosecond, at most twenty times the mean.
    pub fn exponential(&mut self, mean: Duration) -> Duration {
        let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        let factor = (-(1.0 - unit).ln()).min(20.0);
        mean.mul_f64(factor).max(Duration::from_nanos(1))
    }
}
