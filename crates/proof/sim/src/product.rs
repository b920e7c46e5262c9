//! Simulates the product in virtual time: real workers and real sessions, between models of databases and clients that
//! know what every answer must be. The seed decides everything: what happens next, how long bytes take, what breaks.
//!
//! Checked at every step: each answer is the one that the client's reference gives; an acknowledged write is in the
//! database, once; there are no more connections than allowed, in all and of each user, and the reserve is for clients
//! that have waited for it; no client waits for ever; a transaction ends when its time is over, and not before; bytes
//! that wait for a peer stay within bounds. When all clients have left, no server is held, the reserve and dedicated
//! servers are gone, and no session of the database has state left. An error may replace an answer only after a fault
//! that clients may notice.
//!
//! The simulator cannot see: TLS, logins with passwords but MongoDB's, HTTP, host names, real threads (two workers
//! never run at the same time), and what the models of the databases do not know, such as functions and triggers of
//! users. For these there are the leak hunter and the adversary (`tests/hunts/leaks.py`,
//! `tests/hunts/adversary.py`) on a real PostgreSQL.

mod checked_protocol;
mod client;
mod client_times;
mod database_server;
mod environment;
mod faults;
pub mod mongodb;
mod pool_ids;
pub mod postgres;
mod random_setup;
mod raw_client;
pub mod redis;
mod self_checking_client;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, time::Duration};

use pool::Time;
use seam::Protocol;

use crate::{
    databases::Database,
    harness::Harness,
    network::{EndId, Network},
    random::Rng,
    shrink,
};

use checked_protocol::CheckedProtocol;
use client::Client;
use database_server::{DatabaseServer, elapsed};
use environment::Environment;
use faults::{FaultPlan, Faults};
use raw_client::RawClient;
use self_checking_client::SelfCheckingClient;

/// Steps after which a schedule counts as endless.
const MAX_STEPS: u64 = 3_000_000;
/// Time after the last client has left by which everything must be at rest.
const MAX_SETTLING_TIME: Duration = Duration::from_secs(30);

/// Time after the last client has left by which servers are clean.
const MAX_CLEANING_TIME: Duration = Duration::from_millis(100);

/// The longest that a departure may be late: ticks of the workers, and the time that bytes take.
const MAX_DEPARTURE_DELAY: Duration = Duration::from_millis(150);
/// The longest that the answer to a client takes that has come before it to another one.
const MAX_DELIVERY_TIME: Duration = Duration::from_millis(15);

/// The client number that all raw clients have. No damage to a message turns it into that of another client.
const RAW_CLIENT: usize = 987_654;

/// Time after a fault during which new requests may still fail, where hosts recover with the network.
const RECOVERY_TIME: Duration = Duration::from_secs(1);

/// Counts of one schedule.
#[derive(Clone, Copy, Default, Debug)]
pub struct Outcome {
    pub steps: u64,
    /// Faults so far.
    pub faults: u64,
    /// Acknowledged writes that the database has rolled back, as weak write concerns allow.
    pub rolled_back: u64,
    /// Fingerprint of the schedule, which depends on nothing but the seed.
    pub fingerprint: u64,
}

/// Upper bounds of what a schedule draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub clients: usize,
    /// Connections of each client, one after the other.
    pub connections: u64,
    /// Requests on each connection.
    pub requests: u64,
    /// Whether faults happen.
    pub faults: bool,
    /// Whether there are raw clients.
    pub raw_clients: bool,
    /// Whether the network may be slow and split what it carries.
    pub bad_network: bool,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { clients: 8, connections: 4, requests: 24, faults: true, raw_clients: true, bad_network: true }
    }
}

impl shrink::Bounds for Bounds {
    fn tighter(&self) -> Vec<Self> {
        let mut all = Vec::new();
        all.extend(self.faults.then_some(Self { faults: false, ..*self }));
        all.extend(self.raw_clients.then_some(Self { raw_clients: false, ..*self }));
        all.extend(self.bad_network.then_some(Self { bad_network: false, ..*self }));
        for least in [|most: u64| most.div_ceil(2), |most| most - 1] {
            let smaller = |most: u64| Some(least(most)).filter(|less| *less > 0 && *less < most);
            all.extend(smaller(self.clients as u64).map(|clients| Self { clients: clients as usize, ..*self }));
            all.extend(smaller(self.connections).map(|connections| Self { connections, ..*self }));
            all.extend(smaller(self.requests).map(|requests| Self { requests, ..*self }));
        }
        all
    }
}

/// Plays a schedule: by its seed, within bounds, with the bytes of a raw client, and with a trace or without.
pub type Play = fn(u64, Bounds, Option<&[u8]>, bool) -> Outcome;

/// Plays a short schedule in which a raw client sends these bytes, for a fuzzer. The first eight are also the
/// seed.
///
/// # Panics
/// If a check fails.
pub fn play_raw(play: Play, raw_bytes: &[u8]) {
    let seed = raw_bytes.iter().take(8).fold(0, |seed, byte| seed << 8 | u64::from(*byte));
    play(seed, Bounds { clients: 1, connections: 1, requests: 3, ..Bounds::default() }, Some(raw_bytes), false);
}

/// What a step of the simulation does.
#[derive(Clone, Copy, Debug)]
enum Action {
    Worker(usize),
    Client(usize),
    RawClient(usize),
    SelfCheckingClient(usize),
    /// Hands a changed end to its owner.
    End(EndId),
    /// The database acts by itself.
    Database,
    Drain,
    /// Clients begin to be sent away, or have been.
    Depart,
    Fault,
}

/// Limits that no step may exceed.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Connections to the database.
    servers: usize,
    /// Connections of each user.
    servers_of_a_user: usize,
    /// Connections before the reserve, and how long a client has to wait for that; `None` without a reserve.
    reserve: Option<(usize, Duration)>,
    /// Bytes that wait for one peer.
    unsent: usize,
}

impl Limits {
    /// Limits of all connections together, and of bytes.
    fn new(servers: usize, unsent: usize) -> Self {
        Self { servers, servers_of_a_user: usize::MAX, reserve: None, unsent }
    }
}

pub struct Simulation<P: Protocol, S: CheckedProtocol> {
    harness: Harness<P>,
    network: Network,
    database_server: DatabaseServer<S::Database>,
    clients: Vec<Client<S>>,
    raw_clients: Vec<RawClient>,
    self_checking_clients: Vec<Box<dyn SelfCheckingClient<S::Database>>>,
    rng: Rng,
    now: Time,
    /// Ends whose change is still to be handled.
    changed_ends: BTreeSet<EndId>,
    faults: Faults,
    /// The workers are draining.
    drained: bool,
    /// By when the workers have sent their clients away, if they do.
    departed: Option<Time>,
    /// Connections to the database after the last step of a worker.
    servers: usize,
    limits: Limits,
    /// Servers are so few, and waits so short, that any request may fail to get a server.
    scarce: bool,
    /// Time after a fault during which new requests may still fail.
    recovery_time: Duration,
    /// Time after the last client has left by which the database holds no leftovers.
    max_cleaning_time: Duration,
    outcome: Outcome,
    trace: bool,
}

impl<P: Protocol, S: CheckedProtocol> Simulation<P, S> {
    /// A simulation before its first step.
    fn new(
        (harness, network, database_server): (Harness<P>, Network, DatabaseServer<S::Database>),
        (clients, raw_clients): (Vec<Client<S>>, Vec<RawClient>),
        fault_plan: FaultPlan,
        limits: Limits,
        rng: Rng,
        trace: bool,
    ) -> Self {
        Self {
            harness,
            network,
            database_server,
            clients,
            raw_clients,
            self_checking_clients: Vec::new(),
            rng,
            now: Time(0),
            changed_ends: BTreeSet::new(),
            faults: Faults::new(fault_plan),
            drained: false,
            departed: None,
            servers: 0,
            limits,
            scarce: false,
            recovery_time: RECOVERY_TIME,
            max_cleaning_time: MAX_CLEANING_TIME,
            outcome: Outcome::default(),
            trace,
        }
    }

    /// Plays until all clients have left, and the workers have ended.
    fn play(mut self, leftovers: impl Fn(&S::Database) -> Vec<String>) -> Outcome {
        self.plan_fault();
        while !self.all_have_gone() {
            self.step();
        }
        self.faults.next = None;
        self.faults.plan.mean_interval = None;
        self.faults.plan.drain = None;
        (self.faults.plan.departures, self.departed) = (None, None);
        self.faults.plan.delay_per_myriad = 0;
        let until = self.now + MAX_SETTLING_TIME;
        while self.now < until && !self.has_settled() {
            self.step();
        }
        assert!(self.has_settled(), "something is held though all clients have left: {}", self.describe());
        let until = self.now + self.max_cleaning_time;
        while self.now < until {
            self.step();
        }
        let known: u32 = self.harness.handle().snapshot().pools.iter().map(|pool| pool.counts.total).sum();
        assert!(self.harness.servers() <= known as usize, "there is a connection of no pool: {}", self.describe());
        if let Some((servers, _)) = self.limits.reserve {
            let present = self.harness.servers();
            assert!(present <= servers, "the reserve is still in use: {present} connections beyond {servers}");
        }
        self.harness.check_sessions();
        self.outcome.rolled_back = self.database_server.database.rolled_back();
        let left = leftovers(&self.database_server.database);
        assert!(left.is_empty(), "left in the database: {left:?}");
        self.harness.handle().drain();
        let until = self.now + MAX_SETTLING_TIME;
        while self.now < until && !(self.harness.has_ended() && self.has_no_servers()) {
            self.step();
        }
        assert!(self.harness.has_ended(), "the workers do not end");
        assert!(self.has_no_servers(), "a connection outlives the workers: {}", self.describe());
        self.outcome
    }

    fn all_have_gone(&self) -> bool {
        let self_checking_clients = self.self_checking_clients.iter().all(|client| client.is_done());
        self_checking_clients
            && self.clients.iter().all(Client::is_done)
            && self.raw_clients.iter().all(RawClient::is_done)
    }

    fn describe(&self) -> String {
        let snapshot = self.harness.handle().snapshot();
        let pools: Vec<_> = snapshot.pools.iter().map(|pool| pool.counts).collect();
        format!("{:?} {pools:?}, sessions: {:?}", snapshot.listeners, self.database_server)
    }

    /// Whether no connection to the database is left. Drained workers may leave some to the end of the process.
    fn has_no_servers(&self) -> bool {
        self.drained || self.database_server.database.open_connections().is_empty()
    }

    /// Whether no client is connected, no client holds or awaits a server, and the database has recovered.
    fn has_settled(&self) -> bool {
        if self.harness.has_ended() {
            return self.faults.recovery.is_none();
        }
        let snapshot = self.harness.handle().snapshot();
        let no_clients = snapshot.listeners.iter().all(|l| l.login + l.idle + l.active + l.waiting + l.subscribed == 0);
        // Servers that their own sessions keep, such as monitors, are not held by a client.
        let unused =
            snapshot.pools.iter().all(|pool| pool.counts.waiters == 0 && pool.counts.in_use <= pool.config.min_size);
        no_clients && unused && self.faults.recovery.is_none()
    }

    fn step(&mut self) {
        self.outcome.steps += 1;
        assert!(self.outcome.steps < MAX_STEPS, "the schedule does not end");
        if self.rng.per_myriad(100) {
            let some = self.rng.exponential(Duration::from_micros(20));
            self.set_time(self.now + some);
        }
        self.database_server.accept(&self.network, self.now);
        self.changed_ends.extend(self.network.take_changed());
        let ready_workers = self.harness.ready();
        self.update_delay(&ready_workers);
        let actions = self.possible_actions(ready_workers);
        if actions.is_empty() {
            return self.advance_time();
        }
        let action = actions[self.rng.index(actions.len())];
        self.note(action);
        match action {
            Action::Worker(worker) => {
                self.harness.step(worker);
                self.check();
            }
            Action::Client(client) => self.with_client(client, Client::act),
            Action::RawClient(raw_client) => self.raw_clients[raw_client].act(&self.network, self.now),
            Action::SelfCheckingClient(self_checking_client) => {
                self.with_self_checking_client(self_checking_client, |self_checking_client, env| {
                    self_checking_client.act(env)
                });
            }
            Action::End(end) => {
                self.changed_ends.remove(&end);
                self.dispatch(end);
            }
            Action::Database => self.database_server.tick(&self.network, self.now),
            Action::Drain => self.drain(),
            Action::Depart => self.depart(),
            Action::Fault => self.cause_fault(),
        }
    }

    fn possible_actions(&self, ready_workers: Vec<usize>) -> Vec<Action> {
        let now = self.now;
        let delayed = self.faults.delayed_worker.map(|(worker, _)| worker);
        let workers = ready_workers.into_iter().filter(|worker| Some(*worker) != delayed);
        let mut actions: Vec<Action> = workers.map(Action::Worker).collect();
        let is_due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        let clients = (0..self.clients.len()).filter(|client| self.clients[*client].wake <= now);
        actions.extend(clients.map(Action::Client));
        let raw_clients = (0..self.raw_clients.len()).filter(|client| self.raw_clients[*client].wake <= now);
        actions.extend(raw_clients.map(Action::RawClient));
        let self_checking_clients =
            (0..self.self_checking_clients.len()).filter(|client| self.self_checking_clients[*client].wake() <= now);
        actions.extend(self_checking_clients.map(Action::SelfCheckingClient));
        actions.extend(self.changed_ends.iter().copied().map(Action::End));
        actions.extend(is_due(self.database_server.due()).then_some(Action::Database));
        actions.extend(self.is_to_drain().then_some(Action::Drain));
        let departure = self.faults.plan.departures.map(|(at, _)| at).or(self.departed.filter(|_| !self.drained));
        actions.extend(is_due(departure).then_some(Action::Depart));
        let fault = is_due(self.faults.next) || is_due(self.faults.recovery);
        actions.extend(fault.then_some(Action::Fault));
        actions
    }

    /// Hands a changed end to its owner.
    fn dispatch(&mut self, end: EndId) {
        if self.database_server.owns_end(end) {
            return self.database_server.on_event(&self.network, end, self.now);
        }
        if let Some(client) = self.clients.iter().position(|client| client.owns_end(end)) {
            return self.with_client(client, |client, env| client.on_event(end, env));
        }
        if let Some(self_checking_client) = self.self_checking_clients.iter().position(|client| client.owns_end(end)) {
            return self.with_self_checking_client(self_checking_client, |self_checking_client, env| {
                self_checking_client.on_event(end, env)
            });
        }
        if let Some(raw_client) = self.raw_clients.iter_mut().find(|raw_client| raw_client.owns_end(end)) {
            raw_client.on_event(&self.network);
        }
    }

    /// Ends a delay that is over. Without a delay, may draw a worker with work to delay.
    fn update_delay(&mut self, ready_workers: &[usize]) {
        if !ready_workers.is_empty()
            && self.faults.delayed_worker.is_none()
            && self.rng.per_myriad(self.faults.plan.delay_per_myriad)
        {
            let worker = ready_workers[self.rng.index(ready_workers.len())];
            self.faults.delayed_worker = Some((worker, self.now + self.rng.exponential(Duration::from_micros(300))));
        }
        self.faults.delayed_worker = self.faults.delayed_worker.filter(|(_, until)| *until > self.now);
    }

    /// Whether to drain now: the time has come, a connection waits to be accepted, and one client that is no raw client
    /// has a connection.
    fn is_to_drain(&self) -> bool {
        let due = self.faults.plan.drain.is_some_and(|at| elapsed(self.now) >= at);
        let connected = self.clients.iter().filter(|client| client.has_connection()).count()
            + self.self_checking_clients.iter().filter(|client| client.has_connection()).count();
        due && self.network.has_pending_client() && connected == 1
    }

    fn drain(&mut self) {
        self.faults.plan.drain = None;
        self.drained = true;
        self.outcome.faults += 1;
        self.clients.iter_mut().for_each(Client::retire);
        self.raw_clients.iter_mut().for_each(RawClient::retire);
        self.self_checking_clients.iter_mut().for_each(|client| client.retire());
        self.harness.handle().drain();
    }

    /// Has the workers send their clients away, one after the other. At the end of that all have gone that are in no
    /// transaction.
    fn depart(&mut self) {
        if let Some((_, over)) = self.faults.plan.departures.take() {
            if self.drained {
                return;
            }
            self.clients.iter_mut().for_each(Client::retire);
            self.raw_clients.iter_mut().for_each(RawClient::retire);
            self.departed = Some(self.now + over + MAX_DEPARTURE_DELAY);
            return self.harness.handle().drain_over(over);
        }
        let stays = self.clients.iter().find(|client| client.has_been_idle_for(MAX_DEPARTURE_DELAY, self.now));
        assert!(stays.is_none(), "client {:?} was not sent away", stays.map(|client| client.number));
        self.drain();
    }

    fn with_client(&mut self, client: usize, f: impl FnOnce(&mut Client<S>, &Environment<'_, S::Database>)) {
        let mut called = std::mem::take(&mut self.clients);
        f(&mut called[client], &self.environment());
        self.clients = called;
    }

    fn with_self_checking_client(
        &mut self,
        self_checking_client: usize,
        f: impl FnOnce(&mut dyn SelfCheckingClient<S::Database>, &Environment<'_, S::Database>),
    ) {
        let mut called = std::mem::take(&mut self.self_checking_clients);
        f(&mut *called[self_checking_client], &self.environment());
        self.self_checking_clients = called;
    }

    fn environment(&self) -> Environment<'_, S::Database> {
        Environment {
            network: &self.network,
            product_database: &self.database_server.database,
            now: self.now,
            faults: self.outcome.faults,
            departing: self.departed.is_some(),
            lingering_faults: u64::from(
                self.drained
                    || self.scarce
                    || (self.faults.recovery.is_some() && !self.faults.plan.unnoticeable)
                    || self.faults.last.is_some_and(|at| self.now < at + self.recovery_time),
            ),
            trace: self.trace,
        }
    }

    fn set_time(&mut self, to: Time) {
        self.now = to;
        self.harness.set_time(to);
        self.network.advance(to);
    }

    fn advance_time(&mut self) {
        let clients = self.clients.iter().map(|client| client.wake).min().filter(|at| at.0 < u64::MAX);
        let raw_clients = self.raw_clients.iter().map(|raw_client| raw_client.wake).min().filter(|at| at.0 < u64::MAX);
        let self_checking_clients =
            self.self_checking_clients.iter().map(|client| client.wake()).min().filter(|at| at.0 < u64::MAX);
        let times = [
            self.network.next_at(),
            self.harness.next_wake(),
            clients,
            raw_clients,
            self_checking_clients,
            self.database_server.due(),
            self.faults.next,
            self.faults.recovery,
            self.faults.plan.departures.map(|(at, _)| at),
            self.departed.filter(|_| !self.drained),
        ];
        let freed = self.faults.delayed_worker.map(|(_, until)| until);
        // The delayed worker may have work now, which has to wait.
        let due = |at: &Time| *at > self.now || self.faults.delayed_worker.is_none();
        let next = times.into_iter().flatten().chain(freed).filter(due).min();
        // When all workers have ended there may be no next event.
        let later = self.drained.then(|| self.now + Duration::from_millis(1));
        let next = next.or(later).unwrap_or_else(|| panic!("nothing will ever happen again: {}", self.describe()));
        self.set_time(next.max(self.now));
    }

    fn note(&mut self, action: Action) {
        let (kind, of) = match action {
            Action::Worker(worker) => (1, worker as u64),
            Action::Client(client) => (2, client as u64),
            Action::End(end) => (3, u64::from(end)),
            Action::Database => (4, 0),
            Action::Fault => (5, 0),
            Action::Drain => (6, 0),
            Action::Depart => (9, 0),
            Action::RawClient(raw_client) => (7, raw_client as u64),
            Action::SelfCheckingClient(self_checking_client) => (8, self_checking_client as u64),
        };
        let fingerprint = &mut self.outcome.fingerprint;
        for value in [kind, of, self.now.0] {
            *fingerprint = (*fingerprint ^ value).wrapping_mul(0x0100_0000_01b3).rotate_left(5);
        }
        if self.trace {
            println!("{:>12.6} {action:?}", self.now.0 as f64 / 1e9);
        }
    }

    fn check(&mut self) {
        let servers = self.harness.servers();
        let before = std::mem::replace(&mut self.servers, servers);
        assert!(servers <= self.limits.servers, "{servers} connections where {} are allowed", self.limits.servers);
        // A fault may leave a session in the database behind whose connection is gone.
        if self.faults.last.is_none() {
            let sessions = self.database_server.sessions();
            assert!(sessions <= self.limits.servers, "{sessions} sessions where {} are allowed", self.limits.servers);
            let (of_one, most) =
                (self.database_server.database.most_sessions_of_a_user(), self.limits.servers_of_a_user);
            assert!(of_one <= most, "{of_one} sessions of a user where {most} are allowed");
        }
        if let Some((without, wait)) = self.limits.reserve
            && servers > without.max(before)
        {
            let waited = |client: &Client<S>| client.may_have_waited(wait - MAX_DELIVERY_TIME, self.now);
            let used = !self.raw_clients.is_empty() || self.clients.iter().any(waited);
            assert!(used, "the reserve is used though no client has waited for {wait:?}: {servers} connections");
        }
        let unsent = self.harness.most_unsent();
        assert!(unsent <= self.limits.unsent, "{unsent} bytes wait for one peer");
    }
}
