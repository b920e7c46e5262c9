//! A client of a PostgreSQL: bytes in, bytes and verdicts out. First the login, the same as that of a pool's servers,
//! then one request after the other. It knows no socket, no time, no pool and no request.
//!
//! Call order: [`Requester::begin`] when the connection is open, then [`Requester::take`] (with nothing, at first)
//! until it says [`Verdict::More`]; [`Verdict::Ready`] ends the login. From then on a request ([`Requester::query`] and
//! its like), and `take` until [`Verdict::Answered`]; and again.

mod answer;

use std::{convert::Infallible, fmt};

use postgres_session::{
    Fault, LoggedIn, ServerHandshake, SharedLogin, Step,
    messages::{front, write, write_text},
};
use seam::Secured;

use answer::Reader;
pub use answer::{Answer, Row, SqlError, TransactionStatus};

/// Statements that one connection may have prepared: numbers are smaller.
pub const MAX_PREPARED: u32 = 4096;

/// The parameters of a statement, as texts; their types are left to the server.
#[derive(Clone, Default, Debug)]
pub struct Parameters {
    count: u16,
    bytes: Vec<u8>,
}

impl Parameters {
    /// Removes all parameters, and keeps the memory.
    pub fn clear(&mut self) {
        self.count = 0;
        self.bytes.clear();
    }

    /// Adds a parameter. `value` appends it and returns true, or false for NULL.
    ///
    /// # Errors
    /// The errors of `value`; the parameters are of no use then.
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

/// The result of the input so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// All input is taken, and more is needed.
    More,
    /// TLS is to begin; then [`Requester::secured`].
    StartTls,
    /// The server has accepted the account; the rest of its start-up follows.
    Authenticated,
    Ready,
    /// The request is answered: [`Requester::answer`] tells how.
    Answered,
}

/// The state of one connection.
pub struct Requester {
    phase: Phase,
    reader: Reader,
    /// By statement number: it is prepared.
    prepared: Vec<bool>,
    /// The statement that the request under way prepares.
    preparing: Option<u32>,
}

enum Phase {
    Login(Box<ServerHandshake>),
    Open(LoggedIn),
    Closed,
}

impl Requester {
    /// Begins the login on a connection that has just been opened. What is to be sent is appended to `out`.
    pub fn begin(login: &SharedLogin, out: &mut Vec<u8>) -> Self {
        let phase = Phase::Login(Box::new(ServerHandshake::begin(login, out)));
        Self { phase, reader: Reader::default(), prepared: Vec::new(), preparing: None }
    }

    /// Takes input up to the next verdict; what is to be sent is appended to `out`. After an error the connection is to
    /// be closed.
    ///
    /// # Errors
    /// The login is refused, or the server does not keep to the protocol.
    pub fn take(&mut self, login: &SharedLogin, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Verdict, Fault> {
        let taken = match self.phase {
            Phase::Open(_) => {
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
    /// The login does not accept what the handshake has shown.
    pub fn secured(&mut self, login: &SharedLogin, secured: Secured, out: &mut Vec<u8>) -> Result<(), Fault> {
        let Phase::Login(handshake) = &mut self.phase else { panic!("TLS begins during the login") };
        let secured = handshake.secured(login, secured, out);
        if secured.is_err() {
            self.phase = Phase::Closed;
        }
        secured
    }

    /// The handshake that [`Verdict::StartTls`] asked for has failed. Returns why the connection ends.
    pub fn tls_failed(&mut self, login: &SharedLogin, certificate: bool, message: String) -> Fault {
        let Phase::Login(handshake) = &mut self.phase else { panic!("TLS begins during the login") };
        let fault = handshake.tls_failed(login, certificate, message);
        self.phase = Phase::Closed;
        fault
    }

    /// Sends what `text` appends, a statement or several, as one Query message.
    ///
    /// # Errors
    /// The errors of `text`; nothing is sent then.
    pub fn query_written_by<E>(
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
        let Ok(()) = self.query_written_by(out, |to| -> Result<(), Infallible> {
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

    /// The same with the first `max_rows` rows.
    pub fn keep_rows(&mut self, max_rows: usize) {
        self.reader.keep_rows(max_rows);
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

    pub fn awaits_answer(&self) -> bool {
        self.reader.awaits_answer()
    }

    /// The packet that cancels the request under way, for a connection of its own; empty if the server gave no key.
    pub fn cancel_request(&self) -> Vec<u8> {
        self.logged_in().map_or_else(Vec::new, LoggedIn::cancel_request)
    }

    /// The process that serves the connection; `None` if the server has not reported it.
    pub fn process(&self) -> Option<u32> {
        self.logged_in()?.process()
    }

    /// The server's version as the server reports it; `None` before the login ends.
    pub fn version(&self) -> Option<&str> {
        self.logged_in()?.version.as_deref()
    }

    fn logged_in(&self) -> Option<&LoggedIn> {
        match &self.phase {
            Phase::Open(logged_in) => Some(logged_in),
            Phase::Login(_) | Phase::Closed => None,
        }
    }

    pub fn terminate(&mut self, out: &mut Vec<u8>) {
        if matches!(self.phase, Phase::Open(_)) {
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

    fn take_login(&mut self, login: &SharedLogin, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Verdict, Fault> {
        let Phase::Login(handshake) = &mut self.phase else { unreachable!("the connection logs in") };
        Ok(match handshake.take(login, input, out)? {
            Step::More => Verdict::More,
            Step::StartTls => Verdict::StartTls,
            Step::Authenticated => Verdict::Authenticated,
            Step::Done(logged_in) => {
                // What followed the end of the login answers no request.
                let answered = self.reader.take(&mut &logged_in.unread[..])?;
                assert!(!answered, "no request is pending");
                self.phase = Phase::Open(logged_in);
                Verdict::Ready
            }
        })
    }
}

impl fmt::Debug for Requester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requester").field("awaits_answer", &self.awaits_answer()).finish_non_exhaustive()
    }
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

#[cfg(test)]
mod tests;
