//! The login of a client that serves itself, such as the load generator: bytes in, bytes and steps out. It is the login
//! of a pool's servers, over a connection of its own. It knows no socket, no time, no pool and no request.
//!
//! Call order: [`ServerHandshake::begin`] when the connection is open, then [`ServerHandshake::take`] (with nothing, at
//! first) until it returns [`Step::More`]; [`Step::Done`] ends the login.

use std::{fmt, sync::Arc, time::Duration};

use seam::{Bytes, CloseReason, Effect, Input, Outbox, PoolId, Protocol, Secured, ServerTag, TlsFailure};

use crate::{
    CancelDealtWith, CheckOutcome, Directory, Encryption, ForeignCancel, ListenerRules, LoginAttempt, LoginCheck, Look,
    Proof, ResetPolicy, Route, ServerLogin, StartRequest, StatePolicy, Unknown,
    session::{
        server::{CancelKey, Server},
        shared::Postgres,
    },
    wire::{
        error::Failure,
        message::{HEADER, Header, back, write_cancel},
    },
};

/// There is one login for all connections, and so one pool and one server as far as the login is concerned.
const POOL: PoolId = PoolId(0);
const SERVER: ServerTag = ServerTag(0);

/// How to log in, and what earlier logins learned: shared by all connections to one database.
pub struct SharedLogin {
    postgres: Postgres,
}

impl SharedLogin {
    pub fn new(login: ServerLogin) -> Self {
        Self { postgres: Postgres::new(Arc::new(LoginDirectory(login))) }
    }
}

impl fmt::Debug for SharedLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedLogin").finish_non_exhaustive()
    }
}

/// How far the login has come.
#[derive(Debug)]
pub enum Step {
    /// All input is taken, and more is needed.
    More,
    /// TLS is to begin; then [`ServerHandshake::secured`].
    StartTls,
    /// The server has accepted the account; the rest of its start-up follows.
    Authenticated,
    Done(LoggedIn),
}

/// The results of a login.
#[derive(Debug)]
pub struct LoggedIn {
    /// The server's version as the server reports it.
    pub version: Option<Box<str>>,
    key: CancelKey,
    /// Input that followed the end of the login.
    pub unread: Vec<u8>,
}

impl LoggedIn {
    /// The process that serves the connection; `None` if the server has not reported it.
    pub fn process(&self) -> Option<u32> {
        (!self.key.secret.is_empty()).then_some(self.key.pid)
    }

    /// The packet that cancels a request of this connection; empty if the server gave no key.
    pub fn cancel_request(&self) -> Vec<u8> {
        let mut packet = Vec::new();
        if !self.key.secret.is_empty() {
            write_cancel(&mut packet, self.key.pid, &self.key.secret);
        }
        packet
    }
}

/// Why a connection cannot be used any longer. It contains no secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The SQLSTATE, if the server gave one.
    pub code: Option<[u8; 5]>,
    /// Another try fails, too, until the database or its configuration is changed.
    pub permanent: bool,
    /// The server turned the connection away, and the next attempt goes another way (with TLS, or without), so it is
    /// worth making at once.
    pub detour: bool,
    /// The peer breaks the protocol.
    pub violation: bool,
    pub message: String,
}

impl Fault {
    pub fn violation(message: impl Into<String>) -> Self {
        Self { code: None, permanent: false, detour: false, violation: true, message: message.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

/// The login of one connection.
pub struct ServerHandshake {
    server: Box<Server>,
    /// The connection goes the other way, because an earlier one was turned away.
    on_detour: bool,
    /// Input that is not taken yet.
    unread: Vec<u8>,
    // Steps that `take` has not returned yet.
    start_tls: bool,
    authenticated: bool,
    ready: bool,
}

impl ServerHandshake {
    /// Begins on a connection that has just been opened. What is to be sent is appended to `out`.
    pub fn begin(login: &SharedLogin, out: &mut Vec<u8>) -> Self {
        let mut outbox = Outbox::new();
        let on_detour = login.postgres.second_tries.has(POOL);
        let server = Box::new(login.postgres.server_start(SERVER, POOL, &mut outbox));
        let mut this =
            Self { server, on_detour, unread: Vec::new(), start_tls: false, authenticated: false, ready: false };
        let refused = this.execute(outbox, out, login);
        assert!(refused.is_none(), "no login is refused before it has begun");
        this
    }

    /// Takes all input, and returns the next step. What is to be sent is appended to `out`.
    ///
    /// # Errors
    /// The login is refused, or the server breaks the protocol. The connection is to be closed then.
    pub fn take(&mut self, login: &SharedLogin, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Step, Fault> {
        self.unread.extend_from_slice(std::mem::take(input));
        loop {
            if let Some(step) = self.next_step() {
                return Ok(step);
            }
            if self.unread.is_empty() {
                return Ok(Step::More);
            }
            let mut outbox = Outbox::new();
            let bytes = Input { bytes: &self.unread, full: false, unread: false, now: Duration::ZERO };
            let consumed = login.postgres.take_server_login_input(SERVER, &mut self.server, bytes, &mut outbox);
            login.postgres.derive_all(SERVER, &mut self.server, &mut outbox);
            let code = code_of_error(&self.unread[..consumed]);
            self.unread.drain(..consumed);
            let is_incomplete = consumed == 0 && outbox.effects.is_empty();
            if let Some(fault) = self.execute(outbox, out, login) {
                return Err(Fault { code: fault.code.or(code), ..fault });
            }
            if is_incomplete {
                return Ok(Step::More);
            }
        }
    }

    /// The handshake that [`Step::StartTls`] asked for is done.
    ///
    /// # Errors
    /// The login does not accept what the handshake has shown.
    pub fn secured(&mut self, login: &SharedLogin, secured: Secured, out: &mut Vec<u8>) -> Result<(), Fault> {
        let mut outbox = Outbox::new();
        login.postgres.server_secured(SERVER, &mut self.server, secured, &mut outbox);
        self.execute(outbox, out, login).map_or(Ok(()), Err)
    }

    /// The handshake that [`Step::StartTls`] asked for has failed. Returns why the login ends.
    pub fn tls_failed(&mut self, login: &SharedLogin, certificate: bool, message: String) -> Fault {
        let reason =
            login.postgres.server_tls_failed(&mut self.server, TlsFailure { bad_certificate: certificate, message });
        self.refusal(reason, login)
    }

    /// The step that comes next among those that `take` has not returned, in the order in which they happen.
    fn next_step(&mut self) -> Option<Step> {
        if std::mem::take(&mut self.start_tls) {
            return Some(Step::StartTls);
        }
        if std::mem::take(&mut self.authenticated) {
            return Some(Step::Authenticated);
        }
        std::mem::take(&mut self.ready).then(|| {
            let version = self.server.facts.current().get(b"server_version");
            Step::Done(LoggedIn {
                version: version.map(|version| String::from_utf8_lossy(version).into()),
                key: std::mem::take(&mut self.server.key),
                unread: std::mem::take(&mut self.unread),
            })
        })
    }

    /// Executes the effects of the login. Returns the fault that ends it, if there is one.
    fn execute(&mut self, outbox: Outbox, out: &mut Vec<u8>, login: &SharedLogin) -> Option<Fault> {
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

    fn refusal(&self, reason: CloseReason, login: &SharedLogin) -> Fault {
        match reason {
            CloseReason::StartFailed { permanent, message } => {
                let detour = !self.on_detour && login.postgres.second_tries.has(POOL);
                Fault { code: None, permanent, detour, violation: false, message }
            }
            CloseReason::UnknownDatabase { message } => {
                Fault { code: None, permanent: true, detour: false, violation: false, message }
            }
            CloseReason::Error(_, message) => Fault::violation(message),
            CloseReason::Goodbye | CloseReason::Done | CloseReason::Redirected { .. } => {
                Fault::violation("the server said goodbye during the login")
            }
        }
    }
}

/// The SQLSTATE of the error among messages of a login, if there is one. The answer to the request for TLS, a single
/// byte, is no message.
fn code_of_error(mut messages: &[u8]) -> Option<[u8; 5]> {
    while let Some(header) = Header::read(messages) {
        let message = messages.get(..header.total()).filter(|message| message.len() >= HEADER)?;
        if header.kind == back::ERROR_RESPONSE {
            return Failure::read(&message[HEADER..]).sqlstate();
        }
        messages = &messages[message.len()..];
    }
    None
}

/// The directory of connections that have a login to a server and no clients.
struct LoginDirectory(ServerLogin);

const NO_CLIENTS: &str = "a handshake has no clients";

impl Directory for LoginDirectory {
    fn encryption(&self, _: u16) -> Encryption {
        unreachable!("{NO_CLIENTS}")
    }

    fn rules(&self, _: u16) -> ListenerRules {
        unreachable!("{NO_CLIENTS}")
    }

    fn announcements(&self, _: PoolId) -> Vec<(String, String)> {
        unreachable!("{NO_CLIENTS}")
    }

    fn proof(&self, _: &LoginAttempt) -> Result<Proof, Unknown> {
        unreachable!("{NO_CLIENTS}")
    }

    fn note_lookup(&self, _: &LoginAttempt, _: Option<&str>) -> Result<Proof, Unknown> {
        unreachable!("{NO_CLIENTS}")
    }

    fn looks(&self, _: &LoginAttempt) -> Vec<Look> {
        unreachable!("{NO_CLIENTS}")
    }

    fn begin_check(&self, _: LoginCheck) {
        unreachable!("{NO_CLIENTS}")
    }

    fn finished_checks(&self) -> Vec<CheckOutcome> {
        Vec::new()
    }

    fn hand_on_cancel(&self, _: ForeignCancel) {
        unreachable!("{NO_CLIENTS}")
    }

    fn handed_on_cancels(&self) -> Vec<CancelDealtWith> {
        Vec::new()
    }

    fn note_refuted(&self, _: &str, _: &str) {
        unreachable!("{NO_CLIENTS}")
    }

    fn keeps_places(&self, _: &str) -> bool {
        unreachable!("{NO_CLIENTS}")
    }

    fn route(&self, _: &str, _: &str) -> Result<Route, Unknown> {
        unreachable!("{NO_CLIENTS}")
    }

    fn dedicated_route(&self, _: &str, _: &str, _: &StartRequest<'_>) -> Result<Option<Route>, Unknown> {
        unreachable!("{NO_CLIENTS}")
    }

    fn note_catalogue(&self, _: PoolId, _: &[String]) {
        unreachable!("{NO_CLIENTS}")
    }

    fn server_login(&self, _: PoolId) -> ServerLogin {
        let state = StatePolicy { reset: ResetPolicy::Never, ..self.0.state };
        ServerLogin { state, ..self.0.clone() }
    }
}
