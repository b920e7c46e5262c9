//! A histogram as a line: latency against the percentile.

use crate::{histogram::Histogram, result::Percentiles};

/// Points for each tenfold step towards 100%.
const POINTS_PER_DECADE: u32 = 24;
/// Tenfold steps, up to 99.9999999%.
const MAX_DECADES: u32 = 9;

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Point {
    /// 1 / (1 - quantile): 10 is the 90th percentile, 1000 the 99.9th. On a logarithmic axis each nine takes the same
    /// space.
    pub(super) one_in: f64,
    pub(super) ms: f64,
}

/// The line from the minimum to the maximum. Without a histogram it has the known percentiles.
pub(super) fn line(percentiles: &Percentiles) -> Vec<Point> {
    if percentiles.count == 0 {
        return Vec::new();
    }
    match percentiles.histogram.as_deref().map(Histogram::decode) {
        Some(Ok(histogram)) if !histogram.is_empty() => of_histogram(&histogram),
        _ => of_known(percentiles),
    }
}

fn of_histogram(histogram: &Histogram) -> Vec<Point> {
    let count = histogram.len() as f64;
    let mut points = Vec::new();
    for step in 0..=POINTS_PER_DECADE * MAX_DECADES {
        let one_in = 10f64.powf(f64::from(step) / f64::from(POINTS_PER_DECADE));
        if one_in >= count {
            break;
        }
        points.extend(histogram.quantile_ms(1.0 - 1.0 / one_in).map(|ms| Point { one_in, ms }));
    }
    points.extend(histogram.max_ms().map(|ms| Point { one_in: count, ms }));
    points
}

fn of_known(all: &Percentiles) -> Vec<Point> {
    let known =
        [(1.0, all.min), (2.0, all.p50), (10.0, all.p90), (20.0, all.p95), (100.0, all.p99), (1000.0, all.p999)];
    let count = all.count as f64;
    let inner = known.into_iter().filter(|(one_in, _)| *one_in < count);
    inner.chain([(count, all.max)]).map(|(one_in, ms)| Point { one_in, ms }).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn encoded(values: impl Iterator<Item = u64>) -> Percentiles {
        let mut histogram = Histogram::new();
        values.for_each(|value| histogram.record(Duration::from_micros(value)));
        histogram.percentiles(true).unwrap()
    }

    fn at(points: &[Point], one_in: f64) -> f64 {
        points.iter().find(|point| (point.one_in / one_in - 1.0).abs() < 1e-9).expect("a point there").ms
    }

    #[test]
    fn each_percentile_is_where_the_values_are() {
        let points = line(&encoded(1..=10_000));
        for (one_in, ms) in [(10.0, 9.0), (100.0, 9.9), (1000.0, 9.99), (10_000.0, 10.0)] {
            assert!((at(&points, one_in) / ms - 1.0).abs() < 0.002, "{one_in}: {}", at(&points, one_in));
        }
        assert!(points.windows(2).all(|pair| pair[0].one_in < pair[1].one_in && pair[0].ms <= pair[1].ms));
    }

    #[test]
    fn the_line_ends_at_the_number_of_values() {
        let points = line(&encoded([1000, 2000, 3000].into_iter()));
        let last = points.last().unwrap();
        assert_eq!(last.one_in, 3.0);
        assert!((last.ms - 3.0).abs() < 0.01);
        let one = line(&encoded([5000].into_iter()));
        assert_eq!(one.len(), 1);
    }

    #[test]
    fn without_a_histogram_the_known_percentiles_are_the_line() {
        let known = Percentiles {
            count: 150,
            min: 1.0,
            p50: 2.0,
            p90: 3.0,
            p95: 4.0,
            p99: 5.0,
            p999: 6.0,
            max: 7.0,
            ..Percentiles::default()
        };
        for histogram in [None, Some("no base64!".to_owned()), Some("cnViYmlzaA==".to_owned())] {
            let points = line(&Percentiles { histogram, ..known.clone() });
            let pairs: Vec<_> = points.iter().map(|point| (point.one_in, point.ms)).collect();
            assert_eq!(pairs, [(1.0, 1.0), (2.0, 2.0), (10.0, 3.0), (20.0, 4.0), (100.0, 5.0), (150.0, 7.0)]);
        }
    }
}
