//! What is asked: loads with the settings that are given, the server, what must hold. Read from a scenario file, which
//! may be one that `poolhouse bench` runs, or made from the command line. Predicts nothing.

mod wishes;

use std::{path::Path, time::Duration};

use ::report::{result::Measured, threshold::Threshold};
use arrivals::Fault;
use load::{
    plan::{Plan, PoolWishes, Shape, Spacing, Stage, Target},
    scenario::{self, SweepPlan},
};
use settings::{Problems, Variables, environment, load_text};

use crate::{
    products::Product,
    server::{Curve, Spec},
};
pub use wishes::{ConnectWishes, Exclusive, Platform, Spread, Wishes};

/// The default margin of an objective, as a share of its limit.
const DEFAULT_MARGIN: f64 = 0.1;
/// The default memory of a server connection, in megabytes.
const DEFAULT_MEMORY_MB: f64 = 1.0;
/// How long a closed loop of a sweep's question lasts, and what of that is not measured.
const SWEEP_TIME: Duration = Duration::from_secs(30);
const SWEEP_WARMUP: Duration = Duration::from_secs(5);
/// Sizes of a pool that are shown of a sweep's curve.
const MAX_SIZES: usize = 16;
/// The default length of a load.
const DEFAULT_LENGTH: Duration = Duration::from_secs(60);
/// The lowest default limit of the wait for a connection, in milliseconds.
const MIN_WAIT_LIMIT_MS: u128 = 5;
/// The longest load that is played, the longest delay on the way, and the most operations: what takes minutes, again
/// and again.
const MAX_LOAD_LENGTH: Duration = Duration::from_secs(366 * 86_400);
const MAX_DELAY: Duration = Duration::from_secs(86_400);
const MAX_OPERATIONS: f64 = 1e9;
/// Throughput that is good enough, as a share of the best: the curve is flat there.
const NEAR_BEST: f64 = 0.05;

#[derive(Clone, Debug)]
pub struct Question {
    pub name: String,
    /// What the scenario shows.
    pub about: String,
    /// The loads, each with the settings that are given.
    pub cases: Vec<Plan>,
    pub spec: Spec,
    pub objectives: Vec<Threshold>,
    /// No objectives were given; these are the defaults.
    pub own_objectives: bool,
    /// By how much limits must be kept, as a share of them.
    pub margin: f64,
    /// How many seconds of the real service a second of the load stands for.
    pub compression: f64,
    /// The server's processors, if they are known.
    pub cpus: Option<u32>,
    /// Megabytes of the server for each connection.
    pub memory_mb: f64,
    /// What the platform does with functions.
    pub platform: Option<Platform>,
    /// What needs a connection of its own at a Redis.
    pub exclusive: Option<Exclusive>,
    /// What had to be assumed, a sentence each.
    pub assumed: Vec<String>,
    /// The sizes of the given pools are those of a curve, to be compared with one another.
    pub is_sweep: bool,
    /// Which database it is: a command line does not say.
    pub knows_database: bool,
    /// Whose settings are to be told; none: those that make sense for the database.
    pub products: Vec<Product>,
}

/// A load and a pool, as the command line says them.
#[derive(Clone, Debug)]
pub struct Flags {
    /// Operations per second.
    pub rate: f64,
    /// How long; `None`: a minute.
    pub duration: Option<Duration>,
    pub spacing: Spacing,
    /// What goes wrong on the way.
    pub faults: Vec<Fault>,
    pub pool: PoolWishes,
    /// For everything that chance decides.
    pub seed: u64,
}

/// Reads an objective: a condition that must hold, `p99<50ms`.
///
/// # Errors
/// What is wrong with it.
pub fn objective(text: &str) -> Result<Threshold, String> {
    Threshold::parse(text)
        .map_err(|message| format!("{message} (an objective says what must hold: p99<50ms, errors<0.1%)"))
}

/// The question of a scenario file. What `over` says goes before what the file's `[plan]` says.
///
/// # Errors
/// All that is wrong with the file, each at its place.
pub fn from_file(path: &Path, over: &Wishes) -> Result<Question, Problems> {
    let text = load_text(path)?;
    from_text(path, &text, &environment, scenario::is_full(), over)
}

/// The same with the file's text, whatever variables and either durations.
///
/// # Errors
/// All that is wrong with it, each at its place.
pub fn from_text(
    path: &Path,
    text: &str,
    variables: Variables<'_>,
    full: bool,
    over: &Wishes,
) -> Result<Question, Problems> {
    let (scenario, wishes) = scenario::from_text_with(path, text, variables, full, |_, root| {
        root.table("plan", &[wishes::KEYS]).map(|section| (Wishes::read(&section), section.spots()))
    })?;
    let (said, spots) = wishes.unwrap_or_default();
    let wishes = over.clone().over(said);
    let place = |(key, message): (&'static str, String)| {
        let problem = settings::Problem::error(format!("[plan]: {message}"));
        let span = spots.get(key).or_else(|| spots.get("")).cloned();
        Problems::from(match span {
            Some(span) => problem.at(path, text, span),
            None => problem.in_file(path),
        })
    };
    let target = match (&scenario.sweep, scenario.plans.first()) {
        (Some(sweep), _) => sweep.target.clone(),
        (None, Some(plan)) => plan.target.clone(),
        (None, None) => return Err(settings::Problem::error("it has no load").in_file(path).into()),
    };
    let mut assumed = Vec::new();
    let mut spec = wishes.spec(&target, &mut assumed).map_err(place)?;
    if let (None, Some(start)) = (spec.limit, scenario.start) {
        (spec.limit, spec.reserved) = (Some(start.max_connections), wishes.reserved.unwrap_or(reserved(&target)));
    }
    let (cases, near_best) = match &scenario.sweep {
        None => (scenario.plans, None),
        Some(sweep) => {
            let curve = spec.curve.clone().filter(|_| wishes.curve.is_some()).ok_or_else(|| {
                place((
                    "curve",
                    "a sweep's question needs its answer: run it, and name the file with `curve`".to_owned(),
                ))
            })?;
            (sizes(&scenario.name, sweep, &curve), Some(curve.best(NEAR_BEST)))
        }
    };
    if let Err(message) = cases.iter().try_for_each(|case| check_extent(case, &spec)) {
        return Err(settings::Problem::error(message).in_file(path).into());
    }
    let mut wishes = wishes;
    if let Some((most, _)) = near_best.filter(|_| wishes.objectives.is_empty()) {
        wishes.objectives.push(format!("rate>={}", rounded_down(most * (1.0 - NEAR_BEST))));
    }
    let mut question =
        made(scenario.name.clone(), cases, spec, wishes, assumed).map_err(|message| place(("objectives", message)))?;
    question.about = scenario.about;
    question.compression = scenario.compression.unwrap_or(1.0);
    question.is_sweep = near_best.is_some();
    Ok(question)
}

/// The question of a command line.
///
/// # Errors
/// What is wrong with it.
pub fn from_flags(flags: &Flags, wishes: Wishes) -> Result<Question, String> {
    let target = Target::nowhere();
    let stage = Stage { duration: flags.duration.unwrap_or(DEFAULT_LENGTH), from: flags.rate, to: flags.rate };
    let (mut assumed, mut faults) = (Vec::new(), flags.faults.clone());
    if flags.duration.is_none() {
        assumed.extend(faults.iter_mut().find_map(brought_in));
    }
    let shape = Shape::Open { stages: vec![stage], spacing: flags.spacing, max_in_flight: load::plan::MAX_IN_FLIGHT };
    let plan = Plan {
        name: "as given".to_owned(),
        pool: flags.pool.pool(&shape),
        shape,
        faults,
        warmup: Duration::ZERO,
        timeout: load::plan::DEFAULT_TIMEOUT,
        seed: flags.seed,
        fail_if: Vec::new(),
        freeze: None,
        poolhouse: None,
        target: target.clone(),
    };
    plan.check()?;
    let spec = wishes.spec(&target, &mut assumed).map_err(|(_, message)| with_flags(&message))?;
    check_extent(&plan, &spec)?;
    let question = made(format!("{}/s", crate::words::number(flags.rate)), vec![plan], spec, wishes, assumed)?;
    Ok(Question { knows_database: false, ..question })
}

/// What a message calls by the keys of a scenario, as flags.
fn with_flags(message: &str) -> String {
    let is_key = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let parts = message.split('`').enumerate().map(|(n, part)| match n % 2 {
        1 if is_key(part) => format!("--{}", part.replace('_', "-")),
        1 => format!("`{part}`"),
        _ => part.to_owned(),
    });
    parts.collect()
}

impl Question {
    /// The conditions that do not hold of a result. Of stages each must keep them. Of what was not played to its end
    /// none is known to hold.
    pub fn missed(&self, result: &::report::result::BenchResult, margin: f64) -> Vec<Missed> {
        if result.interrupted {
            let unknown = "unknown: cut short";
            let missed = |text: &str| Missed { objective: text.to_owned(), step: None, measured: unknown.to_owned() };
            return self.objectives.iter().map(|objective| missed(objective.text())).collect();
        }
        let each = result.about.shape == "open" && result.steps.len() > 1;
        let steps: Vec<(Option<&str>, &Measured)> = match each {
            true => result.steps.iter().map(|step| (Some(step.name.as_str()), &step.measured)).collect(),
            false => vec![(None, &result.total)],
        };
        let mut missed = Vec::new();
        for objective in &self.objectives {
            // Where nothing came, nothing was late.
            let idle = |measured: &Measured| each && objective.is_of_operations() && nothing_came(measured);
            let failing = steps.iter().filter(|(_, measured)| !objective.holds(measured, margin) && !idle(measured));
            missed.extend(failing.map(|(step, measured)| Missed {
                objective: objective.text().to_owned(),
                step: step.map(ToOwned::to_owned),
                measured: objective.measured(measured),
            }));
        }
        missed
    }

    /// Whether an objective is sure to be missed with this margin in the end of a load of at most `most` operations, of
    /// which this was played.
    pub fn is_lost(&self, played: &::report::result::BenchResult, most: u64, margin: f64) -> bool {
        // Of stages each must keep them, and one that is alone has no more in it than the whole.
        let parts: Vec<&Measured> = match played.about.shape == "open" {
            true => played.steps.iter().map(|step| &step.measured).collect(),
            false => vec![&played.total],
        };
        parts.into_iter().any(|part| self.objectives.iter().any(|objective| objective.is_lost(part, most, margin)))
    }

    /// The first load that has a pool: the one whose settings are looked for.
    pub fn pooled(&self) -> Option<&Plan> {
        self.cases.iter().find(|case| case.pool.reuse)
    }
}

/// An objective that is not met.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Missed {
    pub objective: String,
    /// In which step; null: in the whole.
    pub step: Option<String>,
    pub measured: String,
}

/// A stall that comes more rarely than in each load of the usual length is put into it, and that is said: a pool that
/// bridges it is what is asked for, and percentiles over hours would not see it. One whose beginning was said stays
/// where it is.
fn brought_in(fault: &mut Fault) -> Option<String> {
    let Fault::Stall { window, .. } = fault else { return None };
    let every = window.every.filter(|every| *every == window.first && *every >= DEFAULT_LENGTH)?;
    window.first = DEFAULT_LENGTH / 3;
    Some(format!(
        "A minute around one stall is played, which begins after {}: percentiles over all {} would hardly see it.",
        crate::words::time(window.first),
        crate::words::time(every)
    ))
}

/// In such a part of a load nothing has arrived.
fn nothing_came(measured: &Measured) -> bool {
    measured.requests == 0 && measured.dropped == 0 && measured.errors.is_empty()
}

/// A rate to three digits, none of them too large.
fn rounded_down(rate: f64) -> f64 {
    let unit = if rate >= 100.0 { 1.0 } else { 10f64.powi(rate.max(1e-9).log10().floor() as i32 - 2) };
    // What is short of a digit by no more than rounding has it.
    (rate / unit * (1.0 + 1e-9)).floor() / (1.0 / unit).round()
}

/// Whether a load can be played within a sensible time, and its times be added up.
fn check_extent(case: &Plan, spec: &Spec) -> Result<(), String> {
    let too_long = |what: &str| Err(format!("{what} is too long to be played: give a year at most"));
    let delays = case.faults.iter().filter_map(|fault| match fault {
        Fault::Delay { delay, jitter } => Some(delay.saturating_add(*jitter)),
        Fault::Stall { delay, .. } => Some(*delay),
        Fault::BlackHole { window } => Some(window.length),
        Fault::Forget { .. } | Fault::Cut { .. } => None,
    });
    let (length, operations) = extent(case, spec);
    match () {
        () if length.saturating_add(case.warmup) > MAX_LOAD_LENGTH => too_long("the load"),
        () if case.timeout > MAX_LOAD_LENGTH => too_long("the time-out of an operation"),
        () if case.freeze.is_some_and(|window| window.length > MAX_LOAD_LENGTH) => too_long("the freeze"),
        () if delays.max().is_some_and(|delay| delay > MAX_DELAY) => {
            Err("a delay on the way of more than a day: nothing could be planned with that".to_owned())
        }
        () if operations > MAX_OPERATIONS => Err(format!(
            "about {} operations, and a plan plays {} at most: give a shorter load, or a lower rate",
            crate::words::number(operations),
            crate::words::number(MAX_OPERATIONS)
        )),
        () => Ok(()),
    }
}

/// How long a load takes at least, and about how many operations it has.
fn extent(case: &Plan, spec: &Spec) -> (Duration, f64) {
    match &case.shape {
        Shape::Open { stages, .. } => {
            let length = stages.iter().map(|stage| stage.duration).fold(Duration::ZERO, Duration::saturating_add);
            (length, stages.iter().map(Stage::expected).sum())
        }
        Shape::Closed { clients, think, duration, operations } => {
            let each = spec.mean_hold_time(&case.faults).saturating_add(*think).as_secs_f64().max(1e-9);
            let connections = case.pool.config.effective_max_size().saturating_mul(case.pool.instances);
            let at_once = if case.pool.reuse { connections.min(*clients) } else { *clients };
            let curve = spec.curve.as_ref().map(|curve| curve.best(0.0).0);
            let processors = spec.processors.map(|all| all.best(spec.service.mean()).0);
            let rate = curve.into_iter().chain(processors).fold(f64::from(at_once) / each, f64::min);
            let limit = operations.map_or(f64::INFINITY, |operations| operations as f64);
            (*duration, (rate * duration.as_secs_f64()).min(limit))
        }
        Shape::Burst { size, idle, rounds, .. } => {
            (idle.saturating_mul(*rounds), f64::from(*size) * f64::from(*rounds))
        }
    }
}

fn made(
    name: String,
    cases: Vec<Plan>,
    spec: Spec,
    wishes: Wishes,
    mut assumed: Vec<String>,
) -> Result<Question, String> {
    let own_objectives = wishes.objectives.is_empty();
    let texts = if own_objectives { own(&cases, &spec, &mut assumed) } else { wishes.objectives };
    Ok(Question {
        name,
        about: String::new(),
        cases,
        objectives: texts.iter().map(|text| objective(text)).collect::<Result<_, _>>()?,
        own_objectives,
        margin: wishes.margin.unwrap_or(DEFAULT_MARGIN),
        compression: 1.0,
        cpus: wishes.cpus,
        memory_mb: wishes.memory_mb.unwrap_or(DEFAULT_MEMORY_MB),
        platform: wishes.platform,
        exclusive: wishes.exclusive,
        assumed,
        is_sweep: false,
        knows_database: true,
        products: wishes.products,
        spec,
    })
}

/// What must hold where nobody says so: hardly anybody waits for a connection for longer than it is held (or 5 ms), and
/// hardly anything fails.
fn own(cases: &[Plan], spec: &Spec, assumed: &mut Vec<String>) -> Vec<String> {
    let mut texts = vec!["errors<0.1%".to_owned()];
    if let Some(case) = cases.iter().find(|case| case.pool.reuse) {
        let wait = spec.mean_hold_time(&case.faults).as_millis().max(MIN_WAIT_LIMIT_MS);
        texts.insert(0, format!("pool_wait_p99<{wait}ms"));
    }
    assumed.push(format!("No objective was given, so these are used: {}.", texts.join(", ")));
    texts
}

/// Connections that a server which is started for a scenario keeps for others: PostgreSQL's default.
fn reserved(target: &Target) -> u32 {
    match target {
        Target::Postgres(_) => 3,
        Target::Redis(_) | Target::MongoDb(_) | Target::Http(_) => 0,
    }
}

/// The load of all a sweep's clients on pools of the sizes that it has measured.
fn sizes(name: &str, sweep: &SweepPlan, curve: &Curve) -> Vec<Plan> {
    let known: Vec<u32> = curve.known_at().collect();
    let step = known.len().div_ceil(MAX_SIZES).max(1);
    let clients = sweep.through_clients.unwrap_or(sweep.options.to);
    let shape = Shape::Closed { clients, think: Duration::ZERO, duration: SWEEP_TIME, operations: None };
    let plan = |size: u32| {
        let wishes = PoolWishes {
            max_size: Some(size),
            min_size: Some(size),
            max_idle_time: Some(None),
            max_life_time: Some(None),
            max_wait_time: Some(None),
            ..PoolWishes::default()
        };
        Plan {
            name: format!("{name}: {clients} clients on {}", crate::words::counted(size.into(), "connection")),
            target: sweep.target.clone(),
            pool: wishes.pool(&shape),
            shape: shape.clone(),
            faults: Vec::new(),
            warmup: SWEEP_WARMUP,
            timeout: Duration::from_secs(3600),
            seed: sweep.options.seed,
            fail_if: Vec::new(),
            freeze: None,
            poolhouse: None,
        }
    };
    known.into_iter().step_by(step).map(plan).collect()
}
