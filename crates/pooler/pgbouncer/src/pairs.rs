//! Connection strings: `key=value` pairs with blanks around them, in which a value with blanks stands in single quotes
//! and a quote in it is doubled. Knows no key.

use std::ops::Range;

use crate::lines::until_quote;

/// One pair; places are bytes of the string.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pair {
    pub key: String,
    pub value: String,
    pub key_span: Range<usize>,
    pub value_span: Range<usize>,
}

/// Reads a connection string.
///
/// # Errors
/// The place from which on it cannot be read.
pub fn pairs(text: &str) -> Result<Vec<Pair>, usize> {
    let mut found = Vec::new();
    let mut at = skip_blanks(text, 0);
    while at < text.len() {
        let key_end = text[at..].find(|c: char| c == '=' || is_blank(c)).map_or(text.len(), |length| at + length);
        let key_span = at..key_end;
        let equals = skip_blanks(text, key_end);
        if key_span.is_empty() || !text[equals..].starts_with('=') {
            return Err(at);
        }
        let start = skip_blanks(text, equals + 1);
        let (value, end) = match text[start..].strip_prefix('\'') {
            Some(quoted) => {
                let (value, length) = until_quote(quoted, '\'').ok_or(start)?;
                (value, start + 1 + length)
            }
            None => {
                let end = text[start..].find(is_blank).map_or(text.len(), |length| start + length);
                (text[start..end].to_owned(), end)
            }
        };
        let next = skip_blanks(text, end);
        // There is no empty value, and a blank behind each.
        if value.is_empty() || (next == end && end < text.len()) {
            return Err(start);
        }
        found.push(Pair { key: text[key_span.clone()].to_owned(), value, key_span, value_span: start..end });
        at = next;
    }
    Ok(found)
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t')
}

fn skip_blanks(text: &str, at: usize) -> usize {
    text[at..].find(|c| !is_blank(c)).map_or(text.len(), |length| at + length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(text: &str) -> Result<Vec<(String, String)>, usize> {
        Ok(pairs(text)?.into_iter().map(|pair| (pair.key, pair.value)).collect())
    }

    fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn values_with_blanks_are_quoted() {
        let read = shown("host = h port=1  password='it''s a=b'\tuser='x'").unwrap();
        assert_eq!(read, owned(&[("host", "h"), ("port", "1"), ("password", "it's a=b"), ("user", "x")]));
        assert_eq!(shown("").unwrap(), []);
    }

    #[test]
    fn the_place_of_a_mistake_is_told() {
        assert_eq!(shown("host=h port"), Err(7));
        assert_eq!(shown("host='h"), Err(5));
        assert_eq!(shown("host="), Err(5));
        assert_eq!(shown("host=''"), Err(5));
        assert_eq!(shown("host='h'port=1"), Err(5));
        assert_eq!(shown("=h"), Err(0));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(\\PC|'|=| ){0,60}") {
            match pairs(&text) {
                Ok(pairs) => for pair in pairs {
                    prop_assert!(text.get(pair.value_span).is_some() && !pair.value.is_empty());
                },
                Err(at) => prop_assert!(text.is_char_boundary(at)),
            }
        }

        #[test]
        fn what_is_quoted_is_read_again(values in proptest::collection::vec("\\PC{1,12}", 1..5)) {
            let text: Vec<String> = values.iter().map(|v| format!("k='{}'", v.replace('\'', "''"))).collect();
            let read: Vec<String> = pairs(&text.join(" ")).unwrap().into_iter().map(|pair| pair.value).collect();
            prop_assert_eq!(read, values);
        }
    }
}
