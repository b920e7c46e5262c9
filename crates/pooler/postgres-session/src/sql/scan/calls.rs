//! Which functions a text calls by name. A name in front of a parenthesis is a call, unless the grammar has no place
//! for one there. What is not a call and is taken for one costs a question too many; the other way round must not
//! happen.

use std::{collections::HashSet, sync::LazyLock};

use super::settings::{self, is};
use crate::sql::{
    harmless,
    suspects::{Findings, Suspects},
    tokens::{Token, Tokens, undoubled},
};

/// Most calls noted of one text; beyond it any function may have been called.
const MAX_CALLS: usize = 16;

/// Words that are never names of functions, as PostgreSQL's grammar has them: reserved, or kept for columns and types.
/// Words that count only behind others are in [`is_no_call`].
static NEVER_CALLED: LazyLock<HashSet<&[u8]>> = LazyLock::new(|| {
    "all analyse analyze and any array as asc between bigint bit boolean both case cast char character check \
     coalesce collate column constraint current_time current_timestamp dec decimal default desc distinct do \
     else end except exists extract fetch float for foreign from grant greatest group grouping having in int \
     integer intersect interval into lateral least limit localtime localtimestamp nchar normalize not nullif \
     numeric offset on only or order overlay position precision primary real references returning row select \
     setof smallint some substring then time timestamp to treat trim union unique using values varchar when \
     where window with xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse xmlpi \
     xmlroot xmlserialize xmltable"
        .split(' ')
        .map(str::as_bytes)
        .collect()
});

/// The token before a name, as far as it matters.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Before<'a> {
    /// No token, or one that does not matter.
    #[default]
    Other,
    /// A parenthesis that closed an expression: no call can follow it.
    Closed,
    /// A word without quotes.
    Word(&'a [u8]),
    Quoted,
}

impl Before<'_> {
    fn is(self, other: &str) -> bool {
        matches!(self, Before::Word(word) if is(word, other))
    }

    /// A statement of procedural code may begin behind it.
    pub(super) fn may_end(self) -> bool {
        self == Before::Other || self.is_one_of(&["begin", "then", "else", "loop"])
    }

    pub(super) fn is_one_of(self, others: &[&str]) -> bool {
        others.iter().any(|other| self.is(other))
    }
}

/// Notes the call of a name whose opening parenthesis was taken off `tokens`. `before`: the token before the name and
/// its qualifiers.
pub(super) fn call(
    name: &[u8],
    quoted: bool,
    qualified: bool,
    before: Before<'_>,
    tokens: &Tokens<'_>,
    found: &mut Findings,
) {
    let mut buffer = [0; harmless::MAX_NAME];
    let Some(lower) = settings::lower(name, &mut buffer) else { return note(b"", found) };
    // An alias, or a table with its columns.
    let of_columns = before == Before::Closed
        || before.is_one_of(&["as", "into", "recursive"])
        || (before.is("with") && !is(lower, "ordinality"));
    if of_columns {
        return;
    }
    if quoted && (lower != name || name.contains(&b'"')) {
        // Another name to the server.
        return note(&undoubled(name, b'"'), found);
    }
    if harmless::is_harmless(lower) || (!quoted && !qualified && is_no_call(lower, before, tokens)) {
        return;
    }
    match lower {
        b"set_config" => settings::note_set_config(tokens.clone(), found),
        lower => judge(lower, found),
    }
}

/// Notes what a function of this name, in lower case, may do; it is not known to be harmless.
pub(super) fn judge(lower: &[u8], found: &mut Findings) {
    match lower {
        b"set_limit" => found.suspects.insert(Suspects::SETTINGS),
        b"pg_advisory_unlock" | b"pg_advisory_unlock_shared" | b"pg_advisory_unlock_all" => {
            found.suspects.insert(Suspects::LOCK.union(Suspects::UNPIN));
        }
        b"pg_advisory_lock" | b"pg_advisory_lock_shared" | b"pg_try_advisory_lock" | b"pg_try_advisory_lock_shared" => {
            found.suspects.insert(Suspects::LOCK);
        }
        lower if harmless::is_irreversible(lower) => {
            found.suspects.insert(Suspects::IRREVERSIBLE.union(Suspects::OPAQUE))
        }
        lower => note(lower, found),
    }
}

fn note(name: &[u8], found: &mut Findings) {
    if found.calls.len() >= MAX_CALLS || name.is_empty() {
        found.suspects.insert(Suspects::OPAQUE);
    } else if !found.calls.iter().any(|known| **known == *name) {
        found.calls.push(name.into());
    }
}

/// Whether a name without quotes and qualification is no call.
fn is_no_call(lower: &[u8], before: Before<'_>, tokens: &Tokens<'_>) -> bool {
    if NEVER_CALLED.contains(lower) {
        return true;
    }
    match lower {
        b"by" => before.is_one_of(&["group", "order", "partition"]),
        b"zone" => before.is("time"),
        b"sets" => before.is("grouping"),
        b"rollup" | b"cube" => before.is("by"),
        b"conflict" => before.is("on"),
        b"materialized" => before.is_one_of(&["as", "not"]),
        b"varying" => before.is_one_of(&["character", "char", "bit"]),
        b"insert" => before.is("then"),
        b"set" => {
            matches!(before, Before::Word(_) | Before::Quoted) && !before.is_one_of(&["select", "and", "or", "not"])
        }
        b"system" | b"bernoulli" => before.is("tablesample"),
        b"operator" => is_operator(tokens.clone()),
        // An argument cannot begin like that.
        _ => begins_query(tokens.clone()),
    }
}

/// VALUES may be the name of a column, too.
fn begins_query(mut tokens: Tokens<'_>) -> bool {
    match tokens.next() {
        Some(Token::Word(word)) if is(word, "values") => tokens.next() == Some(Token::Symbol(b'(')),
        Some(Token::Word(word)) => is(word, "select") || is(word, "with"),
        _ => false,
    }
}

/// `OPERATOR(schema.=)`.
fn is_operator(tokens: Tokens<'_>) -> bool {
    let mut signs = 0;
    for token in tokens.take(16) {
        match token {
            Token::Symbol(b')') => return signs > 0,
            Token::Symbol(b'.') | Token::Word(_) | Token::Quoted(_) if signs == 0 => {}
            Token::Symbol(
                b'+' | b'-' | b'*' | b'/' | b'<' | b'>' | b'=' | b'~' | b'!' | b'@' | b'#' | b'%' | b'^' | b'&' | b'|'
                | b'`' | b'?',
            ) => {
                signs += 1;
            }
            _ => return false,
        }
    }
    false
}

/// Whether a name in front of a parenthesis is a word of PL/pgSQL, or a cursor.
pub(super) fn is_procedural(name: &[u8], before: Before<'_>) -> bool {
    const WORDS: [&str; 14] = [
        "if", "elsif", "elseif", "while", "return", "perform", "assert", "query", "next", "cursor", "open", "reverse",
        "strict", "exit",
    ];
    before.is("open") || WORDS.iter().any(|word| is(name, word))
}
