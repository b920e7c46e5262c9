//! The table at the end of a run: plain text of at most [`WIDTH`] columns. Columns, lines and phases without a value
//! are left out.

use std::io::{self, Write};

use super::{
    figures::{self, DASH, percentile_ms},
    grid::{Column, Grid, WIDTH, wrap},
    side_by_side,
};
use crate::result::{BenchResult, Connections, Measured, STRAIGHT};

/// Most texts of errors that are printed, the most frequent first.
const MAX_PRINTED_ERROR_TEXTS: usize = 2;

/// Writes one result, or several variants, with a line for each step.
///
/// # Errors
/// The errors of `out`.
pub fn write(out: &mut dyn Write, results: &[BenchResult]) -> io::Result<()> {
    let several = results.len() > 1;
    for text in figures::scenarios(results) {
        writeln!(out, "{}\n", wrap(&figures::printable(&text), 0, WIDTH))?;
    }
    for result in results {
        head(out, result)?;
    }
    writeln!(out)?;
    figures_by_step(results).write(out, WIDTH)?;
    if let Some(beside) = side_by_side::grid(results) {
        writeln!(out)?;
        beside.write(out, WIDTH)?;
    }
    for result in results {
        let name = if several { format!("{}: ", figures::printable(&result.name)) } else { String::new() };
        below(out, &name, result)?;
    }
    Ok(())
}

fn head(out: &mut dyn Write, result: &BenchResult) -> io::Result<()> {
    let about = &result.about;
    let shown = |text: &str| figures::printable(text);
    write_line(
        out,
        "",
        &format!(
            "{}{}",
            shown(&result.name),
            if result.interrupted { " (interrupted: what there is until then)" } else { "" }
        ),
    )?;
    let server = about.server.as_deref().map(|server| format!("{}, ", shown(server))).unwrap_or_default();
    write_line(out, "  target   ", &format!("{server}{}", shown(&about.target)))?;
    write_line(out, "  load     ", &shown(&about.load))?;
    if let Some(asks) = &about.asks {
        write_line(out, "  asks     ", &shown(asks))?;
    }
    if let Some(way) = about.way.as_ref().filter(|way| *way != STRAIGHT) {
        write_line(out, "  way      ", &shown(way))?;
    }
    write_line(out, "  pool     ", &shown(&about.pool))?;
    write_line(out, "  seed     ", &about.seed.to_string())
}

/// The steps and the total of each result.
pub fn figures_by_step(results: &[BenchResult]) -> Grid {
    let (several, steps) = (results.len() > 1, results.iter().any(figures::has_steps));
    let runs: Vec<_> = results.iter().map(|result| (figures::printable(&result.name), rows_of(result))).collect();
    let rows = || runs.iter().flat_map(|(_, rows)| rows);
    let fields: Vec<_> = FIELDS
        .iter()
        .filter(|field| field.always || rows().any(|(_, measured)| (field.shown)(measured) != DASH))
        .collect();
    let mut columns = vec![Column { group: "", heading: if steps { "step" } else { "" }, words: true }];
    columns.extend(fields.iter().map(|field| Column { group: field.group, heading: field.heading, words: false }));
    let mut grid = Grid::new(columns);
    for (name, rows) in &runs {
        if several {
            grid.title(name.clone());
        }
        for (step, measured) in rows {
            let step = if several { format!("  {step}") } else { step.clone() };
            grid.push([vec![step], fields.iter().map(|field| (field.shown)(measured)).collect()].concat());
        }
    }
    grid
}

fn rows_of(result: &BenchResult) -> Vec<(String, &Measured)> {
    let steps = if figures::has_steps(result) { result.steps.as_slice() } else { &[] };
    let total = ("total".to_owned(), &result.total);
    steps.iter().map(|step| (figures::printable(&step.name), &step.measured)).chain([total]).collect()
}

struct Field {
    group: &'static str,
    heading: &'static str,
    /// Shown even if no row has a value.
    always: bool,
    shown: fn(&Measured) -> String,
}

const fn field(group: &'static str, heading: &'static str, always: bool, shown: fn(&Measured) -> String) -> Field {
    Field { group, heading, always, shown }
}

const FIELDS: &[Field] = &[
    field("", "per s", true, |all| figures::rate(all.rate())),
    field("", "errors", true, figures::error_share),
    field("", "dropped", false, |all| figures::count_or_dash(all.dropped)),
    field("response ms", "p50", true, |all| percentile_ms(all.response_ms.as_ref(), |p| p.p50)),
    field("response ms", "p95", true, |all| percentile_ms(all.response_ms.as_ref(), |p| p.p95)),
    field("response ms", "p99", true, |all| percentile_ms(all.response_ms.as_ref(), |p| p.p99)),
    field("response ms", "max", true, |all| percentile_ms(all.response_ms.as_ref(), |p| p.max)),
    field("service ms", "p50", false, |all| percentile_ms(all.service_ms.as_ref(), |p| p.p50)),
    field("service ms", "p99", false, |all| percentile_ms(all.service_ms.as_ref(), |p| p.p99)),
    field("wait ms", "p99", false, |all| percentile_ms(all.pool_wait_ms.as_ref(), |p| p.p99)),
    field("in front", "p99", false, |all| percentile_ms(all.front_wait_ms.as_ref(), |p| p.p99)),
    field("", "opened", false, |all| figures::count_or_dash(all.connections.created)),
];

fn below(out: &mut dyn Write, name: &str, result: &BenchResult) -> io::Result<()> {
    let total = &result.total;
    writeln!(out)?;
    write_line(
        out,
        "",
        &format!("{name}{} operations in {}", figures::count(total.requests), figures::seconds(total.duration_s)),
    )?;
    if !total.errors.is_empty() {
        write_line(out, "  errors       ", &list(&figures::by_count(&total.errors)))?;
    }
    write_line(out, "  connections  ", &connections(&total.connections))?;
    if !total.connections.failed.is_empty() {
        write_line(out, "  not opened   ", &list(&figures::by_count(&total.connections.failed)))?;
    }
    for (text, count) in figures::by_count(&result.error_texts).into_iter().take(MAX_PRINTED_ERROR_TEXTS) {
        write_line(out, "  said         ", &format!("{} times: {}", figures::count(count), figures::printable(text)))?;
    }
    if let Some(rates) = figures::opened_per_hour(result) {
        let rates: Vec<_> = rates
            .iter()
            .map(|(cause, rate)| format!("{} {}", figures::printable(cause), figures::rate(Some(*rate))))
            .collect();
        let rates = if rates.is_empty() { "none".to_owned() } else { rates.join(", ") };
        write_line(out, "  per hour     ", &format!("opened per {}: {rates}", figures::hour(result)))?;
    }
    if let Some(size) = figures::steady_size(result) {
        write_line(out, "  steady size  ", &format!("{} connections", figures::range(size)))?;
    }
    let phases = figures::phases(total);
    if !phases.is_empty() {
        let column = |heading| Column { group: "", heading, words: false };
        let mut grid = Grid::new(vec![
            Column { group: "", heading: "  connecting, ms", words: true },
            column("times"),
            column("p50"),
            column("p95"),
            column("p99"),
            column("max"),
        ]);
        for (phase, times) in phases {
            let cells = [times.p50, times.p95, times.p99, times.max].map(|value| figures::ms(Some(value)));
            grid.push([vec![format!("  {phase}"), figures::count(times.count)], cells.to_vec()].concat());
        }
        grid.write(out, WIDTH)?;
    }
    for said in &result.about.doctor {
        write_line(out, "  doctor       ", &figures::printable(said))?;
    }
    for warning in &result.warnings {
        write_line(out, "  warning: ", &figures::printable(warning))?;
    }
    Ok(())
}

fn connections(all: &Connections) -> String {
    let reasons =
        |list: Vec<(&str, u64)>| if list.is_empty() { String::new() } else { format!(" ({})", self::list(&list)) };
    let closed = all.closed.values().sum();
    format!(
        "opened {}{}, closed {}{}, at most {} at a time, {} at the end",
        figures::count(all.created),
        reasons(figures::by_count(&all.created_for)),
        figures::count(closed),
        reasons(figures::by_count(&all.closed)),
        all.most,
        all.last
    )
}

fn list(counts: &[(&str, u64)]) -> String {
    counts
        .iter()
        .map(|(name, count)| format!("{} {}", figures::printable(name), figures::count(*count)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Writes a label and a text. Wrapped lines are aligned with the first one.
fn write_line(out: &mut dyn Write, label: &str, text: &str) -> io::Result<()> {
    writeln!(out, "{label}{}", wrap(text, label.chars().count(), WIDTH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn shown(results: &[BenchResult]) -> String {
        let mut out = Vec::new();
        write(&mut out, results).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn steps_and_total_have_a_line_each() {
        let table = shown(&[sample::full("a sample")]);
        let lines: Vec<_> = table.lines().collect();
        let from = lines.iter().position(|line| line.contains("- response ms -")).expect("the table");
        assert_eq!(
            lines[from + 1].split_whitespace().collect::<Vec<_>>().join(" "),
            "step per s errors dropped p50 p95 p99 max p50 p99 p99 opened"
        );
        assert!(
            lines[from + 2].starts_with("100/s ")
                && lines[from + 3].starts_with("300/s ")
                && lines[from + 4].starts_with("total "),
            "{table}"
        );
        let words = table.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            words.contains(
                "connections opened 30 (burst 20, rotation 10), closed 5 (idle 5), at most 25 at a time, 20 at the end"
            ),
            "{table}"
        );
        assert!(table.contains("  not opened   connect refused 2\n"), "{table}");
        assert!(
            table.contains("  per hour     opened per hour of the published time: burst 16.0, rotation 8.00\n"),
            "{table}"
        );
        assert!(table.contains("  steady size  20 connections\n"), "{table}");
        assert!(table.contains("  warning: Something must be known.\n"), "{table}");
    }

    #[test]
    fn the_description_of_the_scenario_stands_once_above_what_each_run_asks() {
        let table = shown(&[sample::full("one"), sample::full("two")]);
        assert!(table.starts_with("What the sample shows, and what to look at.\n\none\n"), "{table}");
        assert_eq!(table.matches("What the sample shows").count(), 1);
        assert_eq!(table.matches("  asks     order.sql, simple protocol\n").count(), 2);
        assert_eq!(table.matches("  way      answers 200ms late").count(), 2);
        let mut straight = sample::full("straight");
        straight.about.way = Some(STRAIGHT.to_owned());
        assert!(!shown(&[straight]).contains("  way "));
    }

    #[test]
    fn no_line_is_longer_than_a_hundred_characters() {
        let mut long = sample::full(
            "a name that goes on and on, as if its author were paid by the letter, and then some more of it",
        );
        long.about.load = "many words ".repeat(40);
        long.warnings = vec!["a warning that explains itself at length ".repeat(10)];
        long.total.requests = 123_456_789_012;
        for index in 0..30 {
            long.total.errors.insert(format!("sqlstate 4000{index}"), 1_000_000);
        }
        for results in [vec![long.clone()], vec![long.clone(), long]] {
            let table = shown(&results);
            let longest = table.lines().map(|line| line.chars().count()).max();
            assert!(longest <= Some(WIDTH), "{longest:?}\n{table}");
        }
    }

    #[test]
    fn a_column_without_a_value_is_left_out() {
        let nothing = shown(&[BenchResult { name: "nothing".to_owned(), ..BenchResult::default() }]);
        assert!(
            !nothing.contains("dropped")
                && !nothing.contains("service")
                && !nothing.contains("wait ms")
                && !nothing.contains("connecting"),
            "{nothing}"
        );
        let row = nothing.lines().find(|line| line.starts_with("total")).expect("the total");
        assert_eq!(
            row.split_whitespace().collect::<Vec<_>>(),
            ["total", "-", "-", "-", "-", "-", "-"],
            "unknown, and not zero"
        );
    }

    #[test]
    fn the_whole_name_of_each_variant_stands_above_its_rows() {
        let long = "the cure: a minimum that covers the burst, 50 at once";
        let table = shown(&[sample::full(long), sample::full("two")]);
        let lines: Vec<_> = table.lines().collect();
        let from = lines.iter().rposition(|line| *line == long).expect("the first name");
        assert!(
            lines[from + 1].starts_with("  100/s ")
                && lines[from + 2].starts_with("  300/s ")
                && lines[from + 3].starts_with("  total ")
                && lines[from + 4] == "two"
                && lines[from + 7].starts_with("  total "),
            "{table}"
        );
        assert!(table.contains("\ntwo: 12,000 operations in 60 s\n"), "{table}");
    }

    #[test]
    fn a_name_cannot_move_the_cursor() {
        let mut evil = sample::full("a\u{1b}[2J");
        evil.warnings = vec!["\u{1b}]0;title\u{7}".to_owned()];
        evil.about.server = Some("\r\u{1b}c".to_owned());
        assert!(!shown(&[evil]).contains(['\u{1b}', '\u{7}', '\r']));
    }
}
