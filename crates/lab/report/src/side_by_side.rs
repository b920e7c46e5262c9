//! Compares the runs of a scenario in the figures that it names. The names were checked when the scenario was read.

use super::{
    elements::Table,
    figures::{self, DASH},
    grid::{Column, Grid},
};
use crate::result::{BenchResult, Measured, Percentiles};

/// Names of figures for a scenario.
pub const NAMES: &[&str] = &[
    "done",
    "failed",
    "why",
    "failing_from",
    "per_s",
    "issue_p50",
    "issue_p99",
    "response_p50",
    "response_mean",
    "response_p90",
    "response_p99",
    "response_max",
    "connect_p50",
    "connect_p99",
    "opened",
    "lost",
    "most",
];

struct Figure {
    name: &'static str,
    group: &'static str,
    heading: &'static str,
    words: bool,
    shown: fn(&BenchResult) -> String,
}

const fn number(
    name: &'static str,
    group: &'static str,
    heading: &'static str,
    shown: fn(&BenchResult) -> String,
) -> Figure {
    Figure { name, group, heading, words: false, shown }
}

const FIGURES: &[Figure] = &[
    number("done", "", "done", |run| figures::count(run.total.requests)),
    number("failed", "", "failed", |run| figures::count(figures::errors_of(&run.total))),
    number("failing_from", "", "failing from", failing_from),
    number("per_s", "", "per s", |run| figures::rate(run.total.rate())),
    number("issue_p50", "until sent, ms", "p50", |run| percentile(run, |all| &all.issue_ms, |all| all.p50)),
    number("issue_p99", "until sent, ms", "p99", |run| percentile(run, |all| &all.issue_ms, |all| all.p99)),
    number("response_p50", "response, ms", "p50", |run| percentile(run, |all| &all.response_ms, |all| all.p50)),
    number("response_mean", "response, ms", "mean", |run| percentile(run, |all| &all.response_ms, |all| all.mean)),
    number("response_p90", "response, ms", "p90", |run| percentile(run, |all| &all.response_ms, |all| all.p90)),
    number("response_p99", "response, ms", "p99", |run| percentile(run, |all| &all.response_ms, |all| all.p99)),
    number("response_max", "response, ms", "max", |run| percentile(run, |all| &all.response_ms, |all| all.max)),
    number("connect_p50", "connecting, ms", "p50", |run| percentile(run, |all| &all.connect_ms.total, |all| all.p50)),
    number("connect_p99", "connecting, ms", "p99", |run| percentile(run, |all| &all.connect_ms.total, |all| all.p99)),
    number("opened", "", "opened", |run| figures::count(run.total.connections.created)),
    number("most", "", "at most", |run| figures::count(run.total.connections.most.into())),
    Figure { name: "why", group: "", heading: "failed because", words: true, shown: error_counts },
    Figure { name: "lost", group: "", heading: "server ended", words: true, shown: lost_connections },
];

/// Reasons of the client for closing a connection.
const CLIENT_REASONS: [&str; 9] =
    ["ephemeral", "stale", "idle", "life", "reclaimed", "shrunk", "pool_closed", "discarded", "interrupted"];

/// The table for a terminal. `None` if no scenario names figures.
pub(super) fn grid(results: &[BenchResult]) -> Option<Grid> {
    let figures = chosen_figures(results)?;
    let mut columns = vec![Column { group: "", heading: "side by side", words: true }];
    columns.extend(figures.iter().map(|f| Column { group: f.group, heading: f.heading, words: f.words }));
    let mut grid = Grid::new(columns);
    rows(results, &figures).into_iter().for_each(|row| grid.push(row));
    Some(grid)
}

pub(super) fn table(results: &[BenchResult]) -> Option<Table> {
    let figures = chosen_figures(results)?;
    let heading =
        |f: &&Figure| if f.group.is_empty() { f.heading.to_owned() } else { format!("{} {}", f.group, f.heading) };
    let headings: Vec<String> = [vec!["run".to_owned()], figures.iter().map(heading).collect()].concat();
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    Some(Table::plain("Side by side", &headings, rows(results, &figures)))
}

/// The figures that the first result with figures names. Words come last, because they are long.
fn chosen_figures(results: &[BenchResult]) -> Option<Vec<&'static Figure>> {
    let names = results.iter().map(|result| &result.about.columns).find(|names| !names.is_empty())?;
    let figures = FIGURES.iter().filter(|figure| names.iter().any(|name| name == figure.name));
    Some(figures.collect::<Vec<_>>()).filter(|figures| !figures.is_empty())
}

fn rows(results: &[BenchResult], figures: &[&Figure]) -> Vec<Vec<String>> {
    let beside = results.iter().filter(|result| !result.about.columns.is_empty());
    let row = |result: &BenchResult| {
        // The name of the scenario stands above the table.
        let name = result.name.split_once(": ").map_or(result.name.as_str(), |(_, own)| own);
        let cells = figures.iter().map(|figure| figures::printable(&(figure.shown)(result)));
        [vec![figures::printable(name)], cells.collect()].concat()
    };
    beside.map(row).collect()
}

fn percentile(
    run: &BenchResult,
    what: fn(&Measured) -> &Option<Percentiles>,
    which: fn(&Percentiles) -> f64,
) -> String {
    figures::percentile_ms(what(&run.total).as_ref(), which)
}

/// Time from the beginning of the measured load to the first failure.
fn failing_from(run: &BenchResult) -> String {
    let begin = run.steps.first().map_or(0.0, |step| step.from_s);
    let first = run.series.iter().find(|second| second.errors > 0 && second.at_s >= begin);
    first.map_or(DASH.to_owned(), |second| figures::seconds(second.at_s - begin))
}

fn error_counts(run: &BenchResult) -> String {
    join_counts(figures::by_count(&run.total.errors))
}

fn lost_connections(run: &BenchResult) -> String {
    let mut all = figures::by_count(&run.total.connections.closed);
    all.retain(|(reason, _)| !CLIENT_REASONS.contains(reason));
    join_counts(all)
}

fn join_counts(counts: Vec<(&str, u64)>) -> String {
    let texts: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {}", figures::count(*count))).collect();
    if texts.is_empty() { DASH.to_owned() } else { texts.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn shown(results: &[BenchResult]) -> Option<String> {
        let mut out = Vec::new();
        grid(results)?.write(&mut out, 120).unwrap();
        Some(String::from_utf8(out).unwrap())
    }

    #[test]
    fn runs_are_compared_in_the_named_figures() {
        let mut trouble = sample::full("case 3: the trouble");
        trouble.about.columns = ["why", "done", "failed", "response_p99"].map(str::to_owned).into();
        let mut cure = trouble.clone();
        cure.name = "case 3: the cure".to_owned();
        cure.total.errors.clear();
        let table = shown(&[trouble, cure]).unwrap();
        let lines: Vec<_> = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert!(lines[1].ends_with("done failed p99 failed because"), "{table}");
        assert_eq!(lines[2], "the trouble 12,000 15 10.0 check-out timeout 12, sqlstate 40001 3");
        assert_eq!(lines[3], "the cure 12,000 0 10.0 -");
    }

    #[test]
    fn without_names_there_is_no_table_and_every_name_has_a_figure() {
        let mut plain = sample::full("x");
        plain.about.columns.clear();
        assert!(shown(&[plain]).is_none());
        for name in NAMES {
            assert!(FIGURES.iter().any(|figure| figure.name == *name), "{name}");
        }
        assert_eq!(NAMES.len(), FIGURES.len());
    }

    #[test]
    fn failures_count_from_the_beginning_of_the_measured_load() {
        let mut run = sample::full("x");
        run.series.iter_mut().for_each(|second| second.errors = u64::from(second.at_s >= 9.0));
        assert_eq!(failing_from(&run), "4 s");
        run.series.iter_mut().for_each(|second| second.errors = 0);
        assert_eq!(failing_from(&run), DASH);
    }
}
