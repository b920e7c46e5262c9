//! The requester's side of OP_MSG: a client of a MongoDB. Takes bytes and gives bytes and
//! verdicts: first the login, then one command after the other, each with all batches of the cursor that it opens.
//! Knows no socket, no time and no command.
//!
//! Call order: [`Requester::new`] when the connection is open, then [`Requester::take`] (with nothing, at first) until
//! it says [`Verdict::More`]; [`Verdict::Ready`] ends the login. From then on a command ([`Requester::request`]), and
//! `take` until [`Verdict::Answered`]; and again.

use std::fmt;

use mongodb_session::{
    HandshakeStep, KeyCache, ServerHandshake, ServerLogin,
    bson::{Document, Malformed, Value},
    wire::{self, HEADER, Header},
};

/// Bounds the memory of an incomplete reply that is kept for the next one, in bytes.
const MAX_PARTIAL_CAPACITY: usize = 64 * 1024;

/// The result of the input so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// All input is taken, and more is needed.
    More,
    /// TLS is to begin; then [`Requester::secured`].
    StartTls,
    /// The server has said what it is; the login follows.
    Greeted,
    Ready,
    /// The command is answered, and its cursor is read to the end: [`Requester::error`] tells whether by an error.
    Answered,
}

/// Why a connection failed. It has no secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The server has answered, and this is what it said; otherwise it does not keep to the protocol.
    pub refused: bool,
    /// Another try fails, too, until something is changed.
    pub permanent: bool,
    pub message: String,
}

impl From<Malformed> for Fault {
    fn from(Malformed(what): Malformed) -> Self {
        Self { refused: false, permanent: false, message: format!("this is no MongoDB: {what}") }
    }
}

/// An error that a server answers with: of the command, or of its first write that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommandError {
    /// Its number in MongoDB's list.
    pub code: i32,
    /// Its name there, if the server says it.
    pub name: Option<Box<str>>,
    pub message: Box<str>,
}

impl CommandError {
    fn read(answer: Document<'_>) -> Result<Option<Self>, Malformed> {
        if !answer.get("ok")?.is_some_and(Value::truth) {
            return Self::of(answer).map(Some);
        }
        if let Some(failed) = answer.get("writeErrors")?.and_then(Value::array)
            && let Some(first) = failed.elements().next().transpose()?
            && let Some(first) = first.value()?.document()
        {
            return Self::of(first).map(Some);
        }
        answer.get("writeConcernError")?.and_then(Value::document).map(Self::of).transpose()
    }

    fn of(error: Document<'_>) -> Result<Self, Malformed> {
        let text = |name| Ok::<_, Malformed>(error.get(name)?.and_then(Value::text).map(Box::from));
        let code = error.get("code")?.and_then(Value::integer).and_then(|code| code.try_into().ok());
        Ok(Self { code: code.unwrap_or(0), name: text("codeName")?, message: text("errmsg")?.unwrap_or_default() })
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{} ({name}, code {})", self.message, self.code),
            None => write!(f, "{} (code {})", self.message, self.code),
        }
    }
}

/// The state of one connection.
pub struct Requester {
    phase: Phase,
    /// The beginning of a message that has not come whole.
    partial: Vec<u8>,
    last_id: i32,
    /// Documents of a batch, if the command gives a number.
    batch_size: Option<i64>,
    keeps_reply: bool,
    kept: Vec<u8>,
    error: Option<CommandError>,
    logs_in: bool,
    is_greeted: bool,
}

enum Phase {
    New(ServerLogin),
    Securing(ServerLogin),
    Begin(ServerLogin),
    Login(Box<ServerHandshake>),
    Open,
    Asking,
    Closed,
}

impl Requester {
    /// A connection that has just been opened, and how to log in on it.
    pub fn new(login: ServerLogin) -> Self {
        let logs_in = login.user.is_some();
        let phase = Phase::New(login);
        Self {
            phase,
            logs_in,
            is_greeted: false,
            partial: Vec::new(),
            last_id: 0,
            batch_size: None,
            keeps_reply: false,
            kept: Vec::new(),
            error: None,
        }
    }

    /// Takes input up to the next verdict; what is to be sent is appended to `out`. After an error the connection is to
    /// be closed.
    ///
    /// # Errors
    /// The login is refused, or the server does not keep to the protocol.
    pub fn take(&mut self, keys: &KeyCache, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Verdict, Fault> {
        match std::mem::replace(&mut self.phase, Phase::Closed) {
            Phase::New(login) if login.tls => {
                self.phase = Phase::Securing(login);
                return Ok(Verdict::StartTls);
            }
            Phase::New(login) | Phase::Begin(login) => {
                let mut start = Box::new(ServerHandshake::new(login));
                start.begin(out);
                self.phase = Phase::Login(start);
            }
            other => self.phase = other,
        }
        let taken = self.advance(keys, input, out);
        if taken.is_err() {
            self.phase = Phase::Closed;
        }
        taken
    }

    /// Takes whole messages as they come.
    fn advance(&mut self, keys: &KeyCache, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Verdict, Fault> {
        loop {
            let verdict = if self.partial.is_empty() {
                let Some(length) = complete_length(input)? else {
                    self.partial.extend_from_slice(std::mem::take(input));
                    return Ok(Verdict::More);
                };
                let (message, rest) = input.split_at(length);
                *input = rest;
                self.take_message(message, keys, out)?
            } else {
                let length = match complete_length(&self.partial)? {
                    Some(length) => length,
                    None => Header::read(&self.partial).transpose()?.map_or(HEADER, |header| header.length),
                };
                let missing = length.saturating_sub(self.partial.len()).min(input.len());
                self.partial.extend_from_slice(&input[..missing]);
                *input = &input[missing..];
                if complete_length(&self.partial)?.is_none() {
                    if missing == 0 {
                        return Ok(Verdict::More);
                    }
                    continue;
                }
                let message = std::mem::take(&mut self.partial);
                let verdict = self.take_message(&message, keys, out)?;
                if message.capacity() <= MAX_PARTIAL_CAPACITY {
                    self.partial = message;
                    self.partial.clear();
                }
                verdict
            };
            if let Some(verdict) = verdict {
                return Ok(verdict);
            }
        }
    }

    fn take_message(&mut self, message: &[u8], keys: &KeyCache, out: &mut Vec<u8>) -> Result<Option<Verdict>, Fault> {
        let header = Header::read(message).ok_or(Malformed("a message without a header"))??;
        let answer = wire::reply_document(message, &header)?;
        match &mut self.phase {
            Phase::Login(start) if header.answers == start.last_id() => {
                let mut greeted = false;
                let mut next = start.on_reply(answer, keys, out, |_| greeted = true);
                self.is_greeted |= greeted;
                // No other connection is served here.
                while matches!(next, HandshakeStep::Later) {
                    next = start.derive_more(keys, out);
                }
                match next {
                    HandshakeStep::Wait | HandshakeStep::Later => Ok(greeted.then_some(Verdict::Greeted)),
                    HandshakeStep::Done => {
                        self.last_id = start.last_id();
                        self.phase = Phase::Open;
                        Ok(Some(Verdict::Ready))
                    }
                    HandshakeStep::Failed { message, permanent } => Err(Fault { refused: true, permanent, message }),
                }
            }
            Phase::Asking if header.answers == self.last_id => {
                self.error = CommandError::read(answer)?;
                if self.keeps_reply {
                    self.kept.clear();
                    answer.append_to(&mut self.kept);
                }
                if self.error.is_none() && self.request_next_batch(answer, out)? {
                    return Ok(None);
                }
                self.phase = Phase::Open;
                Ok(Some(Verdict::Answered))
            }
            _ => Err(Malformed("an answer without a request").into()),
        }
    }

    /// Asks for the next batch, if there is one.
    fn request_next_batch(&mut self, answer: Document<'_>, out: &mut Vec<u8>) -> Result<bool, Malformed> {
        let Some(cursor) = answer.get("cursor")?.and_then(Value::document) else { return Ok(false) };
        let id = cursor.get("id")?.and_then(Value::integer).filter(|id| *id != 0);
        let Some((id, name)) = id.zip(cursor.get("ns")?.and_then(Value::text)) else { return Ok(false) };
        let (database, collection) = name.split_once('.').ok_or(Malformed("a cursor of no collection"))?;
        self.last_id = self.last_id.checked_add(1).unwrap_or(1);
        wire::request(out, self.last_id, |body| {
            body.int64("getMore", id).text("collection", collection).text("$db", database);
            if let Some(batch) = self.batch_size {
                body.int64("batchSize", batch);
            }
        });
        Ok(true)
    }

    /// The handshake that [`Verdict::StartTls`] asked for is done; `take` goes on.
    pub fn secured(&mut self) {
        match std::mem::replace(&mut self.phase, Phase::Closed) {
            Phase::Securing(login) => self.phase = Phase::Begin(login),
            _ => unreachable!("TLS begins before the login"),
        }
    }

    /// Sends a command, a whole document with its `$db`: appends it to `out`.
    pub fn request(&mut self, command: &[u8], out: &mut Vec<u8>) {
        self.begin(command, false);
        wire::request_with(out, self.last_id, command);
    }

    /// The same, and the answer is kept for [`Requester::reply`].
    pub fn request_reply(&mut self, command: &[u8], out: &mut Vec<u8>) {
        self.begin(command, true);
        wire::request_with(out, self.last_id, command);
    }

    fn begin(&mut self, command: &[u8], keeps_reply: bool) {
        assert!(matches!(self.phase, Phase::Open), "one command after the other, and after the login");
        self.phase = Phase::Asking;
        self.last_id = self.last_id.checked_add(1).unwrap_or(1);
        self.error = None;
        self.keeps_reply = keeps_reply;
        self.batch_size = Document::read(command).and_then(read_batch_size).unwrap_or(None);
    }

    /// Whether the connection logs in as a user.
    pub fn logs_in(&self) -> bool {
        self.logs_in
    }

    /// Whether the server has answered the hello before the login.
    pub(super) fn is_greeted(&self) -> bool {
        self.is_greeted
    }

    /// The error that the last command was answered with.
    pub fn error(&self) -> Option<&CommandError> {
        self.error.as_ref()
    }

    /// The answer that was to be kept.
    pub fn reply(&self) -> Option<Document<'_>> {
        Document::read(&self.kept).ok()
    }
}

/// The `batchSize` of a command, which drivers repeat in each getMore.
fn read_batch_size(command: Document<'_>) -> Result<Option<i64>, Malformed> {
    let cursor = command.get("cursor")?.and_then(Value::document).unwrap_or(command);
    Ok(cursor.get("batchSize")?.and_then(Value::integer).filter(|size| *size > 0))
}

/// The length of the message that these bytes begin with, if all of it is there.
fn complete_length(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let header = Header::read(bytes).transpose()?;
    Ok(header.map(|header| header.length).filter(|length| *length <= bytes.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb_session::bson::Writer;

    fn reply(answers: i32, write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        wire::answer(&mut bytes, wire::Answers { id: answers, old: false }, write);
        bytes
    }

    fn open() -> (Requester, KeyCache) {
        let (mut requester, keys, mut out) = (Requester::new(ServerLogin::default()), KeyCache::default(), Vec::new());
        assert_eq!(requester.take(&keys, &mut &[][..], &mut out), Ok(Verdict::More));
        let hello = reply(1, |answer| {
            answer.bool("ismaster", true).int32("maxWireVersion", 21).double("ok", 1.0);
        });
        assert_eq!(requester.take(&keys, &mut &hello[..], &mut out), Ok(Verdict::Ready));
        (requester, keys)
    }

    fn ping() -> Vec<u8> {
        let mut command = Vec::new();
        Writer::new(&mut command).int32("ping", 1).text("$db", "admin");
        command
    }

    /// What SCRAM says in a request, from its beginning on.
    fn payload<'o>(out: &'o [u8], begins: &[u8]) -> &'o [u8] {
        let at = out.windows(begins.len()).position(|part| part == begins).expect("it says so");
        let length = u32::from_le_bytes(out[at - 5..at - 1].try_into().unwrap());
        &out[at..at + length as usize]
    }

    #[test]
    fn the_keys_for_many_iterations_are_derived_part_by_part() {
        let login = ServerLogin { user: Some(("u".into(), "pencil".into())), ..ServerLogin::default() };
        let (mut start, keys, mut out) = (ServerHandshake::new(login), KeyCache::default(), Vec::new());
        start.begin(&mut out);
        let hear = |start: &mut ServerHandshake, message: &[u8], out: &mut Vec<u8>| {
            let header = Header::read(message).unwrap().unwrap();
            start.on_reply(wire::reply_document(message, &header).unwrap(), &keys, out, |_| ())
        };
        let hello = reply(1, |answer| {
            answer.bool("ismaster", true).int32("maxWireVersion", 21).double("ok", 1.0);
        });
        assert!(matches!(hear(&mut start, &hello, &mut out), HandshakeStep::Wait));
        let verifier = std::sync::Arc::new(scram::Verifier::from_password("pencil", b"salt", 20_000));
        let mut exchange = scram::Server::new(verifier, "server".into());
        let challenge = exchange.first(payload(&out, b"n,,")).unwrap();
        let challenged = reply(2, |answer| {
            answer.int32("conversationId", 1).binary("payload", &challenge).double("ok", 1.0);
        });
        out.clear();
        assert!(matches!(hear(&mut start, &challenged, &mut out), HandshakeStep::Later));
        let mut parts = 1;
        while matches!(start.derive_more(&keys, &mut out), HandshakeStep::Later) {
            assert!(start.is_deriving() && out.is_empty());
            parts += 1;
        }
        assert_eq!((parts, start.is_deriving()), (3, false));
        assert!(exchange.last(payload(&out, b"c=")).is_ok());
    }

    /// What comes of an answer, whole or byte by byte.
    fn answered(answer: &[u8]) -> Option<CommandError> {
        for step in [1, 7, answer.len()] {
            let (mut requester, keys) = open();
            let mut out = Vec::new();
            requester.request(&ping(), &mut out);
            let mut verdict = Verdict::More;
            for mut part in answer.chunks(step) {
                assert_eq!(verdict, Verdict::More);
                verdict = requester.take(&keys, &mut part, &mut out).unwrap();
            }
            assert_eq!(verdict, Verdict::Answered);
            if step == answer.len() {
                return requester.error().cloned();
            }
        }
        unreachable!("the last step is the whole")
    }

    #[test]
    fn errors_of_commands_and_of_writes_are_told() {
        assert_eq!(answered(&reply(2, |answer| _ = answer.double("ok", 1.0))), None);
        let error = answered(&reply(2, |answer| {
            answer.double("ok", 0.0).int32("code", 59).text("codeName", "CommandNotFound").text("errmsg", "no such");
        }));
        assert_eq!(error.unwrap().to_string(), "no such (CommandNotFound, code 59)");
        let error = answered(&reply(2, |answer| {
            answer.double("ok", 1.0).array("writeErrors", |errors| {
                errors.document("0", |error| _ = error.int32("code", 11000).text("errmsg", "twice"));
            });
        }));
        assert_eq!(error.unwrap().code, 11000);
    }

    #[test]
    fn a_cursor_is_read_to_its_end() {
        let (mut requester, keys) = open();
        let mut out = Vec::new();
        let mut find = Vec::new();
        Writer::new(&mut find).text("find", "a.b").int32("batchSize", 5).text("$db", "app");
        requester.request(&find, &mut out);
        let batch = |answers, id: i64| {
            reply(answers, |answer| {
                answer.document("cursor", |cursor| _ = cursor.int64("id", id).text("ns", "app.a.b"));
                answer.double("ok", 1.0);
            })
        };
        out.clear();
        assert_eq!(requester.take(&keys, &mut &batch(2, 7)[..], &mut out), Ok(Verdict::More));
        let asked = wire::reply_document(&out, &Header::read(&out).unwrap().unwrap()).unwrap();
        assert_eq!(asked.get("collection").unwrap().unwrap().text(), Some("a.b"));
        assert_eq!(asked.get("batchSize").unwrap().unwrap().integer(), Some(5));
        assert_eq!(requester.take(&keys, &mut &batch(3, 0)[..], &mut out), Ok(Verdict::Answered));
    }

    #[test]
    fn an_answer_without_a_request_ends_the_connection() {
        let (mut requester, keys) = open();
        let fault = requester.take(&keys, &mut &reply(9, |_| {})[..], &mut Vec::new()).unwrap_err();
        assert!(fault.message.contains("no MongoDB") && !fault.refused);
        let (mut requester, keys) = open();
        assert!(requester.take(&keys, &mut &[0xff; 16][..], &mut Vec::new()).is_err());
    }
}
