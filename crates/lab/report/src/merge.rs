//! Joins the results of several load machines that measured the same target at the same time. Histograms are added, so
//! percentiles are those of all operations together.

use std::collections::BTreeMap;

use crate::{
    histogram::{BadHistogram, Histogram},
    result::{BenchResult, ConnectPhases, Connections, MAX_ERROR_TEXTS, Measured, Percentiles, Second, Step},
};

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MergeError {
    #[error("there is nothing to join")]
    Nothing,
    #[error("a `{0}` load and a `{1}` load cannot be joined")]
    Shapes(String, String),
    #[error("a result with {0} steps and one with {1} cannot be joined")]
    Steps(usize, usize),
    #[error("a step `{0}` and a step `{1}` cannot be joined")]
    StepNames(String, String),
    #[error("results of different work cannot be joined: `{0}` and `{1}`")]
    Asks(String, String),
    #[error("a result has percentiles without a histogram, and percentiles cannot be added")]
    NoHistogram,
    #[error(transparent)]
    Histogram(#[from] BadHistogram),
}

/// The most frequent texts of errors, and their counts.
fn error_texts(results: &[BenchResult]) -> BTreeMap<String, u64> {
    let mut all: Vec<_> = counts(results.iter().map(|result| &result.error_texts)).into_iter().collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    all.into_iter().take(MAX_ERROR_TEXTS).collect()
}

/// Joins results second by second from the beginning of each run. Of the percentiles of a second only the maximum is
/// known. The most connections at a time is the sum of those of each result, an upper bound.
///
/// # Errors
/// The results are of different loads, or a histogram is missing or cannot be read.
pub fn merge(results: &[BenchResult]) -> Result<BenchResult, MergeError> {
    let (first, others) = results.split_first().ok_or(MergeError::Nothing)?;
    for other in others {
        if other.about.shape != first.about.shape {
            return Err(MergeError::Shapes(first.about.shape.clone(), other.about.shape.clone()));
        }
        if other.steps.len() != first.steps.len() {
            return Err(MergeError::Steps(first.steps.len(), other.steps.len()));
        }
        if let Some((a, b)) = first.steps.iter().zip(&other.steps).find(|(a, b)| a.name != b.name) {
            return Err(MergeError::StepNames(a.name.clone(), b.name.clone()));
        }
        if let (Some(a), Some(b)) = (&first.about.asks, &other.about.asks)
            && a != b
        {
            return Err(MergeError::Asks(a.clone(), b.clone()));
        }
    }
    let totals: Vec<&Measured> = results.iter().map(|result| &result.total).collect();
    let steps = (0..first.steps.len()).map(|n| {
        let of_all: Vec<&Measured> = results.iter().map(|result| &result.steps[n].measured).collect();
        Ok(Step { measured: measured(&of_all)?, ..first.steps[n].clone() })
    });
    let mut about = first.about.clone();
    about.started = results.iter().map(|result| result.about.started).min().unwrap_or_default();
    about.machine = distinct(results.iter().map(|result| result.about.machine.as_str()), "; ");
    about.target = distinct(results.iter().map(|result| result.about.target.as_str()), ", ");
    about.load = distinct(results.iter().map(|result| result.about.load.as_str()), "; ");
    about.load = format!("from {} load machines: {}", results.len(), about.load);
    about.command = None;
    about.doctor.clear();
    for finding in results.iter().flat_map(|result| &result.about.doctor) {
        if !about.doctor.contains(finding) {
            about.doctor.push(finding.clone());
        }
    }
    let mut warnings: Vec<String> = results.iter().flat_map(|result| result.warnings.iter().cloned()).collect();
    warnings.sort();
    warnings.dedup();
    Ok(BenchResult {
        total: measured(&totals)?,
        steps: steps.collect::<Result<_, MergeError>>()?,
        series: series(results),
        error_texts: error_texts(results),
        interrupted: results.iter().any(|result| result.interrupted),
        warnings,
        about,
        ..first.clone()
    })
}

fn distinct<'a>(texts: impl Iterator<Item = &'a str>, between: &str) -> String {
    let mut seen: Vec<&str> = Vec::new();
    for text in texts {
        if !seen.contains(&text) {
            seen.push(text);
        }
    }
    seen.join(between)
}

fn measured(parts: &[&Measured]) -> Result<Measured, MergeError> {
    let cpu = parts.iter().map(|part| part.generator_cpu_s).sum::<Option<f64>>();
    Ok(Measured {
        requests: sum(parts.iter().map(|part| part.requests)),
        errors: counts(parts.iter().map(|part| &part.errors)),
        dropped: sum(parts.iter().map(|part| part.dropped)),
        finished: sum(parts.iter().map(|part| part.finished)),
        duration_s: parts.iter().map(|part| part.duration_s).fold(0.0, f64::max),
        response_ms: percentiles(parts.iter().map(|part| &part.response_ms))?,
        service_ms: percentiles(parts.iter().map(|part| &part.service_ms))?,
        issue_ms: percentiles(parts.iter().map(|part| &part.issue_ms))?,
        pool_wait_ms: percentiles(parts.iter().map(|part| &part.pool_wait_ms))?,
        front_wait_ms: percentiles(parts.iter().map(|part| &part.front_wait_ms))?,
        connect_ms: ConnectPhases {
            dns: percentiles(parts.iter().map(|part| &part.connect_ms.dns))?,
            tcp: percentiles(parts.iter().map(|part| &part.connect_ms.tcp))?,
            tls: percentiles(parts.iter().map(|part| &part.connect_ms.tls))?,
            auth: percentiles(parts.iter().map(|part| &part.connect_ms.auth))?,
            ready: percentiles(parts.iter().map(|part| &part.connect_ms.ready))?,
            total: percentiles(parts.iter().map(|part| &part.connect_ms.total))?,
        },
        connections: Connections {
            created: sum(parts.iter().map(|part| part.connections.created)),
            created_for: counts(parts.iter().map(|part| &part.connections.created_for)),
            closed: counts(parts.iter().map(|part| &part.connections.closed)),
            failed: counts(parts.iter().map(|part| &part.connections.failed)),
            most: parts.iter().map(|part| part.connections.most).fold(0, u32::saturating_add),
            last: parts.iter().map(|part| part.connections.last).fold(0, u32::saturating_add),
        },
        generator_cpu_s: cpu,
    })
}

/// The sum of counts of files, which may come from anywhere.
fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

fn counts<'a>(parts: impl Iterator<Item = &'a BTreeMap<String, u64>>) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::<String, u64>::new();
    for (name, count) in parts.flatten() {
        let sum = all.entry(name.clone()).or_default();
        *sum = sum.saturating_add(*count);
    }
    all
}

fn percentiles<'a>(parts: impl Iterator<Item = &'a Option<Percentiles>>) -> Result<Option<Percentiles>, MergeError> {
    let mut sum = Histogram::new();
    for part in parts.flatten() {
        sum.add(&Histogram::decode(part.histogram.as_ref().ok_or(MergeError::NoHistogram)?)?);
    }
    Ok(sum.percentiles(true))
}

fn series(results: &[BenchResult]) -> Vec<Second> {
    let length = results.iter().map(|result| result.series.len()).max().unwrap_or_default();
    let at = |n: usize| {
        let seconds = results.iter().filter_map(|result| result.series.get(n));
        seconds.fold(Second { at_s: n as f64, ..Second::default() }, |sum, second| Second {
            at_s: sum.at_s,
            arrived: sum.arrived.saturating_add(second.arrived),
            requests: sum.requests.saturating_add(second.requests),
            errors: sum.errors.saturating_add(second.errors),
            dropped: sum.dropped.saturating_add(second.dropped),
            p50_ms: None,
            p99_ms: None,
            max_ms: [sum.max_ms, second.max_ms].into_iter().flatten().reduce(f64::max),
            connections: sum.connections.saturating_add(second.connections),
            in_use: sum.in_use.saturating_add(second.in_use),
            waiting: sum.waiting.saturating_add(second.waiting),
            created: sum.created.saturating_add(second.created),
        })
    };
    (0..length).map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn result(micros: impl Iterator<Item = u64> + Clone) -> BenchResult {
        let mut histogram = Histogram::new();
        micros.clone().for_each(|n| histogram.record(Duration::from_micros(n)));
        let total = Measured {
            requests: histogram.len(),
            errors: [("timeout".to_owned(), 2)].into(),
            duration_s: 2.0,
            response_ms: histogram.percentiles(true),
            generator_cpu_s: Some(1.0),
            ..Measured::default()
        };
        let second = Second { requests: 5, max_ms: histogram.max_ms(), p50_ms: Some(1.0), ..Second::default() };
        let step = Step { name: "step".to_owned(), measured: total.clone(), ..Step::default() };
        BenchResult { total, series: vec![second; 2], steps: vec![step], ..BenchResult::default() }
    }

    #[test]
    fn joined_percentiles_are_those_of_all_operations() {
        let merged = merge(&[result(1..=900), result(9901..=10_000)]).unwrap();
        let response = merged.total.response_ms.as_ref().unwrap();
        assert_eq!((merged.total.requests, response.count), (1000, 1000));
        assert!((response.p50 - 0.5).abs() < 0.001 && (response.p95 - 9.95).abs() < 0.02, "{response:?}");
        assert_eq!(merged.total.errors["timeout"], 4);
        assert_eq!((merged.total.generator_cpu_s, merged.total.duration_s), (Some(2.0), 2.0));
        assert_eq!(merged.steps[0].measured, merged.total);
        assert_eq!((merged.series.len(), merged.series[0].requests, merged.series[0].p50_ms), (2, 10, None));
        assert!((merged.series[0].max_ms.unwrap() - 10.0).abs() < 0.01);
    }

    #[test]
    fn counts_as_large_as_a_file_may_have_them_are_joined() {
        let mut large = result(1..=10);
        (large.total.requests, large.series[0].requests) = (u64::MAX, u64::MAX);
        large.total.errors.insert("timeout".to_owned(), u64::MAX);
        let merged = merge(&[large.clone(), large]).unwrap();
        let counts = [merged.total.requests, merged.total.errors["timeout"], merged.series[0].requests];
        assert_eq!(counts, [u64::MAX; 3]);
    }

    #[test]
    fn joining_one_result_changes_no_percentile() {
        let one = result(1..=1000);
        assert_eq!(merge(std::slice::from_ref(&one)).unwrap().total, one.total);
    }

    #[test]
    fn the_doctors_findings_of_all_load_machines_are_kept_once() {
        let found = |findings: &[&str]| {
            let mut result = result(1..=10);
            result.about.doctor = findings.iter().map(|finding| (*finding).to_owned()).collect();
            result
        };
        let merged = merge(&[found(&["exhausted", "stall"]), found(&["churn", "stall"])]).unwrap();
        assert_eq!(merged.about.doctor, ["exhausted", "stall", "churn"]);
    }

    #[test]
    fn results_of_different_loads_are_refused() {
        let mut open = result(1..=10);
        open.about.shape = "open".to_owned();
        assert!(matches!(merge(&[result(1..=10), open]), Err(MergeError::Shapes(..))));
        let mut steps = result(1..=10);
        steps.steps.clear();
        assert!(matches!(merge(&[result(1..=10), steps]), Err(MergeError::Steps(1, 0))));
        let mut faster = result(1..=10);
        faster.steps[0].name = "500/s".to_owned();
        let names = MergeError::StepNames("step".to_owned(), "500/s".to_owned());
        assert_eq!(merge(&[result(1..=10), faster]), Err(names));
        let asking = |what: &str| {
            let mut result = result(1..=10);
            result.about.asks = Some(what.to_owned());
            result
        };
        assert!(matches!(merge(&[asking("a.sql"), asking("b.sql")]), Err(MergeError::Asks(..))));
        assert!(merge(&[asking("a.sql"), result(1..=10)]).is_ok(), "an older result has no such field");
        let mut bare = result(1..=10);
        bare.total.response_ms.as_mut().unwrap().histogram = None;
        assert_eq!(merge(&[bare]), Err(MergeError::NoHistogram));
        assert_eq!(merge(&[]), Err(MergeError::Nothing));
    }
}
