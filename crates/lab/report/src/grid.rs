//! Columns of text of at most a given width: words to the left, numbers to the right, headings that span several
//! columns.

use std::io::{self, Write};

/// Characters of a line. A longer word is not broken.
pub const WIDTH: usize = 100;
const GAP: usize = 2;
/// Fewest characters of a column of words that is cut.
const MIN_WORDS_WIDTH: usize = 8;

#[derive(Clone, Copy)]
pub struct Column {
    /// A heading above all adjacent columns of the same group. Empty: none.
    pub group: &'static str,
    pub heading: &'static str,
    /// Words are aligned to the left and cut if the line is too long. Numbers are aligned to the right and not cut.
    pub words: bool,
}

pub struct Grid {
    columns: Vec<Column>,
    rows: Vec<Row>,
}

enum Row {
    Cells(Vec<String>),
    /// A line across all columns.
    Title(String),
}

impl Grid {
    pub fn new(columns: Vec<Column>) -> Self {
        Self { columns, rows: Vec::new() }
    }

    pub fn push(&mut self, row: Vec<String>) {
        assert_eq!(row.len(), self.columns.len(), "a row has a cell for each column");
        self.rows.push(Row::Cells(row));
    }

    /// Adds a line above the rows that follow.
    pub fn title(&mut self, title: String) {
        self.rows.push(Row::Title(title));
    }

    pub fn write(&self, out: &mut dyn Write, most: usize) -> io::Result<()> {
        let widths = self.widths(most);
        if let Some(line) = self.groups(&widths) {
            writeln!(out, "{line}")?;
        }
        let headings: Vec<_> = self.columns.iter().map(|column| column.heading).collect();
        writeln!(out, "{}", self.line(&headings, &widths))?;
        for row in &self.rows {
            match row {
                Row::Cells(cells) => {
                    let cells: Vec<_> = cells.iter().map(String::as_str).collect();
                    writeln!(out, "{}", self.line(&cells, &widths))?;
                }
                Row::Title(title) => writeln!(out, "{}", cut_text(title, most))?,
            }
        }
        Ok(())
    }

    fn widths(&self, most: usize) -> Vec<usize> {
        let wide = |index: usize| {
            let cells = self.rows.iter().filter_map(|row| match row {
                Row::Cells(cells) => Some(chars(&cells[index])),
                Row::Title(_) => None,
            });
            cells.max().unwrap_or(0).max(chars(self.columns[index].heading))
        };
        let mut widths: Vec<_> = (0..self.columns.len()).map(wide).collect();
        for (from, to) in self.spans() {
            let have = span(&widths, from, to);
            widths[to - 1] += chars(self.columns[from].group).saturating_sub(have);
        }
        while span(&widths, 0, widths.len()) > most {
            let words =
                (0..widths.len()).filter(|index| self.columns[*index].words && widths[*index] > MIN_WORDS_WIDTH);
            let Some(widest) = words.max_by_key(|index| widths[*index]) else { break };
            widths[widest] -= 1;
        }
        widths
    }

    /// The columns of each group: the first, and the one after the last.
    fn spans(&self) -> Vec<(usize, usize)> {
        let mut spans: Vec<(usize, usize)> = Vec::new();
        for (index, column) in self.columns.iter().enumerate().filter(|(_, column)| !column.group.is_empty()) {
            match spans.last_mut() {
                Some((from, to)) if *to == index && self.columns[*from].group == column.group => *to += 1,
                _ => spans.push((index, index + 1)),
            }
        }
        spans
    }

    fn groups(&self, widths: &[usize]) -> Option<String> {
        let spans = self.spans();
        let mut line = String::new();
        for (from, to) in &spans {
            let start = span(widths, 0, *from) + if *from > 0 { GAP } else { 0 };
            line.push_str(&" ".repeat(start - chars(&line)));
            let room = span(widths, *from, *to).saturating_sub(chars(self.columns[*from].group));
            // Dashes on both sides if there is space.
            let (left, right) = if room >= 4 { (room / 2, room - room / 2) } else { (0, 0) };
            match left {
                0 => line.push_str(&format!("{}{}", " ".repeat(room), self.columns[*from].group)),
                _ => line.push_str(&format!(
                    "{} {} {}",
                    "-".repeat(left - 1),
                    self.columns[*from].group,
                    "-".repeat(right - 1)
                )),
            }
        }
        (!spans.is_empty()).then_some(line)
    }

    fn line(&self, cells: &[&str], widths: &[usize]) -> String {
        let mut line = String::new();
        for (index, (cell, width)) in cells.iter().zip(widths).enumerate() {
            let (cell, width) = (cut_text(cell, *width), *width);
            line.push_str(&" ".repeat(if index > 0 { GAP } else { 0 }));
            match self.columns[index].words {
                true => line.push_str(&format!("{cell:<width$}")),
                false => line.push_str(&format!("{cell:>width$}")),
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// Wraps a text into lines of at most `most` characters. The first line begins in column `indent`, to which the others
/// are indented. A longer word is not broken.
pub fn wrap(text: &str, indent: usize, most: usize) -> String {
    let (mut lines, mut length) = (String::new(), indent);
    for (index, word) in text.split_whitespace().enumerate() {
        if index > 0 && length + 1 + chars(word) > most {
            lines.push('\n');
            lines.push_str(&" ".repeat(indent));
            length = indent;
        } else if index > 0 {
            lines.push(' ');
            length += 1;
        }
        lines.push_str(word);
        length += chars(word);
    }
    lines
}

fn chars(text: &str) -> usize {
    text.chars().count()
}

fn span(widths: &[usize], from: usize, to: usize) -> usize {
    widths[from..to].iter().sum::<usize>() + GAP * (to - from).saturating_sub(1)
}

fn cut_text(text: &str, width: usize) -> String {
    if chars(text) <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: Column = Column { group: "", heading: "step", words: true };
    const P50: Column = Column { group: "response ms", heading: "p50", words: false };
    const P99: Column = Column { group: "response ms", heading: "p99", words: false };
    const WAIT: Column = Column { group: "wait ms", heading: "p99", words: false };

    fn shown(columns: &[Column], rows: &[&[&str]], most: usize) -> Vec<String> {
        let mut grid = Grid::new(columns.to_vec());
        rows.iter().for_each(|row| grid.push(row.iter().map(|cell| (*cell).to_owned()).collect()));
        let mut out = Vec::new();
        grid.write(&mut out, most).unwrap();
        String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn numbers_are_aligned_to_the_right_with_their_heading() {
        let lines = shown(
            &[NAME, P50, P99, WAIT],
            &[&["100/s", "1.23", "123,456", "-"], &["total", "10.0", "1", "0.100"]],
            100,
        );
        assert_eq!(
            lines,
            [
                "         response ms  wait ms",
                "step    p50      p99      p99",
                "100/s  1.23  123,456        -",
                "total  10.0        1    0.100"
            ]
        );
    }

    #[test]
    fn words_are_cut_if_a_line_is_too_long_and_numbers_are_not() {
        let long = "a name that its author has written with much love";
        let lines = shown(&[NAME, P50], &[&[long, "123,456,789"]], 30);
        assert_eq!(lines[2], "a name that its …  123,456,789");
        let lines = shown(&[NAME, P50], &[&[long, "123,456,789"]], 5);
        assert_eq!(lines[2], "a name …  123,456,789");
    }

    #[test]
    fn a_title_is_cut_at_the_end_of_the_line() {
        let mut grid = Grid::new(vec![NAME, P50]);
        grid.title("a name that is longer than all columns together".to_owned());
        grid.push(vec!["total".to_owned(), "1.23".to_owned()]);
        let mut out = Vec::new();
        grid.write(&mut out, 30).unwrap();
        let out = String::from_utf8(out).unwrap();
        let lines: Vec<_> = out.lines().collect();
        assert_eq!(lines[2..], ["a name that is longer than al…", "total         1.23"]);
    }

    #[test]
    fn a_text_is_wrapped_between_words() {
        assert_eq!(wrap("one two three four", 2, 9), "one two\n  three\n  four");
        assert_eq!(wrap("verylongword x", 2, 5), "verylongword\n  x");
        assert_eq!(wrap("", 2, 5), "");
    }
}
