//! Untrusted names, such as those of databases, as a cell shows them. Refuses to know what they are the names of.

use ratatui::text::Span;

use crate::numbers::UNKNOWN;

/// Characters of a name: a longer one would push everything else out of sight.
const MAX_NAME: usize = 128;

/// The name cut to a length that fits, without characters that control a terminal; a dash if it is empty.
pub fn format_name(name: &str) -> String {
    if name.is_empty() {
        return UNKNOWN.to_owned();
    }
    let mut shown = printable::line(name);
    if let Some((end, _)) = shown.char_indices().nth(MAX_NAME) {
        shown.truncate(end);
        shown.push('…');
    }
    shown
}

/// The columns of the terminal that a text takes.
pub fn text_width(text: &str) -> usize {
    Span::raw(text).width()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_cut() {
        let cut = format_name(&"x".repeat(10_000));
        assert!(cut.ends_with("x…") && cut.chars().count() == MAX_NAME + 1, "{cut}");
        assert_eq!(format_name(&"x".repeat(MAX_NAME)), "x".repeat(MAX_NAME));
    }

    #[test]
    fn a_width_counts_columns_and_not_characters() {
        assert_eq!((text_width("bench"), text_width("数据库"), text_width("cafe\u{301}")), (5, 6, 4));
    }
}
