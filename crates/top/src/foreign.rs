//! Text that strangers chose, such as names of databases, or an error that a server answered with: as what it may reach a terminal. Refuses to
//! know what it is the text of.

use ratatui::text::Span;
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

use crate::words::UNKNOWN;

/// Characters of a name: more of one would push everything else out of sight.
const MAX_NAME: usize = 128;
/// Marks above and below one character. No language needs more, and a tower of them would cover the lines around it.
const MAX_MARKS: usize = 3;

/// Nothing in it steers the terminal, turns the direction of what stands beside it, or cannot be seen: such characters are replaced.
pub fn harmless(text: &str) -> String {
    let mut marks = 0;
    let shown = |c: char| {
        marks = if is_mark(c) { marks + 1 } else { 0 };
        if is_seen(c) && marks <= MAX_MARKS { c } else { char::REPLACEMENT_CHARACTER }
    };
    text.chars().map(shown).collect()
}

/// The same of a name, which may be none, or too long.
pub fn name(name: &str) -> String {
    if name.is_empty() {
        return UNKNOWN.to_owned();
    }
    let mut shown = harmless(name);
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

fn is_mark(c: char) -> bool {
    !c.is_ascii() && matches!(c.general_category(), GeneralCategory::NonspacingMark | GeneralCategory::EnclosingMark)
}

/// It is text that has a look of its own. Spaces other than the common one look like that one.
fn is_seen(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    let has_no_look = matches!(
        c.general_category(),
        GeneralCategory::Control
            | GeneralCategory::Format
            | GeneralCategory::LineSeparator
            | GeneralCategory::ParagraphSeparator
            | GeneralCategory::SpaceSeparator
            | GeneralCategory::PrivateUse
            | GeneralCategory::Unassigned
    );
    !has_no_look && !is_ignorable(c)
}

/// Letters, marks and a symbol that take part in text without a look ("default ignorable" in Unicode, and the empty pattern of Braille).
fn is_ignorable(c: char) -> bool {
    matches!(
        c,
        '\u{34f}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{ffa0}'
            | '\u{e0100}'..='\u{e01ef}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_steer_a_terminal() {
        assert_eq!(name("a\u{1b}[2Jb"), "a\u{fffd}[2Jb");
        assert_eq!(name("a\u{9b}2Jb\r\n"), "a\u{fffd}2Jb\u{fffd}\u{fffd}");
        assert_eq!(name(""), "-");
    }

    #[test]
    fn what_turns_the_direction_or_cannot_be_seen_is_replaced() {
        let unseen = "\u{202e}\u{2066}\u{200f}\u{61c}\u{200b}\u{200d}\u{2060}\u{feff}\u{ad}\u{2028}\u{a0}\u{3164}\u{e0041}\u{fe0f}\u{e000}";
        for c in unseen.chars() {
            assert_eq!(name(&format!("be{c}nch")), "be\u{fffd}nch", "{c:?}");
        }
    }

    #[test]
    fn names_in_all_scripts_stay_as_they_are() {
        for own in ["kunden_2024-ä", "cafe\u{301}", "数据库", "база", "שלום", "กำลัง", "हिन्दी", "🦀", "a b"]
        {
            assert_eq!(name(own), own);
        }
    }

    #[test]
    fn a_tower_of_marks_is_cut_and_so_is_a_long_name() {
        assert_eq!(name(&format!("a{}b", "\u{301}".repeat(5))), "a\u{301}\u{301}\u{301}\u{fffd}\u{fffd}b");
        let cut = name(&"x".repeat(10_000));
        assert!(cut.ends_with("x…") && cut.chars().count() == MAX_NAME + 1, "{cut}");
        assert_eq!(name(&"x".repeat(MAX_NAME)), "x".repeat(MAX_NAME));
    }

    #[test]
    fn a_width_counts_columns_and_not_characters() {
        assert_eq!((width("bench"), width("数据库"), width("cafe\u{301}")), (5, 6, 4));
    }
}
