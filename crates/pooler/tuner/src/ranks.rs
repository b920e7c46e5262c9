//! Whether a difference is more than chance: Wilcoxon's signed-rank test of paired differences (Wilcoxon 1945,
//! "Individual comparisons by ranking methods"), turned into an interval for their middle by the averages of all pairs
//! of them (Hodges and Lehmann 1963, "Estimates of location based on rank tests"; Hollander and Wolfe, "Nonparametric
//! Statistical Methods", 3.3). It only assumes that the noise is symmetric, so one window in which the database stalled
//! does not decide. With normal noise, it needs 5% more pairs than Student's test.

/// The most differences of a test. More would overflow the counts in `cut`.
pub const MAX_DIFFERENCES: usize = 40;

/// The middle of some differences.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Middle {
    /// The estimate of Hodges and Lehmann: the median of the averages of all pairs.
    pub estimate: f64,
    /// Its confidence interval; `None` if there are too few differences for one.
    pub interval: Option<(f64, f64)>,
}

/// The middle of up to [`MAX_DIFFERENCES`] differences, with an interval beyond each end of which it is with a
/// probability of at most `tail`. `None` if there are no differences.
pub fn middle(differences: &[f64], tail: f64) -> Option<Middle> {
    assert!(differences.len() <= MAX_DIFFERENCES, "at most {MAX_DIFFERENCES} differences");
    let mut averages = Vec::with_capacity(differences.len() * (differences.len() + 1) / 2);
    for (i, a) in differences.iter().enumerate() {
        averages.extend(differences[i..].iter().map(|b| (a + b) / 2.0));
    }
    averages.sort_by(f64::total_cmp);
    let (first, last) = (averages.len().checked_sub(1)? / 2, averages.len() / 2);
    let estimate = (averages[first] + averages[last]) / 2.0;
    let interval = cut(differences.len(), tail).map(|cut| (averages[cut], averages[averages.len() - 1 - cut]));
    Some(Middle { estimate, interval })
}

/// The number of smallest averages below the interval: the largest sum of ranks that is not exceeded with at most this
/// probability, if each of the ranks 1 to `pairs` counts with a probability of one half. `None` if 0 is more probable.
fn cut(pairs: usize, tail: f64) -> Option<usize> {
    let mut ways = vec![0_u64; pairs * (pairs + 1) / 2 + 1];
    ways[0] = 1;
    for rank in 1..=pairs {
        for sum in (rank..ways.len()).rev() {
            ways[sum] += ways[sum - rank];
        }
    }
    let allowed = tail * 2_f64.powi(pairs as i32);
    let mut so_far = 0;
    let beyond = ways.iter().position(|ways| {
        so_far += ways;
        so_far as f64 > allowed
    });
    beyond?.checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use random::Random;

    #[test]
    fn the_cuts_are_those_of_the_published_tables() {
        // Critical values of the signed-rank sum, one-sided: of 10 pairs 10 at 0.05, of 20 pairs 60 at 0.05 and 43 at
        // 0.01.
        assert_eq!([cut(10, 0.05), cut(20, 0.05), cut(20, 0.01)], [Some(10), Some(60), Some(43)]);
        // Seven pairs that all point the same way have a chance of 1/128.
        assert_eq!((cut(7, 0.0079), cut(7, 0.0078)), (Some(0), None));
        assert_eq!(cut(4, 0.05), None);
    }

    #[test]
    fn one_outlier_does_not_move_the_middle() {
        let calm = [0.09, 0.10, 0.11, 0.08, 0.12, 0.10, 0.10, 0.09];
        let mut wild = calm;
        wild[3] = -5.0;
        let (a, b) = (middle(&calm, 0.05).unwrap(), middle(&wild, 0.05).unwrap());
        assert!((a.estimate - 0.1).abs() < 0.005 && (b.estimate - 0.1).abs() < 0.02, "{a:?} {b:?}");
        assert_eq!(middle(&[], 0.05), None);
    }

    #[test]
    fn the_interval_misses_the_middle_as_often_as_its_level_says() {
        let mut random = Random::new(1);
        let missed = (0..2000).filter(|_| {
            let differences: Vec<f64> = (0..14).map(|_| 0.3 + random.normal()).collect();
            let (low, high) = middle(&differences, 0.025).unwrap().interval.unwrap();
            low > 0.3 || high < 0.3
        });
        let missed = missed.count() as f64 / 2000.0;
        assert!((0.03..0.06).contains(&missed), "{missed}");
    }

    #[test]
    fn the_counts_of_the_most_differences_do_not_overflow() {
        let differences: Vec<f64> = (0..MAX_DIFFERENCES).map(|i| i as f64).collect();
        let middle = middle(&differences, 0.01).unwrap();
        assert!((middle.estimate - 19.5).abs() < 0.01);
        assert!(middle.interval.is_some_and(|(low, high)| low < 19.5 && 19.5 < high));
    }
}
