//! One connection to a database: the requester's side of its protocol on a line of the driver. [`Link`] is what the
//! protocols have in common.

use std::{io, time::Duration};

use driver::Address;
use pool::Time;

use super::{
    ErrorKind, TargetError,
    cancel::Cancels,
    lines::{Event, LineFault, Lines},
};

/// What has become of a connection.
#[derive(Debug)]
pub enum News {
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
pub struct Down {
    pub kind: ErrorKind,
    /// Trying again cannot help.
    pub permanent: bool,
    /// For people.
    pub message: String,
}

/// How long the phases of making a connection took; `None`: there was no such phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Phases {
    pub dns: Option<Duration>,
    pub tcp: Option<Duration>,
    /// That of TLS, the request for it included.
    pub tls: Option<Duration>,
    /// From the start-up message until the server has let us in.
    pub auth: Option<Duration>,
    /// From there to being ready.
    pub ready: Option<Duration>,
}

impl Phases {
    /// The whole time of connecting; `None` if no phase was measured.
    pub fn sum(&self) -> Option<Duration> {
        [self.dns, self.tcp, self.tls, self.auth, self.ready].into_iter().flatten().reduce(|a, b| a + b)
    }
}

/// A connection in the target's protocol.
pub trait Link: Sized {
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

    /// It takes another request. A server that said goodbye behind its answer takes none.
    fn is_open(&self) -> bool {
        true
    }
}

/// The kind of error by which a failure of a line is counted.
pub(crate) fn kind_of(fault: LineFault) -> ErrorKind {
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
pub(crate) const CLOSED: &str = "connection closed";
/// The kind of error for a peer that breaks its protocol.
pub(crate) const VIOLATION: &str = "protocol violation";

/// The kernel refuses to wait for events.
pub fn cannot_wait(error: &io::Error) -> TargetError {
    TargetError::machine(format!("cannot wait for connections: {error}"))
}

/// Times the phases of connecting.
pub(crate) struct Stopwatch {
    /// When the present phase began.
    since: Time,
    pub(crate) phases: Phases,
}

impl Stopwatch {
    pub(crate) fn start(now: Time) -> Self {
        Self { since: now, phases: Phases::default() }
    }

    pub(crate) fn resolved(&mut self, took: Duration, now: Time) {
        self.phases.dns = Some(took);
        self.since = now;
    }

    /// Over a Unix socket there is no phase of TCP.
    pub(crate) fn connected(&mut self, address: &Address, now: Time) {
        let took = self.lap(now);
        self.phases.tcp = matches!(address, Address::Tcp { .. }).then_some(took);
    }

    /// Ends the present phase, and returns how long it took.
    pub(crate) fn lap(&mut self, now: Time) -> Duration {
        now - std::mem::replace(&mut self.since, now)
    }
}
