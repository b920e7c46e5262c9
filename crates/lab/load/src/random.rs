//! The distributions of pgbench's functions, over [`arrivals::Random`], for each client from a seed of its own.

/// The smallest parameter of [`Random::gaussian`].
pub(crate) const MIN_GAUSSIAN: f64 = 2.0;
/// The parameters of [`Random::zipfian`].
pub(crate) const ZIPFIAN: std::ops::RangeInclusive<f64> = 1.001..=1000.0;

#[derive(Clone, Debug)]
pub(crate) struct Random(arrivals::Random);

impl Random {
    /// The generator of one client of a run.
    pub(crate) fn new(seed: u64, client: u32) -> Self {
        // Two steps apart from the seed, or neighbouring clients would draw the same numbers a step later.
        let first = |seed| arrivals::Random::new(seed).bits();
        let own = first(seed) ^ u64::from(client).wrapping_mul(0xd1b5_4a32_d192_ed03);
        Self(arrivals::Random::new(first(own)))
    }

    /// 64 random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0.bits()
    }

    /// Uniform in `0..count`; see [`arrivals::Random::below`].
    pub(crate) fn below(&mut self, count: u64) -> u64 {
        self.0.below(count)
    }

    /// Uniform in `min..=max`.
    pub(crate) fn uniform(&mut self, min: i64, max: i64) -> i64 {
        debug_assert!(min <= max);
        min.wrapping_add(self.below(max.wrapping_sub(min).wrapping_add(1) as u64) as i64)
    }

    /// In `min..=max`, the smaller the likelier: an exponential distribution cut off at `parameter`, as pgbench's
    /// manual gives it for `random_exponential`.
    pub(crate) fn exponential(&mut self, min: i64, max: i64, parameter: f64) -> i64 {
        let cut = (-parameter).exp();
        let uniform = 1.0 - self.0.unit();
        share(min, max, -(cut + (1.0 - cut) * uniform).ln() / parameter)
    }

    /// In `min..=max`, the middle likeliest: a normal distribution cut off at `parameter` standard deviations on either
    /// side, as pgbench's manual gives it for `random_gaussian`.
    pub(crate) fn gaussian(&mut self, min: i64, max: i64, parameter: f64) -> i64 {
        debug_assert!(parameter >= MIN_GAUSSIAN);
        // At two deviations 4.6% are drawn again, so this ends.
        loop {
            let normal = self.0.normal();
            if (-parameter..parameter).contains(&normal) {
                return share(min, max, (normal + parameter) / (parameter * 2.0));
            }
        }
    }

    /// In `min..=max`, the k-th with a likelihood of 1 / k^`parameter` (Zipf), by rejection: Devroye, "Non-Uniform
    /// Random Variate Generation", chapter X.6.
    pub(crate) fn zipfian(&mut self, min: i64, max: i64, parameter: f64) -> i64 {
        debug_assert!(ZIPFIAN.contains(&parameter));
        let count = max.wrapping_sub(min) as u64 as f64 + 1.0;
        let s = parameter - 1.0;
        let b = 2f64.powf(s);
        loop {
            let (u, v) = (1.0 - self.0.unit(), self.0.unit());
            let x = u.powf(-1.0 / s).floor();
            if x > count {
                continue;
            }
            let t = (1.0 + 1.0 / x).powf(s);
            if v * x * (t - 1.0) / (b - 1.0) <= t / b {
                return min.wrapping_add((x - 1.0) as i64).clamp(min, max);
            }
        }
    }
}

/// The value at a fraction of the range.
fn share(min: i64, max: i64, fraction: f64) -> i64 {
    let count = max.wrapping_sub(min) as u64 as f64 + 1.0;
    min.wrapping_add((count * fraction) as i64).clamp(min, max)
}

/// The new place of `value` (modulo `size`) in a pseudo-random permutation of `0..size` that `seed` names: a Feistel
/// network of six rounds on the next even number of bits, walked along until it falls into the range (Black and
/// Rogaway, "Ciphers with arbitrary finite domains", 2002). A permutation as pgbench's, but not the same one.
pub(crate) fn permute(value: i64, size: i64, seed: i64) -> i64 {
    debug_assert!(size > 0);
    let half = (64 - ((size - 1) as u64).leading_zeros()).div_ceil(2).max(1);
    let mask = (1u64 << half) - 1;
    let mut place = value.rem_euclid(size) as u64;
    // The domain is less than four times the range, and a cycle of a permutation comes back, so this ends.
    loop {
        let (mut left, mut right) = (place >> half, place & mask);
        for round in 0..6u64 {
            let mixed =
                arrivals::Random::new(seed as u64 ^ right.rotate_left(17) ^ round.wrapping_mul(0xd1b5_4a32_d192_ed03))
                    .bits();
            (left, right) = (right, left ^ (mixed & mask));
        }
        place = left << half | right;
        if place < size as u64 {
            return place as i64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(draw: impl Fn(&mut Random) -> i64) -> Vec<i64> {
        let mut random = Random::new(7, 0);
        (0..20_000).map(|_| draw(&mut random)).collect()
    }

    #[test]
    fn a_uniform_number_may_be_either_end_and_covers_every_range() {
        let drawn = draws(|r| r.uniform(-1, 2));
        for value in -1..=2 {
            let count = drawn.iter().filter(|d| **d == value).count();
            assert!((4_700..5_300).contains(&count), "{value}: {count}");
        }
        assert!(draws(|r| r.uniform(i64::MIN, i64::MAX)).iter().any(|d| *d < 0));
        assert!(draws(|r| r.uniform(5, 5)).iter().all(|d| *d == 5));
    }

    #[test]
    fn the_share_of_an_exponential_draw_is_the_manual_s() {
        // With parameter 10 the first of 100 equal parts has 1 - exp(-0.1) = 9.5% of the draws.
        let drawn = draws(|r| r.exponential(1, 100, 10.0));
        let first = drawn.iter().filter(|d| **d == 1).count() as f64 / 20_000.0;
        assert!((0.088..0.102).contains(&first), "{first}");
        assert!(drawn.iter().all(|d| (1..=100).contains(d)));
    }

    #[test]
    fn two_thirds_of_gaussian_draws_lie_within_one_deviation() {
        // With parameter 2.5 one deviation is a fifth of the range on either side of the middle.
        let drawn = draws(|r| r.gaussian(0, 999, 2.5));
        let middle = drawn.iter().filter(|d| (300..700).contains(*d)).count() as f64 / 20_000.0;
        assert!((0.68..0.70).contains(&middle), "{middle}");
        assert!(drawn.iter().all(|d| (0..1000).contains(d)));
    }

    #[test]
    fn the_second_of_a_zipfian_range_is_rarer_than_the_first_by_the_power() {
        let drawn = draws(|r| r.zipfian(1, 1000, 2.0));
        let of = |value: i64| drawn.iter().filter(|d| **d == value).count() as f64;
        assert!((3.6..4.4).contains(&(of(1) / of(2))), "{} {}", of(1), of(2));
        assert!(drawn.iter().all(|d| (1..=1000).contains(d)));
    }

    #[test]
    fn a_permutation_has_neither_collisions_nor_holes() {
        for size in [1, 2, 3, 7, 64, 1000] {
            let mut places: Vec<i64> = (0..size).map(|i| permute(i, size, 42)).collect();
            places.sort_unstable();
            assert_eq!(places, (0..size).collect::<Vec<_>>());
        }
        assert_ne!((0..20).map(|i| permute(i, 20, 1)).collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
        assert_eq!(permute(-1, 10, 3), permute(9, 10, 3));
        assert!((0..i64::MAX).contains(&permute(5, i64::MAX, 3)));
    }

    #[test]
    fn clients_draw_different_numbers_and_the_same_client_the_same() {
        let first = |seed, client| Random::new(seed, client).bits();
        assert_eq!(first(1, 2), first(1, 2));
        let mut all: Vec<u64> = (0..1000).map(|client| first(1, client)).chain([first(2, 0)]).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 1001);
    }
}
