//! From single visits to a curve: medians, how noisy one visit is, whether the database became faster or slower
//! meanwhile. Knows neither why a point was chosen nor what will be concluded.

use std::collections::BTreeMap;

use super::{machine_speed, smoothing};
use report::result::sweep::Visit;

/// Relative standard deviation of one visit that is assumed before any point was visited twice.
pub(crate) const PRIOR_NOISE: f64 = 0.04;
/// Pairs of visits that weigh as much as the prior.
const PRIOR_WEIGHT: f64 = 3.0;
/// The median distance of two normal values with a standard deviation of 1: 0.6745 sqrt(2). Noise is estimated from
/// distances, so that a few outliers (a checkpoint, a neighbour) do not count as the noise of all visits.
pub(crate) const MEDIAN_DISTANCE: f64 = 0.9539;
/// Lower bound of the noise of one visit.
const MIN_NOISE: f64 = 0.005;
/// Standard deviations by which a point's highest visit must exceed its median to count as an outlier.
const OUTLIER_DEVIATIONS: f64 = 4.0;
/// Change over the whole sweep that is reported.
const MIN_DRIFT: f64 = 0.03;
/// Standard errors of a reported change.
const MIN_DRIFT_STANDARD_ERRORS: f64 = 3.0;
/// Ratio of the standard deviation of a median of normal values to that of their mean: sqrt(pi / 2).
const MEDIAN_TO_MEAN: f64 = 1.2533;

/// A curve, estimated from all visits.
#[derive(Clone, Debug)]
pub(crate) struct CurveEstimate {
    pub points: Vec<PointEstimate>,
    /// Relative standard deviation of one visit, mixed with the prior.
    pub noise: f64,
    /// The same without the prior; `None`: no point was visited twice.
    pub measured_noise: Option<f64>,
    /// The change from the first to the last visit as a share; `None`: too few repeats to tell.
    pub drift: Option<f64>,
    /// The change is more than noise, and the medians are corrected to the middle of the sweep.
    pub drifted: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct PointEstimate {
    pub clients: u32,
    pub visits: u32,
    /// The median throughput of its visits, corrected for drift and for the speed of the machine.
    pub throughput: f64,
    /// The highest throughput of its visits.
    pub max: f64,
    /// The median, drawn towards a smooth line through its neighbours as far as they lie on one.
    pub smoothed: f64,
}

impl CurveEstimate {
    pub(crate) fn of(visits: &[Visit]) -> Self {
        let trend = Trend::of(visits);
        let mut by_clients: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        let steady: Vec<f64> = visits.iter().map(|v| v.throughput * trend.correction(v.at_s)).collect();
        let logs: Vec<f64> = steady.iter().map(|throughput| throughput.ln()).collect();
        let changes = machine_speed::corrections(visits, &logs);
        for (i, visit) in visits.iter().enumerate() {
            let change = changes.as_ref().map_or(1.0, |changes| changes[i].exp());
            by_clients.entry(visit.clients).or_default().push(steady[i] * change);
        }
        let mut differences = Vec::new();
        let mut points = Vec::new();
        for (clients, mut values) in by_clients {
            let throughput = median(&mut values);
            if throughput > 0.0 {
                differences.extend(pairs(&values).map(|(a, b)| (a - b).abs() / throughput));
            }
            let visits = u32::try_from(values.len()).expect("visits are few");
            // `median` has sorted the values.
            let max = values.last().copied().unwrap_or(0.0);
            points.push(PointEstimate { clients, visits, throughput, max, smoothed: throughput });
        }
        let count = differences.len() as f64;
        let measured = (count > 0.0).then(|| median(&mut differences) / MEDIAN_DISTANCE);
        let noise = measured.map_or(PRIOR_NOISE, |noise| {
            ((count * noise.powi(2) + PRIOR_WEIGHT * PRIOR_NOISE.powi(2)) / (count + PRIOR_WEIGHT)).sqrt()
        });
        let mut estimate = Self {
            points,
            noise: noise.max(MIN_NOISE),
            measured_noise: measured,
            drift: trend.change,
            drifted: trend.significant,
        };
        let point = |p: &PointEstimate| smoothing::Point {
            clients: p.clients,
            throughput: p.throughput,
            error: estimate.standard_error(p.visits),
        };
        let smoothed = smoothing::smoothed(&estimate.points.iter().map(point).collect::<Vec<_>>());
        for (point, smoothed) in estimate.points.iter_mut().zip(smoothed) {
            point.smoothed = smoothed;
        }
        estimate
    }

    /// The point with the highest smoothed throughput; of equal ones the smallest.
    pub(crate) fn highest(&self) -> Option<PointEstimate> {
        self.top(|p| p.smoothed)
    }

    /// The point that is reported as the best: its throughput less one standard error is the highest, so that few lucky
    /// measurements do not win against many.
    pub(crate) fn best(&self) -> Option<PointEstimate> {
        self.top(|p| p.smoothed * (1.0 - self.standard_error(p.visits)))
    }

    fn top(&self, value: impl Fn(&PointEstimate) -> f64) -> Option<PointEstimate> {
        let seen = self.points.iter().copied().filter(|p| p.throughput > 0.0);
        seen.reduce(|best, p| if value(&p) > value(&best) { p } else { best })
    }

    /// Whether the highest visit of a point is further above its median than noise explains.
    pub(crate) fn has_outliers(&self, point: &PointEstimate) -> bool {
        point.max > point.throughput * (1.0 + OUTLIER_DEVIATIONS * self.noise)
    }

    /// Relative standard error of a point's median.
    pub(crate) fn standard_error(&self, visits: u32) -> f64 {
        let shape = if visits > 2 { MEDIAN_TO_MEAN } else { 1.0 };
        shape * self.noise / f64::from(visits.max(1)).sqrt()
    }
}

/// A straight line of the logarithm of throughput over time, common to all points: each point's own level is taken out
/// first, so that only repeats speak.
struct Trend {
    slope: f64,
    middle: f64,
    change: Option<f64>,
    significant: bool,
}

impl Trend {
    fn of(visits: &[Visit]) -> Self {
        let none = Self { slope: 0.0, middle: 0.0, change: None, significant: false };
        let mut groups: BTreeMap<u32, Vec<(f64, f64)>> = BTreeMap::new();
        for visit in visits.iter().filter(|v| v.throughput > 0.0) {
            groups.entry(visit.clients).or_default().push((visit.at_s, visit.throughput.ln()));
        }
        let (mut xx, mut xy, mut yy, mut freedom) = (0.0, 0.0, 0.0, -1.0);
        for group in groups.values().filter(|g| g.len() > 1) {
            let count = group.len() as f64;
            let (t, y) = group.iter().fold((0.0, 0.0), |sum, v| (sum.0 + v.0 / count, sum.1 + v.1 / count));
            for v in group {
                xx += (v.0 - t).powi(2);
                xy += (v.0 - t) * (v.1 - y);
                yy += (v.1 - y).powi(2);
            }
            freedom += count - 1.0;
        }
        let ends = visits.first().zip(visits.last());
        let Some((first, last)) = ends.filter(|_| freedom >= 3.0 && xx > 0.0) else { return none };
        let slope = xy / xx;
        let error = ((yy - slope * xy).max(0.0) / freedom / xx).sqrt();
        let span = last.at_s - first.at_s;
        let change = (slope * span).exp() - 1.0;
        let significant = change.abs() > MIN_DRIFT && slope.abs() > MIN_DRIFT_STANDARD_ERRORS * error;
        Self { slope, middle: (first.at_s + last.at_s) / 2.0, change: Some(change), significant }
    }

    /// What a throughput measured at this time is to be multiplied by.
    fn correction(&self, at_s: f64) -> f64 {
        if self.significant { (-self.slope * (at_s - self.middle)).exp() } else { 1.0 }
    }
}

/// All pairs of some values, each once.
fn pairs(values: &[f64]) -> impl Iterator<Item = (f64, f64)> + '_ {
    values.iter().enumerate().flat_map(|(i, &a)| values[..i].iter().map(move |&b| (a, b)))
}

/// Sorts the values, and returns their median; of an even number of values the mean of the two in the middle;
/// 0 of none.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[half],
        _ => f64::midpoint(values[half - 1], values[half]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(at_s: f64, clients: u32, throughput: f64) -> Visit {
        Visit { at_s, clients, throughput, ..Visit::default() }
    }

    #[test]
    fn one_bad_visit_in_five_does_not_move_a_point() {
        let visits: Vec<_> = [100.0, 101.0, 40.0, 99.0, 100.5].iter().map(|&x| visit(0.0, 8, x)).collect();
        let estimate = CurveEstimate::of(&visits);
        assert_eq!((estimate.points.len(), estimate.points[0].visits, estimate.points[0].throughput), (1, 5, 100.0));
    }

    #[test]
    fn a_database_that_becomes_slower_is_noticed_and_corrected_for() {
        // The true values are 100 at 8 clients and 90 at 32; 30% are lost over the sweep, and 32 is always measured
        // earlier.
        let mut visits = Vec::new();
        for round in 0..5 {
            for (i, (clients, x)) in [(32, 90.0), (8, 100.0)].into_iter().enumerate() {
                let at_s = f64::from(round) * 10.0 + i as f64 * 5.0;
                visits.push(visit(at_s, clients, x * (1.0 - 0.3 * at_s / 45.0)));
            }
        }
        let estimate = CurveEstimate::of(&visits);
        assert!(estimate.drifted);
        assert!((estimate.drift.unwrap() + 0.3).abs() < 0.04, "{:?}", estimate.drift);
        let ratio = estimate.points[1].throughput / estimate.points[0].throughput;
        assert!((ratio - 0.9).abs() < 0.01, "{ratio}");
    }

    #[test]
    fn noise_alone_is_no_drift() {
        let mut random = arrivals::Random::new(11);
        let drifted = (0..200).filter(|_| {
            let visits: Vec<_> = (0..30)
                .map(|i| visit(f64::from(i), 1 + i as u32 % 6, 100.0 * (1.0 + 0.05 * random.normal())))
                .collect();
            CurveEstimate::of(&visits).drifted
        });
        assert!(drifted.count() <= 4, "more than 2% false alarms");
    }

    #[test]
    fn the_noise_of_a_visit_is_found_from_repeats() {
        let mut random = arrivals::Random::new(12);
        let visits: Vec<_> = (0..240).map(|i| visit(0.0, 1 + i % 12, 100.0 * (1.0 + 0.08 * random.normal()))).collect();
        let noise = CurveEstimate::of(&visits).measured_noise.unwrap();
        assert!((noise - 0.08).abs() < 0.02, "{noise}");
        assert_eq!(CurveEstimate::of(&visits[..12]).measured_noise, None);
    }
}
