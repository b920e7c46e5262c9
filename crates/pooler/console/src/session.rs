//! One connection to the console, from its start-up packet on: bytes in, commands out.
//!
//! The program that uses it asks for the [`Next`] step until that is to wait for bytes. It has proved who the user is
//! before: here no password is asked for.

use crate::{
    answer::{Answer, Failure},
    command::{Command, Role},
    extended::Extended,
    shows::{HELP, Show},
    wire::{Fields, Message, back, code, write_report},
    writing::{write_answer, write_failure, write_ready},
};

/// The start-up parameter by which a connection says that its user runs the process. Only the program itself may send
/// it: it hands on no parameters of clients.
pub const OWNER_PARAMETER: &str = "console_owner";
/// Bytes of a message from the client. Commands are short.
pub const MAX_MESSAGE_BYTES: usize = 16 * 1024;
/// Bytes of a start-up packet, as PostgreSQL limits it.
const MAX_START_BYTES: usize = 10_000;
/// Bytes of a message's type and length.
const HEADER_BYTES: usize = 5;

const PROTOCOL_3: u32 = 3;
const CANCEL_REQUEST: u32 = 80_877_102;
const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;

/// What users hear that may not use the console.
pub const NOT_ALLOWED: &str = "not allowed";

/// What is to be done next.
#[derive(PartialEq, Eq, Debug)]
pub enum Next {
    /// Wait for more bytes.
    Input,
    /// A user comes: [`Session::admit`] lets it in, [`Session::refuse`] does not. `is_owner`: the program that hands
    /// connections on says so, by [`OWNER_PARAMETER`].
    Login { user: String, is_owner: bool },
    /// Carry out a command, and report its outcome by [`Session::complete`].
    Run(Command),
    /// Cancel the command of the connection with this key; then close this connection.
    Cancel { process: u32, secret: u32 },
    /// Send what is to be sent, and close.
    Close,
}

/// A connection.
pub struct Session {
    phase: Phase,
    role: Role,
    input: Vec<u8>,
    extended: Extended,
}

enum Phase {
    /// The start-up packet is awaited.
    Start,
    /// The login is being decided on.
    Login,
    Ready,
    /// A command runs.
    Running(Origin),
    Closed,
}

/// By which message a command was given.
enum Origin {
    Query,
    /// Execute of this portal, with the number of rows that it asks for.
    Execute {
        portal: String,
        max_rows: i32,
    },
}

impl Default for Session {
    fn default() -> Self {
        Self { phase: Phase::Start, role: Role::Viewer, input: Vec::new(), extended: Extended::default() }
    }
}

impl Session {
    /// Takes bytes from the client.
    pub fn receive(&mut self, bytes: &[u8]) {
        if !matches!(self.phase, Phase::Closed) {
            self.input.extend_from_slice(bytes);
        }
    }

    /// Bytes that were received and wait for their turn.
    pub fn waiting_bytes(&self) -> usize {
        self.input.len()
    }

    /// The next step. Adds what is to be sent to `out`.
    pub fn next(&mut self, out: &mut Vec<u8>) -> Next {
        loop {
            let step = match self.phase {
                Phase::Closed => return Next::Close,
                Phase::Login | Phase::Running(_) => return Next::Input,
                Phase::Start => self.take_start(out),
                Phase::Ready => self.take_message(out),
            };
            if let Some(next) = step {
                return next;
            }
        }
    }

    /// Lets the user in, who is told these parameters and this key for cancel requests.
    pub fn admit(&mut self, role: Role, parameters: &[(&str, &str)], (process, secret): (u32, u32), out: &mut Vec<u8>) {
        assert!(matches!(self.phase, Phase::Login), "a login is awaited");
        (self.phase, self.role) = (Phase::Ready, role);
        let mut message = Message::begin(out, back::AUTHENTICATION);
        message.u32(0);
        message.end();
        for (name, value) in parameters {
            let mut message = Message::begin(out, back::PARAMETER_STATUS);
            message.text(name);
            message.text(value);
            message.end();
        }
        let mut message = Message::begin(out, back::BACKEND_KEY);
        message.u32(process);
        message.u32(secret);
        message.end();
        write_ready(out);
    }

    /// What the user may do from now on; without a role the session ends.
    pub fn set_role(&mut self, role: Option<Role>, out: &mut Vec<u8>) {
        match role {
            Some(role) => self.role = role,
            None => self.fail_fatally(NOT_ALLOWED, out),
        }
    }

    /// Turns the user away.
    pub fn refuse(&mut self, why: &str, out: &mut Vec<u8>) {
        assert!(matches!(self.phase, Phase::Login), "a login is awaited");
        self.fail_fatally(why, out);
    }

    /// Reports the outcome of the command that runs.
    pub fn complete(&mut self, outcome: Result<Answer, Failure>, out: &mut Vec<u8>) {
        let Phase::Running(origin) = std::mem::replace(&mut self.phase, Phase::Ready) else {
            unreachable!("a command runs");
        };
        match (origin, outcome) {
            (Origin::Query, outcome) => {
                match outcome {
                    Ok(answer) => write_answer(&answer, out),
                    Err(failure) => write_failure(&failure, out),
                }
                write_ready(out);
            }
            (Origin::Execute { portal, max_rows }, Ok(answer)) => {
                self.extended.finish(&portal, max_rows, answer, out);
            }
            (Origin::Execute { .. }, Err(failure)) => self.extended.fail(&failure, out),
        }
    }

    fn take_start(&mut self, out: &mut Vec<u8>) -> Option<Next> {
        let Some((length, rest)) = self.input.split_first_chunk::<4>() else { return Some(Next::Input) };
        let length = u32::from_be_bytes(*length) as usize;
        if !(8..=MAX_START_BYTES).contains(&length) {
            self.fail_fatally("invalid length of the start-up packet", out);
            return None;
        }
        let Some(body) = rest.get(..length - 4) else { return Some(Next::Input) };
        let mut fields = Fields::new(body);
        let code = fields.i32().unwrap_or_default() as u32;
        match code {
            SSL_REQUEST | GSS_REQUEST => {
                self.input.drain(..length);
                out.push(b'N');
                None
            }
            CANCEL_REQUEST => {
                let key = fields.i32().zip(fields.i32());
                self.phase = Phase::Closed;
                Some(key.map_or(Next::Close, |(process, secret)| Next::Cancel {
                    process: process as u32,
                    secret: secret as u32,
                }))
            }
            _ if code >> 16 == PROTOCOL_3 => {
                let read = read_user(&mut fields);
                self.input.drain(..length);
                let Some((user, is_owner)) = read else {
                    self.fail_fatally("no user in the start-up packet", out);
                    return None;
                };
                self.phase = Phase::Login;
                Some(Next::Login { user, is_owner })
            }
            _ => {
                self.fail_fatally("unsupported version of the protocol", out);
                None
            }
        }
    }

    /// Takes one message. `None` if the next one is to be taken.
    fn take_message(&mut self, out: &mut Vec<u8>) -> Option<Next> {
        let Some(header) = self.input.first_chunk::<HEADER_BYTES>() else { return Some(Next::Input) };
        let [kind, length @ ..] = *header;
        let length = u32::from_be_bytes(length) as usize;
        if !(4..=MAX_MESSAGE_BYTES).contains(&length) {
            self.fail_fatally(&format!("a message of {length} bytes is too short or too long for the console"), out);
            return None;
        }
        if self.input.len() < length + 1 {
            return Some(Next::Input);
        }
        let message: Vec<u8> = self.input.drain(..length + 1).collect();
        let body = &message[HEADER_BYTES..];
        match kind {
            b'Q' if !self.extended.skips() => self.take_query(body, out),
            b'E' if !self.extended.skips() => {
                let (portal, max_rows, command) = self.extended.execute(body, out)?;
                self.begin(command, Origin::Execute { portal, max_rows }, out)
            }
            b'X' => {
                self.phase = Phase::Closed;
                None
            }
            b'S' => {
                self.extended.sync();
                write_ready(out);
                None
            }
            b'P' | b'B' | b'D' | b'C' | b'H' | b'Q' | b'E' => {
                self.extended.take(kind, body, out);
                None
            }
            // A client in the middle of COPY may send these.
            b'd' | b'c' | b'f' => None,
            b'F' => {
                let failure = Failure::with_code(code::FEATURE_NOT_SUPPORTED, "the console has no functions");
                write_failure(&failure, out);
                write_ready(out);
                None
            }
            _ => {
                self.fail_fatally(&format!("the console takes no messages of type {kind}"), out);
                None
            }
        }
    }

    fn take_query(&mut self, body: &[u8], out: &mut Vec<u8>) -> Option<Next> {
        let Some(text) = Fields::new(body).text() else {
            self.fail_fatally("incomplete query", out);
            return None;
        };
        match Command::parse(&text) {
            Ok(command) => self.begin(command, Origin::Query, out),
            Err(failure) => {
                write_failure(&failure, out);
                write_ready(out);
                None
            }
        }
    }

    /// Begins a command. Commands that need no figures are answered here.
    fn begin(&mut self, command: Command, origin: Origin, out: &mut Vec<u8>) -> Option<Next> {
        self.phase = Phase::Running(origin);
        let outcome = match command {
            command if command.role() > self.role => Err(Failure::new("admin access needed")),
            Command::Disable(None) | Command::Enable(None) => Err(Failure::new("a database is required")),
            Command::IgnoredSet => Ok(Answer::notice("SET", "SET ignored", None)),
            Command::ShowParameter(name, value) => Ok(Answer::parameter(name, value)),
            Command::Show(Show::Help) => Ok(Answer::notice("SHOW", "Console usage", Some(HELP))),
            command => return Some(Next::Run(command)),
        };
        self.complete(outcome, out);
        None
    }

    fn fail_fatally(&mut self, why: &str, out: &mut Vec<u8>) {
        write_report(out, back::ERROR, "FATAL", code::PROTOCOL_VIOLATION, &[(b'M', why)]);
        self.phase = Phase::Closed;
        self.input = Vec::new();
    }
}

/// The user that a start-up packet names, and whether it is the owner.
fn read_user(fields: &mut Fields<'_>) -> Option<(String, bool)> {
    let (mut user, mut is_owner) = (None, false);
    loop {
        let name = fields.text()?;
        if name.is_empty() {
            return user.map(|user| (user, is_owner));
        }
        let value = fields.text()?;
        is_owner |= name == OWNER_PARAMETER;
        if name == "user" && user.is_some() {
            return None;
        }
        if name == "user" {
            user = Some(value).filter(|user| !user.is_empty());
        }
    }
}
