//! The demo's one table. Knows columns and units, refuses to know where the numbers come from.

use std::time::Duration;

use super::{measure::Sample, pgbench::Outcome};

/// One line of the table; absent values are printed as a dash.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// What was measured.
    pub title: String,
    /// Concurrent clients.
    pub clients: u32,
    /// What pgbench reported.
    pub outcome: Outcome,
    /// The database in the middle of the run.
    pub sample: Option<Sample>,
}

const HEAD: [&str; 8] =
    ["", "clients", "transactions/s", "p50 ms", "p99 ms", "failed", "server connections", "their memory MB"];

/// The table as text.
pub fn render(rows: &[Row]) -> String {
    let mut cells = vec![HEAD.map(str::to_owned)];
    cells.extend(rows.iter().map(Row::cells));
    let widths: Vec<usize> =
        (0..HEAD.len()).map(|column| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for (line, row) in cells.iter().enumerate() {
        let padded: Vec<String> = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(
                |(column, (cell, &width))| {
                    if column == 0 { format!("{cell:width$}") } else { format!("{cell:>width$}") }
                },
            )
            .collect();
        text += &format!("| {} |\n", padded.join(" | "));
        if line == 0 {
            let rules: Vec<String> = widths.iter().map(|&width| "-".repeat(width + 2)).collect();
            text += &format!("|{}|\n", rules.join("|"));
        }
    }
    text
}

/// Milliseconds with as many digits as they deserve.
pub fn milliseconds(time: Duration) -> String {
    let value = time.as_secs_f64() * 1e3;
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.3}"),
    }
}

impl Row {
    /// The row in a line, for those who watch.
    pub fn brief(&self) -> String {
        let cells = self.cells();
        format!("{} transactions/s, p50 {} ms, p99 {} ms, {} failed", cells[2], cells[3], cells[4], cells[5])
    }

    fn cells(&self) -> [String; HEAD.len()] {
        let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        [
            self.title.clone(),
            self.clients.to_string(),
            or_dash(self.outcome.throughput.map(|value| format!("{value:.0}"))),
            or_dash(self.outcome.p50.map(milliseconds)),
            or_dash(self.outcome.p99.map(milliseconds)),
            self.outcome.failed.to_string(),
            or_dash(self.sample.map(|sample| sample.servers.to_string())),
            or_dash(self.sample.and_then(|sample| sample.memory).map(|bytes| format!("{}", bytes >> 20))),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_are_dashes_and_never_zero() {
        let row = Row { title: "directly".to_owned(), clients: 1000, ..Row::default() };
        let text = render(&[row]);
        assert!(text.contains("| directly |    1000 |              - |"), "{text}");
    }
}
