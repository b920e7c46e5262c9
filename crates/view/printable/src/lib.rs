//! Untrusted text for a terminal or a log: names that clients chose, errors of servers, contents of files. In the
//! result no character moves the cursor, begins a line, changes the direction of the text beside it, or is invisible.
#![forbid(unsafe_code)]

use std::fmt::Write;

use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

/// Marks above and below one character. No language needs more, and a tower of marks would cover the lines around it.
const MAX_MARKS: usize = 3;

/// Whether a character changes a terminal or its neighbours, or has no visible form of its own: a control character, an
/// end of a line, a format character of Unicode (such as the marks that turn the direction of text, and those without
/// width), a space that looks like the common one, and a character that no script uses.
pub fn steers(one: char) -> bool {
    if one.is_ascii() {
        return one.is_ascii_control();
    }
    let is_invisible = matches!(
        one.general_category(),
        GeneralCategory::Control
            | GeneralCategory::Format
            | GeneralCategory::LineSeparator
            | GeneralCategory::ParagraphSeparator
            | GeneralCategory::SpaceSeparator
            | GeneralCategory::PrivateUse
            | GeneralCategory::Unassigned
    );
    is_invisible || is_ignorable(one)
}

/// Letters, marks and a symbol that are invisible ("default ignorable" in Unicode, and the empty pattern of Braille).
fn is_ignorable(one: char) -> bool {
    matches!(
        one,
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

fn is_mark(one: char) -> bool {
    !one.is_ascii()
        && matches!(one.general_category(), GeneralCategory::NonspacingMark | GeneralCategory::EnclosingMark)
}

/// The text in one line: a replacement character stands for each character that [`steers`], and for each mark beyond
/// [`MAX_MARKS`].
pub fn line(text: &str) -> String {
    replace(text, |_| false)
}

/// The same for a text of several lines, which stay.
pub fn lines(text: &str) -> String {
    replace(text, |one| one == '\n')
}

fn replace(text: &str, stays: fn(char) -> bool) -> String {
    let mut marks = 0;
    let shown = |one: char| {
        marks = if is_mark(one) { marks + 1 } else { 0 };
        if stays(one) || (!steers(one) && marks <= MAX_MARKS) { one } else { char::REPLACEMENT_CHARACTER }
    };
    text.chars().map(shown).collect()
}

/// JSON of the same values: characters that steer become escapes within its texts. Outside of texts only ends of lines
/// steer.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// An escape, a bell, a delete, the eight-bit escape, ends of lines, marks of direction, a width of none, a soft
    /// hyphen, a tag.
    const STEERING: &str = "\u{1b}\u{7}\u{7f}\u{9b}\r\n\t\u{2028}\u{2029}\u{200e}\u{202e}\u{2066}\u{2069}\u{61c}\
        \u{200b}\u{200d}\u{feff}\u{ad}\u{e0041}";

    #[test]
    fn steering_characters_are_replaced_and_visible_ones_stay() {
        assert!(STEERING.chars().all(steers));
        assert_eq!(line(STEERING), "\u{fffd}".repeat(STEERING.chars().count()));
        let shown = "aZ ~ é ß 日本 שלום مرحبا 😀";
        assert_eq!((line(shown).as_str(), lines(shown).as_str()), (shown, shown));
    }

    #[test]
    fn invisible_characters_are_replaced() {
        for one in "\u{2060}\u{a0}\u{3164}\u{fe0f}\u{e000}".chars() {
            assert_eq!(line(&format!("be{one}nch")), "be\u{fffd}nch", "{one:?}");
        }
    }

    #[test]
    fn names_in_all_scripts_stay_as_they_are() {
        for own in ["kunden_2024-ä", "cafe\u{301}", "数据库", "база", "שלום", "กำลัง", "हिन्दी", "🦀", "a b"]
        {
            assert_eq!(line(own), own);
        }
    }

    #[test]
    fn a_tower_of_marks_is_cut() {
        assert_eq!(line(&format!("a{}b", "\u{301}".repeat(5))), "a\u{301}\u{301}\u{301}\u{fffd}\u{fffd}b");
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
