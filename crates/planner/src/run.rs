//! One simulation: the load generator's engine, with the real pools in it, against the server in virtual time. Jumps from event to event;
//! the same plan, server and seed give the same result. Knows neither where the question came from nor what follows from the answer.

use std::{borrow::Cow, cmp::Reverse, collections::BinaryHeap};

use bench::{
    engine::{ConnId, Engine, Order, Outcome as Ended},
    plan::Plan,
    record::{ErrorKind, Phases},
    result::BenchResult,
};
use pool::Time;
use workload::Window;

use crate::{
    front::Front,
    server::{Answer, Dialled, Seen, Server, Spec},
};

/// What a client learns whose connection the other side has ended.
const ENDED: &str = "connection closed";
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
}

/// Plays a plan to its end.
pub fn run(plan: &Plan, spec: &Spec) -> Outcome {
    let mut world = World::new(plan, spec);
    let mut engine = Engine::with_limit(plan, spec.budget, Time(0));
    let mut now = Time(0);
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
        }
        let next = world.next().min(engine.deadline().unwrap_or(Time::NEVER));
        assert!(next < Time::NEVER, "nothing will ever happen, and the simulation is not over");
        now = world.awake(plan.freeze.as_ref(), now.max(next));
        world.play(&mut engine, now);
    }
    let mut result = engine.result(now);
    "virtual time".clone_into(&mut result.about.machine);
    if let Some(failure) = engine.failure() {
        result.warnings.push(format!(
            "The load did not begin: {} of {} connections stood, and the next ones failed ({}).",
            failure.made, failure.wanted, failure.kind.0
        ));
    }
    Outcome { result, server: world.server.seen(), gate: world.front.as_ref().map_or((0, 0), Front::seen) }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum What {
    Connected,
    Refused,
    /// An operation has reached the server, which others share.
    Reached,
    Ended,
    Lost,
    Closed,
    /// All connections are cut.
    Cut,
}

/// When, its place among equals, what, to which connection, and which of those that had its number.
type Event = Reverse<(Time, u64, What, u32, u32)>;

/// One connection.
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
    events: BinaryHeap<Event>,
    lines: Vec<Line>,
    sequence: u64,
    made: u32,
    /// When the load began, warm-up not included.
    began: Option<Time>,
}

impl<'s> World<'s> {
    fn new(plan: &Plan, spec: &'s Spec) -> Self {
        Self {
            server: Server::new(spec, &plan.faults, plan.seed ^ SERVER_SEED),
            front: plan.poolhouse.as_ref().map(|wishes| Front::new(wishes, &plan.target)),
            events: BinaryHeap::new(),
            lines: Vec::new(),
            sequence: 0,
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
        let event = self.events.peek().map_or(Time::NEVER, |Reverse((at, ..))| *at);
        let front = self.front.as_ref().map_or(Time::NEVER, Front::deadline);
        event.min(self.server.next_served()).min(front)
    }

    /// The same time, or the end of the window in which the load's process is frozen.
    fn awake(&self, freeze: Option<&Window>, now: Time) -> Time {
        let (Some(window), Some(began)) = (freeze, self.began) else { return now };
        match now.0.checked_sub(began.0).and_then(|at| window.begins_at(at)) {
            Some(begin) => began + std::time::Duration::from_nanos(begin) + window.length,
            None => now,
        }
    }

    #[inline]
    fn push(&mut self, at: Time, what: What, conn: u32, made: u32) {
        self.sequence += 1;
        self.events.push(Reverse((at, self.sequence, what, conn, made)));
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
                match self.server.ask(last, first, now) {
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
        let (at, what) = match self.server.dial(self.front.is_some(), now) {
            Dialled::Stands(at, _) if rejected => {
                self.server.gone();
                line.refusal = Some(ErrorKind(Cow::Borrowed(self.server.full())));
                (at, What::Refused)
            }
            Dialled::Stands(at, phases) => {
                (line.phases, line.open) = (phases, true);
                (at, What::Connected)
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
            while let Some((conn, made, at)) = self.server.served(now) {
                self.push(at, What::Ended, conn, made);
            }
            let Some(Reverse((_, _, what, conn, made))) = self.pop(now) else { break };
            if what == What::Cut {
                self.cut(engine, now);
            } else if self.lines[conn as usize].made == made {
                self.happens(what, conn, engine, now);
            }
        }
    }

    #[inline]
    fn pop(&mut self, now: Time) -> Option<Event> {
        let Reverse((at, ..)) = self.events.peek()?;
        if *at > now { None } else { self.events.pop() }
    }

    #[inline]
    fn happens(&mut self, what: What, conn: u32, engine: &mut Engine, now: Time) {
        let id = ConnId(conn);
        match what {
            What::Ended => {
                let line = &mut self.lines[conn as usize];
                (line.busy, line.last) = (false, now);
                if let Some(front) = self.front.as_mut().filter(|_| !line.told_to_go) {
                    front.is_idle(conn, now);
                }
                engine.ended(id, Ended { error: None, reusable: true }, now);
            }
            What::Reached => {
                let Line { made, first, .. } = self.lines[conn as usize];
                if let Some(at) = self.server.begin(conn, made, first, now) {
                    self.push(at, What::Ended, conn, made);
                }
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
                self.forget(conn);
                engine.connect_failed(id, kind, false, now);
            }
            What::Lost => {
                self.forget(conn);
                engine.lost(id, ErrorKind(Cow::Borrowed(ENDED)), now);
            }
            What::Closed => {
                self.forget(conn);
                engine.closed(id, now);
            }
            What::Cut => unreachable!("a cut is of all connections"),
        }
    }

    /// All connections end at once.
    fn cut(&mut self, engine: &mut Engine, now: Time) {
        for conn in 0..self.lines.len() as u32 {
            if self.lines[conn as usize].made != 0 {
                self.forget(conn);
                engine.lost(ConnId(conn), ErrorKind(Cow::Borrowed(ENDED)), now);
            }
        }
        if let Some(next) = self.server.next_cut(now) {
            self.push(next, What::Cut, u32::MAX, 0);
        }
    }

    /// A connection is gone.
    fn forget(&mut self, conn: u32) {
        let line = std::mem::take(&mut self.lines[conn as usize]);
        if line.open {
            self.server.gone();
        }
        if let Some(front) = self.front.as_mut().filter(|_| line.admitted) {
            front.left(conn, line.told_to_go);
        }
    }
}
