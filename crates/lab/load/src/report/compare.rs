//! Two results beside each other: as a table for the terminal, and as rows of a page. Knows what was found, not how.

use std::io::{self, Write};

use super::{
    elements::{Row as PageRow, Table},
    figures::{self, DASH},
    grid::{Column, Grid, WIDTH, wrap},
};
use crate::compare::{Comparison, Row, Verdict};

/// What the columns are, under the names of the two.
const HEADINGS: [&str; 6] = ["", "A", "B", "change", "B - A, 99%", "more than noise?"];

/// Writes the comparison as plain text.
///
/// # Errors
/// Those of `out`.
pub fn write(out: &mut dyn Write, comparison: &Comparison) -> io::Result<()> {
    for (label, name) in [("A  ", &comparison.a), ("B  ", &comparison.b)] {
        writeln!(out, "{label}{}", wrap(&figures::printable(name), label.len(), WIDTH))?;
    }
    writeln!(out)?;
    let column = |index: usize| Column { group: "", heading: HEADINGS[index], words: index == 0 || index == 5 };
    let mut grid = Grid::new((0..HEADINGS.len()).map(column).collect());
    comparison.rows.iter().for_each(|row| grid.push(cells(row)));
    grid.write(out, WIDTH)?;
    for warning in &comparison.warnings {
        let label = "warning: ";
        writeln!(out, "{label}{}", wrap(&figures::printable(warning), label.len(), WIDTH))?;
    }
    Ok(())
}

pub(super) fn table(comparison: &Comparison) -> Table {
    let row = |row: &Row| PageRow {
        cells: cells(row),
        class: match row.verdict {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Noise | Verdict::Unknown => "",
        },
    };
    let title = format!("A: {}; B: {}", comparison.a, comparison.b);
    Table { rows: comparison.rows.iter().map(row).collect(), ..Table::plain(&title, &HEADINGS, Vec::new()) }
}

fn cells(row: &Row) -> Vec<String> {
    let name = if row.unit.is_empty() { row.metric.clone() } else { format!("{}, {}", row.metric, row.unit) };
    vec![
        figures::printable(&name),
        figures::ms(row.a),
        figures::ms(row.b),
        row.change.map_or(DASH.to_owned(), |change| format!("{:+.1}%", change * 100.0)),
        row.interval.map_or(DASH.to_owned(), |(low, high)| format!("{} to {}", signed(low), signed(high))),
        match row.verdict {
            Verdict::Better => "yes, better",
            Verdict::Worse => "yes, worse",
            Verdict::Noise => "no",
            Verdict::Unknown => "not known",
        }
        .to_owned(),
    ]
}

fn signed(value: f64) -> String {
    let shown = figures::ms(Some(value));
    if value > 0.0 { format!("+{shown}") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{html, sample};

    fn row(metric: &str, verdict: Verdict, interval: Option<(f64, f64)>) -> Row {
        Row {
            metric: metric.to_owned(),
            unit: "ms".to_owned(),
            a: Some(10.0),
            b: Some(12.345),
            change: Some(0.2345),
            interval,
            verdict,
        }
    }

    fn comparison() -> Comparison {
        let unknown = Row { a: None, change: None, ..row("service p99", Verdict::Unknown, None) };
        Comparison {
            a: "before".to_owned(),
            b: "after".to_owned(),
            rows: vec![
                row("response p99", Verdict::Worse, Some((1.5, 3.25))),
                row("response p50", Verdict::Noise, Some((-0.5, 0.25))),
                unknown,
            ],
            warnings: vec!["They differ in load.".to_owned()],
        }
    }

    #[test]
    fn a_difference_stands_beside_what_to_make_of_it() {
        let mut out = Vec::new();
        write(&mut out, &comparison()).unwrap();
        let shown = String::from_utf8(out).unwrap();
        let lines: Vec<_> = shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(lines[0..2], ["A before", "B after"]);
        assert_eq!(lines[4], "response p99, ms 10.0 12.3 +23.4% +1.50 to +3.25 yes, worse");
        assert_eq!(lines[5], "response p50, ms 10.0 12.3 +23.4% -0.500 to +0.250 no");
        assert_eq!(lines[6], "service p99, ms - 12.3 - - not known");
        assert_eq!(lines[7], "warning: They differ in load.");
    }

    #[test]
    fn the_page_shows_the_comparison_before_the_runs() {
        let page = html::comparison(&comparison(), [sample::full("before"), sample::full("after")]);
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} is not there"));
        assert!(at("A: before; B: after") < at("All runs") && at("All runs") < at("id=\"run-1\""));
        assert!(page.contains("<tr class=\"worse\">") && page.contains("They differ in load."));
    }
}
