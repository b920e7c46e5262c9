//! Names that strangers chose, such as those of databases, as they stand in a cell. Refuses to know what they are the
//! names of.

use ratatui::text::Span;

use crate::words::UNKNOWN;

/// Characters of a name: more of one would push everything else out of sight.
const MAX_NAME: usize = 128;

/// The name cut to a length that fits, without characters that control a terminal; a dash if it is empty.
pub fn name(name: &str) -> String {
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

/// Columns that a text takes.
pub fn width(text: &str) -> usize {
    Span::raw(text).width()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_steer_a_terminal() {
        assert_eq!(name("a\u{1b}[2J\u{202e}b"), "a\u{fffd}[2J\u{fffd}b");
        assert_eq!(name(""), "-");
    }

    #[test]
    fn a_long_name_is_cut() {
        let cut = name(&"x".repeat(10_000));
        assert!(cut.ends_with("x…") && cut.chars().count() == MAX_NAME + 1, "{cut}");
        assert_eq!(name(&"x".repeat(MAX_NAME)), "x".repeat(MAX_NAME));
    }

    #[test]
    fn a_width_counts_columns_and_not_characters() {
        assert_eq!((width("bench"), width("数据库"), width("cafe\u{301}")), (5, 6, 4));
    }
}
