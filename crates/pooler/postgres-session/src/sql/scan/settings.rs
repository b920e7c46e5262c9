//! What SET, RESET and set_config set and set back: the names, and for how long.

use crate::sql::{
    harmless,
    parameter_names::{
        MAX_NAME, can_be_named, is_harmless, is_hidden_setting, is_verbatim, rules_function_compiling, rules_reading,
    },
    suspects::{ALL_CHANNELS, ALL_PARAMETERS, Findings, Suspects},
    tokens::{Token, Tokens, undoubled},
};

/// Most custom parameters noted of one text.
const MAX_CUSTOM: usize = 64;

/// Most tokens looked at behind a word: a text may hold many such words.
const MAX_TOKENS_AHEAD: usize = 64;

pub(super) fn is(word: &[u8], other: &str) -> bool {
    word.eq_ignore_ascii_case(other.as_bytes())
}

pub(super) fn next_is(tokens: &Tokens<'_>, other: &str) -> bool {
    matches!(tokens.clone().next(), Some(Token::Word(word)) if is(word, other))
}

pub(super) fn note_set(tokens: &mut Tokens<'_>, found: &mut Findings) {
    let mut lasting = true;
    let mut ahead = tokens.clone();
    loop {
        let word = match ahead.next() {
            // `SET session.x`, `SET "local".x`: the name of a parameter.
            Some(Token::Word(_)) if ahead.clone().next() == Some(Token::Symbol(b'.')) => break,
            Some(Token::Quoted(_)) => break,
            Some(Token::Word(word)) => word,
            _ => return found.suspects.insert(Suspects::SETTINGS.union(Suspects::MEANING).union(Suspects::CONSTANTS)),
        };
        if is(word, "local") {
            lasting = false;
        } else if is(word, "transaction") || is(word, "constraints") {
            return;
        } else if !is(word, "session") {
            break;
        }
        *tokens = ahead.clone();
    }
    if lasting {
        found.suspects.insert(Suspects::SETTINGS);
    }
    let value = tokens.clone().take(MAX_TOKENS_AHEAD).take_while(|token| *token != Token::Symbol(b';'));
    // SET TIME ZONE LOCAL; of other parameters it is a value like any.
    let zone = next_is(tokens, "time");
    let (mut back, mut on) = (false, false);
    for token in value {
        match token {
            Token::Word(word) => {
                back |= is(word, "default") || (zone && is(word, "local"));
                on |= is(word, "on") || is(word, "true");
            }
            Token::Literal(text) => {
                note_temporary_path(text, found);
                on |= is(text, "on") || is(text, "true");
            }
            _ => {}
        }
    }
    if back {
        found.suspects.insert(if lasting { Suspects::RESET } else { Suspects::LOCAL_RESET });
        note_reset_name(tokens, found);
    }
    if name(tokens).is_none() {
        found.suspects.insert(Suspects::UNKNOWN_NAME);
    }
    let name = name(tokens);
    if !note_name(tokens, found) {
        found.suspects.insert(Suspects::MEANING);
        note_reading(name.as_deref(), on || back, found);
    }
}

/// Notes a parameter that may rule how constants are read.
fn note_reading(name: Option<&[u8]>, on: bool, found: &mut Findings) {
    if name.is_none_or(rules_reading) {
        found.suspects.insert(Suspects::CONSTANTS);
    }
    if !on && name.is_some_and(|name| is(name, "standard_conforming_strings")) {
        found.suspects.insert(Suspects::STRING_SYNTAX);
    }
}

/// Notes a value that may be a search_path: behind pg_temp, objects are created temporary.
fn note_temporary_path(text: &[u8], found: &mut Findings) {
    if text.windows(7).any(|part| part.eq_ignore_ascii_case(b"pg_temp")) {
        found.suspects.insert(Suspects::TEMPORARY);
    }
}

pub(super) fn note_reset(tokens: &Tokens<'_>, found: &mut Findings) {
    note_name(tokens, found);
    note_reset_name(tokens, found);
    found.suspects.insert(Suspects::SETTINGS.union(Suspects::MEANING).union(Suspects::RESET));
}

/// Notes the name that follows as one that is reset.
fn note_reset_name(tokens: &Tokens<'_>, found: &mut Findings) {
    let name = name(tokens).unwrap_or_default().to_ascii_lowercase();
    note_reset_of(
        match &name[..] {
            b"all" => ALL_PARAMETERS,
            b"time" => b"timezone",
            b"names" => b"client_encoding",
            b"schema" => b"search_path",
            // SESSION AUTHORIZATION
            b"session" | b"authorization" => b"session_authorization",
            other => other,
        },
        found,
    );
}

fn note_reset_of(name: &[u8], found: &mut Findings) {
    match found.resets.len() {
        0..MAX_CUSTOM => found.resets.push(name.into()),
        _ => found.resets[MAX_CUSTOM - 1] = Box::from(*ALL_PARAMETERS),
    }
}

/// Notes the channel that follows an UNLISTEN.
pub(super) fn note_unlisten(tokens: &Tokens<'_>, found: &mut Findings) {
    let name = match tokens.clone().next() {
        Some(Token::Word(word)) => as_identifier(word.to_ascii_lowercase()),
        Some(Token::Quoted(word)) => as_identifier(undoubled(word, b'"')),
        Some(Token::Symbol(b'*')) => ALL_CHANNELS.to_vec(),
        _ => return,
    };
    if found.unlistens.len() < MAX_CUSTOM {
        found.unlistens.push(name.into());
    }
}

/// Cuts a name off where PostgreSQL does, between two characters of UTF-8.
fn as_identifier(mut name: Vec<u8>) -> Vec<u8> {
    if name.len() > harmless::MAX_NAME {
        let is_start = |at: &usize| name[*at] & 0xC0 != 0x80;
        let end = (0..=harmless::MAX_NAME).rev().find(is_start).unwrap_or(0);
        name.truncate(end);
    }
    name
}

fn note_name(tokens: &Tokens<'_>, found: &mut Findings) -> bool {
    name(tokens).is_some_and(|name| note(&name, found))
}

/// The name that follows, in PostgreSQL's spelling.
fn name(tokens: &Tokens<'_>) -> Option<Vec<u8>> {
    let mut ahead = tokens.clone();
    let mut name = Vec::new();
    loop {
        match ahead.next() {
            Some(Token::Word(word)) => name.extend(word.to_ascii_lowercase()),
            Some(Token::Quoted(word)) => name.extend_from_slice(word),
            _ => return None,
        }
        // One that is too long need not be known to its end.
        if ahead.next() != Some(Token::Symbol(b'.')) || name.len() > MAX_NAME {
            return Some(name);
        }
        name.push(b'.');
    }
}

/// Notes a parameter that rules compiling; standard_conforming_strings depends on its value: see `note_reading`.
fn note_compiling(name: &[u8], found: &mut Findings) {
    if rules_function_compiling(name) && name.contains(&b'.') {
        found.suspects.insert(Suspects::CONSTANTS.union(Suspects::STRING_SYNTAX));
    }
}

/// Notes all quoted texts that may be names of custom parameters: a name that is not read may be set_config.
pub(super) fn note_literals(text: &[u8], found: &mut Findings) {
    for token in Tokens::new(text) {
        if let Token::Literal(name) = token
            && name.contains(&b'.')
            && is_verbatim(name)
            && can_be_named(name)
        {
            note(name, found);
        }
    }
}

fn note(name: &[u8], found: &mut Findings) -> bool {
    if !is_verbatim(name) || !can_be_named(name) {
        found.suspects.insert(Suspects::UNKNOWN_NAME);
        return false;
    }
    if is(name, "standard_conforming_strings") {
        // The bodies of functions are read otherwise then.
        found.suspects.insert(Suspects::OPAQUE);
    }
    if ["role", "session", "session_authorization", "authorization"].iter().any(|identity| is(name, identity)) {
        found.suspects.insert(Suspects::ROLE);
    }
    if is(name, "client_encoding") || is(name, "names") {
        found.suspects.insert(Suspects::ENCODING);
    }
    note_compiling(name, found);
    if is_hidden_setting(name) {
        found.suspects.insert(Suspects::UNKNOWN_NAME);
    }
    if is(name, "seed") {
        found.suspects.insert(Suspects::IRREVERSIBLE.union(Suspects::OPAQUE));
    }
    if !name.contains(&b'.') {
        return is_harmless(name);
    }
    if found.custom.len() >= MAX_CUSTOM {
        found.suspects.insert(Suspects::UNKNOWN_NAME);
    } else if !found.custom.iter().any(|known| known.eq_ignore_ascii_case(name)) {
        found.custom.push(name.into());
    }
    true
}

/// The first token of an argument, and the number of its tokens.
#[derive(Clone, Copy, Default)]
struct Argument<'a> {
    first: Option<Token<'a>>,
    count: usize,
}

/// What follows `set_config(`: `'name', value, whether it is local)`.
pub(super) fn note_set_config(tokens: Tokens<'_>, found: &mut Findings) {
    let mut arguments = [Argument::default(); 3];
    let (mut at, mut depth, mut closed) = (0, 1, false);
    for token in tokens.take(MAX_TOKENS_AHEAD) {
        match token {
            Token::Symbol(b'(' | b'[') => depth += 1,
            Token::Symbol(b')' | b']') => depth -= 1,
            Token::Symbol(b',') if depth == 1 => {
                at += 1;
                continue;
            }
            Token::Literal(text) => note_temporary_path(text, found),
            _ => {}
        }
        if depth == 0 || at >= arguments.len() {
            closed = depth == 0;
            break;
        }
        arguments[at].first.get_or_insert(token);
        arguments[at].count += 1;
    }
    // Local only if it says so by a single constant.
    let local = match (closed && at == 2 && arguments[2].count == 1).then_some(arguments[2].first).flatten() {
        Some(Token::Word(word)) => is(word, "true"),
        Some(Token::Literal(text)) => is(text, "true") || is(text, "t"),
        _ => false,
    };
    let settings = Suspects::SETTINGS.union(Suspects::MEANING);
    match (arguments[0].count, arguments[0].first) {
        (1, Some(Token::Literal(name))) if is_verbatim(name) => {
            // Whether it is local is not always to be seen.
            note_compiling(name, found);
            let harmless = if local && name.contains(&b'.') { true } else { note(name, found) };
            if !harmless {
                found.suspects.insert(Suspects::MEANING);
                let on = matches!(arguments[1].first, Some(Token::Literal(text)) if is(text, "on"));
                note_reading(Some(name), on && arguments[1].count == 1, found);
            }
            // NULL sets it back.
            if !local && matches!(arguments[1].first, Some(Token::Word(word)) if is(word, "null")) {
                note_reset_of(&name.to_ascii_lowercase(), found);
                found.suspects.insert(Suspects::RESET);
            }
            if !local {
                found.suspects.insert(Suspects::SETTINGS);
            } else if is(name, "search_path") && !(arguments[1].count == 1 && is_literal(arguments[1].first)) {
                found.suspects.insert(Suspects::TEMPORARY);
            }
        }
        (1, Some(Token::Number)) => {
            found.suspects.insert(settings.union(Suspects::BOUND_NAME).union(Suspects::CONSTANTS))
        }
        _ => found.suspects.insert(settings.union(Suspects::UNKNOWN_NAME).union(Suspects::CONSTANTS)),
    }
}

fn is_literal(token: Option<Token<'_>>) -> bool {
    matches!(token, Some(Token::Literal(_)))
}

/// A name in lower case, if PostgreSQL keeps names of that length.
pub(super) fn lower<'a>(word: &[u8], buffer: &'a mut [u8; harmless::MAX_NAME]) -> Option<&'a [u8]> {
    let lower = buffer.get_mut(..word.len())?;
    lower.copy_from_slice(word);
    lower.make_ascii_lowercase();
    Some(lower)
}
