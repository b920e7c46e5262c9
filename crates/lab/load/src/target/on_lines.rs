//! What all targets have in common whose connections are lines of the driver: the loop of a run, and what a line that fails is called.

use std::io;

use driver::{Event, LineFault, Lines};
use pool::Time;

use super::{Surroundings, TargetError, WATCH_EVERY};
use crate::{engine::Engine, record::ErrorKind};

/// A run on lines, as the loop sees it.
pub(super) trait OnLines {
    /// The lines.
    fn lines(&mut self) -> &mut Lines;
    /// Carries out all orders that there are.
    fn obey(&mut self, engine: &mut Engine, now: Time);
    /// Something has happened to a connection. Returns the time.
    fn happened(&mut self, event: Event, engine: &mut Engine) -> Time;
    /// When the first pause of an operation ends.
    fn next_pause(&self) -> Option<Time>;
    /// Goes on with operations whose pause is over.
    fn end_pauses(&mut self, engine: &mut Engine, now: Time);
}

/// Carries out orders until there will be no more.
///
/// # Errors
/// The kernel refuses to wait.
pub(super) fn drive(
    run: &mut impl OnLines,
    engine: &mut Engine,
    around: &mut Surroundings<'_>,
) -> Result<(), TargetError> {
    let mut now = run.lines().now();
    let (mut next_watch, mut stopped, mut begun) = (now, false, false);
    loop {
        run.obey(engine, now);
        if engine.is_done() {
            (around.watch)(engine, now);
            return Ok(());
        }
        // The relay is to know at once when the load begins.
        let begins = !begun && engine.measured_from().is_some();
        if now >= next_watch || begins {
            begun |= begins;
            (around.watch)(engine, now);
            next_watch = now + WATCH_EVERY;
            if around.is_stopped() && !stopped {
                stopped = true;
                engine.stop(now);
                continue;
            }
        }
        let until = [engine.deadline(), run.next_pause(), Some(next_watch)].into_iter().flatten().min();
        run.lines().wait(until).map_err(|error| no_going_on(&error))?;
        while let Some(event) = run.lines().next() {
            now = run.happened(event, engine);
            run.obey(engine, now);
        }
        now = run.lines().now();
        run.end_pauses(engine, now);
    }
}

/// Why a connection is no more.
#[derive(Debug)]
pub(super) struct Down {
    /// For those who count.
    pub(super) kind: ErrorKind,
    /// Trying again cannot help.
    pub(super) permanent: bool,
    /// For people.
    pub(super) message: String,
}

/// What a failure of a line is called.
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

/// The peer has ended the connection without a word.
pub(super) const CLOSED: &str = "connection closed";
/// The peer does not keep to its protocol.
pub(super) const VIOLATION: &str = "protocol violation";

/// Which connection an event is about.
pub(super) fn key_of(event: &Event) -> u32 {
    match event {
        Event::Resolved { key, .. }
        | Event::Connected { key }
        | Event::Secured { key, .. }
        | Event::Received { key, .. }
        | Event::Ended { key }
        | Event::Failed { key, .. } => *key,
    }
}

/// The kernel refuses to wait.
pub(super) fn no_going_on(error: &io::Error) -> TargetError {
    TargetError::machine(format!("cannot wait for connections: {error}"))
}
