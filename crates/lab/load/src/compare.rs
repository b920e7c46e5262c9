//! Two results beside each other: how large each difference is, and whether it is more than noise.
//!
//! Noise is what differs from second to second within the runs. What has a series by the second is compared by the
//! means of its seconds: they are what is shown, and what the interval and the verdict are of. Beside them stand
//! figures of the whole runs, percentiles of all operations for example, without a verdict. A difference is called more
//! than noise if its 99% interval does not contain zero. What differs from run to run (caches, neighbours, the time of
//! day) no pair of results can show: repeat both, in turn.

mod interval;

use interval::interval;
use serde::{Deserialize, Serialize};

use crate::result::{About, BenchResult, Measured, Second};

/// Fewer whole seconds of each run say nothing about noise.
pub const FEWEST_SECONDS: usize = interval::FEWEST;

/// Two results beside each other.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Comparison {
    /// What the first one is called.
    pub a: String,
    /// What the second one is called.
    pub b: String,
    /// One line for each thing that was measured in both.
    pub rows: Vec<Row>,
    /// What the reader must know, one sentence each.
    pub warnings: Vec<String>,
}

/// One thing that was measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// What: `rate`, `response p99`, `response p99, by the second`, ...
    pub metric: String,
    /// In which unit: `/s`, `ms`, `%` or nothing.
    pub unit: String,
    /// In the first result: the mean of its seconds where there is an interval. `None`: not known.
    pub a: Option<f64>,
    /// In the second.
    pub b: Option<f64>,
    /// (b - a) / a; `None` if a is 0 or one of them is not known.
    pub change: Option<f64>,
    /// The 99% interval of b - a, in the unit; `None` where there is no series of it, or too short a one.
    pub interval: Option<(f64, f64)>,
    pub verdict: Verdict,
}

/// What to make of a difference.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// More than noise, and for the better.
    Better,
    /// More than noise, and for the worse.
    Worse,
    Noise,
    /// There is no series to tell it by, or too short a one, or it says the opposite of what is shown.
    Unknown,
}

/// By what something is judged.
struct Judge {
    metric: &'static str,
    unit: &'static str,
    of: Option<fn(&Measured) -> Option<f64>>,
    /// By the second.
    by_second: Option<fn(&Second) -> Option<f64>>,
    more_is_better: bool,
}

const JUDGES: &[Judge] = &[
    Judge {
        metric: "rate",
        unit: "/s",
        of: Some(Measured::rate),
        by_second: Some(|second| Some(second.requests as f64)),
        more_is_better: true,
    },
    by_second("response p50, by the second", "ms", |second| second.p50_ms),
    by_second("response p99, by the second", "ms", |second| second.p99_ms),
    by_second("response max, by the second", "ms", |second| second.max_ms),
    whole_run("response p50", |m| Some(m.response_ms.as_ref()?.p50)),
    whole_run("response p99", |m| Some(m.response_ms.as_ref()?.p99)),
    whole_run("response max", |m| Some(m.response_ms.as_ref()?.max)),
    whole_run("service p50", |m| Some(m.service_ms.as_ref()?.p50)),
    whole_run("service p99", |m| Some(m.service_ms.as_ref()?.p99)),
    whole_run("pool wait p99", |m| Some(m.pool_wait_ms.as_ref()?.p99)),
    whole_run("connect p50", |m| Some(m.connect_ms.total.as_ref()?.p50)),
    by_second("errors, by the second", "%", |second| share(second.errors, second.requests)),
    Judge { unit: "%", ..whole_run("errors", |m| share(m.errors.values().sum(), m.requests)) },
    Judge {
        of: Some(|m| per_second(m.dropped, m)),
        ..by_second("dropped", "/s", |second| Some(second.dropped as f64))
    },
    Judge {
        of: Some(|m| per_second(m.connections.created, m)),
        ..by_second("connections created", "/s", |second| Some(f64::from(second.created)))
    },
];

const fn by_second(metric: &'static str, unit: &'static str, of: fn(&Second) -> Option<f64>) -> Judge {
    Judge { metric, unit, of: None, by_second: Some(of), more_is_better: false }
}

const fn whole_run(metric: &'static str, of: fn(&Measured) -> Option<f64>) -> Judge {
    Judge { metric, unit: "ms", of: Some(of), by_second: None, more_is_better: false }
}

fn per_second(count: u64, measured: &Measured) -> Option<f64> {
    (measured.duration_s > 0.0).then(|| count as f64 / measured.duration_s)
}

fn share(errors: u64, requests: u64) -> Option<f64> {
    let ended = errors + requests;
    (ended > 0).then(|| errors as f64 / ended as f64 * 100.0)
}

/// Something that a result says of itself; `None`: it does not know.
type Known = fn(&About) -> Option<&str>;

/// What two runs have to have in common if a difference is to tell of one thing; what a result does not know is not
/// compared.
const SURROUNDINGS: [(&str, Known); 8] = [
    ("shape of load", |about| Some(&about.shape)),
    ("load", |about| Some(&about.load)),
    ("what is asked", |about| about.asks.as_deref()),
    ("faults on the way", |about| about.way.as_deref()),
    ("the target's server", |about| about.server.as_deref()),
    ("the pool under test", |about| Some(&about.pool)),
    ("machine", |about| Some(&about.machine)),
    ("version of Poolhouse", |about| Some(&about.version)),
];

pub fn compare(a: &BenchResult, b: &BenchResult) -> Comparison {
    let seconds = (measured_seconds(a), measured_seconds(b));
    let rows = JUDGES.iter().filter_map(|judge| row(judge, (a, b), (seconds.0, seconds.1))).collect();
    let mut warnings = Vec::new();
    for (what, of) in SURROUNDINGS {
        if let (Some(of_a), Some(of_b)) = (of(&a.about), of(&b.about))
            && of_a != of_b
        {
            warnings.push(format!("They differ in {what}: `{of_a}` against `{of_b}`."));
        }
    }
    if seconds.0.len().min(seconds.1.len()) < FEWEST_SECONDS {
        warnings.push(format!("A run of fewer than {FEWEST_SECONDS} whole seconds says nothing about noise."));
    }
    if a.interrupted || b.interrupted {
        warnings.push("One of them was interrupted.".to_owned());
    }
    warnings.push(
        "Noise is what differs within the runs; what differs from run to run only repeating both shows.".to_owned(),
    );
    Comparison { a: a.name.clone(), b: b.name.clone(), rows, warnings }
}

/// Whole seconds after the warm-up.
fn measured_seconds(result: &BenchResult) -> &[Second] {
    let from = result.steps.first().map_or(0.0, |step| step.from_s);
    let until = from + result.total.duration_s;
    let first = result.series.iter().position(|second| second.at_s >= from).unwrap_or(result.series.len());
    let rest = &result.series[first..];
    &rest[..rest.iter().position(|second| second.at_s + 1.0 > until).unwrap_or(rest.len())]
}

fn row(judge: &Judge, (a, b): (&BenchResult, &BenchResult), seconds: (&[Second], &[Second])) -> Option<Row> {
    let series = judge.by_second.map(|of| {
        let series = |seconds: &[Second]| seconds.iter().filter_map(of).collect::<Vec<f64>>();
        (series(seconds.0), series(seconds.1))
    });
    let interval = series.as_ref().and_then(|(a, b)| interval(a, b));
    // What has an interval is shown by what the interval is of.
    let values = match (&series, judge.of) {
        (Some((a, b)), _) if interval.is_some() => (mean(a), mean(b)),
        (_, Some(of)) => (of(&a.total), of(&b.total)),
        (Some((a, b)), None) => (mean(a), mean(b)),
        (None, None) => (None, None),
    };
    if values == (None, None) {
        return None;
    }
    let difference = values.0.zip(values.1).map(|(a, b)| b - a);
    let change = difference.zip(values.0).and_then(|(difference, a)| (a != 0.0).then_some(difference / a));
    let verdict = verdict(difference, interval, judge.more_is_better);
    let (metric, unit) = (judge.metric.to_owned(), judge.unit.to_owned());
    Some(Row { metric, unit, a: values.0, b: values.1, change, interval, verdict })
}

/// What to make of a difference that is shown beside an interval.
fn verdict(difference: Option<f64>, interval: Option<(f64, f64)>, more_is_better: bool) -> Verdict {
    match (difference, interval) {
        (None, _) | (_, None) => Verdict::Unknown,
        (_, Some((low, high))) if low <= 0.0 && high >= 0.0 => Verdict::Noise,
        (Some(difference), Some((low, _))) if (difference > 0.0) != (low > 0.0) => Verdict::Unknown,
        (_, Some((low, _))) if (low > 0.0) == more_is_better => Verdict::Better,
        _ => Verdict::Worse,
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use arrivals::Random;

    use super::*;
    use crate::result::{Percentiles, Step};

    /// A minute with this many requests in each second, give or take some, and this p99.
    fn result(rate: f64, p99: f64, seed: u64) -> BenchResult {
        let mut random = Random::new(seed);
        let series: Vec<Second> = (0..60)
            .map(|at| {
                let noise = 1.0 + 0.1 * (random.fraction() - 0.5);
                Second {
                    at_s: f64::from(at),
                    requests: (rate * noise) as u64,
                    p99_ms: Some(p99 * noise),
                    ..Second::default()
                }
            })
            .collect();
        let total = Measured {
            requests: series.iter().map(|second| second.requests).sum(),
            finished: series.iter().map(|second| second.requests).sum(),
            duration_s: 60.0,
            response_ms: Some(Percentiles { p99, ..Percentiles::default() }),
            ..Measured::default()
        };
        BenchResult { name: "test".to_owned(), total, series, steps: vec![Step::default()], ..BenchResult::default() }
    }

    fn row(a: &BenchResult, b: &BenchResult, metric: &str) -> Row {
        compare(a, b).rows.into_iter().find(|row| row.metric == metric).expect("a row")
    }

    fn judged(a: &BenchResult, b: &BenchResult, metric: &str) -> Verdict {
        row(a, b, metric).verdict
    }

    #[test]
    fn a_clear_difference_is_more_than_noise_and_has_a_direction() {
        let (slow, fast) = (result(1000.0, 50.0, 1), result(1100.0, 30.0, 2));
        assert_eq!(judged(&slow, &fast, "rate"), Verdict::Better);
        assert_eq!(judged(&fast, &slow, "rate"), Verdict::Worse);
        assert_eq!(judged(&slow, &fast, "response p99, by the second"), Verdict::Better);
        assert_eq!(judged(&slow, &fast, "response p99"), Verdict::Unknown, "of the whole runs");
        let row = &compare(&slow, &fast).rows[0];
        assert!((row.change.unwrap() - 0.1).abs() < 0.02);
        let (low, high) = row.interval.unwrap();
        assert!(low > 70.0 && high < 130.0, "{low} {high}");
    }

    #[test]
    fn what_is_shown_is_what_is_judged() {
        let (mut a, mut b) = (result(1000.0, 50.0, 1), result(1000.0, 30.0, 2));
        // One bad second makes the whole run's percentile, and says nothing of the others.
        b.total.response_ms.as_mut().unwrap().p99 = 500.0;
        for (result, created) in [(&mut a, 1), (&mut b, 3)] {
            result.series.iter_mut().for_each(|second| second.created = created);
            result.total.connections.created = 12_345;
        }
        let seconds = row(&a, &b, "response p99, by the second");
        assert!((seconds.a.unwrap() - 50.0).abs() < 1.0 && (seconds.b.unwrap() - 30.0).abs() < 1.0, "{seconds:?}");
        let (low, high) = seconds.interval.unwrap();
        let difference = seconds.b.unwrap() - seconds.a.unwrap();
        assert!(low < difference && difference < high && seconds.verdict == Verdict::Better);
        let whole = row(&a, &b, "response p99");
        assert_eq!((whole.a, whole.b, whole.interval), (Some(50.0), Some(500.0), None));
        let created = row(&a, &b, "connections created");
        assert_eq!((created.unit.as_str(), created.a, created.b), ("/s", Some(1.0), Some(3.0)));
        assert_eq!(created.verdict, Verdict::Worse);
    }

    #[test]
    fn whatever_else_differs_is_told() {
        let (a, mut b) = (result(1000.0, 50.0, 1), result(1000.0, 50.0, 2));
        let mut with = a.clone();
        with.about = About {
            asks: Some("select-only at scale 1".to_owned()),
            way: Some("straight".to_owned()),
            server: Some("PostgreSQL 17".to_owned()),
            ..About::default()
        };
        b.about = About {
            asks: Some("select-only at scale 10".to_owned()),
            way: Some("4ms more in each direction".to_owned()),
            server: Some("PostgreSQL 18".to_owned()),
            pool: "max_size 5".to_owned(),
            ..About::default()
        };
        let told = |a: &BenchResult, b: &BenchResult| {
            let warnings = compare(a, b).warnings;
            warnings.iter().filter(|text| text.starts_with("They differ")).cloned().collect::<Vec<_>>()
        };
        let all = told(&with, &b);
        for what in ["what is asked", "faults on the way", "the target's server", "the pool under test"] {
            assert!(all.iter().any(|text| text.contains(what)), "{what}: {all:?}");
        }
        assert_eq!(told(&a, &b).len(), 1, "an older result does not say what was asked");
        assert!(told(&b, &b).is_empty());
    }

    #[test]
    fn what_contradicts_its_interval_is_not_known() {
        assert_eq!(verdict(Some(2.0), Some((1.0, 3.0)), false), Verdict::Worse);
        assert_eq!(verdict(Some(-2.0), Some((1.0, 3.0)), false), Verdict::Unknown);
        assert_eq!(verdict(Some(2.0), Some((-3.0, -1.0)), true), Verdict::Unknown);
        assert_eq!(verdict(Some(2.0), Some((-1.0, 3.0)), true), Verdict::Noise);
        assert_eq!(verdict(None, Some((1.0, 3.0)), true), Verdict::Unknown);
    }

    #[test]
    fn short_runs_and_what_has_no_series_are_not_judged() {
        let mut short = result(1000.0, 50.0, 1);
        short.series.truncate(FEWEST_SECONDS - 1);
        let shown = row(&short, &result(2000.0, 50.0, 2), "rate");
        assert!(shown.verdict == Verdict::Unknown && shown.a.unwrap() > 900.0 && shown.b.unwrap() > 1900.0);
        assert!(compare(&short, &short).warnings.iter().any(|warning| warning.contains("whole seconds")));
    }

    #[test]
    fn the_warm_up_and_the_last_broken_second_are_left_out() {
        let mut warm = result(1000.0, 50.0, 1);
        warm.steps[0].from_s = 5.0;
        warm.total.duration_s = 40.5;
        let seconds = measured_seconds(&warm);
        assert_eq!((seconds.first().unwrap().at_s, seconds.last().unwrap().at_s), (5.0, 44.0));
    }
}
