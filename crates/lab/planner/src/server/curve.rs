//! A server's throughput as a function of concurrency: measured by a sweep, or given as a number of operations that run
//! in parallel.

use ::report::result::sweep::{CurvePoint, SweepResult, TwoSpeeds};

/// The lowest confidence of a sweep's verdict.
pub const LOW_CONFIDENCE: &str = "low";
/// Points of the curve with a longer response time, in seconds, are ignored.
const MAX_RESPONSE_S: f64 = 86_400.0;

/// Throughput against concurrency, in straight lines between the points. Below the first point it is proportional to
/// the concurrency; beyond the last one it is taken as constant.
#[derive(Clone, PartialEq, Debug)]
pub struct Curve {
    /// Concurrency and operations per second, in order of concurrency.
    points: Vec<(f64, f64)>,
    /// The curve was given, not measured, and holds beyond its last point.
    given: bool,
    /// With low confidence, the range of concurrency in which the best is sought.
    safe: Option<Safe>,
    /// If no point is reliable: what would make the measurement reliable.
    doubt: Option<String>,
}

/// The reliable range of a curve that was measured with low confidence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Safe {
    /// The range of concurrency whose throughput is about the best.
    from: u32,
    to: u32,
    /// The fewest reliable clients. Below the range, the first point and points with two speeds are unreliable.
    least: u32,
}

impl Curve {
    /// The curve that a sweep measured directly at the database, with the slower of two speeds. `None`: it has no
    /// point.
    pub fn measured(sweep: &SweepResult) -> Option<Self> {
        let two_speeds = sweep.verdict.as_ref().map_or(&[][..], |verdict| &verdict.two_speeds[..]);
        let speeds = |clients: u32| two_speeds.iter().find(|speeds| speeds.clients == clients);
        let believed = |point: &CurvePoint| {
            let measured = point.believed.unwrap_or(point.throughput);
            (
                f64::from(point.clients),
                speeds(point.clients).map_or(measured, |speeds| slower_throughput(speeds, measured)),
            )
        };
        let is_known = |(n, x): &(f64, f64)| *n > 0.0 && *x > 0.0 && n / x < MAX_RESPONSE_S;
        let points: Vec<(f64, f64)> = sweep.direct.points.iter().map(believed).filter(is_known).collect();
        let low = sweep.verdict.as_ref().filter(|verdict| verdict.confidence == LOW_CONFIDENCE);
        let no_chance = |n: &u32| speeds(*n).is_none();
        let safe = low.and_then(|verdict| verdict.safe).map(|safe| {
            let numbers = points.iter().skip(1).map(|(n, _)| *n as u32);
            Safe { from: safe.from, to: safe.to, least: numbers.filter(no_chance).fold(safe.from, u32::min) }
        });
        let safe = safe.filter(|safe| points.iter().any(|(n, _)| safe.contains(*n)));
        let doubt = low.filter(|_| safe.is_none()).map(|verdict| describe_remedy(&verdict.to_know));
        let inner = || {
            let between = points.get(1..points.len().checked_sub(1)?)?.iter().map(|(n, _)| *n as u32);
            let least = between.clone().find(no_chance)?;
            Some(Safe { from: least, to: between.max()?, least })
        };
        let safe = if doubt.is_some() { inner() } else { safe };
        (!points.is_empty()).then_some(Self { points, given: false, safe, doubt })
    }

    /// A server that runs `most` operations at full speed at a time; more share it equally. `mean`: seconds of one
    /// alone.
    pub fn parallel(most: u32, mean: f64) -> Self {
        // A mean of zero must not give an infinite throughput.
        let points = vec![(f64::from(most), f64::from(most) / mean.max(1e-9))];
        Self { points, given: true, safe: None, doubt: None }
    }

    /// Total operations per second at this concurrency.
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

    /// The highest concurrency measured. `None` if the curve holds for any.
    pub fn measured_until(&self) -> Option<u32> {
        (!self.given).then(|| self.points.last().map_or(0, |(n, _)| *n as u32))
    }

    /// The concurrencies of the curve's points.
    pub fn known_concurrencies(&self) -> impl Iterator<Item = u32> + '_ {
        self.points.iter().map(|(n, _)| *n as u32)
    }

    /// The reliable range of concurrency. `None`: all points, or none if there is [`Self::doubt`].
    pub fn safe(&self) -> Option<(u32, u32)> {
        self.searched_range().filter(|_| self.doubt.is_none())
    }

    /// The range of concurrency that is searched: the reliable range, or without one all points but the first and the
    /// last. `None`: all points.
    pub fn searched_range(&self) -> Option<(u32, u32)> {
        self.safe.map(|safe| (safe.from, safe.to))
    }

    /// If no point is reliable: what would make the measurement reliable.
    pub fn doubt(&self) -> Option<&str> {
        self.doubt.as_deref()
    }

    /// The lowest reliable concurrency.
    pub fn least(&self) -> u32 {
        self.safe.map_or(1, |safe| safe.least)
    }

    /// The highest throughput in the searched range, and the lowest concurrency that loses at most `max_loss` of it.
    pub fn best(&self, max_loss: f64) -> (f64, u32) {
        let safe = || self.points.iter().filter(|(n, _)| self.safe.is_none_or(|safe| safe.contains(*n)));
        let most = safe().map(|(_, x)| *x).fold(0.0, f64::max);
        let first = safe().find(|(_, x)| *x >= most * (1.0 - max_loss));
        (most, first.map_or(1, |(n, _)| n.ceil() as u32))
    }
}

impl Safe {
    fn contains(&self, n: f64) -> bool {
        f64::from(self.from) <= n && n <= f64::from(self.to)
    }
}

/// What would make the measurement reliable, as the sweep says it.
fn describe_remedy(sentences: &[String]) -> String {
    match sentences {
        [] => "Sweep again, for longer or on a quieter machine (--point-time 10s, more --rounds).".to_owned(),
        sentences => sentences.join(" "),
    }
}

/// The throughput at the slower of two speeds. If only the faster one was seen, the one that other response times let
/// expect.
fn slower_throughput(speeds: &TwoSpeeds, measured: f64) -> f64 {
    let expected = speeds.p50_ms.zip(speeds.expected_p50_ms).map(|(seen, expected)| measured * seen / expected);
    speeds.slow.or(expected).map_or(measured, |slow| slow.min(measured))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::report::result::sweep::{Curve as Measured, Safe as SafeNumbers, Verdict};

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
    fn with_low_confidence_only_the_safe_range_counts_and_of_two_speeds_the_slower() {
        let mut sweep = sweep(&[(1, 5500.0), (2, 3000.0), (4, 3100.0), (8, 2900.0), (64, 3200.0)]);
        let speeds = TwoSpeeds { clients: 1, slow: Some(1200.0), fast: Some(5500.0), ..TwoSpeeds::default() };
        let safe = Some(SafeNumbers { from: 2, to: 8, throughput: 2900.0 });
        let verdict = Verdict {
            confidence: LOW_CONFIDENCE.to_owned(),
            safe,
            two_speeds: vec![speeds.clone()],
            ..Verdict::default()
        };
        sweep.verdict = Some(verdict.clone());
        let curve = Curve::measured(&sweep).unwrap();
        assert_eq!((curve.safe(), curve.least(), curve.best(0.05)), (Some((2, 8)), 2, (3100.0, 2)));
        assert_eq!([1, 64].map(|n| curve.throughput(n)), [1200.0, 3200.0], "other points are still known");
        // The best of a rising curve is at its end, and few connections are reliable.
        let rising = Some(SafeNumbers { from: 64, to: 64, throughput: 3200.0 });
        sweep.verdict = Some(Verdict { safe: rising, two_speeds: Vec::new(), ..verdict.clone() });
        let curve = Curve::measured(&sweep).unwrap();
        assert_eq!((curve.safe(), curve.least(), curve.throughput(1)), (Some((64, 64)), 2, 5500.0));
        // Only the faster speed was seen: 5,500 x 0.18 / 0.32.
        let seen = TwoSpeeds { slow: None, p50_ms: Some(0.18), expected_p50_ms: Some(0.32), ..speeds };
        sweep.verdict = Some(Verdict { two_speeds: vec![seen], ..verdict.clone() });
        assert_eq!(Curve::measured(&sweep).unwrap().throughput(1).round(), 3094.0);
        // Without a measured safe range nothing is reliable, and the first and the last point are not searched.
        for safe in [None, Some(SafeNumbers { from: 100, to: 200, throughput: 2900.0 })] {
            let to_know = vec!["Sweep again.".to_owned()];
            sweep.verdict = Some(Verdict { safe, to_know, ..verdict.clone() });
            let curve = Curve::measured(&sweep).unwrap();
            assert_eq!((curve.safe(), curve.doubt()), (None, Some("Sweep again.")));
            assert_eq!((curve.searched_range(), curve.least(), curve.best(0.05)), (Some((2, 8)), 2, (3100.0, 2)));
        }
        let mut short = sweep.clone();
        short.direct.points.truncate(2);
        let curve = Curve::measured(&short).unwrap();
        assert!(curve.searched_range().is_none() && curve.doubt().is_some(), "two points have none between them");
        // More confidence: every number counts.
        sweep.verdict = Some(Verdict { confidence: "medium".to_owned(), ..verdict });
        let curve = Curve::measured(&sweep).unwrap();
        assert_eq!((curve.safe(), curve.least(), curve.best(0.05)), (None, 1, (3200.0, 4)));
    }

    #[test]
    fn a_parallel_server_is_a_straight_line_and_then_flat() {
        let curve = Curve::parallel(4, 0.01);
        assert_eq!([1, 4, 5].map(|n| curve.throughput(n)), [100.0, 400.0, 400.0]);
        assert_eq!(curve.measured_until(), None);
    }
}
