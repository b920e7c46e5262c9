//! A planner's question: loads with their given pool settings, the server model, and objectives. It comes from a
//! scenario file, which may be one that `poolhouse bench` runs, or from the command line.

mod options;

use std::{path::Path, time::Duration};

use ::report::{
    comparison::Comparison,
    result::{BenchResult, Measured},
};
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
pub use options::{ConnectOptions, Options, Platform, Spread};

/// The default margin of an objective, as a share of its limit.
const DEFAULT_MARGIN: f64 = 0.1;
/// The default memory of a server connection, in megabytes.
const DEFAULT_MEMORY_MB: f64 = 1.0;
/// Length of the closed-loop load for a scenario with a `[sweep]`, and its warm-up.
const SWEEP_LOAD_LENGTH: Duration = Duration::from_secs(30);
const SWEEP_WARMUP: Duration = Duration::from_secs(5);
/// Most sizes of a sweep's curve that become loads.
const MAX_SWEEP_LOADS: usize = 16;
const DEFAULT_LOAD_LENGTH: Duration = Duration::from_secs(60);
/// The lowest limit of the default objective for the wait for a connection, in milliseconds.
const MIN_WAIT_OBJECTIVE_MS: u128 = 5;
/// Bounds of a load, so that sums of times do not overflow and a plan ends in minutes.
const MAX_LOAD_LENGTH: Duration = Duration::from_secs(366 * 86_400);
const MAX_DELAY: Duration = Duration::from_secs(86_400);
const MAX_OPERATIONS: f64 = 1e9;
/// Share of the best throughput that the default objective of a sweep may lose: near the best, the curve is flat.
const MAX_SWEEP_LOSS: f64 = 0.05;

#[derive(Clone, Debug)]
pub struct Question {
    pub name: String,
    /// The description of the scenario.
    pub about: String,
    /// The loads, each with its given pool settings.
    pub loads: Vec<Plan>,
    pub spec: Spec,
    pub objectives: Vec<Comparison>,
    /// Share by which upper limits are lowered.
    pub margin: f64,
    /// Seconds of the real service for which one second of the load stands.
    pub compression: f64,
    /// The server's processors, if known.
    pub cpus: Option<u32>,
    /// Megabytes of the server for each connection.
    pub memory_mb: f64,
    pub platform: Option<Platform>,
    /// Assumptions, one sentence each.
    pub assumptions: Vec<String>,
    /// The given pools have the sizes of a sweep's curve.
    pub is_sweep: bool,
    /// False for a question of the command line, which does not name the database.
    pub is_database_known: bool,
    /// Products whose settings are printed. Empty: the default ones of the database.
    pub products: Vec<Product>,
}

/// A load and a pool from the command line.
#[derive(Clone, Debug)]
pub struct Flags {
    /// Operations per second.
    pub rate: f64,
    /// `None`: a minute.
    pub duration: Option<Duration>,
    pub spacing: Spacing,
    pub faults: Vec<Fault>,
    pub pool: PoolWishes,
    pub seed: u64,
}

/// # Errors
/// What is wrong with the text of the objective.
pub fn parse_objective(text: &str) -> Result<Comparison, String> {
    Comparison::parse(text)
        .map_err(|message| format!("{message} (an objective says what must hold: p99<50ms, errors<0.1%)"))
}

/// Reads the question of a scenario file. `overrides` take precedence over the file's `[plan]`.
///
/// # Errors
/// All problems of the file, each with its place.
pub fn from_file(path: &Path, overrides: &Options) -> Result<Question, Problems> {
    let text = load_text(path)?;
    from_text(path, &text, &environment, scenario::is_full(), overrides)
}

/// Reads the question of a scenario's text. `full`: with the durations of a full run.
///
/// # Errors
/// All problems of the text, each with its place.
pub fn from_text(
    path: &Path,
    text: &str,
    variables: Variables<'_>,
    full: bool,
    overrides: &Options,
) -> Result<Question, Problems> {
    let (scenario, section) = scenario::from_text_with(path, text, variables, full, |_, root| {
        root.table("plan", &[options::KEYS]).map(|section| (Options::read(&section), section.spots()))
    })?;
    let (from_section, spots) = section.unwrap_or_default();
    let mut options = overrides.clone().or(from_section);
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
    let mut assumptions = Vec::new();
    let mut spec = options.server_spec(&target, &mut assumptions).map_err(place)?;
    if let (None, Some(start)) = (spec.limit, scenario.start) {
        let reserved = options.reserved.unwrap_or(default_reserved(&target));
        (spec.limit, spec.reserved) = (Some(start.max_connections), reserved);
    }
    let (loads, best_rate) = match &scenario.sweep {
        None => (scenario.plans, None),
        Some(sweep) => {
            let curve = spec.curve.clone().filter(|_| options.curve.is_some()).ok_or_else(|| {
                place((
                    "curve",
                    "a sweep's question needs its answer: run it, and name the file with `curve`".to_owned(),
                ))
            })?;
            (sweep_loads(&scenario.name, sweep, &curve), Some(curve.best(0.0).0))
        }
    };
    if let Err(message) = loads.iter().try_for_each(|load| check_bounds(load, &spec)) {
        return Err(settings::Problem::error(message).in_file(path).into());
    }
    if let Some(best) = best_rate.filter(|_| options.objectives.is_empty()) {
        options.objectives.push(format!("rate>={}", round_down(best * (1.0 - MAX_SWEEP_LOSS))));
    }
    let question =
        build(scenario.name, loads, spec, options, assumptions).map_err(|message| place(("objectives", message)))?;
    Ok(Question {
        about: scenario.about,
        compression: scenario.compression.unwrap_or(1.0),
        is_sweep: best_rate.is_some(),
        ..question
    })
}

/// Builds the question of a command line.
///
/// # Errors
/// What is wrong with the flags.
pub fn from_flags(flags: &Flags, options: Options) -> Result<Question, String> {
    let target = Target::nowhere();
    let stage = Stage { duration: flags.duration.unwrap_or(DEFAULT_LOAD_LENGTH), from: flags.rate, to: flags.rate };
    let (mut assumptions, mut faults) = (Vec::new(), flags.faults.clone());
    if flags.duration.is_none() {
        assumptions.extend(faults.iter_mut().find_map(move_rare_stall_into_load));
    }
    let shape = Shape::Open { stages: vec![stage], spacing: flags.spacing, max_in_flight: load::plan::MAX_IN_FLIGHT };
    let pool = flags.pool.pool(&shape);
    let plan = Plan { faults, seed: flags.seed, ..Plan::new("as given".to_owned(), target.clone(), shape, pool) };
    plan.check()?;
    let spec = options.server_spec(&target, &mut assumptions).map_err(|(_, message)| replace_keys(&message))?;
    check_bounds(&plan, &spec)?;
    let question = build(format!("{}/s", crate::words::number(flags.rate)), vec![plan], spec, options, assumptions)?;
    Ok(Question { is_database_known: false, ..question })
}

/// Replaces the scenario keys in a message with the flags of the same name.
fn replace_keys(message: &str) -> String {
    let is_key = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let parts = message.split('`').enumerate().map(|(n, part)| match n % 2 {
        1 if is_key(part) => format!("--{}", part.replace('_', "-")),
        1 => format!("`{part}`"),
        _ => part.to_owned(),
    });
    parts.collect()
}

impl Question {
    /// The objectives that a result misses. Each stage of an open load must meet them. An interrupted result misses
    /// all of them.
    pub fn missed(&self, result: &BenchResult, margin: f64) -> Vec<Missed> {
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
            // A stage without arrivals has no time or share that could miss an objective.
            let is_idle = |measured: &Measured| each && objective.needs_operations() && has_no_arrivals(measured);
            let is_missed = |measured: &Measured| objective.holds(measured, margin) != Some(true) && !is_idle(measured);
            let failing = steps.iter().filter(|(_, measured)| is_missed(measured));
            missed.extend(failing.map(|(step, measured)| Missed {
                objective: objective.text().to_owned(),
                step: step.map(ToOwned::to_owned),
                measured: objective.shown(measured),
            }));
        }
        missed
    }

    /// Whether a load of at most `max_operations` operations is certain to miss an objective, judged by its result
    /// until now.
    pub fn is_certain_to_miss(&self, until_now: &BenchResult, max_operations: u64, margin: f64) -> bool {
        // Each stage must meet the objectives.
        let parts: Vec<&Measured> = match until_now.about.shape == "open" {
            true => until_now.steps.iter().map(|step| &step.measured).collect(),
            false => vec![&until_now.total],
        };
        let fails = |part| self.objectives.iter().any(|one| one.is_certain_to_fail(part, max_operations, margin));
        parts.into_iter().any(fails)
    }

    /// The first load that has a pool.
    pub fn first_pooled(&self) -> Option<&Plan> {
        self.loads.iter().find(|load| load.pool.reuse)
    }
}

/// A missed objective.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Missed {
    pub objective: String,
    /// The stage that misses the objective; null: the whole load.
    pub step: Option<String>,
    pub measured: String,
}

/// Moves a stall that is rarer than once in the default load length into the load, because a percentile over hours
/// would not show it. Returns the assumption. A stall with a given beginning stays where it is.
fn move_rare_stall_into_load(fault: &mut Fault) -> Option<String> {
    let Fault::Stall { window, .. } = fault else { return None };
    let every = window.every.filter(|every| *every == window.first && *every >= DEFAULT_LOAD_LENGTH)?;
    window.first = DEFAULT_LOAD_LENGTH / 3;
    Some(format!(
        "A minute around one stall is played, which begins after {}: percentiles over all {} would hardly see it.",
        crate::words::time(window.first),
        crate::words::time(every)
    ))
}

fn has_no_arrivals(measured: &Measured) -> bool {
    measured.requests == 0 && measured.dropped == 0 && measured.errors.is_empty()
}

/// Rounds a rate down to three significant digits.
fn round_down(rate: f64) -> f64 {
    let unit = if rate >= 100.0 { 1.0 } else { 10f64.powi(rate.max(1e-9).log10().floor() as i32 - 2) };
    // The factor keeps a digit that only floating point makes too small.
    (rate / unit * (1.0 + 1e-9)).floor() / (1.0 / unit).round()
}

/// Refuses a load that takes too long to simulate, or whose times could overflow.
fn check_bounds(load: &Plan, spec: &Spec) -> Result<(), String> {
    let too_long = |what: &str| Err(format!("{what} is too long to be played: give a year at most"));
    let delays = load.faults.iter().filter_map(|fault| match fault {
        Fault::Delay { delay, jitter } => Some(delay.saturating_add(*jitter)),
        Fault::Stall { delay, .. } => Some(*delay),
        Fault::BlackHole { window } => Some(window.length),
        Fault::Forget { .. } | Fault::Cut { .. } => None,
    });
    let (length, operations) = length_and_operations(load, spec);
    match () {
        () if length.saturating_add(load.warmup) > MAX_LOAD_LENGTH => too_long("the load"),
        () if load.timeout > MAX_LOAD_LENGTH => too_long("the time-out of an operation"),
        () if load.freeze.is_some_and(|window| window.length > MAX_LOAD_LENGTH) => too_long("the freeze"),
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

/// The shortest length of a load, and its approximate number of operations.
fn length_and_operations(load: &Plan, spec: &Spec) -> (Duration, f64) {
    match &load.shape {
        Shape::Open { stages, .. } => {
            let length = stages.iter().map(|stage| stage.duration).fold(Duration::ZERO, Duration::saturating_add);
            (length, stages.iter().map(Stage::expected).sum())
        }
        Shape::Closed { clients, think, duration, operations } => {
            let each = spec.mean_hold_time(&load.faults).saturating_add(*think).as_secs_f64().max(1e-9);
            let connections = load.pool.config.effective_max_size().saturating_mul(load.pool.instances);
            let at_once = if load.pool.reuse { connections.min(*clients) } else { *clients };
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

fn build(
    name: String,
    loads: Vec<Plan>,
    spec: Spec,
    options: Options,
    mut assumptions: Vec<String>,
) -> Result<Question, String> {
    let texts = match options.objectives.is_empty() {
        true => default_objectives(&loads, &spec, &mut assumptions),
        false => options.objectives,
    };
    Ok(Question {
        name,
        about: String::new(),
        loads,
        objectives: texts.iter().map(|text| parse_objective(text)).collect::<Result<_, _>>()?,
        margin: options.margin.unwrap_or(DEFAULT_MARGIN),
        compression: 1.0,
        cpus: options.cpus,
        memory_mb: options.memory_mb.unwrap_or(DEFAULT_MEMORY_MB),
        platform: options.platform,
        assumptions,
        is_sweep: false,
        is_database_known: true,
        products: options.products,
        spec,
    })
}

/// The default objectives: few operations fail, and few wait for a connection for longer than one is held.
fn default_objectives(loads: &[Plan], spec: &Spec, assumptions: &mut Vec<String>) -> Vec<String> {
    let mut texts = vec!["errors<0.1%".to_owned()];
    if let Some(load) = loads.iter().find(|load| load.pool.reuse) {
        let wait = spec.mean_hold_time(&load.faults).as_millis().max(MIN_WAIT_OBJECTIVE_MS);
        texts.insert(0, format!("pool_wait_p99<{wait}ms"));
    }
    assumptions.push(format!("No objective was given, so these are used: {}.", texts.join(", ")));
    texts
}

/// Connections that a server started for a scenario reserves by default.
fn default_reserved(target: &Target) -> u32 {
    match target {
        Target::Postgres(_) => 3,
        Target::Redis(_) | Target::MongoDb(_) | Target::Http(_) => 0,
    }
}

/// Loads with all clients of a sweep, on pools of the measured sizes.
fn sweep_loads(name: &str, sweep: &SweepPlan, curve: &Curve) -> Vec<Plan> {
    let known: Vec<u32> = curve.known_concurrencies().collect();
    let step = known.len().div_ceil(MAX_SWEEP_LOADS).max(1);
    let clients = sweep.through_clients.unwrap_or(sweep.options.to);
    let shape = Shape::Closed { clients, think: Duration::ZERO, duration: SWEEP_LOAD_LENGTH, operations: None };
    let plan = |size: u32| {
        let wishes = PoolWishes {
            max_size: Some(size),
            min_size: Some(size),
            max_idle_time: Some(None),
            max_life_time: Some(None),
            max_wait_time: Some(None),
            ..PoolWishes::default()
        };
        let name = format!("{name}: {clients} clients on {}", crate::words::counted(size.into(), "connection"));
        Plan {
            warmup: SWEEP_WARMUP,
            timeout: Duration::from_secs(3600),
            seed: sweep.options.seed,
            ..Plan::new(name, sweep.target.clone(), shape.clone(), wishes.pool(&shape))
        }
    };
    known.into_iter().step_by(step).map(plan).collect()
}
