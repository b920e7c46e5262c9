//! Commands of Redis as scripts hold them: a line each, with quotes as in redis-cli, and `:variables` anywhere in a
//! word. Knows what a command does to the connection, and no other command.

use super::{
    expression::Mistake,
    names::Names,
    sql::{Piece, pieces},
};

/// Words that one command may have.
const MAX_WORDS: usize = 10_000;

/// One command, ready to be sent any number of times.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Command {
    pub(super) words: Vec<Vec<Piece>>,
    pub(super) effect: TransactionEffect,
}

/// What a command that succeeds does to the transaction of its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransactionEffect {
    None,
    /// Keys are watched until the next transaction ends.
    Watch,
    /// Keys are watched no more; within a transaction it is a command like others.
    Unwatch,
    Begin,
    End,
}

/// Commands that change what the connection is for, and what to do instead.
const REFUSED: [(&str, &str); 10] = [
    ("SUBSCRIBE", "a subscription has no end that could be measured"),
    ("PSUBSCRIBE", "a subscription has no end that could be measured"),
    ("SSUBSCRIBE", "a subscription has no end that could be measured"),
    ("MONITOR", "it has no end that could be measured"),
    ("SYNC", "it has no end that could be measured"),
    ("PSYNC", "it has no end that could be measured"),
    ("QUIT", "the goodbye is said by itself: see --no-reuse"),
    ("RESET", "it undoes the login, which every connection makes once"),
    ("HELLO", "the login stands in the URL, and RESP2 is spoken"),
    ("AUTH", "the login stands in the URL"),
];

/// Reads the command in a line, which stands at an offset of the script. `None`: there is none, or a comment (`#`,
/// `--`).
///
/// # Errors
/// A quote without an end, or a command that cannot be measured.
pub(super) fn command(line: &str, offset: usize, names: &mut Names) -> Result<Option<Command>, Mistake> {
    let line = line.trim_end();
    if line.is_empty() || line.starts_with('#') || line.starts_with("--") {
        return Ok(None);
    }
    let words = ::redis_session::split(line.as_bytes())
        .ok_or_else(|| (offset, "a quote has no end, or something follows it without a blank".to_owned()))?;
    if words.len() > MAX_WORDS {
        return Err((offset, format!("a command has at most {MAX_WORDS} words")));
    }
    let upper =
        |n: usize| words.get(n).map(|word| String::from_utf8_lossy(word).to_ascii_uppercase()).unwrap_or_default();
    let name = upper(0);
    if let Some((name, why)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
        return Err((offset, format!("{name} cannot be used here: {why}")));
    }
    if name == "CLIENT" && upper(1) == "REPLY" {
        return Err((offset, "CLIENT REPLY cannot be used here: each command waits for its reply".to_owned()));
    }
    let effect = match name.as_str() {
        "WATCH" => TransactionEffect::Watch,
        "UNWATCH" => TransactionEffect::Unwatch,
        "MULTI" => TransactionEffect::Begin,
        "EXEC" | "DISCARD" => TransactionEffect::End,
        _ => TransactionEffect::None,
    };
    let words = words.iter().map(|word| pieces(word, names)).collect::<Result<_, _>>();
    Ok(Some(Command { words: words.map_err(|message| (offset, message))?, effect }))
}
