//! What a page is made of: figures, charts and tables, as plain values. Knows neither what they show nor how they look.

/// A figure that is read first.
pub(super) struct Tile {
    pub(super) label: &'static str,
    pub(super) value: String,
    pub(super) unit: &'static str,
    pub(super) note: String,
    pub(super) bad: bool,
}

/// What the script draws, and what is said about it. `kind` and `run` tell the script which.
pub(super) struct Chart {
    pub(super) kind: &'static str,
    pub(super) run: usize,
    pub(super) title: &'static str,
    pub(super) note: String,
    pub(super) whole: bool,
}

/// A table; the first cells of a row are words and the rest are numbers.
pub(super) struct Table {
    pub(super) title: String,
    /// Spanning headings: text and columns; empty: none.
    pub(super) groups: Vec<(&'static str, usize)>,
    pub(super) headings: Vec<String>,
    pub(super) words: usize,
    pub(super) rows: Vec<Row>,
}

pub(super) struct Row {
    pub(super) cells: Vec<String>,
    /// `sum` of those above, `chosen` among them, or nothing special.
    pub(super) class: &'static str,
}

impl Table {
    /// One without spanning headings, whose rows begin with one word.
    pub(super) fn plain(title: &str, headings: &[&str], rows: Vec<Vec<String>>) -> Self {
        let headings = headings.iter().map(|heading| (*heading).to_owned()).collect();
        let rows = rows.into_iter().map(|cells| Row { cells, class: "" }).collect();
        Self { title: title.to_owned(), groups: Vec::new(), headings, words: 1, rows }
    }

    /// It has room beside another one.
    pub(super) fn narrow(&self) -> bool {
        self.headings.len() <= 3
    }
}
