//! Calls without a parenthesis: `(x).f`, `t.f`, `$1.f` call a function that takes one argument, unless there is a
//! column of that name. Most names behind a dot are columns, so only those of functions that may leave something behind
//! are taken for calls. And what else is not read as SQL is: names whatever they are of, code in quotes, words in a
//! text that the server may read otherwise.

use std::borrow::Cow;

use super::{calls, settings};
use crate::sql::{
    harmless,
    suspects::Findings,
    tokens::{Token, Tokens, undoubled},
};

#[inline]
pub(super) fn read(name: &[u8], found: &mut Findings) {
    // All of them begin with one of these, and none is short.
    if name.len() >= 6 && matches!(name[0] | 0x20, b'p' | b's' | b't' | b'd' | b'c' | b'i') {
        read_closely(name, found);
    }
}

fn read_closely(name: &[u8], found: &mut Findings) {
    let mut buffer = [0; harmless::MAX_NAME];
    if let Some(lower) = settings::lower(name, &mut buffer).filter(|lower| harmless::may_harm_by_notation(lower)) {
        calls::judge(lower, found);
    }
}

/// Passes on all names behind a dot, in PostgreSQL's spelling. An empty name is one that cannot be
/// read.
pub(crate) fn for_each_field(text: &[u8], mut take: impl FnMut(&[u8])) {
    let mut dot = false;
    for token in Tokens::new(text) {
        match token {
            Token::Word(word) if dot => take(&word.to_ascii_lowercase()),
            Token::Quoted(word) if dot => take(&undoubled(word, b'"')),
            Token::EscapedName if dot => take(b""),
            _ => {}
        }
        dot = token == Token::Symbol(b'.');
    }
}

/// Deepest nesting of DO in code of DO that is examined.
const MAX_DEPTH: u8 = 8;

/// Passes on all names in a text, and in the code of DO, in PostgreSQL's spelling. An empty name is one that cannot be
/// read.
pub(crate) fn for_each_name(text: &[u8], mut take: impl FnMut(&[u8])) {
    let mut texts = vec![(text, 0)];
    while let Some((text, depth)) = texts.pop() {
        let mut has_code = false;
        for token in Tokens::new(text) {
            match token {
                Token::Word(word) => {
                    has_code |= settings::is(word, "do");
                    take(&word.to_ascii_lowercase());
                }
                Token::Quoted(word) => take(&undoubled(word, b'"')),
                Token::EscapedName => take(b""),
                Token::Literal(_) if has_code && depth == MAX_DEPTH => take(b""),
                Token::Literal(body) if has_code => texts.push((body, depth + 1)),
                _ => {}
            }
        }
    }
}

/// The code of a DO whose quotes in `text` hold `body`; `None` if the code cannot be read: it has escapes, goes on
/// behind a line break, or may be the name of a language.
pub(super) fn code<'a>(text: &[u8], body: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    let of_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    if body.iter().all(of_word) {
        return settings::is(body, "plpgsql").then_some(Cow::Borrowed(body));
    }
    let start = (body.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
    if text.get(..start)?.last() != Some(&b'\'') {
        return Some(Cow::Borrowed(body));
    }
    (!continues(body) && !body.contains(&b'\\')).then(|| Cow::Owned(undoubled(body, b'\'')))
}

/// Whether a single quote stands alone in it.
fn continues(body: &[u8]) -> bool {
    let mut bytes = body.iter();
    while let Some(&byte) = bytes.next() {
        if byte == b'\'' && bytes.next() != Some(&b'\'') {
            return true;
        }
    }
    false
}

/// Notes words in a text that the server may read otherwise: those that reset something, and those of irreversible
/// functions.
pub(super) fn look_for_words(text: &[u8], found: &mut Findings) {
    const SET_BACK: [&str; 4] = ["reset", "discard", "default", "zone"];
    // Code in quotes may be anything.
    const GO_BEYOND: [&str; 8] = ["seed", "dblink", "isn_weak", "backup", "replication", "load", "u&", "do"];
    for (at, byte) in text.iter().enumerate() {
        if !matches!(byte | 0x20, b'r' | b'd' | b'z' | b's' | b'i' | b'b' | b'l' | b'u') {
            continue;
        }
        let starts = |word: &&str| text[at..].get(..word.len()).is_some_and(|part| settings::is(part, word));
        found.may_reset |= SET_BACK.iter().any(starts);
        found.may_be_irreversible |=
            GO_BEYOND.iter().any(|word| starts(word) && (*word != "do" || stands_alone(text, at, 2)));
    }
}

/// Whether this place is no part of a longer word.
fn stands_alone(text: &[u8], at: usize, length: usize) -> bool {
    let of_word = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    !of_word(text[..at].last()) && !of_word(text.get(at + length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::{scan::scan, suspects::Suspects};

    #[test]
    fn a_name_behind_a_dot_is_a_call_if_it_is_that_of_a_function_that_may_do_harm() {
        for (sql, what) in [
            ("select (5::bigint).pg_advisory_lock", Suspects::LOCK),
            ("select (5::bigint) /* a */ . -- b\n PG_Try_Advisory_Lock_Shared", Suspects::LOCK),
            ("select x.pg_advisory_lock from generate_series(7::bigint, 7) as x", Suspects::LOCK),
            ("select x . \"pg_advisory_lock\" from y as x", Suspects::LOCK),
            ("select (array[1::bigint])[1].pg_advisory_lock", Suspects::LOCK),
            ("select $1.pg_advisory_lock", Suspects::LOCK),
            ("select s.t.x.pg_advisory_unlock from s.t", Suspects::UNPIN),
            ("select (0.25::float8).setseed", Suspects::IRREVERSIBLE),
            ("select ('a'::text).dblink_connect", Suspects::IRREVERSIBLE),
            ("select ('a'::text).pg_backup_start", Suspects::IRREVERSIBLE),
            ("select (0.1::real).set_limit", Suspects::SETTINGS),
        ] {
            assert!(scan(sql.as_bytes()).suspects.intersects(what), "{sql}");
        }
        for (sql, name) in
            [("select ('select 1'::text).ts_stat", "ts_stat"), ("select ('select 1'::text).crosstab3", "crosstab3")]
        {
            assert_eq!(scan(sql.as_bytes()).calls, [Box::from(name.as_bytes())], "{sql}");
        }
    }

    #[test]
    fn a_column_is_no_call() {
        for sql in [
            "select t.id, t.\"set\", (t.c).select, t.a[1].listen, s.t.status, pg_catalog.lower(t.title) from s.t as t",
            "update t set (a) = (b), c.prepare = d.discard where (x).listen = p.pg_class_oid",
            "select (pg_catalog.lower(t.x)).n, t.setseed2, t.ts_statistics from t",
        ] {
            let findings = scan(sql.as_bytes());
            assert!(!findings.suspects.intersects(Suspects::LASTING_OR_UNPIN) && findings.is_plain(), "{sql}");
        }
    }

    #[test]
    fn code_of_which_not_all_is_known_may_be_anything() {
        for sql in [
            r"do e'begin perform set\x73eed(1); end'",
            "do 'begin perform set'\n'seed(1); end'",
            "do u&'begin end'",
            "do language plperl $$ x $$",
            "do 'begin end' language 'plperlu'",
            "do $a$ begin do $b$ begin end $b$; end $a$",
            "select pg_temp.f()",
            "create function pg_temp.f() returns int language sql as 'select 1'",
        ] {
            assert!(
                scan(sql.as_bytes()).suspects.intersects(Suspects::IRREVERSIBLE.union(Suspects::UNKNOWN_NAME)),
                "{sql}"
            );
        }
        for sql in [
            "do 'begin perform ''x'', lower(''a''); end'",
            "do language plpgsql $$ begin insert into t values ('x') on conflict do nothing; end $$",
            "do $$ begin end $$ language 'plpgsql'",
            "insert into pg_temp.t (a) values (1)",
            "create table pg_temp.t (a int)",
        ] {
            assert!(
                !scan(sql.as_bytes()).suspects.intersects(Suspects::IRREVERSIBLE.union(Suspects::UNKNOWN_NAME)),
                "{sql}"
            );
        }
    }

    #[test]
    fn a_text_that_is_read_otherwise_may_do_what_its_words_say() {
        let misread = |sql: &str| Findings::misread(&scan(sql.as_bytes())).suspects.intersects(Suspects::IRREVERSIBLE);
        assert!(
            misread(r"select 'a\', SetSeed(1)") && misread(r"select 'a\'; do 'x'") && misread(r"select '\' = u&'x'")
        );
        assert!(!misread(r"select 'a\'") && !misread(r"select 'done\', window_2"));
    }

    #[test]
    fn all_names_are_handed_over_whatever_they_are() {
        let all = |sql: &str| {
            let mut all = Vec::new();
            for_each_name(sql.as_bytes(), |name| all.push(String::from_utf8_lossy(name).into_owned()));
            all
        };
        assert_eq!(all("A.\"b\"\"C\" 'd' -- e"), ["a", "b\"C"]);
        assert_eq!(all("do $$ f $x$ do $y$ g $y$ $x$ $$"), ["do", "f"]);
        assert_eq!(all("do $$ do $x$ g $x$ $$"), ["do", "do", "g"]);
    }

    #[test]
    fn all_names_behind_a_dot_are_handed_over() {
        let mut names = Vec::new();
        for_each_field(b"select a.B, c . \"D\"\"d\", (e).f, g[1].h, 'i.j', $1.k -- .l\n.m, n", |name| {
            names.push(name.to_vec())
        });
        assert_eq!(names, [&b"b"[..], b"D\"d", b"f", b"h", b"k", b"m"]);
    }
}
