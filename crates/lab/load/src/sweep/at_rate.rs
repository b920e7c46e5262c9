//! Latency at a given rate of arrivals, against the number of connections: too few and operations wait in the pool, too
//! many and they hinder one another in the database. Measured like the curve: repeated, in random order.

use std::time::Duration;

use arrivals::Random;

use super::{
    Options, Probe, ProbeError,
    curve::median,
    result::{AtRate, Curve, RatePoint},
};

/// Numbers of connections that are tried.
const CANDIDATES: usize = 6;
/// Measurements of each.
const ROUNDS: usize = 3;
/// A number is worth a try if its throughput in the closed loop was so many times the rate: a queue with less room
/// grows without end.
const ROOM: f64 = 1.02;
/// Up to so many times the best number.
const BEYOND: u32 = 2;
/// Latencies within this share of the lowest are equal.
const WITHIN: f64 = 0.05;
/// Who keeps up with less than this share of the arrivals lets a queue grow.
const KEEPS_UP: f64 = 0.99;
/// More failures than this share of the arrivals, and more than one, are no service.
const MANY_ERRORS: f64 = 0.001;

/// The numbers of connections to try: those of the curve that can serve the rate, thinned out.
pub fn candidates(curve: &Curve, rate: f64, best: u32) -> Vec<u32> {
    let able: Vec<u32> = curve
        .points
        .iter()
        .filter(|p| p.throughput >= ROOM * rate && p.clients <= BEYOND.saturating_mul(best))
        .map(|p| p.clients)
        .collect();
    if able.len() <= CANDIDATES {
        return able;
    }
    (0..CANDIDATES).map(|i| able[i * (able.len() - 1) / (CANDIDATES - 1)]).collect()
}

/// Measures them. `progress` is told the number of connections, how many measurements are done and how many there are.
///
/// # Errors
/// As the probe's; an interruption too, since half of this says nothing.
pub fn measure(
    probe: &mut dyn Probe,
    options: &Options,
    rate: f64,
    candidates: &[u32],
    progress: &mut dyn FnMut(u32, usize, usize),
) -> Result<AtRate, ProbeError> {
    let mut random = Random::new(options.seed ^ 0xa7_7a7e);
    let mut seen: Vec<(u32, Vec<super::Point>)> = candidates.iter().map(|&clients| (clients, Vec::new())).collect();
    let whole = ROUNDS * seen.len();
    for round in 0..ROUNDS {
        let mut order: Vec<usize> = (0..seen.len()).collect();
        random.shuffle(&mut order);
        for (i, at) in order.into_iter().enumerate() {
            let (clients, points) = &mut seen[at];
            progress(*clients, round * candidates.len() + i, whole);
            points.push(probe.measure_at_rate(*clients, rate, options.warmup, at_least(options.duration, rate))?);
        }
    }
    let points: Vec<RatePoint> = seen.iter().map(|(clients, points)| summary(*clients, points)).collect();
    Ok(AtRate { rate, clients: choose(&points), points })
}

/// A few hundred operations are needed for a 95th percentile.
pub(super) fn at_least(duration: Duration, rate: f64) -> Duration {
    duration.max(Duration::from_secs_f64((200.0 / rate).clamp(0.1, 30.0)))
}

fn summary(clients: u32, points: &[super::Point]) -> RatePoint {
    let middle = |of: fn(&super::Point) -> Option<f64>| {
        let mut values: Vec<f64> = points.iter().filter_map(of).collect();
        (!values.is_empty()).then(|| median(&mut values))
    };
    RatePoint {
        clients,
        visits: u32::try_from(points.len()).expect("a few"),
        p50_ms: middle(|p| p.p50_ms),
        p95_ms: middle(|p| p.p95_ms),
        p99_ms: middle(|p| p.p99_ms),
        kept_up: kept_up(points),
    }
}

/// Operations ended as fast as they arrived, in the median of the visits, and hardly any failed.
fn kept_up(points: &[super::Point]) -> bool {
    let arrived: u64 = points.iter().map(|p| p.arrived).sum();
    let failed: u64 = points.iter().map(|p| p.errors).sum();
    let mut paces: Vec<f64> = points.iter().map(|p| p.pace).collect();
    let few = failed <= 1 || failed as f64 <= MANY_ERRORS * arrived as f64;
    few && failed < arrived && median(&mut paces) >= KEEPS_UP
}

/// The smallest number whose 95th percentile is about the lowest.
fn choose(points: &[RatePoint]) -> Option<u32> {
    let able = || points.iter().filter(|p| p.kept_up).filter_map(|p| Some((p.clients, p.p95_ms?)));
    let lowest = able().map(|p| p.1).min_by(f64::total_cmp)?;
    able().filter(|p| p.1 <= lowest * (1.0 + WITHIN)).map(|p| p.0).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::result::CurvePoint;

    fn point(clients: u32, p95: f64, kept_up: bool) -> RatePoint {
        RatePoint { clients, p95_ms: Some(p95), kept_up, ..RatePoint::default() }
    }

    #[test]
    fn the_fewest_connections_with_about_the_lowest_latency_are_chosen() {
        let points = [point(4, 9.0, true), point(8, 5.1, true), point(16, 5.0, true), point(32, 7.0, true)];
        assert_eq!(choose(&points), Some(8));
    }

    #[test]
    fn a_number_that_has_not_kept_up_is_not_chosen_however_fast_it_looks() {
        assert_eq!(choose(&[point(2, 1.0, false), point(8, 5.0, true)]), Some(8));
        assert_eq!(choose(&[point(2, 1.0, false)]), None);
    }

    #[test]
    fn one_failure_is_no_falling_behind_and_a_growing_queue_is() {
        let visit = |pace: f64, errors: u64| super::super::Point { arrived: 300, pace, errors, ..Default::default() };
        assert!(kept_up(&[visit(1.0, 0), visit(0.995, 1), visit(1.0, 0)]), "one failed of 900");
        assert!(!kept_up(&[visit(1.0, 0), visit(1.0, 2), visit(1.0, 0)]), "more than one in a thousand failed");
        assert!(!kept_up(&[visit(0.97, 0), visit(1.0, 0), visit(0.96, 0)]), "the queue grows");
        assert!(kept_up(&[visit(0.97, 0), visit(1.0, 0), visit(1.0, 0)]), "one visit met something else");
        assert!(!kept_up(&[visit(0.0, 300)]) && !kept_up(&[super::super::Point::default()]), "nothing was done");
    }

    #[test]
    fn only_numbers_that_can_serve_the_rate_are_tried() {
        let points = (0..12).map(|i| CurvePoint {
            clients: 1 << i,
            throughput: (100.0 * f64::from(1 << i)).min(1000.0),
            ..CurvePoint::default()
        });
        let curve = Curve { points: points.collect(), ..Curve::default() };
        assert_eq!(candidates(&curve, 390.0, 16), [4, 8, 16, 32]);
        assert_eq!(candidates(&curve, 1500.0, 16), [] as [u32; 0]);
        assert_eq!(candidates(&curve, 10.0, 512).len(), CANDIDATES);
    }
}
