//! Two results beside each other: how large each difference is, and whether it is more than noise.
//!
//! Noise is what differs from second to second within the runs. Seconds that follow each other are alike, so they are not resampled one
//! by one but in blocks: a moving-block bootstrap (Künsch 1989) of each run's series. The blocks are as long as the root of the series,
//! which is longer than the cube root that is best for many values (Hall, Horowitz and Jing 1995): of few values short blocks are too
//! sure of themselves. The difference is called more than noise if the 99% interval of the resampled differences does not contain zero. What differs from run to run (caches, neighbours, the time of day) no pair of
//! results can show: repeat both, in turn.

use serde::{Deserialize, Serialize};
use workload::Random;

use crate::result::{BenchResult, Measured, Second};

/// Fewer whole seconds of each run say nothing about noise.
pub const FEWEST_SECONDS: usize = 8;
/// How often the series are resampled.
const RESAMPLES: usize = 2000;
/// The part of the resampled differences that lies outside of the interval, half on each side.
const OUTSIDE: f64 = 0.01;
/// Resampling is seeded, so that the same two files give the same answer.
const SEED: u64 = 0x1987;

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
    /// What: `rate`, `response p99`, ...
    pub metric: String,
    /// In which unit: `/s`, `ms`, `%` or nothing.
    pub unit: String,
    /// In the first result; `None`: not known.
    pub a: Option<f64>,
    /// In the second.
    pub b: Option<f64>,
    /// (b - a) / a; `None` if a is 0 or one of them is not known.
    pub change: Option<f64>,
    /// The 99% interval of b - a by the second, in the unit; `None` where there is no series of it.
    pub interval: Option<(f64, f64)>,
    /// What to make of it.
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
    /// No more than noise.
    Noise,
    /// There is no series to tell it by, or too short a one.
    Unknown,
}

/// By what something is judged.
struct Judge {
    metric: &'static str,
    unit: &'static str,
    of: fn(&Measured) -> Option<f64>,
    /// The same by the second.
    by_second: Option<fn(&Second) -> Option<f64>>,
    more_is_better: bool,
}

const JUDGES: &[Judge] = &[
    Judge {
        metric: "rate",
        unit: "/s",
        of: Measured::rate,
        by_second: Some(|second| Some(second.requests as f64)),
        more_is_better: true,
    },
    Judge {
        metric: "response p50",
        unit: "ms",
        of: |m| Some(m.response_ms.as_ref()?.p50),
        by_second: Some(|second| second.p50_ms),
        more_is_better: false,
    },
    Judge {
        metric: "response p99",
        unit: "ms",
        of: |m| Some(m.response_ms.as_ref()?.p99),
        by_second: Some(|second| second.p99_ms),
        more_is_better: false,
    },
    Judge {
        metric: "response max",
        unit: "ms",
        of: |m| Some(m.response_ms.as_ref()?.max),
        by_second: Some(|second| second.max_ms),
        more_is_better: false,
    },
    judge_total("service p50", |m| Some(m.service_ms.as_ref()?.p50)),
    judge_total("service p99", |m| Some(m.service_ms.as_ref()?.p99)),
    judge_total("pool wait p99", |m| Some(m.pool_wait_ms.as_ref()?.p99)),
    judge_total("connect p50", |m| Some(m.connect_ms.total.as_ref()?.p50)),
    Judge {
        metric: "errors",
        unit: "%",
        of: |m| {
            let errors = m.errors.values().sum::<u64>() as f64;
            (m.requests as f64 + errors > 0.0).then(|| errors / (m.requests as f64 + errors) * 100.0)
        },
        by_second: Some(|second| {
            let ended = second.errors + second.requests;
            (ended > 0).then(|| second.errors as f64 / ended as f64 * 100.0)
        }),
        more_is_better: false,
    },
    Judge {
        metric: "dropped",
        unit: "",
        of: |m| Some(m.dropped as f64),
        by_second: Some(|second| Some(second.dropped as f64)),
        more_is_better: false,
    },
    Judge {
        metric: "connections created",
        unit: "",
        of: |m| Some(m.connections.created as f64),
        by_second: Some(|second| Some(f64::from(second.created))),
        more_is_better: false,
    },
];

const fn judge_total(metric: &'static str, of: fn(&Measured) -> Option<f64>) -> Judge {
    Judge { metric, unit: "ms", of, by_second: None, more_is_better: false }
}

/// Compares two results.
pub fn compare(a: &BenchResult, b: &BenchResult) -> Comparison {
    let seconds = (measured_seconds(a), measured_seconds(b));
    let rows = JUDGES.iter().filter_map(|judge| row(judge, (a, b), (seconds.0, seconds.1))).collect();
    let mut warnings = Vec::new();
    for (what, of_a, of_b) in [
        ("shape of load", &a.about.shape, &b.about.shape),
        ("load", &a.about.load, &b.about.load),
        ("machine", &a.about.machine, &b.about.machine),
        ("version of Poolhouse", &a.about.version, &b.about.version),
    ] {
        if of_a != of_b {
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
    let values = ((judge.of)(&a.total), (judge.of)(&b.total));
    if values == (None, None) {
        return None;
    }
    let change = match values {
        (Some(a), Some(b)) if a != 0.0 => Some((b - a) / a),
        _ => None,
    };
    let interval = judge.by_second.and_then(|of| {
        let series = |seconds: &[Second]| seconds.iter().filter_map(of).collect::<Vec<f64>>();
        interval(&series(seconds.0), &series(seconds.1))
    });
    let verdict = match interval {
        None => Verdict::Unknown,
        Some((low, high)) if low <= 0.0 && high >= 0.0 => Verdict::Noise,
        Some((low, _)) if (low > 0.0) == judge.more_is_better => Verdict::Better,
        Some(_) => Verdict::Worse,
    };
    let (metric, unit) = (judge.metric.to_owned(), judge.unit.to_owned());
    Some(Row { metric, unit, a: values.0, b: values.1, change, interval, verdict })
}

/// The 99% interval of the difference of means, b - a; `None` if a series is too short.
fn interval(a: &[f64], b: &[f64]) -> Option<(f64, f64)> {
    if a.len().min(b.len()) < FEWEST_SECONDS {
        return None;
    }
    let mut random = Random::new(SEED);
    let mut differences: Vec<f64> =
        (0..RESAMPLES).map(|_| resampled_mean(b, &mut random) - resampled_mean(a, &mut random)).collect();
    differences.sort_by(f64::total_cmp);
    let at = |part: f64| differences[((RESAMPLES - 1) as f64 * part).round() as usize];
    Some((at(OUTSIDE / 2.0), at(1.0 - OUTSIDE / 2.0)))
}

/// The mean of as many values, taken in blocks from random places. The blocks go round at the end, so that each value is taken as often.
fn resampled_mean(values: &[f64], random: &mut Random) -> f64 {
    let length = values.len();
    let block = ((length as f64).sqrt().ceil() as usize).max(1);
    let (mut sum, mut taken) = (0.0, 0);
    while taken < length {
        let from = (random.bits() % length as u64) as usize;
        for at in (from..from + block).take(length - taken) {
            sum += values[at % length];
            taken += 1;
        }
    }
    sum / length as f64
}

#[cfg(test)]
mod tests {
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

    fn verdict(a: &BenchResult, b: &BenchResult, metric: &str) -> Verdict {
        compare(a, b).rows.iter().find(|row| row.metric == metric).expect("a row").verdict
    }

    #[test]
    fn a_clear_difference_is_more_than_noise_and_has_a_direction() {
        let (slow, fast) = (result(1000.0, 50.0, 1), result(1100.0, 30.0, 2));
        assert_eq!(verdict(&slow, &fast, "rate"), Verdict::Better);
        assert_eq!(verdict(&fast, &slow, "rate"), Verdict::Worse);
        assert_eq!(verdict(&slow, &fast, "response p99"), Verdict::Better);
        let row = &compare(&slow, &fast).rows[0];
        assert!((row.change.unwrap() - 0.1).abs() < 0.02);
        let (low, high) = row.interval.unwrap();
        assert!(low > 80.0 && high < 120.0, "{low} {high}");
    }

    #[test]
    fn runs_of_the_same_kind_seldom_seem_to_differ() {
        let wrong = (0..100)
            .filter(|n| {
                verdict(&result(1000.0, 50.0, 1000 + n), &result(1000.0, 50.0, 2000 + n), "rate") != Verdict::Noise
            })
            .count();
        // 1 is expected of 100, somewhat more with a bootstrap of 8 blocks.
        assert!(wrong <= 10, "{wrong}");
    }

    #[test]
    fn seconds_that_are_alike_are_not_taken_for_many_independent_ones() {
        // Two runs that wander up and down over 20 s: by single seconds the difference would seem certain far too often.
        let wandering = |seed: u64| {
            let mut random = Random::new(seed);
            let mut level = 0.0;
            let mut result = result(1000.0, 50.0, seed);
            for second in &mut result.series {
                level = 0.8 * level + 40.0 * (random.fraction() - 0.5);
                second.requests = (1000.0 + level) as u64;
            }
            result
        };
        let wrong =
            (0..100).filter(|n| verdict(&wandering(3000 + n), &wandering(4000 + n), "rate") != Verdict::Noise).count();
        // Resampled one by one it would be about 40.
        assert!(wrong <= 22, "{wrong}");
    }

    #[test]
    fn short_runs_and_what_has_no_series_are_not_judged() {
        let mut short = result(1000.0, 50.0, 1);
        short.series.truncate(FEWEST_SECONDS - 1);
        assert_eq!(verdict(&short, &result(2000.0, 50.0, 2), "rate"), Verdict::Unknown);
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
