//! The state machine of a run: when operations arrive, which connection they get from the pool under test, what is
//! written down of them. It does no I/O and has no clock: a target carries out its orders and reports what became of
//! them.
//!
//! Call order: [`Engine::new`], then again and again: [`Engine::poll_order`] until there is none, wait for something to
//! happen or for [`Engine::deadline`], report it. It is over when [`Engine::is_done`] and there are no more orders.

//!
//! Its parts: here what is reported to it and ordered by it; `course` what follows from that; `load` says when
//! operations begin, `operations` and `connections` know what is under way, `instances` asks the pools under test,
//! `summary` makes the result.

mod connections;
mod course;
mod instances;
mod load;
mod operations;
mod summary;

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

pub use pool::Time;

use self::{
    connections::{Connections, State},
    instances::Instances,
    load::Load,
    operations::Operations,
};
use crate::{
    plan::Plan,
    record::{Books, EPHEMERAL, ErrorKind, Phases},
};
use report::result::Second;

/// Bounds how long operations go on after [`Engine::stop`].
pub const STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// Bounds how long connections take to close at the end.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Connects in a row that may fail while the pool is being filled.
pub const MAX_START_FAILURES: u32 = 3;
/// Pause of a closed loop's client after an operation that took no time, because it failed before it was sent or had
/// nothing to send. Without it the client would begin operations in an endless loop.
const INSTANT_OPERATION_PAUSE: Duration = Duration::from_millis(1);

/// A connection of the pool under test: a small number, used again after [`Engine::closed`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ConnId(pub u32);

/// What the target is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Open a connection; answered by [`Engine::connected`] or [`Engine::connect_failed`].
    Connect(ConnId),
    /// Run one operation; answered by [`Engine::ended`] or [`Engine::lost`]. `client`: whose variables it uses (in an
    /// open loop: whichever is free).
    Run { conn: ConnId, client: u32 },
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

#[derive(Debug)]
pub struct Engine {
    phase: Phase,
    load: Load,
    /// The pools under test; `None`: each operation has a connection of its own.
    instances: Option<Instances>,
    conns: Connections,
    ops: Operations,
    orders: VecDeque<(Order, u32)>,
    books: Books,
    timeout: Duration,
    /// Without a pool: connections are closed after their operation.
    goodbye: bool,
    /// Idle connections that are lost, with the reason, until their pools notice; `None`: they notice at once.
    unnoticed: Option<HashMap<ConnId, ErrorKind>>,
    /// Connects that failed in a row.
    failed_connects: u32,
    /// Connections lost while the pool was being filled.
    lost_at_start: u32,
    has_connected: bool,
    failure: Option<Failure>,
    /// Connections that the load does not begin without.
    wanted: u32,
    /// The load begins when the pool has its minimum.
    warm: bool,
    /// Operations wait once more on the way: see [`Engine::front_is_told`].
    has_front: bool,
    /// The longest wait in the pools under test after the warm-up.
    longest_wait: Option<Duration>,
    interrupted: bool,
    about: summary::Notes,
}

/// Why a run ended before its load began.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// What the last connect failed with.
    pub kind: ErrorKind,
    /// Connections that were there.
    pub made: u32,
    /// Connections that were to be there.
    pub wanted: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The pool is being filled.
    Filling,
    Loading,
    /// None begins any more; those under way end, until then.
    Draining(Time),
    /// All connections are being closed, until then.
    Closing(Time),
    Done,
}

/// How far a run is, for a display.
#[derive(Clone, PartialEq, Debug)]
pub struct Progress<'a> {
    /// Since the load began; zero while the pool is being filled.
    pub at: Duration,
    /// How long it will take, if that is known.
    pub length: Option<Duration>,
    /// The step under way; `warm-up` before the first.
    pub step: &'a str,
    /// The last whole second.
    pub last: Option<&'a Second>,
    /// Operations that ended well, the warm-up included.
    pub done: u64,
    /// Operations that failed.
    pub errors: u64,
    pub dropped: u64,
}

impl Engine {
    /// A run that begins now. The plan must be valid ([`Plan::check`]).
    pub fn new(plan: &Plan, now: Time) -> Self {
        Self::with_limit(plan, None, now)
    }

    /// The same with a limit for the connections of all pools together, which share it fairly, as the pools of one
    /// Poolhouse do.
    pub fn with_limit(plan: &Plan, limit: Option<u32>, now: Time) -> Self {
        if let Err(error) = plan.check() {
            panic!("an invalid plan reached the engine: {error}");
        }
        let instances = plan.pool.reuse.then(|| Instances::new(&plan.pool, limit, plan.seed, now));
        let mut engine = Self {
            phase: Phase::Filling,
            load: Load::new(&plan.shape, plan.warmup, plan.seed),
            instances,
            conns: Connections::default(),
            ops: Operations::default(),
            orders: VecDeque::new(),
            books: Books::new(),
            timeout: plan.timeout,
            goodbye: plan.pool.goodbye,
            unnoticed: plan.pool.blind.then(HashMap::new),
            failed_connects: 0,
            lost_at_start: 0,
            has_connected: false,
            failure: None,
            wanted: if plan.pool.reuse && plan.pool.warm {
                plan.pool.config.min_size.saturating_mul(plan.pool.instances)
            } else {
                0
            },
            warm: plan.pool.warm,
            has_front: false,
            longest_wait: None,
            interrupted: false,
            about: summary::Notes::new(plan),
        };
        if engine.instances.is_some() {
            engine.pools_changed(now);
        }
        engine.begin_if_filled(now);
        engine
    }

    /// Before the first order: operations wait once more on the way, for a server of the pooler in front of the
    /// database, and the target reports with [`Engine::passed_front`] when one has got it. Both waits count together,
    /// once the second one is over.
    pub fn front_is_told(&mut self) {
        self.has_front = true;
    }

    /// What is to be done next.
    pub fn poll_order(&mut self, now: Time) -> Option<Order> {
        self.roll(now);
        self.handle_times(now);
        loop {
            while let Some((order, serial)) = self.orders.pop_front() {
                if self.is_due(order, serial, now) {
                    return Some(order);
                }
            }
            if self.phase != Phase::Loading || !self.begin_next(now) {
                return None;
            }
        }
    }

    /// When `poll_order` is to be called again if nothing is reported before.
    pub fn deadline(&self) -> Option<Time> {
        let phase = match self.phase {
            Phase::Draining(until) | Phase::Closing(until) => until,
            Phase::Loading => self.load.deadline(),
            Phase::Filling | Phase::Done => Time::NEVER,
        };
        let pools = self.instances.as_ref().map_or(Time::NEVER, Instances::deadline);
        let at = phase.min(pools).min(self.ops.first_due(self.timeout)).min(self.books.deadline());
        (at < Time::NEVER && self.phase != Phase::Done).then_some(at)
    }

    pub fn connected(&mut self, conn: ConnId, phases: &Phases, now: Time) {
        self.roll(now);
        (self.failed_connects, self.has_connected) = (0, true);
        let entry = self.conns.get_mut(conn);
        if entry.state == State::Closing {
            return;
        }
        assert!(entry.state == State::Connecting, "{conn:?} was reported connected while {:?}", entry.state);
        let taken = phases.sum().unwrap_or(now - entry.since);
        entry.state = State::Idle;
        let (cause, instance, server, op) = (entry.cause, entry.instance, entry.server, entry.op);
        self.books.created(cause, phases, taken);
        match (server, op) {
            (Some(server), _) => {
                self.pools().connected(instance, server, now);
                self.pools_changed(now);
                self.begin_if_filled(now);
            }
            (None, Some(client)) => self.run(conn, client),
            (None, None) => unreachable!("a connection without a pool belongs to an operation"),
        }
    }

    /// A connection could not be made, and is gone. `permanent`: trying again will not cure it.
    pub fn connect_failed(&mut self, conn: ConnId, error: ErrorKind, permanent: bool, now: Time) {
        self.roll(now);
        let entry = self.conns.get(conn);
        if entry.state == State::Closing {
            return self.closed(conn, now);
        }
        assert!(entry.state == State::Connecting, "{conn:?} was reported unable to connect while {:?}", entry.state);
        let (instance, server, op) = (entry.instance, entry.server, entry.op);
        self.conns.remove(conn);
        if let Some(client) = op {
            self.fail_operation(client, error.clone(), now);
        }
        if let Some(server) = server {
            self.pools().connect_failed(instance, server, permanent, now);
            self.pools_changed(now);
        }
        self.note_failed_connect(error, permanent, now);
        self.end_if_over(now);
    }

    /// The operation on this connection has got a server of the pooler in front, after so long in its queue.
    pub fn passed_front(&mut self, conn: ConnId, waited: Duration, now: Time) {
        assert!(self.has_front, "waits in front are reported only if they were announced");
        self.roll(now);
        let entry = self.conns.get(conn);
        // Whose time was up is no longer interested.
        if let (State::Busy, Some(client)) = (entry.state, entry.op) {
            let op = self.ops.get(client);
            self.books.waited_in_front(op.part, op.waited, waited);
        }
    }

    /// An operation has ended.
    pub fn ended(&mut self, conn: ConnId, outcome: Outcome, now: Time) {
        self.roll(now);
        let entry = self.conns.get_mut(conn);
        if entry.state == State::Closing {
            return;
        }
        assert!(entry.state == State::Busy, "{conn:?} was reported to have ended an operation while {:?}", entry.state);
        let client = entry.op.take().expect("a busy connection has an operation");
        entry.state = State::Idle;
        let (instance, server) = (entry.instance, entry.server);
        match outcome.error {
            None => {
                let op = self.ops.end(client);
                self.books.ended(op.part, now - op.scheduled, now - op.started, now);
                self.load.op_over(client, now, op.pause(now));
            }
            Some(error) => self.fail_operation(client, error, now),
        }
        match server {
            Some(server) => {
                self.pools().check_in(instance, server, outcome.reusable, now);
                self.pools_changed(now);
            }
            None if self.goodbye || !outcome.reusable => self.close(conn, EPHEMERAL),
            // The connection stays open, and no other operation uses it.
            None => {}
        }
        self.end_if_over(now);
    }

    /// What the target said of an error, for people.
    #[cold]
    pub fn heard(&mut self, text: &str) {
        self.books.heard(text);
    }

    /// A connection was lost, and is gone: idle, or in the middle of an operation, which has failed then.
    pub fn lost(&mut self, conn: ConnId, error: ErrorKind, now: Time) {
        self.roll(now);
        let entry = self.conns.get(conn);
        match (entry.state, &mut self.unnoticed) {
            (State::Closing, _) => return self.closed(conn, now),
            (State::Connecting, _) => return self.connect_failed(conn, error, false, now),
            (State::Idle, Some(unnoticed)) if self.phase != Phase::Filling => {
                unnoticed.insert(conn, error);
                return;
            }
            (State::Idle | State::Busy, _) => {}
        }
        let (instance, server, op) = (entry.instance, entry.server, entry.op);
        self.conns.remove(conn);
        match (server, op) {
            // It was left open for the server to end: the server's reason is what is of interest.
            (None, None) => self.books.closed(error.0.clone()),
            _ => self.books.closed("error"),
        }
        let at_start = (self.phase == Phase::Filling).then(|| error.clone());
        if let Some(client) = op {
            self.fail_operation(client, error, now);
        }
        if let Some(server) = server {
            self.pools().lost(instance, server, now);
            self.pools_changed(now);
        }
        if let Some(error) = at_start {
            self.note_loss_at_start(error, now);
        }
        self.end_if_over(now);
    }

    /// A connection is closed, as was ordered.
    pub fn closed(&mut self, conn: ConnId, now: Time) {
        self.roll(now);
        let entry = self.conns.get(conn);
        assert!(entry.state == State::Closing, "{conn:?} was reported closed without an order");
        let (instance, server) = (entry.instance, entry.server);
        self.conns.remove(conn);
        if let Some(server) = server {
            self.pools().closed(instance, server, now);
            self.pools_changed(now);
        }
        self.end_if_over(now);
    }

    /// Begin nothing more; what is under way may end within [`STOP_TIMEOUT`].
    pub fn stop(&mut self, now: Time) {
        self.roll(now);
        match self.phase {
            Phase::Filling | Phase::Loading => {
                self.interrupted = true;
                self.books.end_step(now);
                self.drain(now + STOP_TIMEOUT, now);
            }
            Phase::Draining(until) if !self.interrupted => {
                self.interrupted = true;
                self.cancel_waiting(now);
                self.phase = Phase::Draining(until.min(now + STOP_TIMEOUT));
                self.end_if_over(now);
            }
            Phase::Draining(_) | Phase::Closing(_) | Phase::Done => {}
        }
    }

    /// Nothing is under way and nothing will begin.
    pub fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// Why the run ended before it began: no connection could be made.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// The longest wait for a connection of the pools under test themselves, after the warm-up; `None`: no operation
    /// has got a connection.
    pub fn longest_wait(&self) -> Option<Duration> {
        self.longest_wait
    }

    /// Whether what happens now is measured: after the warm-up, before the end.
    pub fn is_measuring(&self) -> bool {
        self.books.steps() > 0 && matches!(self.phase, Phase::Loading | Phase::Draining(_))
    }

    /// When what is measured begins; known as soon as the load begins, the warm-up included. Windows of faults count
    /// from there.
    pub fn measured_from(&self) -> Option<Time> {
        self.books.origin().map(|_| self.load.measured_from())
    }

    pub fn progress(&self, now: Time) -> Progress<'_> {
        let (done, errors, dropped) = self.books.totals();
        Progress {
            at: self.books.origin().map_or(Duration::ZERO, |origin| now - origin),
            length: self.load.length(),
            step: self.books.step_name().unwrap_or("warm-up"),
            last: self.books.last_second(),
            done,
            errors,
            dropped,
        }
    }
}

#[cfg(test)]
mod tests;
