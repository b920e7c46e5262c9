//! One simulation: the load generator's engine, with the real pools in it, against the server in virtual time. Jumps
//! from event to event; the same plan, server and seed give the same result. Knows neither where the question came from
//! nor what follows from the answer.

mod events;
mod patience;

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
    front::{Front, Servers, Told},
    server::{Answer, Dialled, POLLING_WATCHERS, Seen, Server, Spec},
};
use events::{Event, Events, Link, What};
use patience::Patience;

/// What a client learns whose connection the other side has ended.
const ENDED: &str = "connection closed";
/// How a warning begins of a simulation in which nothing was asked.
pub const NOT_BEGUN: &str = "The load did not begin";
/// The same of one that was not played to its end.
pub const CUT_SHORT: &str = "The simulation was cut short";
/// The seed of the server, apart from that of the load.
const SERVER_SEED: u64 = 0x5e12_7e12;

/// What came out of a simulation.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// As the load generator would have measured it.
    pub result: BenchResult,
    /// What the server has seen.
    pub server: Seen,
    /// Clients that a Poolhouse in front has rejected, and evicted.
    pub gate: (u64, u64),
    /// The longest wait in the pools of the plan, without that in the pool of a Poolhouse in front; `None`: nobody has
    /// got a connection.
    pub longest_wait: Option<Duration>,
    /// It was played to its end. If not, the result is of what was played.
    pub is_whole: bool,
    /// It was not, as [`run_until`] was told that it was enough.
    pub is_enough: bool,
    /// How often something happened.
    pub moments: u64,
    /// The most that was to happen at a time: for what a simulation needs of memory.
    pub most_events: usize,
}

/// Plays a plan to its end.
pub fn run(plan: &Plan, spec: &Spec) -> Outcome {
    run_until(plan, spec, &mut |_, _| false)
}

/// The same until it is enough, which is asked from time to time while the load lasts.
pub fn run_until(plan: &Plan, spec: &Spec, is_enough: Enough<'_>) -> Outcome {
    played(plan, spec, Events::new(), is_enough)
}

/// Whether enough is known of what the engine has played.
pub type Enough<'e> = &'e mut dyn FnMut(&Engine, Time) -> bool;

fn played(plan: &Plan, spec: &Spec, events: Events, is_enough: Enough<'_>) -> Outcome {
    let mut world = World::new(plan, spec, events);
    let mut engine = Engine::with_limit(plan, spec.budget, Time(0));
    if world.servers.is_some() {
        engine.front_is_told();
    }
    let mut now = Time(0);
    let wanted = u64::from(plan.pool.config.min_size) * u64::from(plan.pool.instances);
    let mut patience = Patience::new(wanted, matches!(plan.shape, Shape::Closed { .. }));
    let (mut is_whole, mut left) = (true, false);
    loop {
        while let Some(order) = engine.poll_order(now) {
            world.obey(order, now);
        }
        if engine.is_done() {
            break;
        }
        if world.began.is_none()
            && let Some(at) = engine.measured_from()
        {
            world.load_begins(at);
            patience.load_begins();
        }
        if patience.is_look_due() && is_enough(&engine, now) {
            (is_whole, left) = (false, true);
            break;
        }
        if patience.is_over(&engine, world.began.is_some(), now) {
            is_whole = false;
            break;
        }
        let next = world.next().min(engine.deadline().unwrap_or(Time::NEVER));
        assert!(next < Time::NEVER, "nothing will ever happen, and the simulation is not over");
        now = world.awake(plan.freeze.as_ref(), now.max(next));
        world.play(&mut engine, now);
    }
    let mut result = engine.result(now);
    "virtual time".clone_into(&mut result.about.machine);
    if left {
        result.interrupted = true;
    } else if let Some(failure) = engine.failure() {
        result.warnings.push(format!(
            "{NOT_BEGUN}: {} of {} connections stood, and the next ones failed ({}).",
            failure.made, failure.wanted, failure.kind.0
        ));
        is_whole = false;
    } else if !is_whole && world.began.is_none() {
        result.warnings.push(format!(
            "{NOT_BEGUN}: its {wanted} connections do not all stand at once, as if they ended faster than new ones are made."
        ));
    } else if let (false, Some(began)) = (is_whole, world.began) {
        result.interrupted = true;
        result.warnings.push(format!(
            "{CUT_SHORT} after {}: connections come and go, or operations fail, so fast that it would hardly end. What is shown is what \
             happened until then.",
            crate::words::time(now - began)
        ));
    }
    Outcome {
        result,
        server: world.server.seen(),
        gate: world.front.as_ref().map_or((0, 0), Front::seen),
        longest_wait: engine.longest_wait(),
        is_whole,
        is_enough: left,
        moments: patience.moments(),
        most_events: world.events.most(),
    }
}

#[derive(Clone, Debug, Default)]
struct Line {
    /// Tells it from others that had the same number; 0: there is none.
    made: u32,
    /// When something passed last.
    last: Time,
    busy: bool,
    /// It has carried an operation.
    used: bool,
    /// Its operation is the first one.
    first: bool,
    /// When its operation has reached the Poolhouse in front.
    asked: Time,
    /// When it stands, if its login waits for no processor.
    stands: Time,
    /// It counts as one of the server's.
    open: bool,
    /// A client of the Poolhouse in front.
    admitted: bool,
    told_to_go: bool,
    phases: Phases,
    refusal: Option<ErrorKind>,
}

struct World<'s> {
    server: Server<'s>,
    front: Option<Front>,
    /// Servers of the Poolhouse in front, where each client has one for its operation alone.
    servers: Option<Servers>,
    /// The connections of these, by their slot: which of those that had the slot, whether the server counts it, and
    /// when it stands, if its login waits for no processor.
    links: Vec<(u32, bool, Time)>,
    events: Events,
    lines: Vec<Line>,
    made: u32,
    /// When the load began, warm-up not included.
    began: Option<Time>,
}

impl<'s> World<'s> {
    fn new(plan: &Plan, spec: &'s Spec, events: Events) -> Self {
        Self {
            server: Server::new(spec, &plan.faults, plan.seed ^ SERVER_SEED).watched_by(watching(plan, spec)),
            front: plan.poolhouse.as_ref().map(|wishes| Front::new(wishes, &plan.target)),
            servers: own_pool(plan).map(|wishes| Servers::new(wishes, Time(0))),
            links: Vec::new(),
            events,
            lines: Vec::new(),
            made: 0,
            began: None,
        }
    }

    fn load_begins(&mut self, at: Time) {
        self.began = Some(at);
        if let Some(cut) = self.server.load_begins(at) {
            self.push(cut, What::Cut, u32::MAX, 0);
        }
    }

    /// When something happens next.
    #[inline]
    fn next(&self) -> Time {
        let front = self.front.as_ref().map_or(Time::NEVER, Front::deadline);
        let servers = self.servers.as_ref().map_or(Time::NEVER, Servers::deadline);
        self.events.next().min(self.server.next_served()).min(front).min(servers)
    }

    /// The same time, or the end of the window in which the load's process is frozen.
    fn awake(&self, freeze: Option<&Window>, now: Time) -> Time {
        let (Some(window), Some(began)) = (freeze, self.began) else { return now };
        match now.0.checked_sub(began.0).and_then(|at| window.begins_at(at)) {
            Some(begin) => began + Duration::from_nanos(begin) + window.length,
            None => now,
        }
    }

    #[inline]
    fn push(&mut self, at: Time, what: What, conn: u32, made: u32) {
        let (lines, links) = (&self.lines, &self.links);
        self.events.push(at, what, conn, made, |event| can_happen(lines, links, event));
    }

    #[inline]
    fn obey(&mut self, order: Order, now: Time) {
        match order {
            Order::Connect(conn) => self.connect(conn, now),
            Order::Run { conn: ConnId(conn), .. } => {
                if let Some(front) = &mut self.front {
                    front.is_busy(conn);
                }
                let line = &mut self.lines[conn as usize];
                line.busy = true;
                let (made, last) = (line.made, std::mem::replace(&mut line.last, now));
                let first = !std::mem::replace(&mut line.used, true);
                line.first = first;
                let answer = match &self.servers {
                    // The operation has to reach the Poolhouse first.
                    Some(_) => self.server.reaches(last, now).map_or(Answer::Never, Answer::Shared),
                    None => self.server.ask(last, first, now),
                };
                match answer {
                    Answer::At(at) => self.push(at, What::Ended, conn, made),
                    Answer::Shared(at) => self.push(at, What::Reached, conn, made),
                    // The operation's own time-out ends it. Nothing will ever pass there again.
                    Answer::Never => self.lines[conn as usize].last = Time(0),
                }
            }
            Order::Close(ConnId(conn)) => {
                let line = &self.lines[conn as usize];
                let made = line.made;
                self.push(Server::close(now), What::Closed, conn, made);
            }
        }
    }

    fn connect(&mut self, ConnId(conn): ConnId, now: Time) {
        if self.lines.len() <= conn as usize {
            self.lines.resize(conn as usize + 1, Line::default());
        }
        self.made += 1;
        let made = self.made;
        let admitted = self.front.as_mut().is_some_and(Front::admits);
        let rejected = self.front.is_some() && !admitted;
        let mut line = Line { made, last: now, admitted, ..Line::default() };
        let counts = self.servers.is_none();
        let (at, what) = match self.server.dial(self.front.is_some(), counts && !rejected, now) {
            Dialled::Stands(at, _) if rejected => {
                line.refusal = Some(ErrorKind(Cow::Borrowed(self.server.full())));
                (at, What::Refused)
            }
            Dialled::Stands(at, phases) => {
                (line.phases, line.open, line.stands) = (phases, counts, at);
                // A Poolhouse in front logs its clients in by itself.
                match self.server.login(at, &phases).filter(|_| self.front.is_none()) {
                    Some(begins) => (begins, What::LogsIn),
                    None => (at, What::Connected),
                }
            }
            Dialled::Refused(at, kind) => {
                line.refusal = Some(kind);
                (at, What::Refused)
            }
        };
        self.lines[conn as usize] = line;
        self.push(at, what, conn, made);
    }

    /// Everything that is due.
    #[inline]
    fn play(&mut self, engine: &mut Engine, now: Time) {
        loop {
            while let Some((conn, due)) = self.front.as_mut().and_then(|front| front.sent_away(now)) {
                let line = &mut self.lines[conn as usize];
                line.told_to_go = true;
                let (made, at) = (line.made, self.server.tells(due));
                self.push(at, What::Lost, conn, made);
            }
            while let Some((conn, made)) = self.server.served(now) {
                self.done(conn, made, now);
            }
            if let Some(servers) = self.servers.as_mut().filter(|servers| servers.deadline() <= now) {
                servers.handle_timeout(now);
            }
            self.front_goes_on(engine, now);
            let Some(event) = self.events.pop(now) else { break };
            if !can_happen(&self.lines, &self.links, &event) {
                continue;
            }
            match event {
                (_, _, What::Cut, ..) => self.cut(engine, now),
                (_, _, What::Link(link), slot, made) => self.linked(link, slot, made, now),
                (_, _, what, conn, _) => self.happens(what, conn, engine, now),
            }
        }
    }

    #[inline]
    fn happens(&mut self, what: What, conn: u32, engine: &mut Engine, now: Time) {
        let id = ConnId(conn);
        match what {
            What::Ended | What::Failed => {
                let line = &mut self.lines[conn as usize];
                (line.busy, line.last) = (false, now);
                if let Some(front) = self.front.as_mut().filter(|_| !line.told_to_go) {
                    front.is_idle(conn, now);
                }
                if let Some(servers) = &mut self.servers {
                    servers.done(conn, now);
                }
                let error = (what == What::Failed).then(|| ErrorKind(Cow::Borrowed(self.server.full())));
                engine.ended(id, Ended { error, reusable: true }, now);
            }
            What::Reached => match &mut self.servers {
                Some(servers) => {
                    self.lines[conn as usize].asked = now;
                    servers.ask(conn, now);
                }
                None => self.begin(conn, self.lines[conn as usize].first, now),
            },
            What::Done => {
                let made = self.lines[conn as usize].made;
                self.done(conn, made, now);
            }
            What::LogsIn => {
                let waits = self.server.log_in(now);
                let line = &mut self.lines[conn as usize];
                line.phases.auth = Some(line.phases.auth.unwrap_or_default() + waits);
                let (stands, made) = (line.stands + waits, line.made);
                self.push(stands, What::Connected, conn, made);
            }
            What::Connected => {
                let line = &mut self.lines[conn as usize];
                line.last = now;
                let phases = line.phases;
                if let Some(front) = &mut self.front {
                    front.is_idle(conn, now);
                }
                engine.connected(id, &phases, now);
            }
            What::Refused => {
                let kind = self.lines[conn as usize].refusal.take().expect("whoever is refused is told why");
                self.forget(conn, now);
                engine.connect_failed(id, kind, false, now);
            }
            What::Lost => {
                self.forget(conn, now);
                engine.lost(id, ErrorKind(Cow::Borrowed(ENDED)), now);
            }
            What::Closed => {
                self.forget(conn, now);
                engine.closed(id, now);
            }
            What::Cut => unreachable!("a cut is of all connections"),
            What::Link(_) => unreachable!("a link is no client's"),
        }
    }

    /// The server begins with an operation.
    fn begin(&mut self, conn: u32, first: bool, now: Time) {
        let made = self.lines[conn as usize].made;
        match self.server.begin(conn, made, first, now) {
            None => {}
            // With a Poolhouse in front, somebody may wait for the server that becomes free then.
            Some(done) if self.servers.is_some() => self.push(done, What::Done, conn, made),
            Some(done) => {
                let at = self.server.answer(done);
                self.push(at, What::Ended, conn, made);
            }
        }
    }

    /// The server is done with an operation, perhaps of a client that is gone.
    fn done(&mut self, conn: u32, made: u32, now: Time) {
        // On its way it meets the weather, whoever still waits for it.
        let at = self.server.answer(now);
        if self.lines[conn as usize].made != made {
            return;
        }
        self.push(at, What::Ended, conn, made);
        if let Some(servers) = self.servers.as_mut().filter(|_| self.server.is_over_when_done()) {
            servers.done(conn, now);
        }
    }

    /// What became of a connection of the Poolhouse in front.
    fn linked(&mut self, link: Link, slot: u32, made: u32, now: Time) {
        let servers = self.servers.as_mut().expect("whoever has connections has a pool of them");
        match link {
            Link::LogsIn => {
                let stands = self.links[slot as usize].2 + self.server.log_in(now);
                return self.push(stands, What::Link(Link::Stands), slot, made);
            }
            Link::Stands => return servers.connected(slot, now),
            Link::Refused => servers.refused(slot, now),
            Link::Closed => servers.closed(slot, now),
        }
        let (_, counted, _) = std::mem::take(&mut self.links[slot as usize]);
        if counted {
            self.server.gone();
        }
    }

    /// What the pool of the Poolhouse in front has decided.
    fn front_goes_on(&mut self, engine: &mut Engine, now: Time) {
        while let Some(told) = self.servers.as_mut().and_then(Servers::poll) {
            match told {
                Told::Connect(slot) => {
                    let (at, stands, login) = self.server.link(now);
                    if self.links.len() <= slot as usize {
                        self.links.resize(slot as usize + 1, (0, false, Time(0)));
                    }
                    self.made += 1;
                    self.links[slot as usize] = (self.made, stands, at);
                    let (at, link) = match login {
                        Some(begins) => (begins, Link::LogsIn),
                        None => (at, if stands { Link::Stands } else { Link::Refused }),
                    };
                    self.push(at, What::Link(link), slot, self.made);
                }
                Told::Close(slot) => {
                    let (made, ..) = self.links[slot as usize];
                    self.push(Server::close(now), What::Link(Link::Closed), slot, made);
                }
                Told::Go { client, first } => {
                    engine.passed_front(ConnId(client), now - self.lines[client as usize].asked, now);
                    self.begin(client, first, now);
                }
                Told::Fails(client) => {
                    let (made, at) = (self.lines[client as usize].made, self.server.tells(now));
                    self.push(at, What::Failed, client, made);
                }
            }
        }
    }

    /// All connections end at once.
    fn cut(&mut self, engine: &mut Engine, now: Time) {
        for conn in 0..self.lines.len() as u32 {
            if self.lines[conn as usize].made != 0 {
                self.forget(conn, now);
                engine.lost(ConnId(conn), ErrorKind(Cow::Borrowed(ENDED)), now);
            }
        }
        if let Some(next) = self.server.next_cut(now) {
            self.push(next, What::Cut, u32::MAX, 0);
        }
    }

    fn forget(&mut self, conn: u32, now: Time) {
        if let Some(servers) = &mut self.servers {
            servers.left(conn, now);
        }
        let line = std::mem::take(&mut self.lines[conn as usize]);
        if line.open {
            self.server.gone();
        }
        if let Some(front) = self.front.as_mut().filter(|_| line.admitted) {
            front.left(conn, line.told_to_go);
        }
    }
}

/// Whether something still can happen: its connection is the one that it was said of.
#[inline]
fn can_happen(lines: &[Line], links: &[(u32, bool, Time)], &(_, _, what, conn, made): &Event) -> bool {
    match what {
        What::Cut => true,
        What::Link(_) => links[conn as usize].0 == made,
        _ => lines[conn as usize].made == made,
    }
}

/// Connections that watch the server while a plan is played: those of all instances, or that of the Poolhouse that they
/// go through.
pub fn watching(plan: &Plan, spec: &Spec) -> u32 {
    match own_pool(plan).is_some() || spec.budget.is_some() {
        true => spec.watchers.min(POLLING_WATCHERS),
        false if plan.pool.reuse => spec.watchers.saturating_mul(plan.pool.instances),
        false => 0,
    }
}

/// Connections that the pools of a plan may have at the server, all together; `None`: any number.
pub fn room(plan: &Plan, spec: &Spec) -> Option<u32> {
    spec.room(watching(plan, spec))
}

/// The pool of the Poolhouse in front, if it has one server for each client that is at work: those of Redis share
/// theirs.
pub fn own_pool(plan: &Plan) -> Option<&PoolhouseWishes> {
    plan.poolhouse.as_ref().filter(|_| !matches!(plan.target, Target::Redis(_)))
}

#[cfg(test)]
mod tests;
