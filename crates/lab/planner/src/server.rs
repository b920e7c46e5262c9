//! The server in virtual time: when a connection stands, when an operation is answered, what is refused. What happens
//! to bytes on the way is `workload`'s to say, as it is for the relay of the load generator. Knows connections as
//! numbers, and no pool.

mod curve;
mod processors;
mod sharing;
mod times;

use std::{borrow::Cow, time::Duration};

use arrivals::{Direction, Fault, Random, Weather};
use load::record::{ErrorKind, Phases};
use pool::Time;

pub use curve::{Curve, LOW};
pub use processors::Processors;
use processors::Queue;
use sharing::Sharing;
pub use times::{MOST_P99, Times};

/// What is said of a server.
#[derive(Clone, PartialEq, Debug)]
pub struct Spec {
    /// What it takes to answer one operation alone, without the way there and back.
    pub service: Times,
    /// By how much longer the first operation on a new connection takes: the server has to read its catalogues and
    /// plan.
    pub first: Duration,
    /// Round trips of an operation: one for each statement.
    pub trips: u32,
    /// Time within an operation that is the client's own: it keeps the connection, and the server does nothing for it.
    pub pause: Duration,
    /// What many operations at once do to one another; `None`: nothing.
    pub curve: Option<Curve>,
    /// Its processors, which operations wait for, where there is no such curve; `None`: there are enough.
    pub processors: Option<Processors>,
    /// What making a connection takes.
    pub connect: Connect,
    /// Connections that it lets in; `None`: any number.
    pub limit: Option<u32>,
    /// Of these, those kept for others.
    pub reserved: u32,
    /// What it answers to one too many.
    pub full: &'static str,
    /// Connections that all pools together may have, because they are those of one Poolhouse (its
    /// `max_server_connections`); `None`: each has as many as it may have by itself.
    pub budget: Option<u32>,
    /// Connections of each instance that watch the server and belong to no pool: see [`MONGODB_WATCHERS`].
    pub watchers: u32,
}

/// What making a connection takes at both ends, without the way; `None`: there is no such phase.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Connect {
    pub dns: Option<Times>,
    pub tcp: Option<Times>,
    pub tls: Option<Times>,
    pub auth: Option<Times>,
    /// From there to being ready.
    pub ready: Option<Times>,
    /// Answers that the handshake of TLS waits for: to the hello, and with PostgreSQL to the request for it before.
    pub tls_trips: u32,
    /// Answers that the login waits for, one after the other.
    pub auth_trips: u32,
    /// The same for being ready.
    pub ready_trips: u32,
    /// Of the login and what follows, for how long it needs one of the server's processors, where these are known: a
    /// process is forked, a password proved, caches are filled.
    pub work: Duration,
}

/// What closing a connection takes.
const CLOSE: u64 = 20_000;
/// A driver of MongoDB has a pool for each host, and to each host two connections besides: one waits for news of it,
/// one measures the round trip ("Server Monitoring" among the specifications of MongoDB's drivers). Each host has a
/// limit of its own: it is the server here.
pub const MONGODB_WATCHERS: u32 = 2;
/// The same where drivers do not stream that news, but ask for it: in functions, and through a Poolhouse, which does
/// not offer it.
pub const POLLING_WATCHERS: u32 = 1;
/// What a PostgreSQL answers to one connection too many.
pub const POSTGRES_FULL: &str = "sqlstate 53300";

impl Connect {
    /// The mean of all phases, without the way.
    pub fn mean(&self) -> Duration {
        self.phases().filter_map(|(times, _)| times.as_ref()).map(Times::mean).sum()
    }

    /// Answers waited for, TCP's included.
    pub fn trips(&self) -> u32 {
        1 + self.phases().filter(|(times, _)| times.is_some()).map(|(_, trips)| trips).sum::<u32>()
    }

    /// How many phases there are.
    pub fn phases_known(&self) -> usize {
        self.phases().filter(|(times, _)| times.is_some()).count()
    }

    fn phases(&self) -> impl Iterator<Item = (&Option<Times>, u32)> {
        let trips = [0, 0, self.tls_trips, self.auth_trips, self.ready_trips];
        [&self.dns, &self.tcp, &self.tls, &self.auth, &self.ready].into_iter().zip(trips)
    }
}

impl Spec {
    /// A server of which nothing else is said: no operation hinders another one, connecting is no more than TCP's round
    /// trip, and everybody is let in. It speaks as PostgreSQL does.
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
            full: POSTGRES_FULL,
            budget: None,
            watchers: 0,
        }
    }

    /// Connections that there may be of all pools together, beside so many that watch the server.
    pub fn room(&self, watching: u32) -> Option<u32> {
        self.limit.map(|limit| limit.saturating_sub(self.reserved).saturating_sub(watching))
    }

    /// How long a connection is held by an operation on average while nothing stalls: the server's time, the way and
    /// the pause.
    pub fn held(&self, faults: &[Fault]) -> Duration {
        self.service.mean() + self.pause + round_trip(faults) * self.trips
    }

    /// What making a connection takes on average while nothing stalls.
    pub fn connecting(&self, faults: &[Fault]) -> Duration {
        self.connect.mean() + round_trip(faults) * self.connect.trips()
    }
}

/// There and back on average while nothing stalls.
pub fn round_trip(faults: &[Fault]) -> Duration {
    let delays = faults.iter().filter_map(|fault| match fault {
        Fault::Delay { delay, jitter } => Some(*delay * 2 + *jitter),
        _ => None,
    });
    delays.sum()
}

/// What becomes of a connection that is asked for.
#[derive(Clone, Debug)]
pub enum Dialled {
    /// It stands from then on.
    Stands(Time, Phases),
    Refused(Time, ErrorKind),
}

/// When an operation ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    At(Time),
    /// It reaches the server then, and shares it with others; see [`Server::begin`].
    Shared(Time),
    /// Never: the network has forgotten the connection.
    Never,
}

#[derive(Debug)]
pub struct Server<'s> {
    spec: &'s Spec,
    weather: Weather,
    /// How long the network remembers a silent connection.
    memory: u64,
    random: Random,
    sharing: Option<Sharing>,
    queue: Option<Queue>,
    /// Connections that it lets in; `None`: any number.
    room: Option<u32>,
    open: u32,
    most: u32,
    refused: u64,
}

impl<'s> Server<'s> {
    pub fn new(spec: &'s Spec, faults: &[Fault], seed: u64) -> Self {
        let mut random = Random::new(seed);
        let weather = Weather::new(faults, random.bits());
        Self {
            spec,
            memory: weather.memory(),
            weather,
            random: Random::new(random.bits()),
            sharing: spec.curve.clone().map(Sharing::new),
            queue: spec.processors.filter(|_| spec.curve.is_none()).map(|all| Queue::new(all, &spec.service)),
            room: spec.room(0),
            open: 0,
            most: 0,
            refused: 0,
        }
    }

    /// So many connections that nobody counts watch it.
    #[must_use]
    pub fn watched_by(self, connections: u32) -> Self {
        Self { room: self.spec.room(connections), ..self }
    }

    /// What it answers to one too many.
    pub fn full(&self) -> &'static str {
        self.spec.full
    }

    /// Windows of faults count from here. Returns the first time at which connections are cut.
    pub fn load_begins(&mut self, now: Time) -> Option<Time> {
        self.weather.began = Some(now.0);
        self.weather.next_cut(now.0.saturating_sub(1)).map(Time)
    }

    /// The next time after this at which connections are cut.
    pub fn next_cut(&self, now: Time) -> Option<Time> {
        self.weather.next_cut(now.0).map(Time)
    }

    /// A connection is asked for. `front`: by way of a Poolhouse, which answers in the server's place and has a limit
    /// of its own. Whether it `counts`, until [`Self::gone`].
    pub fn dial(&mut self, front: bool, counts: bool, now: Time) -> Dialled {
        let connect = &self.spec.connect;
        let full = !front && self.room.is_some_and(|room| self.open >= room);
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
        // The relay of a measurement cannot delay the handshake itself, and delays what follows instead: that phase
        // shows it.
        let mut from = at;
        at += self.weather.round_trip();
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
                at = self.there_and_back(at);
                if full {
                    self.refused += 1;
                    return Dialled::Refused(Time(at), ErrorKind(Cow::Borrowed(self.spec.full)));
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
        if full {
            self.refused += 1;
            return Dialled::Refused(Time(self.there_and_back(at)), ErrorKind(Cow::Borrowed(self.spec.full)));
        }
        self.open += u32::from(counts);
        self.most = self.most.max(self.open);
        Dialled::Stands(Time(at), phases)
    }

    /// When the login of a connection begins that would stand then, if it waits for a processor of the server; see
    /// [`Self::log_in`].
    pub fn login(&self, stands: Time, phases: &Phases) -> Option<Time> {
        let taken = phases.auth.unwrap_or_default() + phases.ready.unwrap_or_default();
        self.login_waits().then(|| Time(stands.0.saturating_sub(taken.as_nanos() as u64)))
    }

    /// A login begins; by how much later it is done because it waits for a processor.
    pub fn log_in(&mut self, now: Time) -> Duration {
        let work = self.spec.connect.work.as_nanos() as u64;
        Duration::from_nanos(self.queue.as_mut().map_or(0, |queue| queue.take(now.0, work)))
    }

    fn login_waits(&self) -> bool {
        self.queue.is_some() && !self.spec.connect.work.is_zero()
    }

    /// An operation is sent on a connection on which something passed last at `last`; `first`: the first one there.
    #[inline]
    pub fn ask(&mut self, last: Time, first: bool, now: Time) -> Answer {
        if now.0.saturating_sub(last.0) > self.memory {
            return Answer::Never;
        }
        let mut up = self.weather.arrival(Direction::Up, now.0);
        if self.queue.is_some() || self.sharing.is_some() {
            return Answer::Shared(Time(up));
        }
        if first {
            up += self.spec.first.as_nanos() as u64;
        }
        let taken = self.spec.service.draw(&mut self.random) as u64;
        Answer::At(Time(self.back(up + taken)))
    }

    /// When an operation that is sent on a connection on which something passed last at `last` arrives; `None`: never.
    pub fn reaches(&mut self, last: Time, now: Time) -> Option<Time> {
        let remembered = now.0.saturating_sub(last.0) <= self.memory;
        remembered.then(|| Time(self.weather.arrival(Direction::Up, now.0)))
    }

    /// An operation has reached the server; `first`: the first one on its connection. When the server is done with it,
    /// if nobody who comes later can change that; else see [`Self::next_served`].
    pub fn begin(&mut self, conn: u32, made: u32, first: bool, now: Time) -> Option<Time> {
        let alone = self.spec.service.draw(&mut self.random);
        // What the first one takes longer is work: the server reads its catalogues and plans.
        let more = if first { self.spec.first.as_nanos() as u64 } else { 0 };
        if let Some(queue) = &mut self.queue {
            return Some(Time(queue.done(now.0, alone as u64, more)));
        }
        let Some(sharing) = &mut self.sharing else { return Some(Time(now.0 + alone as u64 + more)) };
        let work = (alone + more as f64) / self.spec.service.mean().as_nanos().max(1) as f64;
        sharing.enter(conn, made, work, now);
        None
    }

    /// When the answer of an operation arrives with which the server is done.
    #[inline]
    pub fn answer(&mut self, done: Time) -> Time {
        Time(self.back(done.0))
    }

    /// Whether an operation needs its connection no longer when the server is done with it: it was one statement,
    /// without a pause.
    pub fn is_over_when_done(&self) -> bool {
        self.spec.trips == 1 && self.spec.pause.is_zero()
    }

    /// The Poolhouse in front connects, straight: when that is done, whether the connection stands, and when the login
    /// begins, if it waits for a processor; see [`Self::log_in`].
    pub fn link(&mut self, now: Time) -> (Time, bool, Option<Time>) {
        let connect = &self.spec.connect;
        let mut draw = |times: &Option<Times>| times.as_ref().map_or(0.0, |times| times.draw(&mut self.random)) as u64;
        let before = [&connect.dns, &connect.tcp, &connect.tls].into_iter().map(&mut draw).sum::<u64>();
        let login = [&connect.auth, &connect.ready].into_iter().map(&mut draw).sum::<u64>();
        let stands = self.room.is_none_or(|room| self.open < room);
        self.open += u32::from(stands);
        self.most = self.most.max(self.open);
        self.refused += u64::from(!stands);
        let begins = Time(now.0 + before);
        (Time(begins.0 + login), stands, Some(begins).filter(|_| stands && self.login_waits()))
    }

    /// When the shared server is done with the next operation.
    #[inline]
    pub fn next_served(&self) -> Time {
        self.sharing.as_ref().map_or(Time::NEVER, Sharing::next)
    }

    /// An operation that the shared server is done with.
    pub fn served(&mut self, now: Time) -> Option<(u32, u32)> {
        self.sharing.as_mut()?.pop(now)
    }

    /// A connection is closed; when that is done.
    pub fn close(now: Time) -> Time {
        Time(now.0 + CLOSE)
    }

    pub fn gone(&mut self) {
        self.open = self.open.checked_sub(1).expect("only what is open closes");
    }

    /// When what the server says unasked arrives.
    pub fn tells(&mut self, now: Time) -> Time {
        Time(self.weather.arrival(Direction::Down, now.0))
    }

    /// The most connections at a time, those refused, and the most operations that shared it at once.
    pub fn seen(&self) -> Seen {
        Seen { most: self.most, refused: self.refused, at_once: self.sharing.as_ref().map(Sharing::most) }
    }

    /// The last answer of an operation has left the server then, all other round trips included.
    #[inline]
    fn back(&mut self, left: u64) -> u64 {
        let mut at = self.weather.arrival(Direction::Down, left);
        for _ in 1..self.spec.trips {
            at = self.there_and_back(at);
        }
        at + self.spec.pause.as_nanos() as u64
    }

    #[inline]
    fn there_and_back(&mut self, at: u64) -> u64 {
        let up = self.weather.arrival(Direction::Up, at);
        self.weather.arrival(Direction::Down, up)
    }
}

/// What a server has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// The most connections at a time.
    pub most: u32,
    /// Connections that it has refused.
    pub refused: u64,
    /// The most operations that shared it; `None`: they do not hinder one another.
    pub at_once: Option<u32>,
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
    fn an_operation_takes_its_way_and_its_service_and_each_statement_another_way() {
        let faults = [Fault::Delay { delay: ms(5), jitter: Duration::ZERO }];
        let (mut spec, at) = (spec(), Time(100 * MS));
        assert_eq!(Server::new(&spec, &faults, 1).ask(at, false, at), Answer::At(Time(112 * MS)));
        spec.first = ms(6);
        assert_eq!(Server::new(&spec, &faults, 1).ask(at, true, at), Answer::At(Time(118 * MS)));
        (spec.trips, spec.pause) = (3, ms(7));
        assert_eq!(Server::new(&spec, &faults, 1).ask(at, false, at), Answer::At(Time(139 * MS)));
        assert_eq!(spec.held(&faults), ms(39));
    }

    #[test]
    fn a_connection_waits_for_each_answer_of_its_login_also_in_a_stall() {
        let delay = Fault::Delay { delay: ms(5), jitter: Duration::ZERO };
        let window = Window { first: ms(0), length: ms(900), every: None };
        let stall = Fault::Stall { delay: ms(200), window };
        let spec = spec();
        let stands = |faults: &[Fault]| {
            let mut server = Server::new(&spec, faults, 1);
            server.load_begins(Time(0));
            match server.dial(false, true, Time(0)) {
                Dialled::Stands(at, phases) => (at.0 / MS, phases.auth.unwrap().as_millis() as u64),
                Dialled::Refused(..) => panic!("refused"),
            }
        };
        // TCP 1 ms and its round trip, three round trips, 4 ms of work.
        assert_eq!(stands(&[delay]), (45, 44));
        assert_eq!(spec.connecting(&[delay]), ms(45));
        assert_eq!(stands(&[delay, stall]), (645, 644));
    }

    #[test]
    fn one_connection_too_many_is_refused_and_one_that_left_makes_room() {
        let spec = Spec { limit: Some(5), reserved: 3, ..spec() };
        let mut server = Server::new(&spec, &[], 1);
        let stands = |server: &mut Server<'_>| matches!(server.dial(false, true, Time(0)), Dialled::Stands(..));
        assert_eq!([(); 3].map(|()| stands(&mut server)), [true, true, false]);
        server.gone();
        assert!(stands(&mut server));
        assert_eq!(server.seen(), Seen { most: 2, refused: 1, at_once: None });
        // One of the two is taken by somebody who watches.
        let mut server = Server::new(&spec, &[], 1).watched_by(1);
        assert_eq!([(); 2].map(|()| stands(&mut server)), [true, false]);
    }

    #[test]
    fn a_forgotten_connection_never_answers() {
        let spec = spec();
        let mut server = Server::new(&spec, &[Fault::Forget { idle: ms(100) }], 1);
        assert!(matches!(server.ask(Time(0), false, Time(100 * MS)), Answer::At(_)));
        assert_eq!(server.ask(Time(0), false, Time(101 * MS)), Answer::Never);
    }
}
