//! What a server does with so many operations at once: a curve of throughput against concurrency. Measured by a sweep, or a number of
//! operations that it works on in parallel. Says how fast; serves nothing.

use bench::sweep::result::SweepResult;

/// Throughput against concurrency, in straight lines between the points. Below the first point it is proportional to the concurrency;
/// beyond the last one it stays, which nobody has measured.
#[derive(Clone, PartialEq, Debug)]
pub struct Curve {
    /// (operations at once, operations per second), both rising in the first.
    points: Vec<(f64, f64)>,
    /// It is known beyond the last point: nothing was measured, it was given.
    given: bool,
}

impl Curve {
    /// The one that a sweep has measured directly at the database; `None`: it has none.
    pub fn measured(sweep: &SweepResult) -> Option<Self> {
        let points: Vec<(f64, f64)> = sweep
            .direct
            .points
            .iter()
            .filter(|point| point.throughput > 0.0)
            .map(|point| (f64::from(point.clients), point.believed.unwrap_or(point.throughput)))
            .collect();
        (!points.is_empty()).then_some(Self { points, given: false })
    }

    /// A server that works on so many operations at a time, each as fast as alone; more share it equally. `mean`: seconds of one alone.
    pub fn parallel(most: u32, mean: f64) -> Self {
        Self { points: vec![(f64::from(most), f64::from(most) / mean)], given: true }
    }

    /// Operations per second, all together, with so many at once.
    #[inline]
    pub fn throughput(&self, at_once: u32) -> f64 {
        let at = f64::from(at_once);
        let after = self.points.partition_point(|(n, _)| *n < at);
        match (after.checked_sub(1).map(|before| self.points[before]), self.points.get(after)) {
            (None, Some((n, x))) => x * at / n,
            (Some((n0, x0)), Some((n1, x1))) => x0 + (x1 - x0) * (at - n0) / (n1 - n0),
            (Some((_, x)), None) => x,
            (None, None) => unreachable!("a curve has a point"),
        }
    }

    /// The most operations at once that were measured; `None`: it holds for any number.
    pub fn measured_until(&self) -> Option<u32> {
        (!self.given).then(|| self.points.last().map_or(0, |(n, _)| *n as u32))
    }

    /// The numbers of operations at once that it is known for.
    pub fn known_at(&self) -> impl Iterator<Item = u32> + '_ {
        self.points.iter().map(|(n, _)| *n as u32)
    }

    /// The highest throughput, and the smallest number of operations at once with which it comes within `part` of that.
    pub fn best(&self, part: f64) -> (f64, u32) {
        let most = self.points.iter().map(|(_, x)| *x).fold(0.0, f64::max);
        let first = self.points.iter().find(|(_, x)| *x >= most * (1.0 - part));
        (most, first.map_or(1, |(n, _)| n.ceil() as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bench::sweep::result::{Curve as Measured, CurvePoint};

    fn sweep(points: &[(u32, f64)]) -> SweepResult {
        let point = |(clients, throughput): &(u32, f64)| CurvePoint {
            clients: *clients,
            throughput: *throughput,
            ..CurvePoint::default()
        };
        let direct = Measured { points: points.iter().map(point).collect(), ..Measured::default() };
        SweepResult { direct, ..SweepResult::default() }
    }

    #[test]
    fn between_points_it_is_straight_and_beyond_the_last_it_stays() {
        let curve = Curve::measured(&sweep(&[(2, 100.0), (4, 160.0), (8, 120.0)])).unwrap();
        let at: Vec<f64> = [1, 2, 3, 4, 6, 8, 100].map(|n| curve.throughput(n)).into();
        assert_eq!(at, [50.0, 100.0, 130.0, 160.0, 140.0, 120.0, 120.0]);
        assert_eq!((curve.measured_until(), curve.best(0.05)), (Some(8), (160.0, 4)));
        assert_eq!(Curve::measured(&sweep(&[])), None);
    }

    #[test]
    fn a_number_in_parallel_is_a_straight_line_and_then_flat() {
        let curve = Curve::parallel(4, 0.01);
        assert_eq!([1, 4, 5].map(|n| curve.throughput(n)), [100.0, 400.0, 400.0]);
        assert_eq!(curve.measured_until(), None);
    }
}
