//! What kinds of statements do to a session, by their first words. A kind that is not known here may do anything.

use super::settings::{self, is, next_is};
use crate::sql::{
    suspects::{ALL_PARAMETERS, Findings, Suspects},
    tokens::{Token, Tokens},
};

/// What the first word of a statement says about the rest.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The statement is read like any other.
    Plain,
    /// Options follow, and then another statement.
    Prefix,
    /// The first text constant of the statement is procedural code.
    Procedural,
    OfTable,
}

/// Takes the first word of a statement, and perhaps more.
pub(super) fn read_first_words(word: &[u8], tokens: &mut Tokens<'_>, found: &mut Findings) -> Kind {
    let mut buffer = [0; crate::sql::harmless::MAX_NAME];
    let word = settings::lower(word, &mut buffer).unwrap_or_default();
    let suspects = match word {
        b"select" | b"values" | b"table" | b"with" | b"update" | b"delete" | b"merge" | b"show" | b"begin"
        | b"start" | b"savepoint" | b"release" | b"fetch" | b"move" | b"declare" | b"notify" | b"lock" | b"cluster"
        | b"reindex" | b"checkpoint" | b"truncate" | b"comment" | b"grant" | b"revoke" | b"call" => return Kind::Plain,
        b"copy" | b"analyze" | b"analyse" | b"vacuum" => return Kind::OfTable,
        b"explain" => return Kind::Prefix,
        b"insert" => Suspects::SEQUENCE,
        b"commit" | b"end" | b"rollback" | b"abort" => {
            found.exits = true;
            // What a prepared transaction has made is there from now on.
            if next_is(tokens, "prepared") { Suspects::DDL } else { Suspects::NONE }
        }
        b"set" => {
            settings::note_set(tokens, found);
            return Kind::Plain;
        }
        b"reset" => {
            settings::note_reset(tokens, found);
            return Kind::Plain;
        }
        b"discard" if next_is(tokens, "all") => {
            found.resets.push(Box::from(*ALL_PARAMETERS));
            let settings = Suspects::SETTINGS.union(Suspects::MEANING).union(Suspects::RESET);
            settings.union(Suspects::UNPIN).union(Suspects::DEALLOCATE).union(Suspects::ROLE)
        }
        b"discard" | b"close" => Suspects::UNPIN,
        b"deallocate" => Suspects::UNPIN.union(Suspects::DEALLOCATE),
        b"unlisten" => {
            settings::note_unlisten(tokens, found);
            Suspects::UNPIN
        }
        b"listen" => Suspects::LISTEN,
        b"prepare" if next_is(tokens, "transaction") => {
            found.exits = true;
            return Kind::Plain;
        }
        b"prepare" => Suspects::PREPARE,
        b"execute" => Suspects::OPAQUE,
        b"do" => {
            found.suspects.insert(Suspects::OPAQUE);
            return Kind::Procedural;
        }
        b"load" => Suspects::IRREVERSIBLE.union(Suspects::OPAQUE),
        b"drop" => Suspects::UNPIN.union(Suspects::DDL),
        b"create" if creates_temporary(tokens) => Suspects::TEMPORARY_CODE,
        b"create" | b"alter" | b"import" | b"reassign" | b"refresh" | b"security" => Suspects::DDL,
        _ => Suspects::OPAQUE,
    };
    found.suspects.insert(suspects);
    Kind::Plain
}

/// CREATE TEMP TABLE and the like. The word TEMP itself is noted where it stands.
fn creates_temporary(tokens: &Tokens<'_>) -> bool {
    const BEFORE: [&str; 4] = ["local", "global", "or", "replace"];
    let is_before =
        |token: &Token<'_>| matches!(token, Token::Word(word) if BEFORE.iter().any(|before| is(word, before)));
    let mut words = tokens.clone().take(6).skip_while(is_before);
    matches!(words.next(), Some(Token::Word(word)) if is(word, "temp") || is(word, "temporary"))
}
