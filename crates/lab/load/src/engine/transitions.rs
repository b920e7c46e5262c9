//! The transitions that follow from a report or from time: operations begin, get their connection or time out; the run
//! passes from phase to phase and ends.

use std::{borrow::Cow, time::Duration};

use super::{
    CLOSE_TIMEOUT, ConnId, Engine, MAX_START_FAILURES, Order, Phase, StartFailure,
    connections::State,
    instances::{self, Instances},
    load::Next,
};
use crate::record::{CLOSED_EPHEMERAL, Cause, ErrorKind, Gauges, Part};
use pool::Time;

impl Engine {
    /// Handles all time-outs that are due, and the ends of phases.
    pub(super) fn handle_times(&mut self, now: Time) {
        while self.ops.first_due(self.timeout) <= now {
            let client = self.ops.first().expect("a time-out is due");
            self.time_out(client, now);
        }
        if self.instances.as_ref().is_some_and(|instances| instances.deadline() <= now) {
            self.pools().handle_timeout(now);
            self.take_pool_changes(now);
        }
        if self.phase == Phase::Loading && self.load.is_over(now, self.ops.len()) {
            self.end_load(now);
        }
        match self.phase {
            Phase::Draining(until) if until <= now => self.finish(now),
            Phase::Closing(until) if until <= now => self.phase = Phase::Done,
            _ => {}
        }
    }

    /// Returns whether an order still holds when the target takes it. If it does, its time begins: the time-out of an
    /// operation, or the time that a connection takes.
    #[inline]
    pub(super) fn start_order_if_valid(&mut self, order: Order, serial: u32, now: Time) -> bool {
        let (Order::Connect(conn) | Order::Run { conn, .. } | Order::Close(conn)) = order;
        let Some(entry) = self.conns.find(conn, serial) else { return false };
        match order {
            Order::Connect(_) => entry.since = now,
            Order::Run { client, .. } => {
                if entry.state != State::Busy {
                    return false;
                }
                self.ops.start(client, now);
            }
            Order::Close(_) => {}
        }
        true
    }

    /// Begins one operation, or drops one, if it is time.
    #[inline]
    pub(super) fn begin_next(&mut self, now: Time) -> bool {
        match self.load.next(now, self.ops.len(), &mut self.metrics) {
            Next::Nothing => false,
            Next::Drop(part) => {
                self.metrics.count_arrival();
                self.metrics.count_drop(part);
                true
            }
            Next::Begin { client, scheduled, part } => {
                self.metrics.count_arrival();
                self.ops.begin(client, scheduled, part);
                match &mut self.instances {
                    None => {
                        let conn = self.conns.open(0, None, Some(client), Cause::Ephemeral, now);
                        self.ops.connect(client, conn, now);
                        self.order(Order::Connect(conn));
                    }
                    Some(instances) => {
                        instances.check_out(client, self.load.instance_choice(), now);
                        self.take_pool_changes(now);
                    }
                }
                true
            }
        }
    }

    /// Takes the changes that the pools have decided.
    #[inline]
    pub(super) fn take_pool_changes(&mut self, now: Time) {
        while let Some(change) = self.pools().next_change() {
            self.on_pool_change(change, now);
        }
    }

    fn on_pool_change(&mut self, change: instances::Change, now: Time) {
        use instances::Change;
        match change {
            Change::Connect { instance, server, cause } => {
                let conn = self.conns.open(instance, Some(server), None, cause, now);
                self.pools().opened(instance, server, conn);
                self.order(Order::Connect(conn));
            }
            Change::Grant { conn, client, waited } => {
                let part = self.ops.grant(client, conn);
                if part != Part::WarmUp {
                    self.longest_wait = self.longest_wait.max(Some(waited));
                }
                match self.has_front {
                    true => self.ops.note_wait(client, waited),
                    false => self.metrics.record_wait(part, waited),
                }
                self.conns.get_mut(conn).op = Some(client);
                match self.unnoticed_losses.as_mut().and_then(|unnoticed| unnoticed.remove(&conn)) {
                    None => self.run(conn, client),
                    Some(error) => {
                        self.conns.get_mut(conn).state = State::Busy;
                        self.lost(conn, error, now);
                    }
                }
            }
            Change::Fail { client, kind, waited, timed_out } => {
                let taken = (now - self.ops.get(client).scheduled).max(waited);
                self.fail_after(client, ErrorKind(Cow::Borrowed(kind)), taken, timed_out, now);
                self.end_if_over(now);
            }
            Change::Close { conn, reason } => {
                let connecting = self.conns.get(conn).state == State::Connecting;
                self.close(conn, reason);
                if connecting && reason == "error" {
                    self.note_failed_connect(ErrorKind(Cow::Borrowed("connect timeout")), false, now);
                }
            }
        }
    }

    #[inline]
    pub(super) fn run(&mut self, conn: ConnId, client: u32) {
        self.conns.get_mut(conn).state = State::Busy;
        self.order(Order::Run { conn, client });
    }

    /// Orders a close, whatever the connection is doing.
    pub(super) fn close(&mut self, conn: ConnId, reason: &'static str) {
        if let Some(unnoticed) = &mut self.unnoticed_losses {
            unnoticed.remove(&conn);
        }
        let entry = self.conns.get_mut(conn);
        if entry.state != State::Connecting {
            self.metrics.count_close(reason);
        }
        let entry = self.conns.get_mut(conn);
        entry.state = State::Closing;
        entry.op = None;
        self.order(Order::Close(conn));
    }

    #[inline]
    pub(super) fn order(&mut self, order: Order) {
        let (Order::Connect(conn) | Order::Run { conn, .. } | Order::Close(conn)) = order;
        self.orders.push_back((order, self.conns.get(conn).serial));
    }

    /// An operation has been under way for too long.
    #[cold]
    pub(super) fn time_out(&mut self, client: u32, now: Time) {
        let op = *self.ops.get(client);
        let conn = op.conn.expect("an operation under way has a connection");
        self.fail_after(client, ErrorKind(Cow::Borrowed("timeout")), now - op.scheduled, true, now);
        self.discard(conn, now);
        self.end_if_over(now);
    }

    /// Closes a connection in the middle of what it is doing.
    pub(super) fn discard(&mut self, conn: ConnId, now: Time) {
        let entry = self.conns.get_mut(conn);
        entry.op = None;
        let (instance, server) = (entry.instance, entry.server);
        match server {
            Some(server) => {
                entry.state = State::Idle;
                self.pools().check_in(instance, server, false, now);
                self.take_pool_changes(now);
            }
            None => self.close(conn, CLOSED_EPHEMERAL),
        }
    }

    #[cold]
    pub(super) fn fail_operation(&mut self, client: u32, error: ErrorKind, now: Time) {
        let taken = now - self.ops.get(client).scheduled;
        self.fail_after(client, error, taken, false, now);
    }

    /// `timed_out`: the operation failed because its time was over.
    #[cold]
    fn fail_after(&mut self, client: u32, error: ErrorKind, taken: Duration, timed_out: bool, now: Time) {
        let op = self.ops.end(client);
        self.metrics.record_failure(op.part, error, taken, timed_out, now);
        self.load.on_operation_ended(client, now, op.pause(now));
    }

    pub(super) fn begin_if_filled(&mut self, now: Time) {
        // There may be many pools, so they are checked only while the run fills them.
        let filled = |instances: &Instances| !self.fills_first || instances.are_filled();
        if self.phase == Phase::Filling && self.instances.as_ref().is_none_or(filled) {
            self.phase = Phase::Loading;
            self.metrics.begin(now);
            self.load.begin(now);
        }
    }

    /// A run without any connection, or without the required ones, ends.
    #[cold]
    pub(super) fn note_failed_connect(&mut self, error: ErrorKind, permanent: bool, now: Time) {
        self.failed_connects += 1;
        self.metrics.count_connect_failure(error.clone());
        let filling = self.phase == Phase::Filling && self.failed_connects >= MAX_START_FAILURES;
        if filling || (permanent && !self.has_connected) {
            self.fail(error, now);
        }
    }

    /// A target that lets connections in and then drops them would keep the pool from ever being filled.
    #[cold]
    pub(super) fn note_loss_at_start(&mut self, error: ErrorKind, now: Time) {
        self.lost_at_start += 1;
        if self.lost_at_start >= MAX_START_FAILURES {
            self.fail(error, now);
        }
    }

    /// No connection can be made: the run ends.
    pub(super) fn fail(&mut self, error: ErrorKind, now: Time) {
        let made = self.metrics.open_connections();
        self.failure.get_or_insert(StartFailure { kind: error, made, wanted: self.required_connections });
        self.stop(now);
    }

    /// The load is over according to the plan: operations that have arrived may end.
    pub(super) fn end_load(&mut self, now: Time) {
        if let Some(end) = self.load.end() {
            self.metrics.end_step(end);
        }
        // Operations that wait when the time is over never began. With a number of operations each is to be done.
        if self.load.is_closed() && self.load.end().is_some() {
            self.note_long_waits(now);
            self.cancel_waiting(now);
        }
        self.phase = Phase::Draining((now + self.timeout).max(self.load.latest_end()));
        self.end_if_over(now);
    }

    pub(super) fn drain(&mut self, until: Time, now: Time) {
        self.cancel_waiting(now);
        self.phase = Phase::Draining(until);
        self.end_if_over(now);
    }

    /// Counts waits that are not over if they are already longer than any that has ended: otherwise the longest wait
    /// would be missing from the result.
    fn note_long_waits(&mut self, now: Time) {
        let mut longest = self.ops.waiting();
        longest.retain(|client| {
            let op = self.ops.get(*client);
            self.metrics.is_longest(op.part, now - op.scheduled)
        });
        for client in longest {
            if self.pools().cancel(client, now) {
                self.give_up(client, now);
            }
        }
    }

    /// Removes operations without a connection from the queue: they never began.
    pub(super) fn cancel_waiting(&mut self, now: Time) {
        for client in self.ops.waiting() {
            // A client that has left the queue meanwhile has a grant or a failure on its way.
            if self.pools().cancel(client, now) {
                self.ops.end(client);
            }
        }
        if self.instances.is_some() {
            self.take_pool_changes(now);
        }
    }

    pub(super) fn end_if_over(&mut self, now: Time) {
        if matches!(self.phase, Phase::Draining(_)) && self.ops.len() == 0 {
            self.finish(now);
        }
        if matches!(self.phase, Phase::Closing(_)) && self.conns.len() == 0 {
            self.phase = Phase::Done;
        }
    }

    /// Closes the metrics, and then all connections.
    pub(super) fn finish(&mut self, now: Time) {
        self.phase = Phase::Closing(now + CLOSE_TIMEOUT);
        for client in self.ops.waiting() {
            if self.pools().cancel(client, now) {
                self.give_up(client, now);
            }
        }
        if self.instances.is_some() {
            self.take_pool_changes(now);
        }
        for client in self.ops.under_way() {
            self.give_up(client, now);
        }
        self.metrics.close(self.gauges(), now);
        if let Some(instances) = &mut self.instances {
            instances.close(now);
            self.take_pool_changes(now);
        }
        for conn in self.conns.present() {
            self.discard(conn, now);
        }
        self.end_if_over(now);
    }

    /// Ends an operation that was not over when the run was.
    pub(super) fn give_up(&mut self, client: u32, now: Time) {
        let op = self.ops.end(client);
        if !self.interrupted {
            let taken = now - op.scheduled;
            self.metrics.record_failure(op.part, ErrorKind(Cow::Borrowed("unfinished")), taken, true, now);
        }
    }

    /// Ends the seconds that are over: what follows belongs to the next one.
    #[inline]
    pub(super) fn end_seconds(&mut self, now: Time) {
        if self.metrics.deadline() <= now {
            self.metrics.end_seconds(self.gauges(), now);
        }
    }

    #[inline]
    pub(super) fn gauges(&self) -> Gauges {
        Gauges { in_use: self.ops.with_connection(), waiting: self.ops.len() - self.ops.with_connection() }
    }

    #[inline]
    pub(super) fn pools(&mut self) -> &mut Instances {
        self.instances.as_mut().expect("the run has pools")
    }
}
