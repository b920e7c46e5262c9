//! Whether the end of a curve has been seen: throughput rises no more at the largest number of clients that was tested.
//! It still rises, or it does not, or the measurements do not say; doubt is not taken for an end.

use super::{
    chooser::WITHIN,
    curve::{Known, Place},
};

/// A curve still rises if a step, ...
const RISING: f64 = 0.02;
/// ... to so many times the clients, brings more than that share.
const STEP: f64 = 1.35;
/// What is less than so many standard errors is no difference.
const ERRORS: f64 = 2.0;

/// What is known of the end of a curve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Top {
    /// More clients gain nothing.
    Seen,
    /// More clients gain more.
    Rising,
    Open,
}

/// What is known of the end of this curve.
pub(super) fn top(known: &Known, best: Place) -> Top {
    let Some((last, before)) = known.points.split_last() else { return Top::Open };
    let margin = |a: &Place, b: &Place| ERRORS * known.error(a.visits).hypot(known.error(b.visits));
    if last.believed < best.believed * (1.0 - WITHIN.max(margin(last, &best))) {
        return Top::Seen;
    }
    let far = before.iter().rev().find(|p| is_step(p, last));
    let Some(step) = far.or(before.first()) else { return Top::Open };
    let least = if far.is_some() { RISING } else { 0.0 };
    if last.believed > step.believed * (1.0 + least.max(margin(last, step))) {
        return Top::Rising;
    }
    let levels = (0..before.len()).any(|from| is_step(&before[from], last) && most_gain(known, from) < RISING);
    if levels { Top::Seen } else { Top::Open }
}

fn is_step(from: &Place, to: &Place) -> bool {
    f64::from(from.clients) * STEP <= f64::from(to.clients)
}

/// The most that one more step may bring, by a straight line through the points from this one on (logarithms, weighed
/// by their errors). A curve bends downwards, so that such a line is too steep for its end rather than too flat.
fn most_gain(known: &Known, from: usize) -> f64 {
    let points = || known.points[from..].iter().filter(|p| p.throughput > 0.0);
    let weight = |p: &Place| known.error(p.visits).powi(-2);
    let (x, y) = (|p: &Place| f64::from(p.clients).ln(), |p: &Place| p.throughput.ln());
    let all: f64 = points().map(weight).sum();
    let mean = |of: &dyn Fn(&Place) -> f64| points().map(|p| weight(p) * of(p)).sum::<f64>() / all;
    let (middle, level) = (mean(&x), mean(&y));
    let wide: f64 = points().map(|p| weight(p) * (x(p) - middle).powi(2)).sum();
    if wide <= 0.0 {
        return f64::INFINITY;
    }
    let slope = points().map(|p| weight(p) * (x(p) - middle) * (y(p) - level)).sum::<f64>() / wide;
    ((slope + ERRORS / wide.sqrt()) * STEP.ln()).exp_m1()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrivals::Random;
    use report::result::sweep::Visit;

    /// So many visits at each of some points, with that much noise.
    fn ending(points: &[(u32, f64)], visits: u32, noise: f64, seed: u64) -> Top {
        let mut random = Random::new(seed);
        let visits: Vec<Visit> = (0..visits)
            .flat_map(|_| points)
            .map(|&(clients, x)| {
                let throughput = x * (1.0 + noise * random.normal());
                Visit { clients, throughput, ..Visit::default() }
            })
            .collect();
        let known = Known::of(&visits);
        let best = known.best().unwrap();
        top(&known, best)
    }

    fn power(power: f64) -> Vec<(u32, f64)> {
        [1, 2, 4, 8, 16, 32, 64, 91, 128, 181, 256].map(|n| (n, 100.0 * f64::from(n).powf(power))).to_vec()
    }

    #[test]
    fn what_gains_little_with_each_step_is_not_taken_for_a_plateau() {
        // 6.4% from 181 to 256, which two visits of 3% noise do not tell from none.
        let ends: Vec<Top> = (0..40).map(|seed| ending(&power(0.18), 2, 0.03, seed)).collect();
        assert!(!ends.contains(&Top::Seen), "{ends:?}");
        assert!(ends.contains(&Top::Open), "the last step alone is in doubt: {ends:?}");
    }

    #[test]
    fn a_flat_curve_and_a_plateau_are_seen_in_spite_of_noise() {
        let plateau = power(0.0).into_iter().map(|(n, x)| (n, x * f64::from(n.min(24)))).collect::<Vec<_>>();
        for curve in [power(0.0), plateau] {
            let seen = (0..40).filter(|&seed| ending(&curve, 3, 0.03, seed) == Top::Seen).count();
            assert!(seen >= 37, "{seen} of 40");
        }
    }

    #[test]
    fn what_clearly_rises_does_and_what_has_fallen_is_seen() {
        assert_eq!(ending(&power(0.8), 3, 0.02, 1), Top::Rising);
        assert_eq!(ending(&[(1, 10.0), (8, 80.0), (16, 40.0)], 3, 0.01, 1), Top::Seen);
    }

    #[test]
    fn a_range_without_a_whole_step_does_not_always_rise() {
        assert_eq!(ending(&[(10, 100.0), (11, 100.0), (12, 100.0)], 5, 0.005, 1), Top::Open);
        assert_eq!(ending(&[(10, 100.0), (11, 110.0), (12, 120.0)], 5, 0.005, 1), Top::Rising);
        assert_eq!(ending(&[(10, 100.0), (11, 60.0), (12, 50.0)], 5, 0.005, 1), Top::Seen);
        assert_eq!(ending(&[(10, 100.0)], 5, 0.005, 1), Top::Open);
    }
}
