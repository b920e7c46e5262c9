//! Text that others wrote, for a terminal or a log: names that clients chose, errors of servers, what stands in a file. No character of it
//! moves the cursor, begins a line, turns the direction of what stands beside it, or is seen by nobody. Refuses to know whose text it is.
#![forbid(unsafe_code)]

use std::fmt::Write;

use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

/// A character that does something to a terminal or to its neighbours instead of being shown: a control character, an end of a line, or what
/// Unicode calls a format character, such as the marks that turn the direction of text and those that have no width.
pub fn steers(one: char) -> bool {
    match one {
        ' '..='~' => false,
        _ => matches!(
            one.general_category(),
            GeneralCategory::Control
                | GeneralCategory::Format
                | GeneralCategory::LineSeparator
                | GeneralCategory::ParagraphSeparator
        ),
    }
}

/// The text in one line: each character that [`steers`] is replaced by one that shows that it was there.
pub fn line(text: &str) -> String {
    text.chars().map(harmless).collect()
}

/// The same of a text of several lines, which stay.
pub fn lines(text: &str) -> String {
    text.chars().map(|one| if one == '\n' { one } else { harmless(one) }).collect()
}

/// JSON of the same values: characters that steer are written as escapes within its texts. Those outside of texts are ends of lines.
pub fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for one in text.chars() {
        if one == '\n' || !steers(one) {
            out.push(one);
        } else {
            let mut units = [0; 2];
            one.encode_utf16(&mut units)
                .iter()
                .for_each(|unit| write!(out, "\\u{unit:04x}").expect("a string takes it"));
        }
    }
    out
}

fn harmless(one: char) -> char {
    if steers(one) { char::REPLACEMENT_CHARACTER } else { one }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An escape, a bell, a delete, the eight-bit escape, ends of lines, marks of direction, a width of none, a soft hyphen, a tag.
    const STEERING: &str = "\u{1b}\u{7}\u{7f}\u{9b}\r\n\t\u{2028}\u{2029}\u{200e}\u{202e}\u{2066}\u{2069}\u{61c}\u{200b}\u{200d}\u{feff}\u{ad}\u{e0041}";

    #[test]
    fn what_steers_is_replaced_and_what_is_shown_stays() {
        assert!(STEERING.chars().all(steers));
        assert_eq!(line(STEERING), "\u{fffd}".repeat(STEERING.chars().count()));
        let shown = "aZ ~ é ß 日本 שלום مرحبا 😀 \u{e000}";
        assert_eq!((line(shown).as_str(), lines(shown).as_str()), (shown, shown));
    }

    #[test]
    fn the_direction_of_a_name_does_not_turn_what_follows_it() {
        assert_eq!(line("shop\u{202e}txt"), "shop\u{fffd}txt");
    }

    #[test]
    fn only_ends_of_lines_stay_where_there_are_several() {
        assert_eq!(lines("a\u{1b}[2J\nb\rc"), "a\u{fffd}[2J\nb\u{fffd}c");
        assert_eq!(line("a\nb"), "a\u{fffd}b");
    }

    #[test]
    fn json_has_the_same_values_and_steers_nothing() {
        let value = serde_json::json!({ "name": STEERING, "of": [1, "é"] });
        for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            let shown = json(&text);
            assert!(!shown.chars().any(|one| one != '\n' && steers(one)), "{shown}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
        }
    }
}
