//! Model of the database server in virtual time: when a connection is established or refused, and when an operation is
//! answered. Network delays and faults come from `arrivals`, as for the relay of the load generator.

mod curve;
mod processors;
mod sharing;
mod times;

use std::{borrow::Cow, time::Duration};

use arrivals::{Direction, Fault, FaultTimeline, Random};
use load::record::{ErrorKind, Phases};
use pool::Time;

pub use curve::{Curve, LOW_CONFIDENCE};
pub use processors::Processors;
use processors::Queue;
use sharing::Sharing;
pub use times::{MAX_P99_RATIO, Times};

/// Parameters of the server model.
#[derive(Clone, PartialEq, Debug)]
pub struct Spec {
    /// Service time of an operation that runs alone, without network delay.
    pub service: Times,
    /// Extra service time of the first operation on a new connection, in which the server fills its caches.
    pub first: Duration,
    /// Round trips of an operation: one for each statement.
    pub trips: u32,
    /// Think time of the client within an operation, during which it holds the connection.
    pub pause: Duration,
    /// Throughput against concurrency. `None` if concurrent operations do not slow each other down.
    pub curve: Option<Curve>,
    /// Processors that operations queue for; not used with a curve. `None` if operations never wait for one.
    pub processors: Option<Processors>,
    pub connect: Connect,
    /// The server's connection limit. `None` if unlimited.
    pub limit: Option<u32>,
    /// Connections within the limit that are reserved for other users.
    pub reserved: u32,
    /// The error with which the server refuses a connection above its limit.
    pub refusal_error: &'static str,
    /// The limit that all pools share if they belong to one Poolhouse (its `max_server_connections`). `None` if only
    /// the pools' own limits apply.
    pub budget: Option<u32>,
    /// Monitoring connections of each instance, outside its pool; see [`MONGODB_MONITORS_PER_HOST`].
    pub monitors_per_instance: u32,
}

/// Processing time of each phase of connecting, at both ends, without network delay. `None` if there is no such phase.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Connect {
    pub dns: Option<Times>,
    pub tcp: Option<Times>,
    pub tls: Option<Times>,
    pub auth: Option<Times>,
    /// From the end of authentication until the connection is ready.
    pub ready: Option<Times>,
    /// Round trips of the TLS handshake, and of PostgreSQL's SSLRequest before it.
    pub tls_trips: u32,
    /// Sequential round trips of authentication.
    pub auth_trips: u32,
    /// Sequential round trips from authentication until ready.
    pub ready_trips: u32,
    /// Processor time of a login (fork, password check, filling caches), where the server's processors are modelled.
    pub work: Duration,
}

/// Duration of closing a connection.
const CLOSE_NS: u64 = 20_000;
/// Beside its pool, a MongoDB driver keeps two monitoring connections to each host: one awaits state changes, one
/// measures the round-trip time (specification "Server Monitoring"). The modelled server is one host.
pub const MONGODB_MONITORS_PER_HOST: u32 = 2;
/// The same for drivers that poll instead of streaming: in functions (FaaS), and through a Poolhouse, which does not
/// offer streaming.
pub const POLLING_MONITORS_PER_HOST: u32 = 1;
/// PostgreSQL's error for a connection above its limit (too_many_connections).
pub const POSTGRES_FULL: &str = "sqlstate 53300";

impl Connect {
    /// Mean processing time of all phases, without network delay.
    pub fn mean(&self) -> Duration {
        self.phases().filter_map(|(times, _)| times.as_ref()).map(Times::mean).sum()
    }

    /// Round trips of all phases, including that of TCP.
    pub fn trips(&self) -> u32 {
        1 + self.phases().filter(|(times, _)| times.is_some()).map(|(_, trips)| trips).sum::<u32>()
    }

    pub fn phase_count(&self) -> usize {
        self.phases().filter(|(times, _)| times.is_some()).count()
    }

    fn phases(&self) -> impl Iterator<Item = (&Option<Times>, u32)> {
        let trips = [0, 0, self.tls_trips, self.auth_trips, self.ready_trips];
        [&self.dns, &self.tcp, &self.tls, &self.auth, &self.ready].into_iter().zip(trips)
    }
}

impl Spec {
    /// A PostgreSQL server without a connection limit, on which operations do not slow each other down and connecting
    /// takes one round trip.
    pub fn new(service: Times) -> Self {
        Self {
            service,
            first: Duration::ZERO,
            trips: 1,
            pause: Duration::ZERO,
            curve: None,
            processors: None,
            connect: Connect::default(),
            limit: None,
            reserved: 0,
            refusal_error: POSTGRES_FULL,
            budget: None,
            monitors_per_instance: 0,
        }
    }

    /// The most connections of all pools together, beside `monitors` monitoring connections.
    pub fn max_pool_connections(&self, monitors: u32) -> Option<u32> {
        self.limit.map(|limit| limit.saturating_sub(self.reserved).saturating_sub(monitors))
    }

    /// Mean time for which an operation holds its connection without stalls: service time, network delay and
    /// pause.
    pub fn mean_hold_time(&self, faults: &[Fault]) -> Duration {
        self.service.mean() + self.pause + mean_round_trip(faults) * self.trips
    }

    /// Mean time to make a connection without stalls.
    pub fn mean_connect_time(&self, faults: &[Fault]) -> Duration {
        self.connect.mean() + mean_round_trip(faults) * self.connect.trips()
    }
}

/// Mean round-trip time without stalls.
pub fn mean_round_trip(faults: &[Fault]) -> Duration {
    let delays = faults.iter().filter_map(|fault| match fault {
        Fault::Delay { delay, jitter } => Some(*delay * 2 + *jitter),
        _ => None,
    });
    delays.sum()
}

/// The outcome of a connection attempt, and when the client learns it.
#[derive(Clone, Debug)]
pub enum ConnectOutcome {
    Established(Time, Phases),
    Refused(Time, ErrorKind),
}

/// The fate of an operation as known when it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivery {
    AnsweredAt(Time),
    /// The operation arrives at the shared server; see [`Server::start_service`].
    ArrivesAt(Time),
    /// The network has dropped the idle connection: no answer will come.
    Lost,
}

#[derive(Debug)]
pub struct Server<'s> {
    spec: &'s Spec,
    timeline: FaultTimeline,
    /// Idle time after which the network drops a connection.
    network_idle_limit_ns: u64,
    random: Random,
    sharing: Option<Sharing>,
    queue: Option<Queue>,
    /// The most connections of the pools. `None` if unlimited.
    max_connections: Option<u32>,
    open: u32,
    max_open: u32,
    refused: u64,
}

impl<'s> Server<'s> {
    pub fn new(spec: &'s Spec, faults: &[Fault], seed: u64) -> Self {
        let mut random = Random::new(seed);
        let timeline = FaultTimeline::new(faults, random.bits());
        Self {
            spec,
            network_idle_limit_ns: timeline.max_silence(),
            timeline,
            random: Random::new(random.bits()),
            sharing: spec.curve.clone().map(Sharing::new),
            queue: spec.processors.filter(|_| spec.curve.is_none()).map(|all| Queue::new(all, &spec.service)),
            max_connections: spec.max_pool_connections(0),
            open: 0,
            max_open: 0,
            refused: 0,
        }
    }

    /// Reserves this many connections for monitoring.
    #[must_use]
    pub fn with_monitors(self, connections: u32) -> Self {
        Self { max_connections: self.spec.max_pool_connections(connections), ..self }
    }

    /// The error with which the server refuses a connection above its limit.
    pub fn refusal_error(&self) -> &'static str {
        self.spec.refusal_error
    }

    /// Starts the fault windows. Returns the time of the first cut of all connections.
    pub fn begin_load(&mut self, now: Time) -> Option<Time> {
        self.timeline.windows_start = Some(now.0);
        self.timeline.next_cut(now.0.saturating_sub(1)).map(Time)
    }

    /// The time of the next cut after `now`.
    pub fn next_cut(&self, now: Time) -> Option<Time> {
        self.timeline.next_cut(now.0).map(Time)
    }

    /// Makes a connection. `through_front`: to the Poolhouse in front, which has a limit of its own. `counts`: the
    /// connection counts toward the server's limit until [`Self::free_place`].
    pub fn connect(&mut self, through_front: bool, counts: bool, now: Time) -> ConnectOutcome {
        let connect = &self.spec.connect;
        let is_full = !through_front && self.max_connections.is_some_and(|max| self.open >= max);
        let begun = now.0;
        let mut phases = Phases::default();
        let mut at = begun;
        let spend = |times: &Option<Times>, random: &mut Random, at: &mut u64| {
            let taken = times.as_ref()?.draw(random) as u64;
            *at += taken;
            Some(Duration::from_nanos(taken))
        };
        phases.dns = spend(&connect.dns, &mut self.random, &mut at);
        phases.tcp = spend(&connect.tcp, &mut self.random, &mut at);
        // As with the relay in measurements, TCP's round trip is counted in the phase after it.
        let mut from = at;
        at += self.timeline.draw_round_trip();
        for (place, (times, trips)) in [
            (&connect.tls, connect.tls_trips),
            (&connect.auth, connect.auth_trips),
            (&connect.ready, connect.ready_trips),
        ]
        .into_iter()
        .enumerate()
        {
            let Some(times) = times else { continue };
            at += times.draw(&mut self.random) as u64;
            for _ in 0..trips {
                at = self.add_round_trip(at);
                if is_full {
                    self.refused += 1;
                    return ConnectOutcome::Refused(Time(at), ErrorKind(Cow::Borrowed(self.spec.refusal_error)));
                }
            }
            let taken = Some(Duration::from_nanos(at - from));
            from = at;
            match place {
                0 => phases.tls = taken,
                1 => phases.auth = taken,
                _ => phases.ready = taken,
            }
        }
        if is_full {
            self.refused += 1;
            return ConnectOutcome::Refused(
                Time(self.add_round_trip(at)),
                ErrorKind(Cow::Borrowed(self.spec.refusal_error)),
            );
        }
        self.open += u32::from(counts);
        self.max_open = self.max_open.max(self.open);
        ConnectOutcome::Established(Time(at), phases)
    }

    /// When the login begins of a connection that would be established at `established`. `None` if logins need no
    /// modelled processor. See [`Self::log_in`].
    pub fn login_start(&self, established: Time, phases: &Phases) -> Option<Time> {
        let taken = phases.auth.unwrap_or_default() + phases.ready.unwrap_or_default();
        self.login_needs_processor().then(|| Time(established.0.saturating_sub(taken.as_nanos() as u64)))
    }

    /// Starts a login. Returns its wait for a processor.
    pub fn log_in(&mut self, now: Time) -> Duration {
        let work = self.spec.connect.work.as_nanos() as u64;
        Duration::from_nanos(self.queue.as_mut().map_or(0, |queue| queue.occupy(now.0, work)))
    }

    fn login_needs_processor(&self) -> bool {
        self.queue.is_some() && !self.spec.connect.work.is_zero()
    }

    /// Sends an operation on a connection whose last activity was at `last`. `first`: the first operation on it.
    #[inline]
    pub fn send_operation(&mut self, last: Time, first: bool, now: Time) -> Delivery {
        if now.0.saturating_sub(last.0) > self.network_idle_limit_ns {
            return Delivery::Lost;
        }
        let mut up = self.timeline.draw_arrival(Direction::Up, now.0);
        if self.queue.is_some() || self.sharing.is_some() {
            return Delivery::ArrivesAt(Time(up));
        }
        if first {
            up += self.spec.first.as_nanos() as u64;
        }
        let taken = self.spec.service.draw(&mut self.random) as u64;
        Delivery::AnsweredAt(Time(self.finish_round_trips(up + taken)))
    }

    /// When an operation sent now arrives, on a connection whose last activity was at `last`. `None` if the network has
    /// dropped the connection.
    pub fn arrival_time(&mut self, last: Time, now: Time) -> Option<Time> {
        let is_alive = now.0.saturating_sub(last.0) <= self.network_idle_limit_ns;
        is_alive.then(|| Time(self.timeline.draw_arrival(Direction::Up, now.0)))
    }

    /// Starts to serve an operation. `first`: the first one on its connection. Returns when it is served; `None` if
    /// that depends on later arrivals, see [`Self::next_served`].
    pub fn start_service(&mut self, conn: u32, generation: u32, first: bool, now: Time) -> Option<Time> {
        let alone = self.spec.service.draw(&mut self.random);
        // The first operation's extra time is processor time.
        let more = if first { self.spec.first.as_nanos() as u64 } else { 0 };
        if let Some(queue) = &mut self.queue {
            return Some(Time(queue.serve(now.0, alone as u64, more)));
        }
        let Some(sharing) = &mut self.sharing else { return Some(Time(now.0 + alone as u64 + more)) };
        let work = (alone + more as f64) / self.spec.service.mean().as_nanos().max(1) as f64;
        sharing.enter(conn, generation, work, now);
        None
    }

    /// When the client has the answer to an operation that was served at `done`.
    #[inline]
    pub fn answer_arrival(&mut self, done: Time) -> Time {
        Time(self.finish_round_trips(done.0))
    }

    /// Whether an operation frees its connection as soon as it is served: it is one statement without a pause.
    pub fn frees_connection_when_served(&self) -> bool {
        self.spec.trips == 1 && self.spec.pause.is_zero()
    }

    /// Connects the Poolhouse in front to the server, without network delay. Returns when that is done, whether the
    /// connection is accepted, and when its login begins if that needs a processor (see [`Self::log_in`]).
    pub fn connect_directly(&mut self, now: Time) -> (Time, bool, Option<Time>) {
        let connect = &self.spec.connect;
        let mut draw = |times: &Option<Times>| times.as_ref().map_or(0.0, |times| times.draw(&mut self.random)) as u64;
        let before = [&connect.dns, &connect.tcp, &connect.tls].into_iter().map(&mut draw).sum::<u64>();
        let login = [&connect.auth, &connect.ready].into_iter().map(&mut draw).sum::<u64>();
        let is_accepted = self.max_connections.is_none_or(|max| self.open < max);
        self.open += u32::from(is_accepted);
        self.max_open = self.max_open.max(self.open);
        self.refused += u64::from(!is_accepted);
        let begins = Time(now.0 + before);
        (Time(begins.0 + login), is_accepted, Some(begins).filter(|_| is_accepted && self.login_needs_processor()))
    }

    /// When the shared server will have served the next operation.
    #[inline]
    pub fn next_served(&self) -> Time {
        self.sharing.as_ref().map_or(Time::NEVER, Sharing::next)
    }

    /// Takes an operation that the shared server has served by now.
    pub fn pop_served(&mut self, now: Time) -> Option<(u32, u32)> {
        self.sharing.as_mut()?.pop(now)
    }

    /// When a connection is closed whose closing starts now.
    pub fn close_time(now: Time) -> Time {
        Time(now.0 + CLOSE_NS)
    }

    /// Notes the end of a connection that counts toward the server's limit.
    pub fn free_place(&mut self) {
        self.open = self.open.checked_sub(1).expect("the number of open connections is positive");
    }

    /// When an unsolicited message arrives that is sent now.
    pub fn push_arrival(&mut self, now: Time) -> Time {
        Time(self.timeline.draw_arrival(Direction::Down, now.0))
    }

    pub fn stats(&self) -> ServerStats {
        ServerStats {
            max_open: self.max_open,
            refused: self.refused,
            max_concurrent: self.sharing.as_ref().map(Sharing::most),
        }
    }

    /// When an operation ends whose first answer is sent at `left`: after its other round trips and its pause.
    #[inline]
    fn finish_round_trips(&mut self, left: u64) -> u64 {
        let mut at = self.timeline.draw_arrival(Direction::Down, left);
        for _ in 1..self.spec.trips {
            at = self.add_round_trip(at);
        }
        at + self.spec.pause.as_nanos() as u64
    }

    #[inline]
    fn add_round_trip(&mut self, at: u64) -> u64 {
        let up = self.timeline.draw_arrival(Direction::Up, at);
        self.timeline.draw_arrival(Direction::Down, up)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ServerStats {
    /// The most connections at a time.
    pub max_open: u32,
    /// Connections that it has refused.
    pub refused: u64,
    /// The most concurrent operations. `None` if the server is not shared.
    pub max_concurrent: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrivals::Window;

    const MS: u64 = 1_000_000;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn spec() -> Spec {
        let (tcp, auth) = (Some(Times::Constant(ms(1))), Some(Times::Constant(ms(4))));
        let connect = Connect { tcp, auth, auth_trips: 3, ..Connect::default() };
        Spec { connect, ..Spec::new(Times::Constant(ms(2))) }
    }

    #[test]
    fn an_operation_takes_its_service_time_and_a_round_trip_for_each_statement() {
        let faults = [Fault::Delay { delay: ms(5), jitter: Duration::ZERO }];
        let (mut spec, at) = (spec(), Time(100 * MS));
        assert_eq!(Server::new(&spec, &faults, 1).send_operation(at, false, at), Delivery::AnsweredAt(Time(112 * MS)));
        spec.first = ms(6);
        assert_eq!(Server::new(&spec, &faults, 1).send_operation(at, true, at), Delivery::AnsweredAt(Time(118 * MS)));
        (spec.trips, spec.pause) = (3, ms(7));
        assert_eq!(Server::new(&spec, &faults, 1).send_operation(at, false, at), Delivery::AnsweredAt(Time(139 * MS)));
        assert_eq!(spec.mean_hold_time(&faults), ms(39));
    }

    #[test]
    fn each_answer_of_a_login_is_late_in_a_stall() {
        let delay = Fault::Delay { delay: ms(5), jitter: Duration::ZERO };
        let window = Window { first: ms(0), length: ms(900), every: None };
        let stall = Fault::Stall { delay: ms(200), window };
        let spec = spec();
        let stands = |faults: &[Fault]| {
            let mut server = Server::new(&spec, faults, 1);
            server.begin_load(Time(0));
            match server.connect(false, true, Time(0)) {
                ConnectOutcome::Established(at, phases) => (at.0 / MS, phases.auth.unwrap().as_millis() as u64),
                ConnectOutcome::Refused(..) => panic!("refused"),
            }
        };
        // TCP 1 ms and its round trip, three round trips, 4 ms of work.
        assert_eq!(stands(&[delay]), (45, 44));
        assert_eq!(spec.mean_connect_time(&[delay]), ms(45));
        assert_eq!(stands(&[delay, stall]), (645, 644));
    }

    #[test]
    fn a_connection_above_the_limit_is_refused_until_another_is_closed() {
        let spec = Spec { limit: Some(5), reserved: 3, ..spec() };
        let mut server = Server::new(&spec, &[], 1);
        let stands =
            |server: &mut Server<'_>| matches!(server.connect(false, true, Time(0)), ConnectOutcome::Established(..));
        assert_eq!([(); 3].map(|()| stands(&mut server)), [true, true, false]);
        server.free_place();
        assert!(stands(&mut server));
        assert_eq!(server.stats(), ServerStats { max_open: 2, refused: 1, max_concurrent: None });
        // A monitoring connection takes one of the two.
        let mut server = Server::new(&spec, &[], 1).with_monitors(1);
        assert_eq!([(); 2].map(|()| stands(&mut server)), [true, false]);
    }

    #[test]
    fn a_connection_that_the_network_has_dropped_never_answers() {
        let spec = spec();
        let mut server = Server::new(&spec, &[Fault::Forget { idle: ms(100) }], 1);
        assert!(matches!(server.send_operation(Time(0), false, Time(100 * MS)), Delivery::AnsweredAt(_)));
        assert_eq!(server.send_operation(Time(0), false, Time(101 * MS)), Delivery::Lost);
    }
}
