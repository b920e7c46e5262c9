//! Whether a curve is bracketed: throughput does not rise any more at the largest number of clients that was tested. If
//! the measurements do not tell, the curve counts as not bracketed.

use super::{
    chooser::MAX_LOSS,
    curve::{CurveEstimate, PointEstimate},
};

/// Share of throughput that a step gains on a curve that still rises.
const MIN_RISE: f64 = 0.02;
/// Ratio of the clients of a step.
const STEP_RATIO: f64 = 1.35;
/// Fewest standard errors that make a difference.
const MIN_STANDARD_ERRORS: f64 = 2.0;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// More clients gain nothing.
    Bracketed,
    Rising,
    /// The measurements do not tell.
    Unknown,
}

/// What happens at the end of this curve.
pub(super) fn ending(estimate: &CurveEstimate, best: PointEstimate) -> Ending {
    let Some((last, before)) = estimate.points.split_last() else { return Ending::Unknown };
    let margin = |a: &PointEstimate, b: &PointEstimate| {
        MIN_STANDARD_ERRORS * estimate.standard_error(a.visits).hypot(estimate.standard_error(b.visits))
    };
    if last.smoothed < best.smoothed * (1.0 - MAX_LOSS.max(margin(last, &best))) {
        return Ending::Bracketed;
    }
    let far = before.iter().rev().find(|p| is_step(p, last));
    let Some(step) = far.or(before.first()) else { return Ending::Unknown };
    let least = if far.is_some() { MIN_RISE } else { 0.0 };
    if last.smoothed > step.smoothed * (1.0 + least.max(margin(last, step))) {
        return Ending::Rising;
    }
    let levels = (0..before.len()).any(|from| is_step(&before[from], last) && most_gain(estimate, from) < MIN_RISE);
    if levels { Ending::Bracketed } else { Ending::Unknown }
}

fn is_step(from: &PointEstimate, to: &PointEstimate) -> bool {
    f64::from(from.clients) * STEP_RATIO <= f64::from(to.clients)
}

/// An upper bound for the gain of one more step: a straight line through the points from this one on (in logarithms,
/// weighed by their errors). A curve bends downwards, so the line is too steep for its end rather than too flat.
fn most_gain(estimate: &CurveEstimate, from: usize) -> f64 {
    let points = || estimate.points[from..].iter().filter(|p| p.throughput > 0.0);
    let weight = |p: &PointEstimate| estimate.standard_error(p.visits).powi(-2);
    let (x, y) = (|p: &PointEstimate| f64::from(p.clients).ln(), |p: &PointEstimate| p.throughput.ln());
    let all: f64 = points().map(weight).sum();
    let mean = |of: &dyn Fn(&PointEstimate) -> f64| points().map(|p| weight(p) * of(p)).sum::<f64>() / all;
    let (middle, level) = (mean(&x), mean(&y));
    let wide: f64 = points().map(|p| weight(p) * (x(p) - middle).powi(2)).sum();
    if wide <= 0.0 {
        return f64::INFINITY;
    }
    let slope = points().map(|p| weight(p) * (x(p) - middle) * (y(p) - level)).sum::<f64>() / wide;
    ((slope + MIN_STANDARD_ERRORS / wide.sqrt()) * STEP_RATIO.ln()).exp_m1()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrivals::Random;
    use report::result::sweep::Visit;

    /// The end of a curve with `visits` visits at each point.
    fn ending_of(points: &[(u32, f64)], visits: u32, noise: f64, seed: u64) -> Ending {
        let mut random = Random::new(seed);
        let visits: Vec<Visit> = (0..visits)
            .flat_map(|_| points)
            .map(|&(clients, x)| {
                let throughput = x * (1.0 + noise * random.normal());
                Visit { clients, throughput, ..Visit::default() }
            })
            .collect();
        let estimate = CurveEstimate::of(&visits);
        let best = estimate.best().unwrap();
        super::ending(&estimate, best)
    }

    fn power(power: f64) -> Vec<(u32, f64)> {
        [1, 2, 4, 8, 16, 32, 64, 91, 128, 181, 256].map(|n| (n, 100.0 * f64::from(n).powf(power))).to_vec()
    }

    #[test]
    fn what_gains_little_with_each_step_is_not_taken_for_a_plateau() {
        // 6.4% from 181 to 256, which two visits of 3% noise do not tell from none.
        let ends: Vec<Ending> = (0..40).map(|seed| ending_of(&power(0.18), 2, 0.03, seed)).collect();
        assert!(!ends.contains(&Ending::Bracketed), "{ends:?}");
        assert!(ends.contains(&Ending::Unknown), "the last step alone is in doubt: {ends:?}");
    }

    #[test]
    fn a_flat_curve_and_a_plateau_are_seen_in_spite_of_noise() {
        let plateau = power(0.0).into_iter().map(|(n, x)| (n, x * f64::from(n.min(24)))).collect::<Vec<_>>();
        for curve in [power(0.0), plateau] {
            let seen = (0..40).filter(|&seed| ending_of(&curve, 3, 0.03, seed) == Ending::Bracketed).count();
            assert!(seen >= 37, "{seen} of 40");
        }
    }

    #[test]
    fn what_clearly_rises_does_and_what_has_fallen_is_seen() {
        assert_eq!(ending_of(&power(0.8), 3, 0.02, 1), Ending::Rising);
        assert_eq!(ending_of(&[(1, 10.0), (8, 80.0), (16, 40.0)], 3, 0.01, 1), Ending::Bracketed);
    }

    #[test]
    fn a_range_without_a_whole_step_does_not_always_rise() {
        assert_eq!(ending_of(&[(10, 100.0), (11, 100.0), (12, 100.0)], 5, 0.005, 1), Ending::Unknown);
        assert_eq!(ending_of(&[(10, 100.0), (11, 110.0), (12, 120.0)], 5, 0.005, 1), Ending::Rising);
        assert_eq!(ending_of(&[(10, 100.0), (11, 60.0), (12, 50.0)], 5, 0.005, 1), Ending::Bracketed);
        assert_eq!(ending_of(&[(10, 100.0)], 5, 0.005, 1), Ending::Unknown);
    }
}
