//! PgBouncer's userlist format: one `"user" "password"` a line, in which a quote is doubled; what follows on the line
//! is ignored, and so is a line that begins with `;`. Passwords are plain, `md5...` or `SCRAM-SHA-256$...`; they are
//! not looked into here.

use std::ops::Range;

use settings::Secret;

/// Most users of one list.
pub const MAX_USERS: usize = 100_000;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub name: String,
    /// The password as it is stored.
    pub password: Secret,
    /// Where the name stands, in bytes of the text.
    pub span: Range<usize>,
}

/// A line that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreadable {
    /// Where, in bytes of the text.
    pub span: Range<usize>,
    pub message: &'static str,
}

/// Reads a list: the entries, and what is wrong with lines that are none.
pub fn parse(text: &str) -> (Vec<Entry>, Vec<Unreadable>) {
    let (mut entries, mut errors) = (Vec::new(), Vec::new());
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        match parse_line(line, start) {
            Ok(Some(_)) if entries.len() == MAX_USERS => {
                errors.push(Unreadable { span: start..start + 1, message: "the list has more than 100000 users" });
                break;
            }
            Ok(entry) => entries.extend(entry),
            Err((at, message)) => errors.push(Unreadable { span: start + at..start + at + 1, message }),
        }
        start += line.len();
    }
    (entries, errors)
}

fn parse_line(line: &str, start: usize) -> Result<Option<Entry>, (usize, &'static str)> {
    let indent = line.len() - line.trim_start().len();
    let trimmed = &line[indent..];
    if trimmed.is_empty() || trimmed.starts_with(';') {
        return Ok(None);
    }
    let (name, behind) = quoted(line, indent).ok_or((indent, "expected the user's name in double quotes"))?;
    let gap = line[behind..].len() - line[behind..].trim_start().len();
    let at = behind + gap;
    let (password, end) = quoted(line, at).ok_or((at.min(line.len()), "expected the password in double quotes"))?;
    if name.is_empty() {
        return Err((indent, "the user's name is empty"));
    }
    if line[end..].starts_with('"') || gap == 0 {
        return Err((behind, "expected a space between name and password"));
    }
    let span = start + indent..start + behind;
    Ok(Some(Entry { name, password: Secret::new(password), span }))
}

/// The text within the quotes that open at `at`, and where it ends behind them.
fn quoted(line: &str, at: usize) -> Option<(String, usize)> {
    let mut rest = line.get(at..)?.strip_prefix('"')?;
    let mut text = String::new();
    loop {
        let (before, behind) = rest.split_once('"')?;
        text.push_str(before);
        rest = behind;
        match rest.strip_prefix('"') {
            Some(more) => {
                text.push('"');
                rest = more;
            }
            None => return Some((text, line.len() - rest.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names_and_passwords(text: &str) -> Vec<(String, String)> {
        let (entries, errors) = parse(text);
        assert!(errors.is_empty());
        entries.into_iter().map(|e| (e.name, e.password.reveal().to_string())).collect()
    }

    #[test]
    fn users_are_read_with_doubled_quotes_and_comments() {
        let text = "; a comment\n\n\"app\" \"secret\"\n  \"o\"\"neil\"\t\"a\"\"b\" ignored\n\"x\" \"\"";
        let expected = [("app", "secret"), ("o\"neil", "a\"b"), ("x", "")];
        let expected: Vec<_> = expected.map(|(n, p)| (n.to_owned(), p.to_owned())).into();
        assert_eq!(names_and_passwords(text), expected);
    }

    #[test]
    fn every_unreadable_line_is_reported_with_its_place() {
        let (entries, errors) = parse("\"app\" \"x\"\napp \"x\"\n\"app\" x\n\"\" \"x\"\n\"app\n");
        assert_eq!(entries.len(), 1);
        let places: Vec<_> = errors.iter().map(|e| e.span.start).collect();
        assert_eq!(places, [10, 24, 26, 33]);
        assert!(errors[1].message.contains("password"));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "(?s).{0,120}") {
            let _ = parse(&text);
        }

        #[test]
        fn what_is_written_is_read(name in "[^\n\r]{1,20}", password in "[^\n\r]{0,20}") {
            let line = format!("\"{}\" \"{}\"\n", name.replace('"', "\"\""), password.replace('"', "\"\""));
            prop_assert_eq!(names_and_passwords(&line), [(name, password)]);
        }
    }
}
