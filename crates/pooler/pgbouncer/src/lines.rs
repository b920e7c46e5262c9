//! The lines of a `pgbouncer.ini`: sections, settings, includes, comments. Knows no setting and opens no file.

use std::ops::Range;

/// What a line says; places are bytes of the whole text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Line<'t> {
    /// `[name]`
    Section { name: &'t str, span: Range<usize> },
    /// `key = value`
    Setting { key: String, value: &'t str, key_span: Range<usize>, value_span: Range<usize> },
    /// `%include file`
    Include { path: &'t str, span: Range<usize> },
    /// A line of another shape.
    Unreadable { span: Range<usize> },
}

/// The lines of a text that say something, in order.
pub fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    let mut start = 0;
    text.split_inclusive('\n').filter_map(move |line| {
        let at = start;
        start += line.len();
        read(line, at)
    })
}

fn read(line: &str, start: usize) -> Option<Line<'_>> {
    let trimmed = line.trim();
    let begin = start + (line.len() - line.trim_start().len());
    let span = begin..begin + trimmed.len();
    let within = |part: &str| {
        let at = part.as_ptr() as usize - line.as_ptr() as usize + start;
        at..at + part.len()
    };
    if trimmed.is_empty() || trimmed.starts_with([';', '#']) {
        return None;
    }
    if let Some(rest) = trimmed.strip_prefix('[') {
        return Some(match rest.find(']') {
            Some(end) => Line::Section { name: &rest[..end], span },
            None => Line::Unreadable { span },
        });
    }
    if let Some(rest) = trimmed.strip_prefix("%include").filter(|rest| rest.starts_with(char::is_whitespace)) {
        let path = rest.trim();
        return Some(Line::Include { path, span: within(path) });
    }
    let setting = key(trimmed).and_then(|(key, key_length)| {
        let value = trimmed[key_length..].trim_start().strip_prefix('=')?.trim();
        let key_span = within(&trimmed[..key_length]);
        Some(Line::Setting { key, value, key_span, value_span: within(value) })
    });
    Some(setting.unwrap_or(Line::Unreadable { span }))
}

/// The key at the begin of a line, and its bytes there. One in double quotes may have any characters.
fn key(line: &str) -> Option<(String, usize)> {
    if let Some(rest) = line.strip_prefix('"') {
        let (name, length) = until_quote(rest, '"')?;
        return (!name.is_empty()).then_some((name, length + 1));
    }
    let is_of_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '*');
    let length = line.find(|c| !is_of_key(c)).unwrap_or(line.len());
    (length > 0).then(|| (line[..length].to_owned(), length))
}

/// The text up to a closing quote, in which a doubled quote is one, and the bytes that it takes with that quote.
pub fn until_quote(text: &str, quote: char) -> Option<(String, usize)> {
    let mut value = String::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if c != quote {
            value.push(c);
        } else if chars.next_if(|(_, next)| *next == quote).is_some() {
            value.push(quote);
        } else {
            return Some((value, at + quote.len_utf8()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(text: &str) -> Vec<String> {
        let show = |line| match line {
            Line::Section { name, .. } => format!("[{name}]"),
            Line::Setting { key, value, .. } => format!("{key}={value}"),
            Line::Include { path, .. } => format!("%{path}"),
            Line::Unreadable { .. } => "?".to_owned(),
        };
        lines(text).map(show).collect()
    }

    #[test]
    fn lines_are_sections_settings_includes_and_comments() {
        let text = "; c\n  # c\n\n[databases] ; c\r\n\ta.b-c_1* = x ; y  \n\"a \"\"b\" =\n%include  f g.ini \n* = z\n";
        assert_eq!(shown(text), ["[databases]", "a.b-c_1*=x ; y", "a \"b=", "%f g.ini", "*=z"]);
    }

    #[test]
    fn what_is_none_of_them_is_unreadable() {
        for line in
            ["a", "a b = c", "[a", "%other x", "= x", "%include", "\"a = x", "\u{e4} = x", "\"\" = x", "a+b = x"]
        {
            assert_eq!(shown(line), ["?"], "{line}");
        }
    }

    #[test]
    fn places_are_those_of_the_text() {
        let text = "[x]\n  key =  value \n";
        let Some(Line::Setting { key_span, value_span, .. }) = lines(text).nth(1) else { panic!() };
        assert_eq!((&text[key_span], &text[value_span]), ("key", "value"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_and_places_are_within_it(text in "(\\PC|\n|\"|=|\\[|\\]){0,80}") {
            for line in lines(&text) {
                let (Line::Section { span, .. } | Line::Include { span, .. } | Line::Unreadable { span }
                    | Line::Setting { value_span: span, .. }) = line;
                prop_assert!(text.get(span).is_some());
            }
        }
    }
}
