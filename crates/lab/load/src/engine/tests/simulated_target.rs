//! A target in virtual time: it connects, serves and closes as it is told to, and reports at the right moments.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    time::Duration,
};

use pool::Time;

use crate::{
    engine::{ConnId, Engine, Order, Outcome},
    plan::Plan,
    record::{ErrorKind, Phases},
};
use report::result::BenchResult;

/// No test takes more steps.
const MAX_STEPS: u64 = 20_000_000;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum What {
    Connected,
    Refused,
    Ended,
    Lost,
    Closed,
}

/// When something will happen: the time, its place among equals, what, to which connection, and that one's number.
type Due = (Time, u64, What, ConnId, u64);

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
    /// In this window nobody looks at the clock: the load generator does not run.
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

    /// The same, for the engine's other answers.
    pub fn run_engine(&mut self, plan: &Plan) -> Engine {
        let mut now = Time(0);
        let mut engine = Engine::new(plan, now);
        let mut events: BinaryHeap<Reverse<Due>> = BinaryHeap::new();
        // Each connection by the number it was made with: an event of an earlier one of the same name is void.
        let mut present: HashMap<ConnId, u64> = HashMap::new();
        let mut running: HashMap<ConnId, u64> = HashMap::new();
        let (mut steps, mut sequence) = (0, 0);
        loop {
            steps += 1;
            assert!(steps < MAX_STEPS, "the run does not end");
            while let Some(order) = engine.poll_order(now) {
                sequence += 1;
                let (after, what, conn) = match order {
                    Order::Connect(conn) => {
                        assert!(present.insert(conn, sequence).is_none(), "{conn:?} was there already");
                        match self.connect.filter(|_| now < self.refuses_from) {
                            Some(after) => (after, What::Connected, conn),
                            None => (Duration::from_micros(50), What::Refused, conn),
                        }
                    }
                    Order::Run { conn, .. } => {
                        assert!(present.contains_key(&conn), "an operation on {conn:?}, which is not there");
                        assert!(running.insert(conn, sequence).is_none(), "two operations on {conn:?}");
                        match (self.serve)(now) {
                            Fate::Served(after) => (after, What::Ended, conn),
                            Fate::Failed(after) => (after, What::Refused, conn),
                            Fate::Lost(after) => (after, What::Lost, conn),
                        }
                    }
                    Order::Close(conn) => {
                        if plan.pool.blind {
                            // It may be lost without anybody having noticed.
                            present.entry(conn).or_insert(sequence);
                        }
                        assert!(present.contains_key(&conn), "{conn:?} is not there and cannot be closed");
                        running.remove(&conn);
                        (Duration::from_micros(10), What::Closed, conn)
                    }
                };
                self.most = (self.most.0.max(present.len()), self.most.1.max(running.len()));
                events.push(Reverse((now + after, sequence, what, conn, present[&conn])));
            }
            if engine.is_done() {
                self.over = now;
                return engine;
            }
            let event = events.peek().map_or(Time::NEVER, |Reverse((at, ..))| *at);
            let next = event.min(engine.deadline().unwrap_or(Time::NEVER)).min(self.stop_at.unwrap_or(Time::NEVER));
            assert!(next < Time::NEVER, "nothing will ever happen, and the run is not over");
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
            while let Some(Reverse((_, _, what, conn, made))) = events.pop_if_due(now) {
                if present.get(&conn) != Some(&made) {
                    continue;
                }
                let error = ErrorKind("connect refused".into());
                let was_running = running.remove(&conn).is_some();
                match what {
                    What::Connected => {
                        if let Some(after) = self.drops_idle_after {
                            sequence += 1;
                            events.push(Reverse((now + after, sequence, What::Lost, conn, made)));
                        }
                        engine.connected(conn, &Phases::default(), now);
                    }
                    What::Refused if was_running => {
                        let error = Some(ErrorKind("sqlstate 40001".into()));
                        engine.ended(conn, Outcome { error, reusable: true }, now);
                    }
                    What::Refused => {
                        present.remove(&conn);
                        engine.connect_failed(conn, error, self.permanent, now);
                    }
                    What::Ended => engine.ended(conn, Outcome { error: None, reusable: true }, now),
                    What::Lost => {
                        present.remove(&conn);
                        engine.lost(conn, ErrorKind("connection lost".into()), now);
                    }
                    What::Closed => {
                        present.remove(&conn);
                        engine.closed(conn, now);
                    }
                }
            }
        }
    }
}

trait PopIfDue<T> {
    fn pop_if_due(&mut self, now: Time) -> Option<T>;
}

type Scheduled = Reverse<(Time, u64, What, ConnId, u64)>;

impl PopIfDue<Scheduled> for BinaryHeap<Scheduled> {
    fn pop_if_due(&mut self, now: Time) -> Option<Scheduled> {
        if self.peek()?.0.0 > now {
            return None;
        }
        self.pop()
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
