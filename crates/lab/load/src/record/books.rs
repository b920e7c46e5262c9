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

/// Which part of the run something belongs to.
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

/// The reason for which a connection closes that was made for one operation.
pub const EPHEMERAL: &str = "ephemeral";

/// What is the case at a moment, for the series.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Gauges {
    /// Operations that have a connection.
    pub in_use: u32,
    /// Operations that wait for one.
    pub waiting: u32,
}

#[derive(Debug)]
pub struct Books {
    /// When the load began; `None` while the pool is being filled.
    origin: Option<Time>,
    steps: Vec<Sheet>,
    /// Where connections that are made and closed are written down.
    part: Part,
    /// Connections of the start and the warm-up.
    start: Sheet,
    series: Vec<Second>,
    /// The second that is under way, and its response times.
    second: Second,
    responses: Histogram,
    open: u32,
    done: u64,
    failed: u64,
    dropped: u64,
    /// What the target said where it refused something.
    texts: BTreeMap<String, u64>,
    /// Nothing is written down any more.
    frozen: bool,
}

/// What belongs to one step.
#[derive(Debug, Default)]
struct Sheet {
    name: String,
    from: Time,
    response: Histogram,
    service: Histogram,
    issue: Histogram,
    wait: Histogram,
    /// The part of it in the pool of a pooler in front, if that is told.
    front: Option<Box<Histogram>>,
    connect: Connecting,
    errors: BTreeMap<ErrorKind, u64>,
    connect_errors: BTreeMap<ErrorKind, u64>,
    requests: u64,
    /// Sum of the response times of operations that ended well.
    taken: Duration,
    /// Operations that ended well while it was under way, whichever step they had arrived in.
    finished: u64,
    dropped: u64,
    created: [u64; Cause::ALL.len()],
    closed: BTreeMap<Cow<'static, str>, u64>,
    most: u32,
    last: u32,
    /// When its last operation ended.
    ended: Time,
    /// When it was over according to the plan, if it has an end there.
    until: Option<Time>,
}

#[derive(Debug, Default)]
struct Connecting {
    dns: Histogram,
    tcp: Histogram,
    tls: Histogram,
    auth: Histogram,
    ready: Histogram,
    total: Histogram,
}

impl Books {
    /// Empty ones, of a run that fills its pool first.
    pub fn new() -> Self {
        Self {
            origin: None,
            steps: Vec::new(),
            part: Part::WarmUp,
            start: Sheet::default(),
            series: Vec::new(),
            second: Second::default(),
            responses: Histogram::new(),
            open: 0,
            done: 0,
            failed: 0,
            dropped: 0,
            texts: BTreeMap::new(),
            frozen: false,
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
            last.last = self.open;
        }
        if self.steps.len() == MAX_STEPS {
            let last = self.steps.last_mut().expect("there are some");
            last.name = format!("{} and what follows", last.name.trim_end_matches(" and what follows"));
            last.until = until;
            return;
        }
        let sheet = Sheet { name: name.to_owned(), from: now, ended: now, until, most: self.open, ..Sheet::default() };
        self.steps.push(sheet);
        self.part = Part::Step(self.steps.len() - 1);
    }

    /// How many steps there are until now.
    pub fn steps(&self) -> usize {
        self.steps.len()
    }

    /// The name of the step under way; `None` in the warm-up.
    pub fn step_name(&self) -> Option<&str> {
        self.steps.last().map(|sheet| sheet.name.as_str())
    }

    /// The step under way was over according to the plan at this time.
    pub fn end_step(&mut self, at: Time) {
        if let Some(last) = self.steps.last_mut() {
            last.until = Some(at);
        }
    }

    /// An operation was scheduled.
    #[inline]
    pub fn arrived(&mut self) {
        self.second.arrived += u64::from(!self.frozen);
    }

    /// An arrival was dropped.
    pub fn dropped(&mut self, part: Part) {
        self.dropped += 1;
        self.second.dropped += 1;
        if let Some(sheet) = self.sheet(part) {
            sheet.dropped += 1;
        }
    }

    /// An operation got a connection from the pool after `wait`.
    #[inline]
    pub fn waited(&mut self, part: Part, wait: Duration) {
        if let Some(sheet) = self.sheet(part) {
            sheet.wait.record(wait);
        }
    }

    /// An operation got a connection from the pool after `wait`, and a server of the pooler in front after `in_front`.
    pub fn waited_in_front(&mut self, part: Part, wait: Duration, in_front: Duration) {
        if let Some(sheet) = self.sheet(part) {
            sheet.wait.record(wait + in_front);
            sheet.front.get_or_insert_default().record(in_front);
        }
    }

    /// An operation ended well.
    #[inline]
    pub fn ended(&mut self, part: Part, response: Duration, service: Duration, now: Time) {
        if self.frozen {
            return;
        }
        self.done += 1;
        self.second.requests += 1;
        self.responses.record(response);
        if let Some(at_work) = self.steps.last_mut().filter(|sheet| sheet.until.is_none_or(|until| now <= until)) {
            at_work.finished += 1;
        }
        if let Some(sheet) = self.sheet(part) {
            sheet.requests += 1;
            sheet.taken += response;
            sheet.response.record(response);
            sheet.service.record(service);
            sheet.issue.record(response.saturating_sub(service));
            sheet.ended = now;
        }
    }

    /// An operation failed after `taken`. The time counts as a response time if the operation timed out, or took longer
    /// than answers do on average. A quick refusal does not: it is no quick answer.
    #[cold]
    pub fn failed(&mut self, part: Part, error: ErrorKind, taken: Duration, time_is_up: bool, now: Time) {
        if self.frozen {
            return;
        }
        self.failed += 1;
        self.second.errors += 1;
        let slow = match self.sheet(part) {
            Some(sheet) => {
                count(&mut sheet.errors, error);
                sheet.ended = now;
                let slow = time_is_up || sheet.mean().is_some_and(|mean| taken > mean);
                if slow {
                    sheet.response.record(taken);
                }
                slow
            }
            None => time_is_up,
        };
        if slow {
            self.responses.record(taken);
        }
    }

    /// The target said this of an error. What it says beyond [`MAX_ERROR_TEXTS`] different texts is counted by its kind
    /// only.
    #[cold]
    pub fn heard(&mut self, text: &str) {
        let text: String = text.chars().take(MAX_ERROR_TEXT).collect();
        if !self.frozen && (self.texts.len() < MAX_ERROR_TEXTS || self.texts.contains_key(&text)) {
            *self.texts.entry(text).or_default() += 1;
        }
    }

    /// What it said, and how often.
    pub fn texts(&self) -> &BTreeMap<String, u64> {
        &self.texts
    }

    /// Whether no answer in this part of the run took as long.
    pub fn is_longest(&mut self, part: Part, taken: Duration) -> bool {
        self.sheet(part).is_some_and(|sheet| sheet.response.max_ms().is_none_or(|max| taken.as_secs_f64() * 1e3 > max))
    }

    pub fn created(&mut self, cause: Cause, phases: &Phases, total: Duration) {
        self.open += 1;
        let open = self.open;
        if self.frozen {
            return;
        }
        self.second.created += 1;
        let measured = self.part != Part::WarmUp;
        let sheet = self.connections();
        sheet.created[if measured { cause } else { Cause::Start } as usize] += 1;
        sheet.most = sheet.most.max(open);
        sheet.connect.record(phases, total);
    }

    /// A connection could not be made.
    pub fn connect_failed(&mut self, error: ErrorKind) {
        if !self.frozen {
            count(&mut self.connections().connect_errors, error);
        }
    }

    /// A connection that had been made is gone, or is being closed.
    pub fn closed(&mut self, reason: impl Into<Cow<'static, str>>) {
        self.open = self.open.checked_sub(1).expect("only what is open closes");
        if !self.frozen {
            *self.connections().closed.entry(reason.into()).or_default() += 1;
        }
    }

    pub fn open(&self) -> u32 {
        self.open
    }

    /// Operations that ended well, failed, were dropped until now.
    pub fn totals(&self) -> (u64, u64, u64) {
        (self.done, self.failed, self.dropped)
    }

    /// The last whole second.
    pub fn last_second(&self) -> Option<&Second> {
        self.series.last()
    }

    /// When [`Self::roll`] is to be called next.
    #[inline]
    pub fn deadline(&self) -> Time {
        match self.origin {
            Some(origin) if !self.frozen && self.series.len() < MAX_SECONDS => {
                origin + SECOND * (self.series.len() as u32 + 1)
            }
            _ => Time::NEVER,
        }
    }

    /// Ends all seconds that are over.
    #[inline]
    pub fn roll(&mut self, gauges: Gauges, now: Time) {
        while self.deadline() <= now {
            self.end_second(gauges);
        }
    }

    #[cold]
    fn end_second(&mut self, gauges: Gauges) {
        let second = Second {
            at_s: self.series.len() as f64,
            p50_ms: self.responses.quantile_ms(0.5),
            p99_ms: self.responses.quantile_ms(0.99),
            max_ms: self.responses.max_ms(),
            connections: self.open,
            in_use: gauges.in_use,
            waiting: gauges.waiting,
            ..std::mem::take(&mut self.second)
        };
        self.series.push(second);
        self.responses.clear();
    }

    /// The run is over: what comes now (the pool being closed) is not written down.
    pub fn freeze(&mut self, gauges: Gauges, now: Time) {
        if self.frozen {
            return;
        }
        self.roll(gauges, now);
        if self.second != Second::default() && self.series.len() < MAX_SECONDS {
            self.end_second(gauges);
        }
        if let Some(last) = self.steps.last_mut() {
            last.last = self.open;
        }
        self.frozen = true;
    }

    /// Second by second.
    pub fn series(&self) -> &[Second] {
        &self.series
    }

    /// Each step as a result shows it.
    pub fn step_results(&self, now: Time) -> Vec<Step> {
        let origin = self.origin.unwrap_or(now);
        let last = self.steps.len().saturating_sub(1);
        let show = |(n, sheet): (usize, &Sheet)| {
            let open = if n == last && !self.frozen { self.open } else { sheet.last };
            let end = match sheet.until {
                Some(until) => until.min(now),
                None if n < last || self.frozen => sheet.ended,
                None => now,
            };
            Step {
                name: sheet.name.clone(),
                from_s: (sheet.from - origin).as_secs_f64(),
                measured: Measured { duration_s: (end - sheet.from).as_secs_f64(), ..sheet.show(open) },
            }
        };
        self.steps.iter().enumerate().map(show).collect()
    }

    /// All steps together, connections of the start included.
    pub fn total_result(&self, now: Time) -> Measured {
        let mut sum = Sheet::default();
        sum.add(&self.start, false);
        self.steps.iter().for_each(|sheet| sum.add(sheet, true));
        let from = self.steps.first().map_or(now, |sheet| sheet.from);
        let planned = self.steps.last().and_then(|sheet| sheet.until);
        let end = match planned {
            Some(until) => until.min(now),
            None if self.frozen => sum.ended,
            None => now,
        };
        let open = if self.frozen { self.steps.last().map_or(self.open, |sheet| sheet.last) } else { self.open };
        Measured { duration_s: (end - from).as_secs_f64(), ..sum.show(open) }
    }

    /// Response times of all steps together.
    pub fn responses(&self) -> Histogram {
        let mut sum = Histogram::new();
        self.steps.iter().for_each(|sheet| sum.add(&sheet.response));
        sum
    }

    #[inline]
    fn sheet(&mut self, part: Part) -> Option<&mut Sheet> {
        match part {
            _ if self.frozen => None,
            Part::WarmUp => None,
            Part::Step(n) => Some(&mut self.steps[n.min(MAX_STEPS - 1)]),
        }
    }

    fn connections(&mut self) -> &mut Sheet {
        match self.part {
            Part::WarmUp => &mut self.start,
            Part::Step(n) => &mut self.steps[n],
        }
    }
}

impl Default for Books {
    fn default() -> Self {
        Self::new()
    }
}

fn count(errors: &mut BTreeMap<ErrorKind, u64>, error: ErrorKind) {
    let known = errors.len() < MAX_ERROR_KINDS || errors.contains_key(&error);
    *errors.entry(if known { error } else { ErrorKind("other".into()) }).or_default() += 1;
}

impl Sheet {
    /// How long operations took on average that ended well.
    fn mean(&self) -> Option<Duration> {
        let count = u32::try_from(self.requests).unwrap_or(u32::MAX);
        (count > 0).then(|| self.taken / count)
    }

    /// Adds another one; `closings`: with what was closed in it, too.
    fn add(&mut self, other: &Self, closings: bool) {
        self.response.add(&other.response);
        self.service.add(&other.service);
        self.issue.add(&other.issue);
        self.wait.add(&other.wait);
        if let Some(front) = &other.front {
            self.front.get_or_insert_default().add(front);
        }
        self.connect.add(&other.connect);
        let kinds = [(&mut self.errors, &other.errors), (&mut self.connect_errors, &other.connect_errors)];
        for (sum, errors) in kinds {
            errors.iter().for_each(|(kind, n)| *sum.entry(kind.clone()).or_default() += n);
        }
        self.requests += other.requests;
        self.finished += other.finished;
        self.dropped += other.dropped;
        self.created.iter_mut().zip(other.created).for_each(|(sum, n)| *sum += n);
        if closings {
            other.closed.iter().for_each(|(reason, n)| *self.closed.entry(reason.clone()).or_default() += n);
        }
        self.most = self.most.max(other.most);
        self.ended = self.ended.max(other.ended);
    }

    fn show(&self, open: u32) -> Measured {
        let kinds = |errors: &BTreeMap<ErrorKind, u64>| errors.iter().map(|(k, n)| (k.0.to_string(), *n)).collect();
        let created_for: BTreeMap<_, _> = Cause::ALL
            .iter()
            .map(|cause| (cause.as_str().to_owned(), self.created[*cause as usize]))
            .filter(|(_, n)| *n > 0)
            .collect();
        Measured {
            requests: self.requests,
            finished: self.finished,
            errors: kinds(&self.errors),
            dropped: self.dropped,
            response_ms: self.response.percentiles(true),
            service_ms: self.service.percentiles(true),
            issue_ms: self.issue.percentiles(true),
            pool_wait_ms: self.wait.percentiles(true),
            front_wait_ms: self.front.as_ref().and_then(|front| front.percentiles(true)),
            connect_ms: self.connect.show(),
            connections: Connections {
                created: self.created.iter().sum(),
                created_for,
                closed: self.closed.iter().map(|(reason, n)| (reason.to_string(), *n)).collect(),
                failed: kinds(&self.connect_errors),
                most: self.most,
                last: open,
            },
            ..Measured::default()
        }
    }
}

impl Connecting {
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

    fn show(&self) -> ConnectPhases {
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
