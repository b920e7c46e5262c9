//! What the targets have in common whose operations are commands, one after the other, each of which waits for its answer: Redis and
//! MongoDB. A [`Link`] is one connection in the target's own protocol; `run` a whole run over many, `once` a question before any load,
//! `standing` a connection for who asks now and then, and has no load at all.

mod once;
mod run;
mod standing;

use driver::{Event, Lines};
use pool::Time;

use self::run::Run;
pub(super) use self::{
    once::{CHECK_TIME, ask_once},
    standing::Standing,
};
use super::{Surroundings, TargetError, make_room, not_begun, on_lines::Down};
use crate::{
    engine::Engine,
    plan::Plan,
    record::{ErrorKind, Phases},
    script::{Client, Request, Scripts},
};

/// Carries out the engine's orders until it is done.
///
/// # Errors
/// What makes going on impossible, or kept the load from beginning.
pub(super) fn carry_out<L: Link>(
    place: &L::Place,
    scripts: &Scripts,
    plan: &Plan,
    engine: &mut Engine,
    mut around: Surroundings<'_>,
) -> Result<(), TargetError> {
    make_room(plan)?;
    let mut run = Run::<L>::new(place, scripts, &around)?;
    run.run(engine, &mut around)?;
    engine.failure().map_or(Ok(()), |failure| Err(not_begun(failure, run.refusal())))
}

/// What has become of a connection.
#[derive(Debug)]
pub(super) enum News {
    /// Nothing to report.
    Nothing,
    /// It takes commands.
    Up,
    /// The command is answered.
    Answered,
    /// It is closed.
    Down(Down),
}

/// One connection: made step by step, with the times of its phases, then asked one command after the other. Does not know why it is made.
pub(super) trait Link: Sized {
    /// Where connections go, and how they log in.
    type Place;

    /// Begins to connect under a key of the lines' that is free.
    fn open(key: u32, lines: &mut Lines, place: &Self::Place, now: Time) -> Self;

    /// What making it took.
    fn phases(&self) -> &Phases;

    /// Closes it, with a goodbye where that is possible.
    fn close(self, lines: &mut Lines);

    /// Takes what has happened to it, apart from bytes: these go to [`received`](Self::received).
    fn happened(&mut self, event: Event, lines: &mut Lines, place: &Self::Place, out: &mut Vec<u8>) -> News;

    /// Takes bytes. `out` is memory to write in.
    fn received(&mut self, bytes: &[u8], lines: &mut Lines, place: &Self::Place, out: &mut Vec<u8>) -> News;

    /// Appends a command, with the values of its variables.
    ///
    /// # Errors
    /// A variable that is not set.
    fn ask(
        &mut self,
        request: &Request,
        client: &Client,
        scripts: &Scripts,
        out: &mut Vec<u8>,
    ) -> Result<(), ErrorKind>;

    /// The error that the last command was answered with, and what it says to people.
    fn error(&self) -> Option<(ErrorKind, String)>;

    /// It takes another command.
    fn is_open(&self) -> bool;
}
