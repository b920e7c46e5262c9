//! Smoothing: near the top of a curve the median of each point is drawn towards a parabola through its neighbours
//! (throughput over the logarithm of clients). Empirical Bayes decides how far: if the points scatter about the
//! parabola no more than their noise explains, the parabola counts; beside a cliff they do not lie on one, and the
//! medians stand.

use super::fit::{self, Vector};

/// Neighbours have the clients of the highest point within this factor.
const NEIGHBOUR_REACH: f64 = 2.6;
/// Points that a parabola needs, so that its fit can be judged.
const MIN_POINTS: usize = 5;

/// One point of a curve as it was measured.
#[derive(Clone, Copy)]
pub(crate) struct Point {
    pub clients: u32,
    /// The median of its visits.
    pub throughput: f64,
    /// That median's relative standard error.
    pub error: f64,
}

/// The smoothed throughput of each point.
pub(crate) fn smoothed(points: &[Point]) -> Vec<f64> {
    let mut smoothed: Vec<f64> = points.iter().map(|point| point.throughput).collect();
    let highest = points.iter().copied().reduce(|a, b| if b.throughput > a.throughput { b } else { a });
    let Some(top) = highest.filter(|top| top.throughput > 0.0) else { return smoothed };
    let is_near = |point: &Point| {
        let ratio = f64::from(point.clients) / f64::from(top.clients);
        (1.0 / NEIGHBOUR_REACH..=NEIGHBOUR_REACH).contains(&ratio)
    };
    let near: Vec<usize> = (0..points.len()).filter(|&i| is_near(&points[i])).collect();
    if near.len() < MIN_POINTS {
        return smoothed;
    }
    let at = |point: &Point| (f64::from(point.clients) / f64::from(top.clients)).ln();
    let value = |point: &Point| point.throughput / top.throughput;
    // The second fit weighs each point by how far the points lie off the first parabola.
    let mut off = 0.0;
    let mut line = None;
    for _ in 0..2 {
        let weighed = near.iter().map(|&i| {
            let point = &points[i];
            (at(point), value(point), 1.0 / (point.error.powi(2) + off))
        });
        let Some(found) = parabola(weighed) else { return smoothed };
        off = misfit(points, &near, |point| value(point) - value_at(&found, at(point)));
        line = Some(found);
    }
    let line = line.expect("found twice");
    for &i in &near {
        let point = &points[i];
        let own = point.error.powi(2);
        let weight = off / (off + own);
        smoothed[i] = (weight * value(point) + (1.0 - weight) * value_at(&line, at(point))) * top.throughput;
    }
    smoothed
}

/// The variance that noise does not explain.
fn misfit(points: &[Point], near: &[usize], residual: impl Fn(&Point) -> f64) -> f64 {
    let scatter: f64 = near.iter().map(|&i| residual(&points[i]).powi(2)).sum();
    let noise: f64 = near.iter().map(|&i| points[i].error.powi(2)).sum();
    let freedom = (near.len() - 3) as f64;
    (scatter / freedom - noise / near.len() as f64).max(0.0)
}

fn value_at(line: &Vector, x: f64) -> f64 {
    line[0] + line[1] * x + line[2] * x * x
}

/// The weighed least squares' parabola.
fn parabola(points: impl Iterator<Item = (f64, f64, f64)>) -> Option<Vector> {
    let mut normal = [[0.0; 3]; 3];
    let mut right = [0.0; 3];
    for (x, y, weight) in points {
        let terms = [1.0, x, x * x];
        for i in 0..3 {
            right[i] += weight * terms[i] * y;
            for j in 0..3 {
                normal[i][j] += weight * terms[i] * terms[j];
            }
        }
    }
    fit::solve(normal, right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrivals::Random;

    use crate::curve::CurveEstimate;
    use report::result::sweep::Visit;

    const AT: [u32; 7] = [16, 22, 27, 32, 38, 45, 64];

    fn known(curve: impl Fn(f64) -> f64, noise: f64, seed: u64) -> CurveEstimate {
        let mut random = Random::new(seed);
        let visits: Vec<Visit> = (0..28)
            .map(|i| {
                let clients = AT[i % AT.len()];
                let throughput = curve(f64::from(clients)) * (1.0 + noise * random.normal());
                Visit { clients, throughput, ..Visit::default() }
            })
            .collect();
        CurveEstimate::of(&visits)
    }

    #[test]
    fn a_smooth_curve_is_known_better_from_its_neighbours() {
        let curve = |n: f64| fit::throughput(100.0, 0.02, 1e-3, n);
        let (mut alone, mut together) = (0.0, 0.0);
        for seed in 0..50 {
            for point in known(curve, 0.08, seed).points {
                let truth = curve(f64::from(point.clients));
                alone += (point.throughput / truth - 1.0).powi(2);
                together += (point.smoothed / truth - 1.0).powi(2);
            }
        }
        assert!(together < 0.6 * alone, "{together} against {alone}");
    }

    #[test]
    fn beside_a_cliff_the_medians_stand() {
        let curve = |n: f64| if n < 36.0 { 10.0 * n } else { 4.0 * n };
        for seed in 0..50 {
            let known = known(curve, 0.03, seed);
            assert_eq!(known.highest().unwrap().clients, 32, "seed {seed}: {:?}", known.points);
        }
    }
}
