//! A target in virtual time: it connects, serves and closes as it is told to, and reports at the right moments.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, HashSet},
    time::Duration,
};

use pool::Time;

use crate::{
    engine::{ConnId, Engine, Order, Outcome},
    plan::Plan,
    record::{ErrorKind, Phases},
};
use report::result::BenchResult;

/// Bounds the steps of a test.
const MAX_STEPS: u64 = 20_000_000;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    Connected,
    Refused,
    Ended,
    Lost,
    Closed,
}

/// What becomes of an operation that begins now.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    /// It ends well after so long.
    Served(Duration),
    /// It fails after so long.
    Failed(Duration),
    /// The connection is lost in the middle of it.
    Lost(Duration),
}

pub struct SimulatedTarget<F> {
    pub serve: F,
    /// What a connect takes; `None`: it is refused at once.
    pub connect: Option<Duration>,
    /// From when on connects are refused.
    pub refuses_from: Time,
    /// A refusal is one that trying again will not cure.
    pub permanent: bool,
    /// Connections are dropped so long after they were made.
    pub drops_idle_after: Option<Duration>,
    /// When Ctrl-C is pressed.
    pub stop_at: Option<Time>,
    /// In this window the load generator does not run.
    pub asleep: Option<(Time, Time)>,
    /// The most connections there were at a time, and how many operations ran at most.
    pub most: (usize, usize),
    pub over: Time,
}

impl<F: FnMut(Time) -> Fate> SimulatedTarget<F> {
    /// One that connects in a millisecond.
    pub fn new(serve: F) -> Self {
        Self {
            serve,
            connect: Some(Duration::from_millis(1)),
            refuses_from: Time::NEVER,
            permanent: false,
            drops_idle_after: None,
            stop_at: None,
            asleep: None,
            most: (0, 0),
            over: Time(0),
        }
    }

    /// Runs a plan to its end.
    pub fn run(&mut self, plan: &Plan) -> BenchResult {
        let engine = self.run_engine(plan);
        engine.result(self.over)
    }

    /// Runs a plan to its end, and returns the engine.
    pub fn run_engine(&mut self, plan: &Plan) -> Engine {
        let mut now = Time(0);
        let mut engine = Engine::new(plan, now);
        let mut events = Events::default();
        for _ in 0..MAX_STEPS {
            while let Some(order) = engine.poll_order(now) {
                self.execute(order, plan.pool.blind, &mut events, now);
            }
            if engine.is_done() {
                self.over = now;
                return engine;
            }
            let deadline = engine.deadline().unwrap_or(Time::NEVER);
            let next = events.next_time().min(deadline).min(self.stop_at.unwrap_or(Time::NEVER));
            assert!(next < Time::NEVER, "no event will ever come, and the run is not over");
            now = now.max(next);
            if let Some((from, until)) = self.asleep
                && (from..until).contains(&now)
            {
                now = until;
            }
            if self.stop_at.is_some_and(|at| at <= now) {
                self.stop_at = None;
                engine.stop(now);
            }
            while let Some((conn, event)) = events.pop_due(now) {
                self.report(conn, event, &mut engine, &mut events, now);
            }
        }
        panic!("the run does not end");
    }

    fn execute(&mut self, order: Order, is_blind: bool, events: &mut Events, now: Time) {
        match order {
            Order::Connect(conn) => {
                events.open(conn);
                match self.connect.filter(|_| now < self.refuses_from) {
                    Some(after) => events.schedule(now + after, conn, Event::Connected),
                    None => events.schedule(now + Duration::from_micros(50), conn, Event::Refused),
                }
            }
            Order::Run { conn, .. } => {
                assert!(events.running.insert(conn), "two operations on {conn:?}");
                match (self.serve)(now) {
                    Fate::Served(after) => events.schedule(now + after, conn, Event::Ended),
                    Fate::Failed(after) => events.schedule(now + after, conn, Event::Refused),
                    Fate::Lost(after) => events.schedule(now + after, conn, Event::Lost),
                }
            }
            Order::Close(conn) => {
                if is_blind && !events.present.contains_key(&conn) {
                    // The connection may be lost without the pool having noticed.
                    events.open(conn);
                }
                events.running.remove(&conn);
                events.schedule(now + Duration::from_micros(10), conn, Event::Closed);
            }
        }
        self.most = (self.most.0.max(events.present.len()), self.most.1.max(events.running.len()));
    }

    fn report(&mut self, conn: ConnId, event: Event, engine: &mut Engine, events: &mut Events, now: Time) {
        let was_running = events.running.remove(&conn);
        if matches!(event, Event::Lost | Event::Closed) || (event == Event::Refused && !was_running) {
            events.present.remove(&conn);
        }
        match event {
            Event::Connected => {
                if let Some(after) = self.drops_idle_after {
                    events.schedule(now + after, conn, Event::Lost);
                }
                engine.connected(conn, &Phases::default(), now);
            }
            Event::Refused if was_running => {
                let error = Some(ErrorKind("sqlstate 40001".into()));
                engine.ended(conn, Outcome { error, reusable: true }, now);
            }
            Event::Refused => {
                engine.connect_failed(conn, ErrorKind("connect refused".into()), self.permanent, now);
            }
            Event::Ended => engine.ended(conn, Outcome { error: None, reusable: true }, now),
            Event::Lost => engine.lost(conn, ErrorKind("connection lost".into()), now),
            Event::Closed => engine.closed(conn, now),
        }
    }
}

/// An event by its time and, among equals, in the order of scheduling; with its connection, and that one's serial.
type Scheduled = (Time, u64, Event, ConnId, u64);

/// The events to come, and the connections that they are about.
#[derive(Default)]
struct Events {
    heap: BinaryHeap<Reverse<Scheduled>>,
    /// Open connections with their serials: an event of an earlier connection with the same number is void.
    present: HashMap<ConnId, u64>,
    running: HashSet<ConnId>,
    sequence: u64,
}

impl Events {
    fn open(&mut self, conn: ConnId) {
        self.sequence += 1;
        assert!(self.present.insert(conn, self.sequence).is_none(), "{conn:?} was open already");
    }

    fn schedule(&mut self, at: Time, conn: ConnId, event: Event) {
        self.sequence += 1;
        let serial = *self.present.get(&conn).unwrap_or_else(|| panic!("{conn:?} is not open"));
        self.heap.push(Reverse((at, self.sequence, event, conn, serial)));
    }

    fn next_time(&self) -> Time {
        self.heap.peek().map_or(Time::NEVER, |Reverse((at, ..))| *at)
    }

    /// The next event that is due and not void.
    fn pop_due(&mut self, now: Time) -> Option<(ConnId, Event)> {
        while self.next_time() <= now {
            let Reverse((_, _, event, conn, serial)) = self.heap.pop()?;
            if self.present.get(&conn) == Some(&serial) {
                return Some((conn, event));
            }
        }
        None
    }
}

/// Everything takes the same time.
pub fn always(time: Duration) -> impl FnMut(Time) -> Fate {
    move |_| Fate::Served(time)
}

/// Everything takes the same time, but what is under way in a window ends no earlier than its end.
pub fn stalled(time: Duration, from: Time, length: Duration) -> impl FnMut(Time) -> Fate {
    move |now| {
        let end = now + time;
        let until = from + length;
        Fate::Served(if end > from && now < until { until.max(end) - now } else { time })
    }
}
