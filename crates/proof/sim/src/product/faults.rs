//! Faults of a schedule: killed sessions, broken connections, hosts that refuse or fall silent, elections, and what an
//! operator may do at a bad moment.

use std::time::Duration;

use pool::Time;
use seam::Protocol;

use super::{Simulation, checked_protocol::CheckedProtocol};
use crate::{databases::Database, network::HostBehaviour};

/// Which faults a schedule has, and how often.
#[derive(Clone, Debug)]
pub(super) struct FaultPlan {
    /// Mean time between faults; `None` if there are none.
    pub(super) mean_interval: Option<Duration>,
    /// All faults are ones that no client may notice.
    pub(super) unnoticeable: bool,
    /// In how many of ten thousand steps a worker is delayed, as a thread that the kernel does not schedule.
    pub(super) delay_per_myriad: u64,
    /// When the workers are drained although clients still come.
    pub(super) drain: Option<Duration>,
    /// An operator may also disable the database, or close all its connections.
    pub(super) orders: bool,
    /// When clients begin to be sent away, one after the other, and the time that this takes.
    pub(super) departures: Option<(Time, Duration)>,
}

pub(super) struct Faults {
    pub(super) plan: FaultPlan,
    pub(super) next: Option<Time>,
    pub(super) last: Option<Time>,
    /// When the hosts of the database recover, and a pause ends.
    pub(super) recovery: Option<Time>,
    /// A worker that takes no step, and until when.
    pub(super) delayed_worker: Option<(usize, Time)>,
}

impl Faults {
    pub(super) fn new(plan: FaultPlan) -> Self {
        Self { plan, next: None, last: None, recovery: None, delayed_worker: None }
    }
}

impl<P: Protocol, S: CheckedProtocol> Simulation<P, S> {
    pub(super) fn plan_fault(&mut self) {
        self.faults.next = self.faults.plan.mean_interval.map(|mean| self.now + self.rng.exponential(mean));
    }

    pub(super) fn cause_fault(&mut self) {
        if self.faults.recovery.take_if(|at| *at <= self.now).is_some() {
            (0..S::Database::PORTS).for_each(|port| self.network.set_host(port, HostBehaviour::Accepts));
            _ = self.harness.handle().resume(None);
            _ = self.harness.handle().enable(None);
            if !self.faults.plan.unnoticeable {
                self.faults.last = Some(self.now);
            }
            self.database_server.flush(&self.network);
            return;
        }
        self.plan_fault();
        if self.faults.plan.unnoticeable {
            return self.cause_unnoticeable_fault();
        }
        self.outcome.faults += 1;
        self.faults.last = Some(self.now);
        if self.draw_host_fault() {
            return self.database_server.disturb(&self.network, self.rng.next(), false, self.now);
        }
        let open = self.database_server.database.open_connections();
        match self.rng.below(10) {
            0..=2 if !open.is_empty() => {
                let (victim, politely) = (open[self.rng.index(open.len())], self.rng.percent(60));
                self.database_server.kill(&self.network, victim, politely, self.now);
            }
            3..=5 if !open.is_empty() => {
                let victim = open[self.rng.index(open.len())];
                self.database_server.reset(&self.network, victim);
            }
            6 => open.iter().for_each(|victim| self.database_server.kill(&self.network, *victim, false, self.now)),
            7 | 8 if self.faults.recovery.is_none() => {
                let how = self.rng.pick(&[
                    HostBehaviour::Refuses,
                    HostBehaviour::Silent,
                    HostBehaviour::Silent,
                    HostBehaviour::Unreachable,
                ]);
                self.set_some_host(how);
                self.faults.recovery = Some(self.now + self.rng.exponential(Duration::from_millis(200)));
            }
            _ if self.faults.plan.orders && self.faults.recovery.is_none() => self.order(),
            _ => self.operate(),
        }
    }

    /// Gives an order that clients notice: no new ones may come, or all connections are closed.
    fn order(&mut self) {
        let handle = self.harness.handle();
        _ = if self.rng.percent(50) { handle.disable(None) } else { handle.kill_database(None) };
        self.faults.recovery = Some(self.now + self.rng.exponential(Duration::from_millis(20)));
    }

    /// Causes a fault that no client may notice: it concerns no request, or a request that was not sent yet.
    fn cause_unnoticeable_fault(&mut self) {
        if self.draw_host_fault() {
            return self.database_server.disturb(&self.network, self.rng.next(), true, self.now);
        }
        match self.rng.below(4) {
            0 | 1 => self.database_server.plan_cleaning_kill(),
            2 if self.faults.recovery.is_none() => {
                let how = self.rng.pick(&[HostBehaviour::Refuses, HostBehaviour::Unreachable]);
                self.set_some_host(how);
                self.faults.recovery = Some(self.now + self.rng.exponential(Duration::from_millis(20)));
            }
            _ => self.operate(),
        }
    }

    /// Draws whether the next fault is among the hosts.
    fn draw_host_fault(&mut self) -> bool {
        S::Database::HOSTS > 1 && self.rng.percent(60)
    }

    fn set_some_host(&mut self, how: HostBehaviour) {
        let host = if S::Database::HOSTS > 1 { self.rng.below(S::Database::HOSTS.into()) } else { 0 };
        let ports = (host as u16..S::Database::PORTS).step_by(S::Database::HOSTS.into());
        ports.for_each(|port| self.network.set_host(port, how));
    }

    /// Does what an operator may do: RECONNECT, PAUSE, RESUME or a reload.
    fn operate(&mut self) {
        let handle = self.harness.handle();
        let choice = self.rng.below(5);
        if S::LOSES_MESSAGES_AT_REPLACEMENT && self.faults.plan.unnoticeable && matches!(choice, 0 | 2) {
            self.outcome.faults += 1;
            self.faults.last = Some(self.now);
        }
        match choice {
            0 => handle.reconnect(None),
            1 if self.faults.recovery.is_none() => {
                _ = handle.pause(None);
                self.faults.recovery = Some(self.now + self.rng.exponential(Duration::from_millis(20)));
                return;
            }
            2 => (0..=self.rng.below(3)).for_each(|_| self.harness.reload_with_new_revision()),
            3 => _ = handle.pause(None),
            _ => {}
        }
        if self.faults.recovery.is_none() {
            _ = handle.resume(None);
        }
    }
}
