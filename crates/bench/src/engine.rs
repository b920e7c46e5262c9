//! The state machine of a run: when operations arrive, which connection they get from the pool under test, what is written down of
//! them. It does no I/O and has no clock: a target carries out its orders and reports what became of them.
//!
//! Call order: [`Engine::new`], then again and again: [`Engine::poll_order`] until there is none, wait for something to happen or for
//! [`Engine::deadline`], report it. It is over when [`Engine::is_done`] and there are no more orders.

use std::{borrow::Cow, time::Duration};

use pool::Time;

use crate::{plan::Plan, result::BenchResult};

/// A connection of the pool under test: a small number, used again after [`Engine::closed`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ConnId(pub u32);

/// What the target is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Open a connection; answered by [`Engine::connected`] or [`Engine::connect_failed`].
    Connect(ConnId),
    /// Run one operation; answered by [`Engine::ended`] or [`Engine::lost`]. `client`: whose variables it uses (in an open loop:
    /// whichever is free).
    Run {
        /// Where.
        conn: ConnId,
        /// For whom.
        client: u32,
    },
    /// Close it, whatever it is doing; answered by [`Engine::closed`].
    Close(ConnId),
}

/// How an operation ended whose connection still stands.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// Why it failed; `None`: it did not.
    pub error: Option<ErrorKind>,
    /// The connection can be used again.
    pub reusable: bool,
}

/// A kind of error, as it is counted in results: `sqlstate 40001`, `connect refused`, `status 503`. Few of them; no secrets, no numbers
/// that differ each time.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ErrorKind(pub Cow<'static, str>);

/// How long the phases of making a connection took; `None`: there was no such phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Phases {
    /// The name's address.
    pub dns: Option<Duration>,
    /// TCP's handshake.
    pub tcp: Option<Duration>,
    /// That of TLS, the request for it included.
    pub tls: Option<Duration>,
    /// From the start-up message until the server has let us in.
    pub auth: Option<Duration>,
    /// From there to being ready.
    pub ready: Option<Duration>,
}

/// See the module.
pub struct Engine {}

#[expect(unused_variables, reason = "to be written")]
impl Engine {
    /// A run that begins now.
    pub fn new(plan: &Plan, now: Time) -> Self {
        todo!()
    }

    /// What is to be done next.
    pub fn poll_order(&mut self, now: Time) -> Option<Order> {
        todo!()
    }

    /// When `poll_order` is to be called again if nothing is reported before.
    pub fn deadline(&self) -> Option<Time> {
        todo!()
    }

    /// A connection is there.
    pub fn connected(&mut self, conn: ConnId, phases: &Phases, now: Time) {
        todo!()
    }

    /// A connection could not be made. `permanent`: trying again will not cure it.
    pub fn connect_failed(&mut self, conn: ConnId, error: ErrorKind, permanent: bool, now: Time) {
        todo!()
    }

    /// An operation has ended.
    pub fn ended(&mut self, conn: ConnId, outcome: Outcome, now: Time) {
        todo!()
    }

    /// A connection was lost: idle, or in the middle of an operation, which has failed then.
    pub fn lost(&mut self, conn: ConnId, error: ErrorKind, now: Time) {
        todo!()
    }

    /// A connection is closed, as was ordered.
    pub fn closed(&mut self, conn: ConnId, now: Time) {
        todo!()
    }

    /// Begin nothing more; what is under way may end.
    pub fn stop(&mut self, now: Time) {
        todo!()
    }

    /// Nothing is under way and nothing will begin.
    pub fn is_done(&self) -> bool {
        todo!()
    }

    /// What was measured until now.
    pub fn result(&self, now: Time) -> BenchResult {
        todo!()
    }
}
