//! The elements of a page: tiles, charts and tables, as plain values.

/// An important figure.
#[derive(Clone, Debug)]
pub struct Tile {
    pub label: &'static str,
    pub value: String,
    pub unit: &'static str,
    pub note: String,
    /// The figure is marked as bad.
    pub bad: bool,
}

/// A chart that the script draws, identified by `kind` and `run`.
pub(super) struct Chart {
    pub(super) kind: &'static str,
    pub(super) run: usize,
    pub(super) title: &'static str,
    pub(super) note: String,
    pub(super) whole: bool,
}

/// The first `words` cells of a row are words, the rest are numbers.
pub(super) struct Table {
    pub(super) title: String,
    /// Headings that span several columns, and their numbers of columns.
    pub(super) groups: Vec<(&'static str, usize)>,
    pub(super) headings: Vec<String>,
    pub(super) words: usize,
    pub(super) rows: Vec<Row>,
}

pub(super) struct Row {
    pub(super) cells: Vec<String>,
    /// `sum`, `chosen`, or empty.
    pub(super) class: &'static str,
}

impl Table {
    /// A table without spanning headings, whose rows begin with one word.
    pub(super) fn plain(title: &str, headings: &[&str], rows: Vec<Vec<String>>) -> Self {
        let headings = headings.iter().map(|heading| (*heading).to_owned()).collect();
        let rows = rows.into_iter().map(|cells| Row { cells, class: "" }).collect();
        Self { title: title.to_owned(), groups: Vec::new(), headings, words: 1, rows }
    }

    /// Narrow tables stand in pairs.
    pub(super) fn narrow(&self) -> bool {
        self.headings.len() <= 3
    }
}
