//! Counters and histograms of a run, by step and by second. Everything is bounded by a named maximum.

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use pool::Time;

use clients::{ErrorKind, Phases};
use report::{
    histogram::Histogram,
    result::{ConnectPhases, Connections, MAX_ERROR_TEXTS, Measured, Second, Step},
};

/// Steps that are counted apart; later ones count to the last.
pub const MAX_STEPS: usize = 100;
/// Seconds of the series: two days. Later ones are in the percentiles only.
pub const MAX_SECONDS: usize = 2 * 86_400;
/// Kinds of errors of a step; others are counted as `other`.
pub const MAX_ERROR_KINDS: usize = 64;

/// Characters of one text of an error.
const MAX_ERROR_TEXT: usize = 300;

const SECOND: Duration = Duration::from_secs(1);

/// A part of the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The warm-up: in the series, not in the percentiles.
    WarmUp,
    /// A step, from 0.
    Step(usize),
}

/// Why a connection was made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Cause {
    /// Before the measured time: at the start or in the warm-up.
    Start,
    /// An operation waited for it.
    Burst,
    /// To keep `min_size`.
    Minimum,
    /// A connection had reached its life time.
    Rotation,
    /// A connection was lost, or could not be used again.
    Replacement,
    /// For one operation only, as there is no pool.
    Ephemeral,
}

impl Cause {
    const ALL: [Self; 6] =
        [Self::Start, Self::Burst, Self::Minimum, Self::Rotation, Self::Replacement, Self::Ephemeral];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Burst => "burst",
            Self::Minimum => "minimum",
            Self::Rotation => "rotation",
            Self::Replacement => "replacement",
            Self::Ephemeral => "ephemeral",
        }
    }
}

/// Why a connection that was made for one operation is closed.
pub const CLOSED_EPHEMERAL: &str = "ephemeral";

/// The state at a moment, for the series.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Gauges {
    /// Operations that have a connection.
    pub in_use: u32,
    /// Operations that wait for one.
    pub waiting: u32,
}

#[derive(Debug)]
pub struct RunMetrics {
    /// When the load began; `None` while the pool is being filled.
    origin: Option<Time>,
    steps: Vec<StepMetrics>,
    /// The part of the run that counts connections made and closed now.
    part: Part,
    /// Connections of the start and the warm-up.
    before_steps: StepMetrics,
    series: Vec<Second>,
    /// The second that is under way, and its response times.
    second: Second,
    second_responses: Histogram,
    open: u32,
    succeeded: u64,
    failed: u64,
    dropped: u64,
    /// Error messages of the target, and how often each came.
    error_texts: BTreeMap<String, u64>,
    /// Nothing is counted any more.
    is_closed: bool,
}

/// Counters and histograms of one step.
#[derive(Debug, Default)]
struct StepMetrics {
    name: String,
    from: Time,
    response: Histogram,
    service: Histogram,
    issue: Histogram,
    pool_wait: Histogram,
    /// The wait in the pool of a pooler in front, if the target reports it.
    front_wait: Option<Box<Histogram>>,
    connect: ConnectHistograms,
    errors: BTreeMap<ErrorKind, u64>,
    connect_errors: BTreeMap<ErrorKind, u64>,
    succeeded: u64,
    /// Sum of the response times of operations that succeeded.
    response_sum: Duration,
    /// Operations that succeeded while the step was under way, whichever step they had arrived in.
    finished_meanwhile: u64,
    dropped: u64,
    created: [u64; Cause::ALL.len()],
    closed: BTreeMap<Cow<'static, str>, u64>,
    max_open: u32,
    open_at_end: u32,
    /// When the last operation of the step ended.
    last_end: Time,
    /// When the step ends according to the plan, if the plan says so.
    until: Option<Time>,
}

#[derive(Debug, Default)]
struct ConnectHistograms {
    dns: Histogram,
    tcp: Histogram,
    tls: Histogram,
    auth: Histogram,
    ready: Histogram,
    total: Histogram,
}

impl RunMetrics {
    /// Empty metrics of a run that fills its pool first.
    pub fn new() -> Self {
        Self {
            origin: None,
            steps: Vec::new(),
            part: Part::WarmUp,
            before_steps: StepMetrics::default(),
            series: Vec::new(),
            second: Second::default(),
            second_responses: Histogram::new(),
            open: 0,
            succeeded: 0,
            failed: 0,
            dropped: 0,
            error_texts: BTreeMap::new(),
            is_closed: false,
        }
    }

    pub fn begin(&mut self, now: Time) {
        assert!(self.origin.is_none(), "a load begins once");
        self.origin = Some(now);
    }

    pub fn origin(&self) -> Option<Time> {
        self.origin
    }

    /// A step begins, `until` some time if the plan says so. Steps begin in order; beyond [`MAX_STEPS`] the last one is
    /// prolonged.
    pub fn begin_step(&mut self, name: &str, now: Time, until: Option<Time>) {
        if let Some(last) = self.steps.last_mut() {
            last.open_at_end = self.open;
        }
        if self.steps.len() == MAX_STEPS {
            let last = self.steps.last_mut().expect("there are some");
            last.name = format!("{} and what follows", last.name.trim_end_matches(" and what follows"));
            last.until = until;
            return;
        }
        let step = StepMetrics {
            name: name.to_owned(),
            from: now,
            last_end: now,
            until,
            max_open: self.open,
            ..StepMetrics::default()
        };
        self.steps.push(step);
        self.part = Part::Step(self.steps.len() - 1);
    }

    /// Steps that have begun.
    pub fn steps(&self) -> usize {
        self.steps.len()
    }

    /// The name of the step under way; `None` in the warm-up.
    pub fn step_name(&self) -> Option<&str> {
        self.steps.last().map(|step| step.name.as_str())
    }

    /// The step under way was over according to the plan at this time.
    pub fn end_step(&mut self, at: Time) {
        if let Some(last) = self.steps.last_mut() {
            last.until = Some(at);
        }
    }

    /// An operation was scheduled.
    #[inline]
    pub fn count_arrival(&mut self) {
        self.second.arrived += u64::from(!self.is_closed);
    }

    /// An arrival was dropped.
    pub fn count_drop(&mut self, part: Part) {
        self.dropped += 1;
        self.second.dropped += 1;
        if let Some(step) = self.step(part) {
            step.dropped += 1;
        }
    }

    /// An operation got a connection from the pool after `wait`.
    #[inline]
    pub fn record_wait(&mut self, part: Part, wait: Duration) {
        if let Some(step) = self.step(part) {
            step.pool_wait.record(wait);
        }
    }

    /// An operation got a connection from the pool after `wait`, and a server of the pooler in front after `in_front`.
    pub fn record_front_wait(&mut self, part: Part, wait: Duration, in_front: Duration) {
        if let Some(step) = self.step(part) {
            step.pool_wait.record(wait + in_front);
            step.front_wait.get_or_insert_default().record(in_front);
        }
    }

    /// An operation succeeded.
    #[inline]
    pub fn record_success(&mut self, part: Part, response: Duration, service: Duration, now: Time) {
        if self.is_closed {
            return;
        }
        self.succeeded += 1;
        self.second.requests += 1;
        self.second_responses.record(response);
        if let Some(current) = self.steps.last_mut().filter(|step| step.until.is_none_or(|until| now <= until)) {
            current.finished_meanwhile += 1;
        }
        if let Some(step) = self.step(part) {
            step.succeeded += 1;
            step.response_sum += response;
            step.response.record(response);
            step.service.record(service);
            step.issue.record(response.saturating_sub(service));
            step.last_end = now;
        }
    }

    /// An operation failed after `taken`. The time counts as a response time if the operation timed out, or took longer
    /// than answers do on average. A quick refusal does not: it is no quick answer.
    #[cold]
    pub fn record_failure(&mut self, part: Part, error: ErrorKind, taken: Duration, timed_out: bool, now: Time) {
        if self.is_closed {
            return;
        }
        self.failed += 1;
        self.second.errors += 1;
        let slow = match self.step(part) {
            Some(step) => {
                count(&mut step.errors, error);
                step.last_end = now;
                let slow = timed_out || step.mean().is_some_and(|mean| taken > mean);
                if slow {
                    step.response.record(taken);
                }
                slow
            }
            None => timed_out,
        };
        if slow {
            self.second_responses.record(taken);
        }
    }

    /// Counts a message of the target. Beyond [`MAX_ERROR_TEXTS`] different texts an error is counted by its kind only.
    #[cold]
    pub fn note_error_text(&mut self, text: &str) {
        let text: String = text.chars().take(MAX_ERROR_TEXT).collect();
        if !self.is_closed && (self.error_texts.len() < MAX_ERROR_TEXTS || self.error_texts.contains_key(&text)) {
            *self.error_texts.entry(text).or_default() += 1;
        }
    }

    /// Error messages of the target, and how often each came.
    pub fn error_texts(&self) -> &BTreeMap<String, u64> {
        &self.error_texts
    }

    /// Whether no answer in this part of the run has taken as long.
    pub fn is_longest(&mut self, part: Part, taken: Duration) -> bool {
        self.step(part).is_some_and(|step| step.response.max_ms().is_none_or(|max| taken.as_secs_f64() * 1e3 > max))
    }

    pub fn record_connect(&mut self, cause: Cause, phases: &Phases, total: Duration) {
        self.open += 1;
        let open = self.open;
        if self.is_closed {
            return;
        }
        self.second.created += 1;
        let measured = self.part != Part::WarmUp;
        let step = self.connection_counters();
        step.created[if measured { cause } else { Cause::Start } as usize] += 1;
        step.max_open = step.max_open.max(open);
        step.connect.record(phases, total);
    }

    /// A connection could not be made.
    pub fn count_connect_failure(&mut self, error: ErrorKind) {
        if !self.is_closed {
            count(&mut self.connection_counters().connect_errors, error);
        }
    }

    /// A connection that had been made is gone, or is being closed.
    pub fn count_close(&mut self, reason: impl Into<Cow<'static, str>>) {
        self.open = self.open.checked_sub(1).expect("only what is open closes");
        if !self.is_closed {
            *self.connection_counters().closed.entry(reason.into()).or_default() += 1;
        }
    }

    pub fn open_connections(&self) -> u32 {
        self.open
    }

    /// Operations that succeeded, failed and were dropped until now.
    pub fn totals(&self) -> (u64, u64, u64) {
        (self.succeeded, self.failed, self.dropped)
    }

    /// The last whole second.
    pub fn last_second(&self) -> Option<&Second> {
        self.series.last()
    }

    /// When [`Self::end_seconds`] is to be called next.
    #[inline]
    pub fn deadline(&self) -> Time {
        match self.origin {
            Some(origin) if !self.is_closed && self.series.len() < MAX_SECONDS => {
                origin + SECOND * (self.series.len() as u32 + 1)
            }
            _ => Time::NEVER,
        }
    }

    /// Ends all seconds that are over.
    #[inline]
    pub fn end_seconds(&mut self, gauges: Gauges, now: Time) {
        while self.deadline() <= now {
            self.end_second(gauges);
        }
    }

    #[cold]
    fn end_second(&mut self, gauges: Gauges) {
        let second = Second {
            at_s: self.series.len() as f64,
            p50_ms: self.second_responses.quantile_ms(0.5),
            p99_ms: self.second_responses.quantile_ms(0.99),
            max_ms: self.second_responses.max_ms(),
            connections: self.open,
            in_use: gauges.in_use,
            waiting: gauges.waiting,
            ..std::mem::take(&mut self.second)
        };
        self.series.push(second);
        self.second_responses.clear();
    }

    /// Ends the metrics: what follows (closing the pool) is not counted.
    pub fn close(&mut self, gauges: Gauges, now: Time) {
        if self.is_closed {
            return;
        }
        self.end_seconds(gauges, now);
        if self.second != Second::default() && self.series.len() < MAX_SECONDS {
            self.end_second(gauges);
        }
        if let Some(last) = self.steps.last_mut() {
            last.open_at_end = self.open;
        }
        self.is_closed = true;
    }

    /// Second by second.
    pub fn series(&self) -> &[Second] {
        &self.series
    }

    /// Each step as a result shows it.
    pub fn step_results(&self, now: Time) -> Vec<Step> {
        let origin = self.origin.unwrap_or(now);
        let last = self.steps.len().saturating_sub(1);
        let show = |(n, step): (usize, &StepMetrics)| {
            let open = if n == last && !self.is_closed { self.open } else { step.open_at_end };
            let end = match step.until {
                Some(until) => until.min(now),
                None if n < last || self.is_closed => step.last_end,
                None => now,
            };
            Step {
                name: step.name.clone(),
                from_s: (step.from - origin).as_secs_f64(),
                measured: Measured { duration_s: (end - step.from).as_secs_f64(), ..step.to_result(open) },
            }
        };
        self.steps.iter().enumerate().map(show).collect()
    }

    /// All steps together, connections of the start included.
    pub fn total_result(&self, now: Time) -> Measured {
        let mut sum = StepMetrics::default();
        sum.add(&self.before_steps, false);
        self.steps.iter().for_each(|step| sum.add(step, true));
        let from = self.steps.first().map_or(now, |step| step.from);
        let planned = self.steps.last().and_then(|step| step.until);
        let end = match planned {
            Some(until) => until.min(now),
            None if self.is_closed => sum.last_end,
            None => now,
        };
        let open =
            if self.is_closed { self.steps.last().map_or(self.open, |step| step.open_at_end) } else { self.open };
        Measured { duration_s: (end - from).as_secs_f64(), ..sum.to_result(open) }
    }

    /// Response times of all steps together.
    pub fn all_responses(&self) -> Histogram {
        let mut sum = Histogram::new();
        self.steps.iter().for_each(|step| sum.add(&step.response));
        sum
    }

    #[inline]
    fn step(&mut self, part: Part) -> Option<&mut StepMetrics> {
        match part {
            _ if self.is_closed => None,
            Part::WarmUp => None,
            Part::Step(n) => Some(&mut self.steps[n.min(MAX_STEPS - 1)]),
        }
    }

    fn connection_counters(&mut self) -> &mut StepMetrics {
        match self.part {
            Part::WarmUp => &mut self.before_steps,
            Part::Step(n) => &mut self.steps[n],
        }
    }
}

impl Default for RunMetrics {
    fn default() -> Self {
        Self::new()
    }
}

fn count(errors: &mut BTreeMap<ErrorKind, u64>, error: ErrorKind) {
    let known = errors.len() < MAX_ERROR_KINDS || errors.contains_key(&error);
    *errors.entry(if known { error } else { ErrorKind("other".into()) }).or_default() += 1;
}

impl StepMetrics {
    /// The mean response time of operations that succeeded.
    fn mean(&self) -> Option<Duration> {
        let count = u32::try_from(self.succeeded).unwrap_or(u32::MAX);
        (count > 0).then(|| self.response_sum / count)
    }

    /// Adds another step. `closings`: its closed connections count, too.
    fn add(&mut self, other: &Self, closings: bool) {
        self.response.add(&other.response);
        self.service.add(&other.service);
        self.issue.add(&other.issue);
        self.pool_wait.add(&other.pool_wait);
        if let Some(front) = &other.front_wait {
            self.front_wait.get_or_insert_default().add(front);
        }
        self.connect.add(&other.connect);
        let kinds = [(&mut self.errors, &other.errors), (&mut self.connect_errors, &other.connect_errors)];
        for (sum, errors) in kinds {
            errors.iter().for_each(|(kind, n)| *sum.entry(kind.clone()).or_default() += n);
        }
        self.succeeded += other.succeeded;
        self.finished_meanwhile += other.finished_meanwhile;
        self.dropped += other.dropped;
        self.created.iter_mut().zip(other.created).for_each(|(sum, n)| *sum += n);
        if closings {
            other.closed.iter().for_each(|(reason, n)| *self.closed.entry(reason.clone()).or_default() += n);
        }
        self.max_open = self.max_open.max(other.max_open);
        self.last_end = self.last_end.max(other.last_end);
    }

    fn to_result(&self, open: u32) -> Measured {
        let kinds = |errors: &BTreeMap<ErrorKind, u64>| errors.iter().map(|(k, n)| (k.0.to_string(), *n)).collect();
        let created_for: BTreeMap<_, _> = Cause::ALL
            .iter()
            .map(|cause| (cause.as_str().to_owned(), self.created[*cause as usize]))
            .filter(|(_, n)| *n > 0)
            .collect();
        Measured {
            requests: self.succeeded,
            finished: self.finished_meanwhile,
            errors: kinds(&self.errors),
            dropped: self.dropped,
            response_ms: self.response.percentiles(true),
            service_ms: self.service.percentiles(true),
            issue_ms: self.issue.percentiles(true),
            pool_wait_ms: self.pool_wait.percentiles(true),
            front_wait_ms: self.front_wait.as_ref().and_then(|front| front.percentiles(true)),
            connect_ms: self.connect.to_result(),
            connections: Connections {
                created: self.created.iter().sum(),
                created_for,
                closed: self.closed.iter().map(|(reason, n)| (reason.to_string(), *n)).collect(),
                failed: kinds(&self.connect_errors),
                most: self.max_open,
                last: open,
            },
            ..Measured::default()
        }
    }
}

impl ConnectHistograms {
    fn record(&mut self, phases: &Phases, total: Duration) {
        let note = |histogram: &mut Histogram, phase: Option<Duration>| {
            if let Some(phase) = phase {
                histogram.record(phase);
            }
        };
        note(&mut self.dns, phases.dns);
        note(&mut self.tcp, phases.tcp);
        note(&mut self.tls, phases.tls);
        note(&mut self.auth, phases.auth);
        note(&mut self.ready, phases.ready);
        self.total.record(total);
    }

    fn add(&mut self, other: &Self) {
        self.dns.add(&other.dns);
        self.tcp.add(&other.tcp);
        self.tls.add(&other.tls);
        self.auth.add(&other.auth);
        self.ready.add(&other.ready);
        self.total.add(&other.total);
    }

    fn to_result(&self) -> ConnectPhases {
        ConnectPhases {
            dns: self.dns.percentiles(true),
            tcp: self.tcp.percentiles(true),
            tls: self.tls.percentiles(true),
            auth: self.auth.percentiles(true),
            ready: self.ready.percentiles(true),
            total: self.total.percentiles(true),
        }
    }
}
