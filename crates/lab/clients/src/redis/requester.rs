//! The requester's side of RESP2: a client of a Redis. Takes bytes and gives bytes and
//! verdicts: first the login, then one command after the other. Knows no socket, no time and no command.
//!
//! A login without a password to the first logical database sends nothing before the first command, as small clients
//! do; others send AUTH and SELECT. Call order: [`Requester::new`] when the connection is open, then
//! [`Requester::take`] (with nothing, at first) until it says [`Verdict::More`]; [`Verdict::Ready`] ends the login.
//! From then on a command ([`Requester::request`]), and `take` until [`Verdict::Answered`]; and again.

use std::fmt;

use redis_session::{
    ServerLogin,
    wire::{self, ReplyScanner, is_permanent, without_secret, write_auth, write_select},
};

/// Longest reply that is kept for the caller, in bytes.
const MAX_KEPT_REPLY: usize = 64 * 1024;

/// The result of the input so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// All input is taken, and more is needed.
    More,
    /// TLS is to begin; then [`Requester::secured`].
    StartTls,
    /// The login has succeeded. SELECT may follow.
    Authenticated,
    Ready,
    /// The command is answered: [`Requester::error`] tells whether by an error.
    Answered,
}

/// Why a connection failed. It has no secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The server's error, if that is the reason.
    pub reply: Option<ErrorReply>,
    /// Another try fails, too, until something is changed.
    pub permanent: bool,
    pub message: String,
}

impl Fault {
    fn violation(message: impl Into<String>) -> Self {
        Self { reply: None, permanent: false, message: message.into() }
    }
}

/// An error reply, or an error before the server closes the connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ErrorReply(Box<str>);

/// Errors without a code of their own: Redis and Poolhouse send them to clients that they turn away.
const TURNED_AWAY: [(&str, &str); 3] = [
    ("ERR max number of clients reached", "too many clients"),
    ("LOADING Poolhouse: the server connections stayed busy", "no server in time"),
    ("LOADING Poolhouse: no connection to Redis", "redis unavailable"),
];
const MAX_CODE: usize = 24;

impl ErrorReply {
    /// Reads the line of an error, without its type byte.
    fn read(line: &[u8]) -> Self {
        Self(String::from_utf8_lossy(line.trim_ascii_end()).into())
    }

    /// The name for counters: a few words for clients that are turned away, otherwise the code (`WRONGTYPE`). It has no
    /// part of the command.
    pub fn kind(&self) -> &str {
        if let Some((_, kind)) = TURNED_AWAY.iter().find(|(begins, _)| self.0.starts_with(begins)) {
            return kind;
        }
        let code = self.0.split(' ').next().unwrap_or_default();
        let is_code = (1..=MAX_CODE).contains(&code.len()) && code.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
        if is_code { code } else { "without a code" }
    }
}

impl fmt::Display for ErrorReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The words of a command.
#[derive(Clone, Default, Debug)]
pub struct Words {
    bytes: Vec<u8>,
    /// Where each word ends.
    ends: Vec<usize>,
}

impl Words {
    /// Removes all words, and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds the word that `write` appends.
    ///
    /// # Errors
    /// The errors of `write`; the words are of no use then.
    pub fn push<E>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        write(&mut self.bytes)?;
        self.ends.push(self.bytes.len());
        Ok(())
    }
}

/// The state of one connection.
#[derive(Debug)]
pub struct Requester {
    phase: Phase,
    scanner: ReplyScanner,
    /// The beginning of a reply.
    partial: Vec<u8>,
    awaits_answer: bool,
    /// Bytes of the next reply that are kept for the caller.
    max_kept: usize,
    kept: Vec<u8>,
    error: Option<ErrorReply>,
    farewell: Option<ErrorReply>,
}

/// A reply, or a part of it.
struct Part {
    taken: usize,
    over: bool,
    error: Option<ErrorReply>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    New,
    Securing,
    Begin,
    Auth,
    Accepted,
    Select,
    Open,
    Closed,
}

impl Default for Requester {
    fn default() -> Self {
        Self::new()
    }
}

impl Requester {
    /// A new connection.
    pub fn new() -> Self {
        Self {
            phase: Phase::New,
            scanner: ReplyScanner::default(),
            partial: Vec::new(),
            awaits_answer: false,
            max_kept: 0,
            kept: Vec::new(),
            error: None,
            farewell: None,
        }
    }

    /// Takes input up to the next verdict; what is to be sent is appended to `out`. After an error the connection is to
    /// be closed.
    ///
    /// # Errors
    /// The login is refused, or the server does not keep to the protocol.
    pub fn take(&mut self, login: &ServerLogin, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Verdict, Fault> {
        let taken = self.advance(login, input, out);
        if taken.is_err() {
            self.phase = Phase::Closed;
        }
        taken
    }

    fn advance(&mut self, login: &ServerLogin, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Verdict, Fault> {
        loop {
            match self.phase {
                Phase::New if login.tls => {
                    self.phase = Phase::Securing;
                    return Ok(Verdict::StartTls);
                }
                Phase::New => self.phase = Phase::Begin,
                Phase::Begin if write_auth(login, out) => self.phase = Phase::Auth,
                Phase::Begin | Phase::Accepted => match write_select(login, out) {
                    true => self.phase = Phase::Select,
                    false => {
                        self.phase = Phase::Open;
                        return Ok(Verdict::Ready);
                    }
                },
                Phase::Auth | Phase::Select => {
                    let Some(error) = self.take_reply(input)? else { return Ok(Verdict::More) };
                    if let Some(error) = error {
                        let error = ErrorReply(without_secret(error.to_string(), login).into());
                        let (permanent, message) = (is_permanent(&error.0), error.to_string());
                        return Err(Fault { reply: Some(error), permanent, message });
                    }
                    if self.phase == Phase::Auth {
                        self.phase = Phase::Accepted;
                        return Ok(Verdict::Authenticated);
                    }
                    self.phase = Phase::Open;
                    return Ok(Verdict::Ready);
                }
                Phase::Open => {
                    let Some(error) = self.take_reply(input)? else { return Ok(Verdict::More) };
                    if std::mem::take(&mut self.awaits_answer) {
                        self.error = error;
                        return Ok(Verdict::Answered);
                    }
                    // An error may come before the server closes. Anything else would be taken for the next reply.
                    self.farewell = Some(error.ok_or_else(|| Fault::violation("the server said something unasked"))?);
                }
                Phase::Securing | Phase::Closed => return Err(Fault::violation("nothing is expected here")),
            }
        }
    }

    /// Takes a reply, or a part of one. `None`: it has not ended; otherwise the error that it is, if it is one.
    fn take_reply(&mut self, input: &mut &[u8]) -> Result<Option<Option<ErrorReply>>, Fault> {
        if self.partial.is_empty() {
            let part = self.take_part(input)?;
            *input = &input[part.taken..];
            if !part.over {
                self.partial.extend_from_slice(std::mem::take(input));
            }
            return Ok(part.over.then_some(part.error));
        }
        let mut bytes = std::mem::take(&mut self.partial);
        bytes.extend_from_slice(std::mem::take(input));
        let part = self.take_part(&bytes)?;
        bytes.drain(..part.taken);
        self.partial = bytes;
        Ok(part.over.then_some(part.error))
    }

    fn take_part(&mut self, bytes: &[u8]) -> Result<Part, Fault> {
        if bytes.is_empty() {
            return Ok(Part { taken: 0, over: false, error: None });
        }
        let mut scanner = self.scanner;
        let begins = scanner.is_between();
        let end = scanner.advance(bytes).map_err(|error| Fault::violation(format!("this is no Redis: {error}")))?;
        if end.taken > 0 {
            self.scanner = scanner;
        }
        let free = self.max_kept.saturating_sub(self.kept.len());
        self.kept.extend_from_slice(&bytes[..end.taken.min(free)]);
        // A line is taken whole or not at all.
        let error = (begins && end.over && bytes[0] == b'-').then(|| ErrorReply::read(&bytes[1..end.taken]));
        Ok(Part { taken: end.taken, over: end.over, error })
    }

    /// The handshake that [`Verdict::StartTls`] asked for is done; `take` goes on.
    pub fn secured(&mut self) {
        assert!(self.phase == Phase::Securing, "TLS begins before the login");
        self.phase = Phase::Begin;
    }

    /// Sends a command: appends it to `out`.
    pub fn request(&mut self, words: &Words, out: &mut Vec<u8>) {
        self.begin();
        wire::head(out, words.ends.len());
        let mut from = 0;
        for end in &words.ends {
            wire::text(out, &words.bytes[from..*end]);
            from = *end;
        }
    }

    /// The same, and the reply is kept for [`Requester::reply`].
    pub fn request_reply(&mut self, words: &[&[u8]], out: &mut Vec<u8>) {
        self.request_reply_up_to(words, MAX_KEPT_REPLY, out);
    }

    /// The same, and at most `max_bytes` bytes of the reply are kept.
    pub fn request_reply_up_to(&mut self, words: &[&[u8]], max_bytes: usize, out: &mut Vec<u8>) {
        self.begin();
        self.max_kept = max_bytes;
        wire::command(out, words);
    }

    fn begin(&mut self) {
        assert!(self.phase == Phase::Open && !self.awaits_answer, "one command after the other, and after the login");
        self.awaits_answer = true;
        self.error = None;
        self.max_kept = 0;
        self.kept.clear();
    }

    /// The error that the last command was answered with.
    pub fn error(&self) -> Option<&ErrorReply> {
        self.error.as_ref()
    }

    /// The reply that was to be kept, as it came; shortened if it is long.
    pub fn reply(&self) -> &[u8] {
        &self.kept
    }

    /// Why the server closes the connection, if it has said so.
    pub fn farewell(&self) -> Option<&ErrorReply> {
        self.farewell.as_ref()
    }

    pub fn awaits_answer(&self) -> bool {
        self.awaits_answer
    }

    pub fn quit(&mut self, out: &mut Vec<u8>) {
        if self.phase == Phase::Open {
            wire::command(out, &[b"QUIT"]);
        }
        self.phase = Phase::Closed;
    }
}

#[cfg(test)]
mod tests;
