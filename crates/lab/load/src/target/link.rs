//! One connection to a database: a session of the target's protocol on a line of the driver. [`Link`] is what the
//! protocols have in common; `run` drives a whole load over many links, `connection` asks over a single one.

use std::{io, time::Duration};

use driver::{Address, Event, LineFault, Lines};
use pool::Time;

use super::{TargetError, cancel::Cancels};
use crate::{
    record::{ErrorKind, Phases},
    script::{Client, Scripts, Step},
};

/// What has become of a connection.
#[derive(Debug)]
pub(super) enum News {
    Nothing,
    /// It has logged in and takes requests.
    Up,
    /// The request is answered.
    Answered,
    /// It is closed.
    Down(Down),
}

/// Why a connection is closed.
#[derive(Debug)]
pub(super) struct Down {
    pub(super) kind: ErrorKind,
    /// Trying again cannot help.
    pub(super) permanent: bool,
    /// For people.
    pub(super) message: String,
}

/// The server answered a request with an error.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) kind: ErrorKind,
    /// What the server said; `None`: the script itself is at fault.
    pub(super) said: Option<String>,
}

/// A connection in the target's protocol.
pub(super) trait Link: Sized {
    /// Where connections go, and how they log in.
    type Place;

    /// Begins to connect under a free key of the lines.
    fn open(key: u32, lines: &mut Lines, place: &Self::Place, now: Time) -> Self;

    /// The times of the phases of connecting, of the attempt that succeeded.
    fn phases(&self) -> &Phases;

    /// Closes the connection: says goodbye, or cancels what the server is still doing.
    fn close(self, lines: &mut Lines, place: &Self::Place, cancels: &Cancels);

    /// Takes an event other than [`Event::Received`].
    fn happened(&mut self, event: Event, lines: &mut Lines, place: &Self::Place, out: &mut Vec<u8>) -> News;

    /// Takes bytes. `out` is memory to write in.
    fn received(&mut self, bytes: &[u8], lines: &mut Lines, place: &Self::Place, out: &mut Vec<u8>) -> News;

    /// Appends the request of a step, with the values of the client's variables.
    ///
    /// # Errors
    /// A variable is not set.
    fn ask(
        &mut self,
        step: &Step<'_>,
        place: &Self::Place,
        values: (&Client, &Scripts),
        out: &mut Vec<u8>,
    ) -> Result<(), ErrorKind>;

    /// Reads the answer to the last request; a row that the script wants goes to the client's variables.
    ///
    /// # Errors
    /// The server refused the request, or its row does not fit the script.
    fn read_answer(&mut self, client: &mut Client, scripts: &Scripts) -> Result<(), Refusal>;

    /// A transaction is open, or keys are watched.
    fn in_transaction(&self) -> bool {
        false
    }

    /// Appends a request that ends the open transaction; `false`: the protocol has none, and the connection is closed
    /// instead.
    fn roll_back(&mut self, _out: &mut Vec<u8>) -> bool {
        false
    }

    /// It takes another request. A server that said goodbye behind its answer takes none.
    fn is_open(&self) -> bool {
        true
    }
}

/// The kind of error by which a failure of a line is counted.
pub(super) fn kind_of(fault: LineFault) -> ErrorKind {
    let kind = match fault {
        LineFault::Resolve => "resolve failed",
        LineFault::Refused => "connect refused",
        LineFault::Unreachable => "unreachable",
        LineFault::TimedOut => "connect timeout",
        LineFault::Reset => "connection reset",
        LineFault::Exhausted => "out of descriptors or ports",
        LineFault::Tls { .. } => "tls failed",
        LineFault::Other => "network error",
    };
    ErrorKind(kind.into())
}

/// The kind of error for a connection that the peer ended without a word.
pub(super) const CLOSED: &str = "connection closed";
/// The kind of error for a peer that breaks its protocol.
pub(super) const VIOLATION: &str = "protocol violation";

/// The kernel refuses to wait for events.
pub(super) fn cannot_wait(error: &io::Error) -> TargetError {
    TargetError::machine(format!("cannot wait for connections: {error}"))
}

/// Times the phases of connecting.
pub(super) struct Stopwatch {
    /// When the present phase began.
    since: Time,
    pub(super) phases: Phases,
}

impl Stopwatch {
    pub(super) fn start(now: Time) -> Self {
        Self { since: now, phases: Phases::default() }
    }

    pub(super) fn resolved(&mut self, took: Duration, now: Time) {
        self.phases.dns = Some(took);
        self.since = now;
    }

    /// Over a Unix socket there is no phase of TCP.
    pub(super) fn connected(&mut self, address: &Address, now: Time) {
        let took = self.lap(now);
        self.phases.tcp = matches!(address, Address::Tcp { .. }).then_some(took);
    }

    /// Ends the present phase, and returns how long it took.
    pub(super) fn lap(&mut self, now: Time) -> Duration {
        now - std::mem::replace(&mut self.since, now)
    }
}
