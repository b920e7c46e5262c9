//! The data that the page's script draws, as JSON that is safe within a page.

use serde::Serialize;

use super::distribution;
use crate::result::{BenchResult, Percentiles, Second};

/// Most points of a line over time. A longer run has several seconds per point.
pub(super) const MAX_POINTS: usize = 1200;

#[derive(Serialize)]
pub(super) struct Run<'a> {
    name: &'a str,
    /// The beginning and the name of each step.
    steps: Vec<(f64, &'a str)>,
    series: Series,
    /// `[1 / (1 - quantile), ms]`.
    response: Vec<[f64; 2]>,
    service: Vec<[f64; 2]>,
}

/// Columns with one value for each point.
#[derive(Serialize, Default)]
struct Series {
    t: Vec<f64>,
    arrived: Vec<f64>,
    requests: Vec<f64>,
    errors: Vec<f64>,
    dropped: Vec<f64>,
    p50: Vec<Option<f64>>,
    p99: Vec<Option<f64>>,
    max: Vec<Option<f64>>,
    connections: Vec<f64>,
    in_use: Vec<f64>,
    waiting: Vec<f64>,
    created: Vec<f64>,
}

pub(super) fn chart_data(result: &BenchResult) -> Run<'_> {
    Run {
        name: &result.name,
        steps: result.steps.iter().map(|step| (round_to_four_digits(step.from_s), step.name.as_str())).collect(),
        series: series(seconds(result)),
        response: line(result.total.response_ms.as_ref()),
        service: line(result.total.service_ms.as_ref()),
    }
}

/// The seconds that are drawn. A last second that is incomplete is left out, because it would look like a drop.
pub(super) fn seconds(result: &BenchResult) -> &[Second] {
    let until = result.steps.first().map_or(f64::INFINITY, |step| step.from_s + result.total.duration_s);
    match result.series.split_last() {
        Some((last, whole)) if !whole.is_empty() && last.at_s + 1.0 > until => whole,
        _ => &result.series,
    }
}

pub(super) fn seconds_per_point(result: &BenchResult) -> usize {
    seconds(result).len().div_ceil(MAX_POINTS).max(1)
}

/// JSON without characters that could end a `<script>` element or begin a comment.
pub(super) fn json(data: &impl Serialize) -> String {
    let text = serde_json::to_string(data).expect("plain values have a JSON form");
    let mut safe = String::with_capacity(text.len());
    for one in text.chars() {
        match one {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => safe.push_str(&format!("\\u{:04x}", u32::from(one))),
            _ => safe.push(one),
        }
    }
    safe
}

/// Rounds to four digits, which keeps the page small.
pub(super) fn round_to_four_digits(value: f64) -> f64 {
    if value.is_finite() { format!("{value:.3e}").parse().expect("a number that was just written") } else { 0.0 }
}

fn line(percentiles: Option<&Percentiles>) -> Vec<[f64; 2]> {
    let points = percentiles.map(distribution::line).unwrap_or_default();
    points.iter().map(|point| [round_to_four_digits(point.one_in), round_to_four_digits(point.ms)]).collect()
}

/// Points with the mean of counts, the median of medians, and the largest of other values.
fn series(seconds: &[Second]) -> Series {
    let mut all = Series::default();
    for group in seconds.chunks(seconds.len().div_ceil(MAX_POINTS).max(1)) {
        let mean = |of: fn(&Second) -> u64| {
            round_to_four_digits(group.iter().map(|second| of(second) as f64).sum::<f64>() / group.len() as f64)
        };
        let most = |of: fn(&Second) -> u32| f64::from(group.iter().map(of).max().unwrap_or(0));
        all.t.push(short_time(group[0].at_s));
        all.arrived.push(mean(|second| second.arrived));
        all.requests.push(mean(|second| second.requests));
        all.errors.push(mean(|second| second.errors));
        all.dropped.push(mean(|second| second.dropped));
        all.created.push(mean(|second| second.created.into()));
        all.p50.push(median(group.iter().filter_map(|second| second.p50_ms).collect()).map(round_to_four_digits));
        all.p99.push(largest(group.iter().filter_map(|second| second.p99_ms)).map(round_to_four_digits));
        all.max.push(largest(group.iter().filter_map(|second| second.max_ms)).map(round_to_four_digits));
        all.connections.push(most(|second| second.connections));
        all.in_use.push(most(|second| second.in_use));
        all.waiting.push(most(|second| second.waiting));
    }
    all
}

/// Rounds to hundredths of a second.
fn short_time(at: f64) -> f64 {
    if at.is_finite() { (at * 100.0).round() / 100.0 } else { 0.0 }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn largest(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Measured, Step};

    #[test]
    fn no_name_ends_the_script_element() {
        let text = json(&["</script><script>alert(1)</script>", "<!--", "a & b", "\u{2028}"]);
        assert!(!text.contains(['<', '>', '&', '\u{2028}']), "{text}");
        let back: Vec<String> = serde_json::from_str(&text).unwrap();
        assert_eq!(back[0], "</script><script>alert(1)</script>");
    }

    #[test]
    fn a_long_run_keeps_its_extremes_and_its_mean_rate() {
        let of = |at: u32| Second {
            at_s: at.into(),
            requests: if at == 5000 { 4000 } else { 100 },
            p50_ms: Some(1.0),
            max_ms: Some(if at == 5000 { 999.0 } else { 2.0 }),
            waiting: u32::from(at == 5000) * 7,
            ..Second::default()
        };
        let seconds: Vec<_> = (0..10_000).map(of).collect();
        let all = series(&seconds);
        assert!(all.t.len() <= MAX_POINTS && all.t.len() * 2 > MAX_POINTS, "{}", all.t.len());
        assert_eq!(largest(all.max.iter().flatten().copied()), Some(999.0));
        assert_eq!(largest(all.waiting.iter().copied()), Some(7.0));
        let mean = all.requests.iter().sum::<f64>() / all.t.len() as f64;
        assert!((mean / 100.39 - 1.0).abs() < 0.01, "{mean}");
    }

    #[test]
    fn an_incomplete_last_second_is_not_drawn() {
        let drawn = |duration_s: f64, seconds: u32| {
            let of = |at: u32| Second { at_s: at.into(), requests: 100, ..Second::default() };
            let step = Step { from_s: 1.0, ..Step::default() };
            let total = Measured { duration_s, ..Measured::default() };
            let series = (0..seconds).map(of).collect();
            let result = BenchResult { steps: vec![step], total, series, ..BenchResult::default() };
            self::seconds(&result).len()
        };
        assert_eq!(drawn(4.0, 5), 5, "it ends with a second");
        assert_eq!(drawn(4.0, 6), 5, "an answer came a little later");
        assert_eq!(drawn(3.4, 5), 4, "it was interrupted");
        assert_eq!(drawn(4.0, 9), 8, "answers came for seconds, and ended within one");
        assert_eq!(drawn(0.4, 1), 1, "there is no other");
    }
}
