//! When operations begin: the three shapes of load. It knows clients as numbers and how many operations are under way.

use std::{collections::VecDeque, time::Duration};

use arrivals::{Arrival, Arrivals, Shape, Spacing, Stage};
use pool::Time;

use crate::record::{Part, RunMetrics};

/// Delay of an arrival above which the load generator counts as late.
pub const MAX_PUNCTUAL_DELAY: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    Nothing,
    /// An arrival that cannot begin.
    Drop(Part),
    Begin {
        client: u32,
        scheduled: Time,
        /// Which part of the run it belongs to.
        part: Part,
    },
}

/// How an operation finds its instance of the application, from whose pool it takes a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InstanceChoice {
    /// The client's own: each client belongs to one instance of the application.
    ByClient,
    /// Each in turn.
    RoundRobin,
    /// A random one: each instance has its own users, independent of the others.
    Random,
}

/// How often the load generator was late, and by how much at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lateness {
    pub arrivals: u64,
    /// Arrivals that were later than [`MAX_PUNCTUAL_DELAY`].
    pub late: u64,
    pub worst: Duration,
}

/// A load that is under way.
#[derive(Debug)]
pub struct Load {
    kind: Kind,
    warmup: Duration,
    /// When the load begins, and when it is measured from.
    origin: Time,
    measured_from: Time,
}

#[derive(Debug)]
enum Kind {
    Closed(Closed),
    Open(Box<Open>),
    Burst(Burst),
}

#[derive(Debug)]
struct Closed {
    clients: u32,
    think: Duration,
    duration: Duration,
    operations: Option<u64>,
    begun: u64,
    is_measuring: bool,
    /// When clients begin their next operation, in order of time, as all think equally long.
    ready: VecDeque<(Time, u32)>,
    /// The same for clients that pause after a failure.
    paused: VecDeque<(Time, u32)>,
}

#[derive(Debug)]
struct Open {
    stages: Vec<Stage>,
    arrivals: Arrivals,
    upcoming: Option<Arrival>,
    length: Duration,
    /// Whether the first of the stages is the warm-up.
    warms_up: bool,
    /// The next stage to begin, and when.
    stage: usize,
    stage_at: Duration,
    max_in_flight: u32,
    free: Vec<u32>,
    clients: u32,
    lateness: Lateness,
    at_random: bool,
}

#[derive(Debug)]
struct Burst {
    size: u32,
    at_once: u32,
    idle: Duration,
    rounds: u32,
    /// Bursts that have begun, their idle time included.
    round: u32,
    /// When the burst may begin; once its last operation has ended, when that was: the next idle time counts from
    /// there.
    at: Time,
    /// Operations of the burst that have not begun.
    left: u32,
    running: u32,
    /// Clients without an operation, and since when.
    free: Vec<(u32, Time)>,
}

impl Load {
    /// A load that has not begun. The warm-up comes before what the shape says; bursts have none.
    pub fn new(shape: &Shape, warmup: Duration, seed: u64) -> Self {
        let warmup = if matches!(shape, Shape::Burst { .. }) { Duration::ZERO } else { warmup };
        let kind = match shape {
            &Shape::Closed { clients, think, duration, operations } => Kind::Closed(Closed {
                clients,
                think,
                duration,
                operations,
                begun: 0,
                is_measuring: false,
                ready: VecDeque::with_capacity(clients as usize),
                paused: VecDeque::new(),
            }),
            Shape::Open { stages, spacing, max_in_flight } => {
                Kind::Open(Box::new(Open::new(stages, *spacing, *max_in_flight, warmup, seed)))
            }
            &Shape::Burst { size, at_once, idle, rounds } => Kind::Burst(Burst {
                size,
                at_once,
                idle,
                rounds,
                round: 0,
                at: Time(0),
                left: 0,
                running: 0,
                free: Vec::with_capacity(at_once as usize),
            }),
        };
        Self { kind, warmup, origin: Time(0), measured_from: Time(0) }
    }

    pub fn begin(&mut self, now: Time) {
        self.origin = now;
        self.measured_from = now + self.warmup;
        match &mut self.kind {
            Kind::Closed(closed) => closed.ready.extend((0..closed.clients).map(|client| (now, client))),
            Kind::Open(_) => {}
            Kind::Burst(burst) => {
                burst.at = now;
                burst.free.extend((0..burst.at_once.min(burst.size)).rev().map(|client| (client, now)));
            }
        }
    }

    /// The next step that is due. There may be more.
    #[inline]
    pub fn next(&mut self, now: Time, in_flight: u32, metrics: &mut RunMetrics) -> Next {
        match &mut self.kind {
            Kind::Closed(closed) => {
                if !closed.is_measuring && self.measured_from <= now {
                    closed.is_measuring = true;
                    metrics.begin_step(&closed.name(), self.measured_from, None);
                }
                closed.next(now, self.measured_from)
            }
            Kind::Open(open) => open.next(self.origin, now, in_flight, metrics),
            Kind::Burst(burst) => burst.next(now, metrics),
        }
    }

    /// An operation of a client has ended. `pause`: the client begins its next one no earlier than after this time.
    #[inline]
    pub fn on_operation_ended(&mut self, client: u32, now: Time, pause: Duration) {
        match &mut self.kind {
            Kind::Closed(closed) if pause > closed.think => closed.paused.push_back((now + pause, client)),
            Kind::Closed(closed) => closed.ready.push_back((now + closed.think, client)),
            Kind::Open(open) => open.free.push(client),
            Kind::Burst(burst) => {
                burst.free.push((client, now));
                burst.running -= 1;
                burst.at = if burst.left == 0 { now } else { burst.at };
            }
        }
    }

    /// When [`Self::next`] is due again.
    #[inline]
    pub fn deadline(&self) -> Time {
        match &self.kind {
            Kind::Closed(closed) => {
                let first = |queue: &VecDeque<(Time, u32)>| queue.front().map_or(Time::NEVER, |(at, _)| *at);
                let phase = if closed.is_measuring { self.measured_from + closed.duration } else { self.measured_from };
                first(&closed.ready).min(first(&closed.paused)).min(phase)
            }
            Kind::Open(open) => self.origin + open.deadline(),
            Kind::Burst(burst) if burst.running == 0 => burst.at,
            Kind::Burst(_) => Time::NEVER,
        }
    }

    /// Whether no operation begins any more; in a burst, also that all have ended.
    #[inline]
    pub fn is_over(&self, now: Time, in_flight: u32) -> bool {
        match &self.kind {
            Kind::Closed(closed) => closed.is_complete() || self.measured_from + closed.duration <= now,
            Kind::Open(open) => open.is_over(now - self.origin),
            Kind::Burst(burst) => burst.round == burst.rounds && burst.left == 0 && in_flight == 0,
        }
    }

    /// When the load is over according to the plan, if the plan says so.
    pub fn end(&self) -> Option<Time> {
        match &self.kind {
            Kind::Closed(closed) => (!closed.is_complete()).then(|| self.measured_from + closed.duration),
            Kind::Open(open) => Some(self.origin + open.length),
            Kind::Burst(_) => None,
        }
    }

    /// The length of the load according to the plan, if the plan says so.
    pub fn length(&self) -> Option<Duration> {
        match &self.kind {
            Kind::Closed(closed) => Some(self.warmup + closed.duration),
            Kind::Open(open) => Some(open.length),
            Kind::Burst(_) => None,
        }
    }

    /// When the warm-up is over.
    pub fn measured_from(&self) -> Time {
        self.measured_from
    }

    /// Until this time, operations that the plan counts on may end, though none begins any more.
    pub fn latest_end(&self) -> Time {
        match &self.kind {
            Kind::Closed(closed) if closed.operations.is_some() => self.measured_from + closed.duration,
            _ => Time(0),
        }
    }

    /// Whether clients wait for their own operations.
    #[inline]
    pub fn is_closed(&self) -> bool {
        matches!(self.kind, Kind::Closed(_))
    }

    /// How operations find their instance.
    #[inline]
    pub fn instance_choice(&self) -> InstanceChoice {
        match &self.kind {
            Kind::Closed(_) => InstanceChoice::ByClient,
            Kind::Open(open) if open.at_random => InstanceChoice::Random,
            Kind::Open(_) | Kind::Burst(_) => InstanceChoice::RoundRobin,
        }
    }

    /// How late the load generator was; only an open load has a schedule.
    pub fn lateness(&self) -> Lateness {
        match &self.kind {
            Kind::Open(open) => open.lateness,
            _ => Lateness::default(),
        }
    }
}

impl Closed {
    fn name(&self) -> String {
        format!("{} client{}", self.clients, if self.clients == 1 { "" } else { "s" })
    }

    fn is_complete(&self) -> bool {
        self.operations.is_some_and(|limit| self.begun >= limit)
    }

    #[inline]
    fn next(&mut self, now: Time, measured_from: Time) -> Next {
        if measured_from + self.duration <= now || self.is_complete() {
            return Next::Nothing;
        }
        let due = |queue: &VecDeque<(Time, u32)>| queue.front().is_some_and(|(at, _)| *at <= now);
        let queue = if due(&self.ready) {
            &mut self.ready
        } else if due(&self.paused) {
            &mut self.paused
        } else {
            return Next::Nothing;
        };
        let (scheduled, client) = queue.pop_front().expect("the one that is due");
        let part = if self.is_measuring { Part::Step(0) } else { Part::WarmUp };
        self.begun += u64::from(part != Part::WarmUp);
        Next::Begin { client, scheduled, part }
    }
}

impl Open {
    fn new(stages: &[Stage], spacing: Spacing, max_in_flight: u32, warmup: Duration, seed: u64) -> Self {
        let mut stages = stages.to_vec();
        let warms_up = !warmup.is_zero();
        if warms_up {
            let rate = stages.first().map_or(0.0, |stage| stage.from);
            stages.insert(0, Stage { duration: warmup, from: rate, to: rate });
        }
        let mut arrivals = Arrivals::new(&stages, spacing, seed);
        Self {
            upcoming: arrivals.next(),
            arrivals,
            length: stages.iter().map(|stage| stage.duration).sum(),
            stages,
            warms_up,
            stage: 0,
            stage_at: Duration::ZERO,
            max_in_flight,
            free: Vec::new(),
            clients: 0,
            lateness: Lateness::default(),
            at_random: spacing == Spacing::Poisson,
        }
    }

    #[inline]
    fn next(&mut self, origin: Time, now: Time, in_flight: u32, metrics: &mut RunMetrics) -> Next {
        while self.stage < self.stages.len() && origin + self.stage_at <= now {
            self.begin_stage(origin, metrics);
        }
        let Some(arrival) = self.upcoming.filter(|arrival| origin + arrival.at <= now) else { return Next::Nothing };
        self.upcoming = self.arrivals.next();
        let scheduled = origin + arrival.at;
        self.lateness.arrivals += 1;
        if now - scheduled > MAX_PUNCTUAL_DELAY {
            self.lateness.late += 1;
            self.lateness.worst = self.lateness.worst.max(now - scheduled);
        }
        let stage = arrival.stage.min(self.stage - 1);
        let part = match (stage, self.warms_up) {
            (0, true) => Part::WarmUp,
            (stage, warms_up) => Part::Step(stage - usize::from(warms_up)),
        };
        if in_flight >= self.max_in_flight {
            return Next::Drop(part);
        }
        let client = self.free.pop().unwrap_or_else(|| {
            self.clients += 1;
            self.clients - 1
        });
        Next::Begin { client, scheduled, part }
    }

    #[cold]
    fn begin_stage(&mut self, origin: Time, metrics: &mut RunMetrics) {
        let stage = self.stages[self.stage];
        let from = origin + self.stage_at;
        self.stage_at += stage.duration;
        if self.stage > 0 || !self.warms_up {
            metrics.begin_step(&stage_name(&stage), from, Some(origin + self.stage_at));
        }
        self.stage += 1;
    }

    /// From the beginning of the load.
    #[inline]
    fn deadline(&self) -> Duration {
        let next = self.upcoming.map_or(self.length, |arrival| arrival.at);
        if self.stage < self.stages.len() { next.min(self.stage_at) } else { next }
    }

    #[inline]
    fn is_over(&self, at: Duration) -> bool {
        self.length <= at && self.stage == self.stages.len() && self.upcoming.is_none()
    }
}

/// The name of a stage for people.
pub fn stage_name(stage: &Stage) -> String {
    match stage {
        Stage { from, to, .. } if from == to => format!("{to}/s"),
        Stage { from, to, .. } => format!("{from}/s to {to}/s"),
    }
}

impl Burst {
    fn next(&mut self, now: Time, metrics: &mut RunMetrics) -> Next {
        if self.left == 0 && self.running == 0 && self.round < self.rounds {
            self.round += 1;
            metrics.begin_step(&format!("burst {}", self.round), self.at, None);
            self.at = self.at + self.idle;
            self.left = self.size;
        }
        if self.left == 0 || self.at > now || self.running == self.at_once {
            return Next::Nothing;
        }
        let (client, since) = self.free.pop().expect("a client that does not run is free");
        self.left -= 1;
        self.running += 1;
        Next::Begin { client, scheduled: since.max(self.at), part: Part::Step(self.round as usize - 1) }
    }
}
