//! The state machine of a run: when operations arrive, which connection they get from the pool under test, and the
//! metrics of both. It does no I/O and has no clock: a target carries out its orders and reports the outcome.
//!
//! Call order: [`Engine::new`], then again and again: [`Engine::poll_order`] until there is none, wait for an event or
//! for [`Engine::deadline`], report the event. The run is over when [`Engine::is_done`] and there are no more orders.
//!
//! Its parts: this file has the reports and the orders; `transitions` has what follows from them; `load` says when
//! operations begin, `operations` and `connections` know what is under way, `instances` holds the pools under test,
//! `summary` makes the result.

mod connections;
mod instances;
mod load;
mod operations;
mod summary;
mod transitions;

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
    record::{CLOSED_EPHEMERAL, ErrorKind, Phases, RunMetrics},
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
    /// Run one operation; answered by [`Engine::ended`] or [`Engine::lost`]. `client`: the client whose variables the
    /// operation uses (in an open loop a free one).
    Run { conn: ConnId, client: u32 },
    /// Close a connection, whatever it is doing; answered by [`Engine::closed`].
    Close(ConnId),
}

/// How an operation ended whose connection is still open.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// `None`: the operation succeeded.
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
    metrics: RunMetrics,
    timeout: Duration,
    /// Without a pool: connections are closed after their operation.
    closes_ephemeral: bool,
    /// Idle connections that are lost, with the reason, until their pools notice; `None`: pools notice at once.
    unnoticed_losses: Option<HashMap<ConnId, ErrorKind>>,
    /// Connects that failed in a row.
    failed_connects: u32,
    /// Connections lost while the pool was being filled.
    lost_at_start: u32,
    has_connected: bool,
    failure: Option<StartFailure>,
    /// Connections that are made before the load begins.
    required_connections: u32,
    /// The load begins when the pool has its minimum.
    fills_first: bool,
    /// See [`Engine::expect_front_waits`].
    has_front: bool,
    /// The longest wait in the pools under test after the warm-up.
    longest_wait: Option<Duration>,
    interrupted: bool,
    description: summary::RunDescription,
}

/// Why a run ended before its load began.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StartFailure {
    /// What the last connect failed with.
    pub kind: ErrorKind,
    /// Connections that were made.
    pub made: u32,
    /// Connections that were required.
    pub wanted: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The pool is being filled.
    Filling,
    Loading,
    /// No operation begins any more; those under way may end, until this time.
    Draining(Time),
    /// All connections are being closed, until this time.
    Closing(Time),
    Done,
}

/// The progress of a run, for a display.
#[derive(Clone, PartialEq, Debug)]
pub struct Progress<'a> {
    /// Since the load began; zero while the pool is being filled.
    pub at: Duration,
    /// The length of the run, if it is known.
    pub length: Option<Duration>,
    /// The step under way; `warm-up` before the first.
    pub step: &'a str,
    /// The last whole second.
    pub last: Option<&'a Second>,
    /// Operations that succeeded, the warm-up included.
    pub succeeded: u64,
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
            metrics: RunMetrics::new(),
            timeout: plan.timeout,
            closes_ephemeral: plan.pool.goodbye,
            unnoticed_losses: plan.pool.blind.then(HashMap::new),
            failed_connects: 0,
            lost_at_start: 0,
            has_connected: false,
            failure: None,
            required_connections: if plan.pool.reuse && plan.pool.warm {
                plan.pool.config.min_size.saturating_mul(plan.pool.instances)
            } else {
                0
            },
            fills_first: plan.pool.warm,
            has_front: false,
            longest_wait: None,
            interrupted: false,
            description: summary::RunDescription::new(plan),
        };
        if engine.instances.is_some() {
            engine.take_pool_changes(now);
        }
        engine.begin_if_filled(now);
        engine
    }

    /// Before the first order: operations also wait for a server of the pooler in front of the database, and the target
    /// reports with [`Engine::note_front_wait`] when that wait ends. Both waits count together, once the second is
    /// over.
    pub fn expect_front_waits(&mut self) {
        self.has_front = true;
    }

    /// The next order.
    pub fn poll_order(&mut self, now: Time) -> Option<Order> {
        self.end_seconds(now);
        self.handle_times(now);
        loop {
            while let Some((order, serial)) = self.orders.pop_front() {
                if self.start_order_if_valid(order, serial, now) {
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
        let at = phase.min(pools).min(self.ops.first_due(self.timeout)).min(self.metrics.deadline());
        (at < Time::NEVER && self.phase != Phase::Done).then_some(at)
    }

    pub fn connected(&mut self, conn: ConnId, phases: &Phases, now: Time) {
        self.end_seconds(now);
        (self.failed_connects, self.has_connected) = (0, true);
        let entry = self.conns.get_mut(conn);
        if entry.state == State::Closing {
            return;
        }
        assert!(entry.state == State::Connecting, "{conn:?} was reported connected while {:?}", entry.state);
        let taken = phases.sum().unwrap_or(now - entry.since);
        entry.state = State::Idle;
        let (cause, instance, server, op) = (entry.cause, entry.instance, entry.server, entry.op);
        self.metrics.record_connect(cause, phases, taken);
        match (server, op) {
            (Some(server), _) => {
                self.pools().connected(instance, server, now);
                self.take_pool_changes(now);
                self.begin_if_filled(now);
            }
            (None, Some(client)) => self.run(conn, client),
            (None, None) => unreachable!("a connection without a pool belongs to an operation"),
        }
    }

    /// A connection could not be made. `permanent`: another try fails, too, until something is changed.
    pub fn connect_failed(&mut self, conn: ConnId, error: ErrorKind, permanent: bool, now: Time) {
        self.end_seconds(now);
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
            self.take_pool_changes(now);
        }
        self.note_failed_connect(error, permanent, now);
        self.end_if_over(now);
    }

    /// The operation on this connection has got a server of the pooler in front, after `waited` in its queue.
    pub fn note_front_wait(&mut self, conn: ConnId, waited: Duration, now: Time) {
        assert!(self.has_front, "waits in front are reported only if they were announced");
        self.end_seconds(now);
        let entry = self.conns.get(conn);
        // The operation may have timed out meanwhile.
        if let (State::Busy, Some(client)) = (entry.state, entry.op) {
            let op = self.ops.get(client);
            self.metrics.record_front_wait(op.part, op.waited, waited);
        }
    }

    /// An operation has ended.
    pub fn ended(&mut self, conn: ConnId, outcome: Outcome, now: Time) {
        self.end_seconds(now);
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
                self.metrics.record_success(op.part, now - op.scheduled, now - op.started, now);
                self.load.on_operation_ended(client, now, op.pause(now));
            }
            Some(error) => self.fail_operation(client, error, now),
        }
        match server {
            Some(server) => {
                self.pools().check_in(instance, server, outcome.reusable, now);
                self.take_pool_changes(now);
            }
            None if self.closes_ephemeral || !outcome.reusable => self.close(conn, CLOSED_EPHEMERAL),
            // The connection stays open, and no other operation uses it.
            None => {}
        }
        self.end_if_over(now);
    }

    /// Counts a message of the target about an error.
    #[cold]
    pub fn note_error_text(&mut self, text: &str) {
        self.metrics.note_error_text(text);
    }

    /// A connection was lost: idle, or in the middle of an operation, which has failed then.
    pub fn lost(&mut self, conn: ConnId, error: ErrorKind, now: Time) {
        self.end_seconds(now);
        let entry = self.conns.get(conn);
        match (entry.state, &mut self.unnoticed_losses) {
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
            // The connection was left open for the server to end: the server's reason is counted.
            (None, None) => self.metrics.count_close(error.0.clone()),
            _ => self.metrics.count_close("error"),
        }
        let at_start = (self.phase == Phase::Filling).then(|| error.clone());
        if let Some(client) = op {
            self.fail_operation(client, error, now);
        }
        if let Some(server) = server {
            self.pools().lost(instance, server, now);
            self.take_pool_changes(now);
        }
        if let Some(error) = at_start {
            self.note_loss_at_start(error, now);
        }
        self.end_if_over(now);
    }

    /// A connection is closed, as was ordered.
    pub fn closed(&mut self, conn: ConnId, now: Time) {
        self.end_seconds(now);
        let entry = self.conns.get(conn);
        assert!(entry.state == State::Closing, "{conn:?} was reported closed without an order");
        let (instance, server) = (entry.instance, entry.server);
        self.conns.remove(conn);
        if let Some(server) = server {
            self.pools().closed(instance, server, now);
            self.take_pool_changes(now);
        }
        self.end_if_over(now);
    }

    /// Begins no operation any more; those under way may end within [`STOP_TIMEOUT`].
    pub fn stop(&mut self, now: Time) {
        self.end_seconds(now);
        match self.phase {
            Phase::Filling | Phase::Loading => {
                self.interrupted = true;
                self.metrics.end_step(now);
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

    /// Whether no operation is under way and none will begin.
    pub fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// Why the run ended before it began: no connection could be made.
    pub fn failure(&self) -> Option<&StartFailure> {
        self.failure.as_ref()
    }

    /// The longest wait for a connection of the pools under test themselves, after the warm-up; `None`: no operation
    /// has got a connection.
    pub fn longest_wait(&self) -> Option<Duration> {
        self.longest_wait
    }

    /// Whether what happens now is measured: after the warm-up, before the end.
    pub fn is_measuring(&self) -> bool {
        self.metrics.steps() > 0 && matches!(self.phase, Phase::Loading | Phase::Draining(_))
    }

    /// When the measured time begins; known as soon as the load begins, the warm-up included. Windows of faults count
    /// from there.
    pub fn measured_from(&self) -> Option<Time> {
        self.metrics.origin().map(|_| self.load.measured_from())
    }

    pub fn progress(&self, now: Time) -> Progress<'_> {
        let (succeeded, errors, dropped) = self.metrics.totals();
        Progress {
            at: self.metrics.origin().map_or(Duration::ZERO, |origin| now - origin),
            length: self.load.length(),
            step: self.metrics.step_name().unwrap_or("warm-up"),
            last: self.metrics.last_second(),
            succeeded,
            errors,
            dropped,
        }
    }
}

#[cfg(test)]
mod tests;
