//! The tables of a run in a page: steps, latencies, errors, connections.

use super::{
    elements::{Row, Table},
    figures::{self, DASH, percentile_ms},
};
use crate::result::{BenchResult, Measured, Percentiles};

pub(super) fn run_tables(result: &BenchResult) -> Vec<Table> {
    let total = &result.total;
    let mut tables = Vec::new();
    if figures::has_steps(result) {
        let steps = result.steps.iter().map(|step| (vec![step.name.clone()], &step.measured));
        tables.push(by_step("By step", &["step"], steps.chain([(vec![TOTAL.to_owned()], total)]).collect()));
    }
    tables.push(latencies(total));
    if !total.errors.is_empty() {
        let all = figures::errors_of(total) + total.requests;
        let row =
            |(kind, count): (&str, u64)| vec![kind.to_owned(), figures::count(count), figures::percent(count, all)];
        let rows = figures::by_count(&total.errors).into_iter().map(row).collect();
        tables.push(Table::plain("Errors", &["kind", "operations", "share"], rows));
    }
    if !result.error_texts.is_empty() {
        let row = |(text, count): (&str, u64)| vec![figures::printable(text), figures::count(count)];
        let rows = figures::by_count(&result.error_texts).into_iter().map(row).collect();
        tables.push(Table::plain("What was said of errors", &["text", "times"], rows));
    }
    tables.push(connections(result));
    tables
}

pub(super) const TOTAL: &str = "total";

/// A row for each step. Columns without a value are left out.
pub(super) fn by_step(title: &str, words: &[&str], rows: Vec<(Vec<String>, &Measured)>) -> Table {
    let fields: Vec<_> =
        FIELDS.iter().filter(|field| rows.iter().any(|(_, measured)| (field.shown)(measured) != DASH)).collect();
    let mut groups: Vec<(&str, usize)> = vec![("", words.len())];
    for field in &fields {
        match groups.last_mut() {
            Some((group, columns)) if *group == field.group => *columns += 1,
            _ => groups.push((field.group, 1)),
        }
    }
    let headings = words
        .iter()
        .map(|word| (*word).to_owned())
        .chain(fields.iter().map(|field| field.heading.to_owned()))
        .collect();
    let row = |(names, measured): (Vec<String>, &Measured)| Row {
        class: if words.last() == Some(&"step") && names.last().is_some_and(|name| name == TOTAL) { "sum" } else { "" },
        cells: names.into_iter().chain(fields.iter().map(|field| (field.shown)(measured))).collect(),
    };
    let rows = rows.into_iter().map(row).collect();
    Table { title: title.to_owned(), groups, headings, words: words.len(), rows }
}

struct Field {
    group: &'static str,
    heading: &'static str,
    shown: fn(&Measured) -> String,
}

const FIELDS: &[Field] = &[
    Field { group: "", heading: "per s", shown: |all| figures::rate(all.rate()) },
    Field { group: "", heading: "errors", shown: figures::error_share },
    Field { group: "", heading: "dropped", shown: |all| figures::count_or_dash(all.dropped) },
    Field { group: "response, ms", heading: "p50", shown: |all| percentile_ms(all.response_ms.as_ref(), |p| p.p50) },
    Field { group: "response, ms", heading: "p90", shown: |all| percentile_ms(all.response_ms.as_ref(), |p| p.p90) },
    Field { group: "response, ms", heading: "p95", shown: |all| percentile_ms(all.response_ms.as_ref(), |p| p.p95) },
    Field { group: "response, ms", heading: "p99", shown: |all| percentile_ms(all.response_ms.as_ref(), |p| p.p99) },
    Field { group: "response, ms", heading: "p99.9", shown: |all| percentile_ms(all.response_ms.as_ref(), |p| p.p999) },
    Field { group: "response, ms", heading: "max", shown: |all| percentile_ms(all.response_ms.as_ref(), |p| p.max) },
    Field { group: "service, ms", heading: "p50", shown: |all| percentile_ms(all.service_ms.as_ref(), |p| p.p50) },
    Field { group: "service, ms", heading: "p99", shown: |all| percentile_ms(all.service_ms.as_ref(), |p| p.p99) },
    Field { group: "wait, ms", heading: "p50", shown: |all| percentile_ms(all.pool_wait_ms.as_ref(), |p| p.p50) },
    Field { group: "wait, ms", heading: "p99", shown: |all| percentile_ms(all.pool_wait_ms.as_ref(), |p| p.p99) },
    Field {
        group: "of it in front",
        heading: "p99",
        shown: |all| percentile_ms(all.front_wait_ms.as_ref(), |p| p.p99),
    },
    Field { group: "connections", heading: "opened", shown: |all| figures::count_or_dash(all.connections.created) },
    Field {
        group: "connections",
        heading: "at most",
        shown: |all| figures::count_or_dash(all.connections.most.into()),
    },
];

fn latencies(total: &Measured) -> Table {
    let names = ["response", "until it was sent", "service", "waiting for a connection", "of it in front"];
    let times = [&total.response_ms, &total.issue_ms, &total.service_ms, &total.pool_wait_ms, &total.front_wait_ms];
    let rows = names.into_iter().zip(times);
    let row = |(name, all): (&str, &Option<Percentiles>)| {
        let all = all.as_ref().filter(|all| all.count > 0)?;
        let times = [all.min, all.mean, all.p50, all.p90, all.p95, all.p99, all.p999, all.max]
            .map(|value| figures::ms(Some(value)));
        Some([vec![name.to_owned(), figures::count(all.count)], times.to_vec()].concat())
    };
    Table::plain(
        "Latency, ms",
        &["", "operations", "min", "mean", "p50", "p90", "p95", "p99", "p99.9", "max"],
        rows.filter_map(row).collect(),
    )
}

fn connections(result: &BenchResult) -> Table {
    let all = &result.total.connections;
    let row = |what: &str, count: u64| vec![what.to_owned(), figures::count(count)];
    let mut rows = vec![row("opened", all.created)];
    rows.extend(figures::by_count(&all.created_for).into_iter().map(|(why, count)| row(&format!("for: {why}"), count)));
    rows.push(row("closed", all.closed.values().sum()));
    rows.extend(figures::by_count(&all.closed).into_iter().map(|(why, count)| row(&format!("because: {why}"), count)));
    rows.extend(
        figures::by_count(&all.failed).into_iter().map(|(why, count)| row(&format!("not opened: {why}"), count)),
    );
    let hour = figures::hour(result);
    rows.extend(
        figures::opened_per_hour(result)
            .unwrap_or_default()
            .into_iter()
            .map(|(why, rate)| vec![format!("opened per {hour}, for: {why}"), figures::rate(Some(rate))]),
    );
    rows.extend(figures::steady_size(result).map(|size| vec!["steady size".to_owned(), figures::range(size)]));
    rows.push(row("most at one time", all.most.into()));
    rows.push(row("at the end", all.last.into()));
    Table::plain("Connections", &["", "connections"], rows)
}
