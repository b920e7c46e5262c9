//! Most texts are plain queries in which nothing is to be found. They are told at a glance, byte by byte, at a fraction
//! of what it costs to read them token by token. Whatever is not so plain is left to the reader.

/// What may begin with a byte. The texts are short, so one pass over a table is cheaper than a search for each kind of
/// byte.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Part of a name, a number or an operator.
    Harmless,
    End,
    Read,
    /// A constant begins or ends.
    Quote,
    /// A comment or a dollar quote may begin.
    Comment,
    Into,
    Underscore,
}

const CLASSES: [Class; 256] = {
    let mut classes = [Class::Harmless; 256];
    let mut byte = 0x80;
    while byte < 256 {
        classes[byte] = Class::Read;
        byte += 1;
    }
    // The ampersand is of U&'...'.
    let read = *b"(.\"\\;&";
    let mut n = 0;
    while n < read.len() {
        classes[read[n] as usize] = Class::Read;
        n += 1;
    }
    classes[0] = Class::End;
    classes[b'\'' as usize] = Class::Quote;
    classes[b'-' as usize] = Class::Comment;
    classes[b'/' as usize] = Class::Comment;
    classes[b'$' as usize] = Class::Comment;
    classes[b'i' as usize] = Class::Into;
    classes[b'I' as usize] = Class::Into;
    classes[b'_' as usize] = Class::Underscore;
    classes
};

/// Whether this is one SELECT, UPDATE or DELETE that calls and creates nothing: without a parenthesis, a dot, a name in
/// quotes, a comment, an escape, a dollar quote, INTO and names of the system. Text constants are not told from the
/// rest.
pub(super) fn is_plain(text: &[u8]) -> bool {
    if !begins_plainly(text) {
        return false;
    }
    let mut in_quotes = false;
    for (at, byte) in text.iter().enumerate() {
        let needs_reading = match CLASSES[usize::from(*byte)] {
            Class::Harmless => false,
            Class::End => break,
            Class::Read => *byte != b';' || !is_end(&text[at + 1..]),
            Class::Quote => {
                in_quotes = !in_quotes;
                false
            }
            Class::Comment => begins_comment_or_quote(&text[at..]),
            Class::Into => begins_with(&text[at..], b"into"),
            Class::Underscore => text[..at].last_chunk::<2>().is_some_and(|last| last.eq_ignore_ascii_case(b"pg")),
        };
        if needs_reading {
            return false;
        }
    }
    !in_quotes
}

fn is_end(text: &[u8]) -> bool {
    text.iter().find(|byte| !byte.is_ascii_whitespace()).is_none_or(|byte| *byte == 0)
}

fn begins_plainly(text: &[u8]) -> bool {
    [&b"select"[..], b"update", b"delete"].iter().any(|word| begins_with(text, word))
        && text.get(6).is_some_and(u8::is_ascii_whitespace)
}

fn begins_comment_or_quote(text: &[u8]) -> bool {
    match text {
        [b'-', b'-', ..] | [b'/', b'*', ..] => true,
        [b'$', next, ..] => !next.is_ascii_digit(),
        _ => text == b"$",
    }
}

fn begins_with(text: &[u8], word: &[u8]) -> bool {
    text.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sql::suspects::{Findings, Suspects};

    fn read(text: &[u8]) -> Findings {
        let mut found = Findings::default();
        let text = text.split(|&byte| byte == 0).next().expect("there is a first part");
        let unclear = super::super::examine(text, &mut found, true).unclear;
        assert!(!unclear, "{}", String::from_utf8_lossy(text));
        // A name alone calls nothing.
        found.suspects.remove(Suspects::SEQUENCE.union(Suspects::LAST_VALUE));
        found
    }

    #[test]
    fn ordinary_queries_are_plain() {
        for sql in [
            "SELECT abalance FROM pgbench_accounts WHERE aid = 12;",
            "UPDATE pgbench_accounts SET abalance = abalance + -5 WHERE aid = 7;\0\0\x01\0\0\0\x17",
            "select * from t where a = $1 and b = 'it''s' order by c limit 10",
            "delete from t where a = $12 ;  ",
        ] {
            assert!(is_plain(sql.as_bytes()), "{sql}");
            assert_eq!(read(sql.as_bytes()), Findings::default(), "{sql}");
        }
    }

    #[test]
    fn what_has_to_be_read_is_not() {
        for sql in [
            "",
            "begin",
            "selecta b",
            "select f()",
            "select t.pg_sleep",
            "select 1; select 2",
            "select a into b",
            "select a INTO",
            "select $a$ x $a$",
            "select 1 $",
            "select U&'a'",
            "select 'a\\'",
            "select 'a",
            "select a -- b",
            "select a /* b */",
            "update PG_settings set a = 1",
            "select \"a\"",
            "select ä",
        ] {
            assert!(!is_plain(sql.as_bytes()), "{sql}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn in_what_is_plain_the_reader_finds_nothing(
            first in prop::sample::select(vec!["select", "UPDATE", "delete", "set", "with"]),
            parts in prop::collection::vec(prop::sample::select(vec![
                " ", "\n", "a", "e", "x1", "'", "''", "$1", "$", "$a", ";", ".", "(", "\"", "\\", "-", "/", "*", "&",
                "U", "=", "::", "[1]", "into", "pg_temp", "pg_settings", "set", "reset", "listen", "nextval",
                "set_config", "update", "temporary", "\0", "ä", "12",
            ]), 0..12),
        ) {
            let text = format!("{first} {}", parts.concat());
            if is_plain(text.as_bytes()) {
                prop_assert_eq!(read(text.as_bytes()), Findings::default(), "{}", text);
            }
        }
    }
}
