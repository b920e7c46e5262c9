//! The requester's side: a program that asks a server on its own account (a load generator), not for a client. Bytes
//! in, bytes and verdicts out: first the login, the same as that of a pool's servers, then one request after the other.
//! Knows no socket, no time, no pool, and not what it asks.
//!
//! Call order: [`Requester::begin`] when the connection is open, then [`Requester::take`] (with nothing, at first)
//! until it says [`Verdict::More`]; [`Verdict::Ready`] ends the login. From then on a request ([`Requester::query`] and
//! its like), and `take` until [`Verdict::Answered`]; and again.

mod answer;

use std::{convert::Infallible, fmt, sync::Arc, time::Duration};

use seam::{Bytes, CloseReason, Effect, Input, Origin, Outbox, PoolId, Protocol, Secured, ServerTag, TlsFailure};

pub use answer::{Answer, Row, SqlError, TransactionStatus};

use answer::Reader;

use crate::{
    Directory, Encryption, Look, Proof, Route, ServerLogin, Unknown,
    session::{
        server::{CancelKey, Server},
        shared::Postgres,
    },
    wire::message::{HEADER, Header, back, front, write, write_cancel, write_text},
};

/// There is one login for all connections, and so one pool and one server as far as the login is concerned.
const POOL: PoolId = PoolId(0);
const SERVER: ServerTag = ServerTag(0);

/// Statements that one connection may have prepared: numbers are smaller.
pub const MAX_PREPARED: u32 = 4096;

/// How to log in, and what was learned from logins before: shared by all connections of one target.
pub struct RequesterLogin {
    postgres: Postgres,
}

impl RequesterLogin {
    pub fn new(login: ServerLogin) -> Self {
        Self { postgres: Postgres::new(Arc::new(OnlyLogin(login))) }
    }
}

impl fmt::Debug for RequesterLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequesterLogin").finish_non_exhaustive()
    }
}

/// The parameters of a statement, as texts; their types are left to the server.
#[derive(Clone, Default, Debug)]
pub struct Parameters {
    count: u16,
    bytes: Vec<u8>,
}

impl Parameters {
    /// None again; the memory is kept.
    pub fn clear(&mut self) {
        self.count = 0;
        self.bytes.clear();
    }

    /// Adds one. `value` appends it and returns true, or false for NULL.
    ///
    /// # Errors
    /// Those of `value`; the parameters are of no use then.
    pub fn push<E>(&mut self, value: impl FnOnce(&mut Vec<u8>) -> Result<bool, E>) -> Result<(), E> {
        self.count = self.count.checked_add(1).expect("a statement has at most 65,535 parameters");
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&NULL);
        if value(&mut self.bytes)? {
            let length = u32::try_from(self.bytes.len() - start - NULL.len()).expect("parameters are short");
            self.bytes[start..start + NULL.len()].copy_from_slice(&length.to_be_bytes());
        } else {
            self.bytes.truncate(start + NULL.len());
        }
        Ok(())
    }
}

/// The length of a NULL in Bind.
const NULL: [u8; 4] = (-1i32).to_be_bytes();

/// What has come of the input so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Nothing to report; all input is taken.
    More,
    /// TLS is to begin; then [`Requester::secured`].
    StartTls,
    /// The server has let us in; the rest of its start-up follows.
    Authenticated,
    Ready,
    /// The request is answered: [`Requester::answer`] tells how.
    Answered,
}

/// Why there is no going on with a connection. Holds no secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The SQLSTATE, if the server gave one.
    pub code: Option<[u8; 5]>,
    /// Trying again cannot help until the database or its configuration is changed.
    pub permanent: bool,
    /// It was turned away, and the next attempt goes another way (with TLS, or without): worth making at once.
    pub detour: bool,
    /// The peer does not keep to the protocol.
    pub violation: bool,
    pub message: String,
}

impl Fault {
    fn violation(message: impl Into<String>) -> Self {
        Self { code: None, permanent: false, detour: false, violation: true, message: message.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

/// The state of one connection.
pub struct Requester {
    phase: Phase,
    /// It goes the other way, because another one was turned away.
    on_detour: bool,
    /// Of the login: what is not taken yet, and verdicts not told yet.
    held: Vec<u8>,
    start_tls: bool,
    authenticated: bool,
    ready: bool,
    reader: Reader,
    /// By statement number: it is prepared.
    prepared: Vec<bool>,
    /// The statement that the request under way prepares.
    preparing: Option<u32>,
    version: Option<Box<str>>,
    /// What cancels a request of this connection.
    key: CancelKey,
}

enum Phase {
    Login(Box<Server>),
    Open,
    Closed,
}

impl Requester {
    /// A connection that has just been opened. What is to be sent is appended to `out`.
    pub fn begin(login: &RequesterLogin, out: &mut Vec<u8>) -> Self {
        let mut outbox = Outbox::new();
        let on_detour = login.postgres.second_tries.has(POOL);
        let server = login.postgres.server_start(SERVER, POOL, &mut outbox);
        let mut this = Self {
            phase: Phase::Login(Box::new(server)),
            on_detour,
            held: Vec::new(),
            start_tls: false,
            authenticated: false,
            ready: false,
            reader: Reader::default(),
            prepared: Vec::new(),
            preparing: None,
            version: None,
            key: CancelKey::default(),
        };
        let refused = this.execute(outbox, out, login);
        assert!(refused.is_none(), "no login is refused before it has begun");
        this
    }

    /// Takes input up to the next verdict; what is to be sent is appended to `out`. After an error the connection is to
    /// be closed.
    ///
    /// # Errors
    /// The login is refused, or the server does not keep to the protocol.
    pub fn take(&mut self, login: &RequesterLogin, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Verdict, Fault> {
        let taken = match self.phase {
            Phase::Open => {
                self.reader.take(input).map(|answered| if answered { Verdict::Answered } else { Verdict::More })
            }
            Phase::Login(_) => self.take_login(login, input, out),
            Phase::Closed => Err(Fault::violation("the connection is closed")),
        };
        match &taken {
            Ok(Verdict::Answered) => self.settle(),
            Ok(_) => {}
            Err(_) => self.phase = Phase::Closed,
        }
        taken
    }

    /// The handshake that [`Verdict::StartTls`] asked for is done.
    ///
    /// # Errors
    /// What it has shown will not do.
    pub fn secured(&mut self, login: &RequesterLogin, secured: Secured, out: &mut Vec<u8>) -> Result<(), Fault> {
        let Phase::Login(server) = &mut self.phase else { panic!("TLS begins during the login") };
        let mut outbox = Outbox::new();
        login.postgres.server_secured(SERVER, server, secured, &mut outbox);
        match self.execute(outbox, out, login) {
            None => Ok(()),
            Some(fault) => {
                self.phase = Phase::Closed;
                Err(fault)
            }
        }
    }

    /// That handshake has failed. Returns what it means.
    pub fn tls_failed(&mut self, login: &RequesterLogin, certificate: bool, message: String) -> Fault {
        let Phase::Login(server) = &mut self.phase else { panic!("TLS begins during the login") };
        let reason = login.postgres.server_tls_failed(server, TlsFailure { certificate, message });
        self.phase = Phase::Closed;
        self.refusal(reason, login)
    }

    /// Sends what `write` appends, a statement or several, as one Query message.
    ///
    /// # Errors
    /// Those of `write`; nothing is sent then.
    pub fn query_with<E>(
        &mut self,
        out: &mut Vec<u8>,
        text: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = out.len();
        let mut written = Ok(());
        write(out, front::QUERY, |to| {
            written = text(to);
            to.push(0);
        });
        match written {
            Ok(()) => self.reader.begin(),
            Err(_) => out.truncate(start),
        }
        written
    }

    /// Sends a statement, or several, as one Query message.
    pub fn query(&mut self, sql: &str, out: &mut Vec<u8>) {
        let Ok(()) = self.query_with(out, |to| -> Result<(), Infallible> {
            to.extend_from_slice(sql.as_bytes());
            Ok(())
        });
    }

    /// Sends one statement with parameters: Parse, Bind, Describe, Execute, Sync, as libpq's `PQexecParams` does.
    pub fn extended(&mut self, sql: &str, parameters: &Parameters, out: &mut Vec<u8>) {
        self.reader.begin();
        write_parse(out, "", sql);
        write_execution(out, "", parameters);
    }

    /// The same with a statement that is prepared when it is first used on this connection, and only executed from then
    /// on. `number`: its own among those of this connection, below [`MAX_PREPARED`].
    pub fn prepared(&mut self, number: u32, sql: &str, parameters: &Parameters, out: &mut Vec<u8>) {
        assert!(number < MAX_PREPARED, "a connection prepares at most {MAX_PREPARED} statements");
        self.reader.begin();
        let index = number as usize;
        if index >= self.prepared.len() {
            self.prepared.resize(index + 1, false);
        }
        let mut name = *b"P_0000";
        let mut rest = number;
        for digit in name[2..].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        let name = std::str::from_utf8(&name).expect("digits are ASCII");
        if !self.prepared[index] {
            self.preparing = Some(number);
            write_parse(out, name, sql);
        }
        write_execution(out, name, parameters);
    }

    /// Keeps the names and values of the first row that the request sent last will give (of its last result, if it
    /// gives several).
    pub fn keep_row(&mut self) {
        self.reader.keep_rows(1);
    }

    /// The same with the first `most` rows.
    pub fn keep_rows(&mut self, most: usize) {
        self.reader.keep_rows(most);
    }

    /// How the last request was answered.
    pub fn answer(&self) -> &Answer {
        &self.reader.answer
    }

    /// Why the server closes the connection, if it has said so: unasked, or instead of an answer.
    pub fn farewell(&self) -> Option<&SqlError> {
        let instead = self.reader.answer.error.as_ref().filter(|error| error.fatal);
        self.reader.farewell.as_ref().or(instead)
    }

    /// Whether a transaction is open.
    pub fn transaction(&self) -> TransactionStatus {
        self.reader.answer.status
    }

    pub fn is_asking(&self) -> bool {
        self.reader.is_asking()
    }

    /// Writes what cancels the request under way, to be sent over a connection of its own; nothing where the server
    /// gave no key.
    pub fn write_cancel(&self, out: &mut Vec<u8>) {
        if !self.key.secret.is_empty() {
            write_cancel(out, self.key.pid, &self.key.secret);
        }
    }

    /// The process that answers here, as the server says; `None` if it has not said so.
    pub fn process(&self) -> Option<u32> {
        (!self.key.secret.is_empty()).then_some(self.key.pid)
    }

    /// What the server calls its version; `None` before it is ready, or if it does not say.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    pub fn terminate(&mut self, out: &mut Vec<u8>) {
        if matches!(self.phase, Phase::Open) {
            write(out, front::TERMINATE, |_| {});
        }
        self.phase = Phase::Closed;
    }

    fn settle(&mut self) {
        if let Some(number) = self.preparing.take() {
            // An error may have come from Parse or later. To prepare an existing statement again would be refused, and
            // so would executing a missing one. Only an error before ParseComplete leaves none.
            self.prepared[number as usize] = self.reader.answer.parsed;
        }
    }

    fn take_login(&mut self, login: &RequesterLogin, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Verdict, Fault> {
        self.held.extend_from_slice(std::mem::take(input));
        loop {
            if let Some(verdict) = self.untold()? {
                return Ok(verdict);
            }
            let Phase::Login(server) = &mut self.phase else { return Ok(Verdict::More) };
            let mut outbox = Outbox::new();
            let bytes = Input { bytes: &self.held, full: false, unread: false, now: Duration::ZERO };
            let consumed = match self.held.is_empty() {
                true => return Ok(Verdict::More),
                false => login.postgres.server_login_input(SERVER, server, bytes, &mut outbox),
            };
            login.postgres.derive_all(SERVER, server, &mut outbox);
            let code = code_of_error(&self.held[..consumed]);
            self.held.drain(..consumed);
            let idle = consumed == 0 && outbox.effects.is_empty();
            if let Some(fault) = self.execute(outbox, out, login) {
                return Err(Fault { code: fault.code.or(code), ..fault });
            }
            if idle {
                return Ok(Verdict::More);
            }
        }
    }

    /// A verdict of the login that was not told yet. They are told in the order in which they happen. With the last
    /// one, what came behind the login's end is taken, too: it is no answer to a request that may follow.
    fn untold(&mut self) -> Result<Option<Verdict>, Fault> {
        let verdict = match () {
            () if std::mem::take(&mut self.start_tls) => Verdict::StartTls,
            () if std::mem::take(&mut self.authenticated) => Verdict::Authenticated,
            () if std::mem::take(&mut self.ready) => Verdict::Ready,
            () => return Ok(None),
        };
        if verdict == Verdict::Ready {
            let Phase::Login(server) = std::mem::replace(&mut self.phase, Phase::Open) else {
                unreachable!("it was logging in")
            };
            self.version =
                server.facts.current().get(b"server_version").map(|version| String::from_utf8_lossy(version).into());
            self.key = server.key;
            let held = std::mem::take(&mut self.held);
            let answered = self.reader.take(&mut &held[..])?;
            assert!(!answered, "nothing was asked");
        }
        Ok(Some(verdict))
    }

    /// Does what the login wants. Returns the fault that ends it, if there is one.
    fn execute(&mut self, outbox: Outbox, out: &mut Vec<u8>, login: &RequesterLogin) -> Option<Fault> {
        for effect in outbox.effects {
            match effect {
                Effect::Send { bytes: Bytes::Insert(range), .. } => out.extend_from_slice(&outbox.inserted[range]),
                Effect::StartTls { .. } => self.start_tls = true,
                Effect::Authenticated { .. } => self.authenticated = true,
                Effect::Ready { .. } => self.ready = true,
                Effect::Close { reason, .. } => return Some(self.refusal(reason, login)),
                other => unreachable!("a login does not ask for {other:?}"),
            }
        }
        None
    }

    fn refusal(&self, reason: CloseReason, login: &RequesterLogin) -> Fault {
        match reason {
            CloseReason::StartFailed { permanent, message } => {
                let detour = !self.on_detour && login.postgres.second_tries.has(POOL);
                Fault { code: None, permanent, detour, violation: false, message }
            }
            CloseReason::Unknown { message } => {
                Fault { code: None, permanent: true, detour: false, violation: false, message }
            }
            CloseReason::Error(_, message) => Fault::violation(message),
            CloseReason::Goodbye | CloseReason::Done | CloseReason::Redirected { .. } => {
                Fault::violation("the server said goodbye during the login")
            }
        }
    }
}

impl fmt::Debug for Requester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requester").field("asking", &self.is_asking()).finish_non_exhaustive()
    }
}

/// The SQLSTATE of the error among messages of a login, if there is one. What answers the request for TLS, a single
/// byte, is none.
fn code_of_error(mut messages: &[u8]) -> Option<[u8; 5]> {
    while let Some(header) = Header::read(messages) {
        let message = messages.get(..header.total()).filter(|message| message.len() >= HEADER)?;
        if header.kind == back::ERROR_RESPONSE {
            return SqlError::read(&message[HEADER..]).code;
        }
        messages = &messages[message.len()..];
    }
    None
}

fn write_parse(out: &mut Vec<u8>, name: &str, sql: &str) {
    write(out, front::PARSE, |to| {
        write_text(to, name);
        write_text(to, sql);
        // No types are given.
        to.extend_from_slice(&[0; 2]);
    });
}

/// Bind, Describe, Execute and Sync, all parameters and results as text.
fn write_execution(out: &mut Vec<u8>, statement: &str, parameters: &Parameters) {
    write(out, front::BIND, |to| {
        // The unnamed portal.
        to.push(0);
        write_text(to, statement);
        to.extend_from_slice(&[0; 2]);
        to.extend_from_slice(&parameters.count.to_be_bytes());
        to.extend_from_slice(&parameters.bytes);
        to.extend_from_slice(&[0; 2]);
    });
    write(out, front::DESCRIBE, |to| to.extend_from_slice(b"P\0"));
    // All rows.
    write(out, front::EXECUTE, |to| to.extend_from_slice(&[0; 5]));
    write(out, front::SYNC, |_| {});
}

/// A directory for those who only log in to a server.
struct OnlyLogin(ServerLogin);

impl Directory for OnlyLogin {
    fn encryption(&self, _: u16) -> Encryption {
        unreachable!("{NO_CLIENTS}")
    }

    fn proof(&self, _: Origin, _: &str, _: &str) -> Result<Proof, Unknown> {
        unreachable!("{NO_CLIENTS}")
    }

    fn answered(&self, _: &str, _: &str, _: Option<&str>) -> Result<Proof, Unknown> {
        unreachable!("{NO_CLIENTS}")
    }

    fn looks(&self, _: &str) -> Vec<Look> {
        unreachable!("{NO_CLIENTS}")
    }

    fn refuted(&self, _: &str, _: &str) {
        unreachable!("{NO_CLIENTS}")
    }

    fn route(&self, _: &str, _: &str) -> Result<Route, Unknown> {
        unreachable!("{NO_CLIENTS}")
    }

    fn catalogue_read(&self, _: PoolId, _: &[String]) {
        unreachable!("{NO_CLIENTS}")
    }

    fn server_login(&self, _: PoolId) -> ServerLogin {
        let state = crate::directory::StatePolicy { reset: crate::directory::ResetPolicy::Never, ..self.0.state };
        ServerLogin { state, ..self.0.clone() }
    }
}

const NO_CLIENTS: &str = "a requester has no clients";

#[cfg(test)]
mod tests;
