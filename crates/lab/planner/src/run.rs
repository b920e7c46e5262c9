//! Discrete-event simulation of a plan: the load generator's engine and its real pools against a modelled server, in
//! virtual time. The same plan, server and seed give the same result.

mod events;
mod step_limit;

use std::{borrow::Cow, time::Duration};

use ::report::result::BenchResult;
use arrivals::{Shape, Window};
use load::{
    engine::{ConnId, Engine, Order, Outcome as Ended},
    plan::{Plan, PoolhouseWishes, Target},
    record::{ErrorKind, Phases},
};
use pool::Time;

use crate::{
    front::{Front, FrontStats, PoolDecision, ServerPool},
    server::{ConnectOutcome, Delivery, POLLING_MONITORS_PER_HOST, Server, ServerStats, Spec},
};
use events::{Event, EventKind, Events, UpstreamEvent};
use step_limit::StepLimit;

/// The error of an operation whose connection the other side has closed.
const CONNECTION_CLOSED: &str = "connection closed";
/// The first words of the warning about a simulation whose load did not begin.
pub const LOAD_NOT_STARTED: &str = "The load did not begin";
/// The first words of the warning about a simulation that did not run to its end.
pub const STOPPED_EARLY: &str = "The simulation was cut short";
/// Makes the server's seed differ from that of the load.
const SERVER_SEED: u64 = 0x5e12_7e12;

#[derive(Clone, Debug)]
pub struct Outcome {
    /// The result in the load generator's form.
    pub result: BenchResult,
    pub server: ServerStats,
    /// All zero if there is no Poolhouse in front.
    pub front: FrontStats,
    /// The longest wait in the pools of the plan, not counting the wait in the pool of a Poolhouse in front. `None` if
    /// no operation has got a connection.
    pub longest_wait: Option<Duration>,
    /// The simulation ran to its end. Otherwise the result covers the simulated part.
    pub is_complete: bool,
    /// The stop check of [`run_until`] ended the simulation.
    pub stopped_early: bool,
    /// Steps of the simulation.
    pub steps: u64,
    /// The greatest length of the event queue.
    pub max_pending_events: usize,
}

/// Simulates a plan to its end.
pub fn run(plan: &Plan, spec: &Spec) -> Outcome {
    run_until(plan, spec, &mut |_, _| false)
}

/// Simulates a plan until its end or until `should_stop`, which is called from time to time while the load lasts,
/// returns true.
pub fn run_until(plan: &Plan, spec: &Spec, should_stop: StopCheck<'_>) -> Outcome {
    simulate(plan, spec, Events::new(), should_stop)
}

/// Decides from the engine's state whether to end the simulation.
pub type StopCheck<'e> = &'e mut dyn FnMut(&Engine, Time) -> bool;

fn simulate(plan: &Plan, spec: &Spec, events: Events, should_stop: StopCheck<'_>) -> Outcome {
    let mut simulation = Simulation::new(plan, spec, events);
    let mut engine = Engine::with_limit(plan, spec.budget, Time(0));
    if simulation.servers.is_some() {
        engine.expect_front_waits();
    }
    let mut now = Time(0);
    let wanted = u64::from(plan.pool.config.min_size) * u64::from(plan.pool.instances);
    let mut step_limit = StepLimit::new(wanted, matches!(plan.shape, Shape::Closed { .. }));
    let (mut is_complete, mut stopped_early) = (true, false);
    loop {
        while let Some(order) = engine.poll_order(now) {
            simulation.execute(order, now);
        }
        if engine.is_done() {
            break;
        }
        if simulation.began.is_none()
            && let Some(at) = engine.measured_from()
        {
            simulation.begin_load(at);
            step_limit.begin_load();
        }
        if step_limit.take_early_stop_check() && should_stop(&engine, now) {
            (is_complete, stopped_early) = (false, true);
            break;
        }
        if step_limit.count_step(&engine, simulation.began.is_some(), now) {
            is_complete = false;
            break;
        }
        let next = simulation.next_event_time().min(engine.deadline().unwrap_or(Time::NEVER));
        assert!(next < Time::NEVER, "nothing will ever happen, and the simulation is not over");
        now = simulation.skip_freeze(plan.freeze.as_ref(), now.max(next));
        simulation.process_due(&mut engine, now);
    }
    let mut result = engine.result(now);
    "virtual time".clone_into(&mut result.about.machine);
    if stopped_early {
        result.interrupted = true;
    } else if let Some(failure) = engine.failure() {
        result.warnings.push(format!(
            "{LOAD_NOT_STARTED}: {} of {} connections stood, and the next ones failed ({}).",
            failure.made, failure.wanted, failure.kind.0
        ));
        is_complete = false;
    } else if !is_complete && simulation.began.is_none() {
        result.warnings.push(format!(
            "{LOAD_NOT_STARTED}: its {wanted} connections do not all stand at once, as if they ended faster than new \
             ones are made."
        ));
    } else if let (false, Some(began)) = (is_complete, simulation.began) {
        result.interrupted = true;
        result.warnings.push(format!(
            "{STOPPED_EARLY} after {}: connections come and go, or operations fail, so fast that it would hardly \
             end. What is shown is what happened until then.",
            crate::words::time(now - began)
        ));
    }
    Outcome {
        result,
        server: simulation.server.stats(),
        front: simulation.front.as_ref().map(Front::stats).unwrap_or_default(),
        longest_wait: engine.longest_wait(),
        is_complete,
        stopped_early,
        steps: step_limit.steps(),
        max_pending_events: simulation.events.max_len(),
    }
}

#[derive(Clone, Debug, Default)]
struct Connection {
    /// Distinguishes the connection from earlier ones with the same number. 0 if the number is unused.
    generation: u32,
    /// When data last passed.
    last_activity: Time,
    busy: bool,
    has_run_operation: bool,
    runs_first_operation: bool,
    arrived_at_front: Time,
    /// When the connection is established if its login waits for no processor.
    established_at: Time,
    counts_at_server: bool,
    /// The Poolhouse in front has admitted the connection.
    admitted: bool,
    /// The Poolhouse in front is closing the connection.
    is_closed_by_front: bool,
    phases: Phases,
    refusal: Option<ErrorKind>,
}

/// A connection between the Poolhouse in front and the database.
#[derive(Clone, Copy, Debug, Default)]
struct UpstreamConnection {
    generation: u32,
    counts_at_server: bool,
    /// When the connection is established if its login waits for no processor.
    established_at: Time,
}

struct Simulation<'s> {
    server: Server<'s>,
    front: Option<Front>,
    /// The server pool of the Poolhouse in front, if each running operation needs a server of its own.
    servers: Option<ServerPool>,
    /// The connections of that pool, by slot.
    upstream: Vec<UpstreamConnection>,
    events: Events,
    connections: Vec<Connection>,
    /// The generation of the newest connection.
    last_generation: u32,
    /// When the load began, after the warm-up.
    began: Option<Time>,
}

impl<'s> Simulation<'s> {
    fn new(plan: &Plan, spec: &'s Spec, events: Events) -> Self {
        Self {
            server: Server::new(spec, &plan.faults, plan.seed ^ SERVER_SEED)
                .with_monitors(monitoring_connections(plan, spec)),
            front: plan.poolhouse.as_ref().map(|wishes| Front::new(wishes, &plan.target)),
            servers: front_with_exclusive_leases(plan).map(|wishes| ServerPool::new(wishes, Time(0))),
            upstream: Vec::new(),
            events,
            connections: Vec::new(),
            last_generation: 0,
            began: None,
        }
    }

    fn begin_load(&mut self, at: Time) {
        self.began = Some(at);
        if let Some(cut) = self.server.begin_load(at) {
            self.push(cut, EventKind::AllCut, u32::MAX, 0);
        }
    }

    #[inline]
    fn next_event_time(&self) -> Time {
        let front = self.front.as_ref().map_or(Time::NEVER, Front::deadline);
        let servers = self.servers.as_ref().map_or(Time::NEVER, ServerPool::deadline);
        self.events.next_time().min(self.server.next_served()).min(front).min(servers)
    }

    /// Moves a time within a freeze of the load's process to the end of the freeze.
    fn skip_freeze(&self, freeze: Option<&Window>, now: Time) -> Time {
        let (Some(window), Some(began)) = (freeze, self.began) else { return now };
        match now.0.checked_sub(began.0).and_then(|at| window.begins_at(at)) {
            Some(begin) => began + Duration::from_nanos(begin) + window.length,
            None => now,
        }
    }

    #[inline]
    fn push(&mut self, at: Time, kind: EventKind, conn: u32, generation: u32) {
        let (connections, upstream) = (&self.connections, &self.upstream);
        self.events.push(at, kind, conn, generation, |event| is_live(connections, upstream, event));
    }

    #[inline]
    fn execute(&mut self, order: Order, now: Time) {
        match order {
            Order::Connect(conn) => self.connect(conn, now),
            Order::Run { conn: ConnId(conn), .. } => {
                if let Some(front) = &mut self.front {
                    front.mark_busy(conn);
                }
                let connection = &mut self.connections[conn as usize];
                connection.busy = true;
                let (generation, last) = (connection.generation, std::mem::replace(&mut connection.last_activity, now));
                let first = !std::mem::replace(&mut connection.has_run_operation, true);
                connection.runs_first_operation = first;
                let answer = match &self.servers {
                    // The operation first reaches the Poolhouse.
                    Some(_) => self.server.arrival_time(last, now).map_or(Delivery::Lost, Delivery::ArrivesAt),
                    None => self.server.send_operation(last, first, now),
                };
                match answer {
                    Delivery::AnsweredAt(at) => self.push(at, EventKind::Answered, conn, generation),
                    Delivery::ArrivesAt(at) => self.push(at, EventKind::Arrived, conn, generation),
                    // The operation's time-out ends it. Time 0 makes later operations on the connection fail, too.
                    Delivery::Lost => self.connections[conn as usize].last_activity = Time(0),
                }
            }
            Order::Close(ConnId(conn)) => {
                let connection = &self.connections[conn as usize];
                let generation = connection.generation;
                self.push(Server::close_time(now), EventKind::Closed, conn, generation);
            }
        }
    }

    fn connect(&mut self, ConnId(conn): ConnId, now: Time) {
        if self.connections.len() <= conn as usize {
            self.connections.resize(conn as usize + 1, Connection::default());
        }
        self.last_generation += 1;
        let generation = self.last_generation;
        let admitted = self.front.as_mut().is_some_and(Front::admit);
        let rejected = self.front.is_some() && !admitted;
        let mut connection = Connection { generation, last_activity: now, admitted, ..Connection::default() };
        let counts = self.servers.is_none();
        let (at, kind) = match self.server.connect(self.front.is_some(), counts && !rejected, now) {
            ConnectOutcome::Established(at, _) if rejected => {
                connection.refusal = Some(ErrorKind(Cow::Borrowed(self.server.refusal_error())));
                (at, EventKind::Refused)
            }
            ConnectOutcome::Established(at, phases) => {
                (connection.phases, connection.counts_at_server, connection.established_at) = (phases, counts, at);
                // A Poolhouse in front authenticates its clients itself.
                match self.server.login_start(at, &phases).filter(|_| self.front.is_none()) {
                    Some(begins) => (begins, EventKind::LoginStarts),
                    None => (at, EventKind::Connected),
                }
            }
            ConnectOutcome::Refused(at, kind) => {
                connection.refusal = Some(kind);
                (at, EventKind::Refused)
            }
        };
        self.connections[conn as usize] = connection;
        self.push(at, kind, conn, generation);
    }

    /// Processes all events that are due.
    #[inline]
    fn process_due(&mut self, engine: &mut Engine, now: Time) {
        loop {
            while let Some((conn, due)) = self.front.as_mut().and_then(|front| front.pop_removal(now)) {
                let connection = &mut self.connections[conn as usize];
                connection.is_closed_by_front = true;
                let (generation, at) = (connection.generation, self.server.push_arrival(due));
                self.push(at, EventKind::Lost, conn, generation);
            }
            while let Some((conn, generation)) = self.server.pop_served(now) {
                self.finish_service(conn, generation, now);
            }
            if let Some(servers) = self.servers.as_mut().filter(|servers| servers.deadline() <= now) {
                servers.handle_timeout(now);
            }
            self.execute_pool_decisions(engine, now);
            let Some(event) = self.events.pop(now) else { break };
            if !is_live(&self.connections, &self.upstream, &event) {
                continue;
            }
            match event {
                (_, _, EventKind::AllCut, ..) => self.end_all_connections(engine, now),
                (_, _, EventKind::Upstream(event), slot, generation) => {
                    self.handle_upstream_event(event, slot, generation, now)
                }
                (_, _, kind, conn, _) => self.handle_event(kind, conn, engine, now),
            }
        }
    }

    #[inline]
    fn handle_event(&mut self, kind: EventKind, conn: u32, engine: &mut Engine, now: Time) {
        let id = ConnId(conn);
        match kind {
            EventKind::Answered | EventKind::Rejected => {
                let connection = &mut self.connections[conn as usize];
                (connection.busy, connection.last_activity) = (false, now);
                if let Some(front) = self.front.as_mut().filter(|_| !connection.is_closed_by_front) {
                    front.mark_idle(conn, now);
                }
                if let Some(servers) = &mut self.servers {
                    servers.release(conn, now);
                }
                let error =
                    (kind == EventKind::Rejected).then(|| ErrorKind(Cow::Borrowed(self.server.refusal_error())));
                engine.ended(id, Ended { error, reusable: true }, now);
            }
            EventKind::Arrived => match &mut self.servers {
                Some(servers) => {
                    self.connections[conn as usize].arrived_at_front = now;
                    servers.request(conn, now);
                }
                None => self.start_service(conn, self.connections[conn as usize].runs_first_operation, now),
            },
            EventKind::Served => {
                let generation = self.connections[conn as usize].generation;
                self.finish_service(conn, generation, now);
            }
            EventKind::LoginStarts => {
                let waits = self.server.log_in(now);
                let connection = &mut self.connections[conn as usize];
                connection.phases.auth = Some(connection.phases.auth.unwrap_or_default() + waits);
                let (stands, generation) = (connection.established_at + waits, connection.generation);
                self.push(stands, EventKind::Connected, conn, generation);
            }
            EventKind::Connected => {
                let connection = &mut self.connections[conn as usize];
                connection.last_activity = now;
                let phases = connection.phases;
                if let Some(front) = &mut self.front {
                    front.mark_idle(conn, now);
                }
                engine.connected(id, &phases, now);
            }
            EventKind::Refused => {
                let kind = self.connections[conn as usize].refusal.take().expect("a refused connection has an error");
                self.remove_connection(conn, now);
                engine.connect_failed(id, kind, false, now);
            }
            EventKind::Lost => {
                self.remove_connection(conn, now);
                engine.lost(id, ErrorKind(Cow::Borrowed(CONNECTION_CLOSED)), now);
            }
            EventKind::Closed => {
                self.remove_connection(conn, now);
                engine.closed(id, now);
            }
            EventKind::AllCut => unreachable!("a cut concerns all connections"),
            EventKind::Upstream(_) => unreachable!("an upstream event concerns no client connection"),
        }
    }

    /// The server starts to serve an operation.
    fn start_service(&mut self, conn: u32, first: bool, now: Time) {
        let generation = self.connections[conn as usize].generation;
        match self.server.start_service(conn, generation, first, now) {
            None => {}
            // Another client may wait in the Poolhouse's pool for this connection.
            Some(done) if self.servers.is_some() => self.push(done, EventKind::Served, conn, generation),
            Some(done) => {
                let at = self.server.answer_arrival(done);
                self.push(at, EventKind::Answered, conn, generation);
            }
        }
    }

    /// Sends the answer to a served operation. Its client connection may be closed by now.
    fn finish_service(&mut self, conn: u32, generation: u32, now: Time) {
        // The network carries the answer even if its client is gone.
        let at = self.server.answer_arrival(now);
        if self.connections[conn as usize].generation != generation {
            return;
        }
        self.push(at, EventKind::Answered, conn, generation);
        if let Some(servers) = self.servers.as_mut().filter(|_| self.server.frees_connection_when_served()) {
            servers.release(conn, now);
        }
    }

    fn handle_upstream_event(&mut self, event: UpstreamEvent, slot: u32, generation: u32, now: Time) {
        let servers = self.servers.as_mut().expect("upstream connections belong to a pool");
        match event {
            UpstreamEvent::LoginStarts => {
                let stands = self.upstream[slot as usize].established_at + self.server.log_in(now);
                return self.push(stands, EventKind::Upstream(UpstreamEvent::Established), slot, generation);
            }
            UpstreamEvent::Established => return servers.handle_connected(slot, now),
            UpstreamEvent::Refused => servers.handle_refused(slot, now),
            UpstreamEvent::Closed => servers.handle_closed(slot, now),
        }
        let upstream = std::mem::take(&mut self.upstream[slot as usize]);
        if upstream.counts_at_server {
            self.server.free_place();
        }
    }

    fn execute_pool_decisions(&mut self, engine: &mut Engine, now: Time) {
        while let Some(decision) = self.servers.as_mut().and_then(ServerPool::poll) {
            match decision {
                PoolDecision::Connect(slot) => {
                    let (established_at, is_accepted, login) = self.server.connect_directly(now);
                    if self.upstream.len() <= slot as usize {
                        self.upstream.resize(slot as usize + 1, UpstreamConnection::default());
                    }
                    self.last_generation += 1;
                    let generation = self.last_generation;
                    self.upstream[slot as usize] =
                        UpstreamConnection { generation, counts_at_server: is_accepted, established_at };
                    let (at, event) = match login {
                        Some(begins) => (begins, UpstreamEvent::LoginStarts),
                        None => (
                            established_at,
                            if is_accepted { UpstreamEvent::Established } else { UpstreamEvent::Refused },
                        ),
                    };
                    self.push(at, EventKind::Upstream(event), slot, generation);
                }
                PoolDecision::Close(slot) => {
                    let generation = self.upstream[slot as usize].generation;
                    self.push(Server::close_time(now), EventKind::Upstream(UpstreamEvent::Closed), slot, generation);
                }
                PoolDecision::Grant { client, first } => {
                    engine.note_front_wait(
                        ConnId(client),
                        now - self.connections[client as usize].arrived_at_front,
                        now,
                    );
                    self.start_service(client, first, now);
                }
                PoolDecision::Reject(client) => {
                    let (generation, at) =
                        (self.connections[client as usize].generation, self.server.push_arrival(now));
                    self.push(at, EventKind::Rejected, client, generation);
                }
            }
        }
    }

    /// Ends all connections at once, and schedules the next cut.
    fn end_all_connections(&mut self, engine: &mut Engine, now: Time) {
        for conn in 0..self.connections.len() as u32 {
            if self.connections[conn as usize].generation != 0 {
                self.remove_connection(conn, now);
                engine.lost(ConnId(conn), ErrorKind(Cow::Borrowed(CONNECTION_CLOSED)), now);
            }
        }
        if let Some(next) = self.server.next_cut(now) {
            self.push(next, EventKind::AllCut, u32::MAX, 0);
        }
    }

    fn remove_connection(&mut self, conn: u32, now: Time) {
        if let Some(servers) = &mut self.servers {
            servers.remove_client(conn, now);
        }
        let connection = std::mem::take(&mut self.connections[conn as usize]);
        if connection.counts_at_server {
            self.server.free_place();
        }
        if let Some(front) = self.front.as_mut().filter(|_| connection.admitted) {
            front.remove_client(conn, connection.is_closed_by_front);
        }
    }
}

/// Whether the connection that an event was scheduled for still exists.
#[inline]
fn is_live(
    connections: &[Connection],
    upstream: &[UpstreamConnection],
    &(_, _, kind, conn, generation): &Event,
) -> bool {
    match kind {
        EventKind::AllCut => true,
        EventKind::Upstream(_) => upstream[conn as usize].generation == generation,
        _ => connections[conn as usize].generation == generation,
    }
}

/// Monitoring connections that drivers (those of all instances, or that of the Poolhouse in front) keep to the server.
pub fn monitoring_connections(plan: &Plan, spec: &Spec) -> u32 {
    match front_with_exclusive_leases(plan).is_some() || spec.budget.is_some() {
        true => spec.monitors_per_instance.min(POLLING_MONITORS_PER_HOST),
        false if plan.pool.reuse => spec.monitors_per_instance.saturating_mul(plan.pool.instances),
        false => 0,
    }
}

/// The most connections that the pools of a plan may have at the server, all together. `None` if unlimited.
pub fn max_pool_connections(plan: &Plan, spec: &Spec) -> Option<u32> {
    spec.max_pool_connections(monitoring_connections(plan, spec))
}

/// The settings of the Poolhouse in front if it leases a server to each running operation. With Redis, clients share
/// servers.
pub fn front_with_exclusive_leases(plan: &Plan) -> Option<&PoolhouseWishes> {
    plan.poolhouse.as_ref().filter(|_| !matches!(plan.target, Target::Redis(_)))
}

#[cfg(test)]
mod tests;
