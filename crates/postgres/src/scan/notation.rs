//! Calls without a parenthesis: `(x).f`, `t.f`, `$1.f` call a function that takes one argument, unless there is a column of that name. Most
//! names behind a dot are columns, so only those of functions that may leave something behind are taken for calls.

use super::{calls, settings};
use crate::{
    harmless,
    suspects::Findings,
    tokens::{Token, Tokens},
};

/// A name behind a dot.
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

/// Hands over all names that stand behind a dot, as PostgreSQL spells them.
pub(crate) fn fields(text: &[u8], mut take: impl FnMut(&[u8])) {
    let mut dot = false;
    for token in Tokens::new(text) {
        match token {
            Token::Word(word) if dot => take(&word.to_ascii_lowercase()),
            Token::Quoted(word) if dot => take(word),
            _ => {}
        }
        dot = token == Token::Symbol(b'.');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{scan::scan, suspects::Suspects};

    #[test]
    fn a_name_behind_a_dot_is_a_call_if_it_is_that_of_a_function_that_may_do_harm() {
        for (sql, what) in [
            ("select (5::bigint).pg_advisory_lock", Suspects::LOCK),
            ("select (5::bigint) /* a */ . -- b\n PG_Try_Advisory_Lock_Shared", Suspects::LOCK),
            ("select x.pg_advisory_lock from generate_series(7::bigint, 7) as x", Suspects::LOCK),
            ("select x . \"pg_advisory_lock\" from y as x", Suspects::LOCK),
            ("select (array[1::bigint])[1].pg_advisory_lock", Suspects::LOCK),
            ("select $1.pg_advisory_lock", Suspects::LOCK),
            ("select s.t.x.pg_advisory_unlock from s.t", Suspects::UNDO),
            ("select (0.25::float8).setseed", Suspects::BEYOND),
            ("select ('a'::text).dblink_connect", Suspects::BEYOND),
            ("select ('a'::text).pg_backup_start", Suspects::BEYOND),
            ("select (0.1::real).set_limit", Suspects::SETTINGS),
        ] {
            assert!(scan(sql.as_bytes()).suspects.any(what), "{sql}");
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
            assert!(!findings.suspects.any(Suspects::LASTING_OR_UNDONE) && findings.is_plain(), "{sql}");
        }
    }

    #[test]
    fn all_names_behind_a_dot_are_handed_over() {
        let mut names = Vec::new();
        fields(b"select a.B, c . \"D\", (e).f, g[1].h, 'i.j', $1.k -- .l\n.m, n", |name| names.push(name.to_vec()));
        assert_eq!(names, [&b"b"[..], b"D", b"f", b"h", b"k", b"m"]);
    }
}
