//! Carries out `poolhouse bench`: one run, or the runs of a scenario. Starts the scenario's own database, makes tables,
//! stops on Ctrl-C.

use std::{
    path::Path,
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use ::load::{
    plan::{Plan, PoolhouseWishes, Target},
    run::RunError,
    scenario::{self, Kind, Scenario, SweepPlan},
    target::{Blame, TargetError},
};
use ::report::{
    comparison::Comparison,
    live::{Counts, Live},
    result::BenchResult,
};
use ::sweep::run::{Pooler, SweepError, SweepRequest, Through};
use settings::Secret;

use super::{
    BenchArgs, bad_usage, fault_flags::FaultFlags, frozen, load::LoadFlags, output, pool_under_test::PoolFlags,
};
use crate::{
    command_line::command_line,
    doctor::background::{BackgroundDoctor, LookTarget},
    interrupt::{self, Interrupt},
    output_file::Outputs,
    private::{PrivateDatabase, cleanup::Cleanup},
    request_flags::RequestFlags,
    sweep,
};

/// What the doctor says of a target that it cannot look at.
const NOTHING_TO_EXAMINE: &str = "nothing to look at: it looks at a Poolhouse and at PostgreSQL";
/// How long a client may wait for a server of the pooler that a sweep starts.
const SWEEP_WAIT_TIME: Duration = Duration::from_secs(120);
/// The time between two updates of the live display.
const DISPLAY_INTERVAL: Duration = Duration::from_millis(200);

/// The runs, and what they need.
struct Runs {
    plans: Vec<Plan>,
    init: bool,
    /// The doctor looks while they run.
    doctor: bool,
    scenario: ScenarioNotes,
    /// Stopped when dropped.
    database: Option<PrivateDatabase>,
}

/// What a scenario says about itself, for its results.
#[derive(Default)]
struct ScenarioNotes {
    about: Option<String>,
    compression: Option<f64>,
    columns: Vec<String>,
}

/// The job of a command line.
enum Job {
    Runs(Box<Runs>),
    Sweep(Box<SweepOfScenario>),
}

/// A scenario's sweep, and what it needs.
struct SweepOfScenario {
    plan: SweepPlan,
    about: Option<String>,
    init: bool,
    /// The doctor looks while it runs.
    doctor: bool,
    /// Stopped when dropped.
    database: Option<PrivateDatabase>,
}

/// Why there are no runs.
enum StartError {
    /// A mistake on the command line or in the scenario, already in words.
    Usage(String),
    Failed(anyhow::Error),
}

/// Runs what the command line says.
pub fn run(args: BenchArgs) -> anyhow::Result<ExitCode> {
    if let Some(child) = frozen::child_run() {
        let interrupt = interrupt::watch()?;
        return match plan_of_child(&args, &child) {
            Ok(plan) => frozen::execute_for_parent(&plan, &interrupt.stop),
            Err(StartError::Usage(message)) => Ok(bad_usage(&message)),
            Err(StartError::Failed(error)) => Err(error),
        };
    }
    let mut fail_if = Vec::new();
    for text in &args.output.fail_if {
        match Comparison::parse(text) {
            Ok(comparison) => fail_if.push(comparison),
            Err(message) => return Ok(bad_usage(&format!("--fail-if: {message}"))),
        }
    }
    let outputs = match args.output.open() {
        Ok(outputs) => outputs,
        Err(message) => return Ok(bad_usage(&message)),
    };
    let interrupt = interrupt::watch()?;
    let stop = &interrupt.stop;
    let runs = match prepare(&args, &interrupt) {
        Ok(Job::Runs(runs)) => *runs,
        Ok(Job::Sweep(sweep)) => {
            return sweep_of_scenario(*sweep, outputs, stop);
        }
        Err(StartError::Usage(message)) => return Ok(bad_usage(&message)),
        Err(StartError::Failed(error)) => return Err(error),
    };
    for plan in &runs.plans {
        let parsed =
            plan.check().and_then(|()| plan.fail_if.iter().try_for_each(|text| Comparison::parse(text).map(|_| ())));
        if let Err(message) = parsed {
            return Ok(bad_usage(&message));
        }
    }
    serve::raise_descriptor_limit();
    let is_of_scenario = args.what.as_deref().is_some_and(is_scenario);
    let (results, failed) = execute_all(&runs, &interrupt.cleanup, stop);
    drop(runs.database);
    // Results until a failure are shown.
    let shown = if results.is_empty() && failed.is_some() { Ok(()) } else { output::show(outputs, &results) };
    if let Some(error) = failed {
        if let Err(error) = shown {
            eprintln!("error: {error:#}");
        }
        return report_failure(error, &runs.plans, results.len());
    }
    shown?;
    let failures = find_failures(&fail_if, &runs.plans, &results);
    // A scenario may be about errors.
    let failed = if is_of_scenario { None } else { results.iter().find_map(describe_mostly_errors) };
    if let Some(failed) = &failed {
        eprintln!("error: {failed}");
    }
    // A condition of `fail_if` says more.
    Ok(if failures.is_empty() && failed.is_some() { ExitCode::FAILURE } else { output::verdict(&failures) })
}

/// Runs all, until one fails or it is interrupted: the results until then, and what went wrong.
fn execute_all(runs: &Runs, cleanup: &Cleanup, stop: &AtomicBool) -> (Vec<BenchResult>, Option<RunError>) {
    let mut results = Vec::new();
    for (n, plan) in runs.plans.iter().enumerate() {
        let made = match &plan.target {
            Target::Postgres(target) if runs.init && n == 0 => ::load::target::postgres::init(target, stop),
            Target::MongoDb(target) if runs.init && n == 0 => ::load::target::mongodb::init(target, stop),
            _ => Ok(()),
        };
        if let Err(error) = made {
            return (results, Some(error.into()));
        }
        match run_through_poolhouse(runs, plan, |plan| run_one(plan, n, cleanup, stop)) {
            Ok(mut result) => {
                result.about.scenario.clone_from(&runs.scenario.about);
                result.about.compression = runs.scenario.compression;
                result.about.columns.clone_from(&runs.scenario.columns);
                results.push(result);
            }
            Err(error) => return (results, Some(error)),
        }
        if stop.load(Relaxed) {
            break;
        }
    }
    (results, None)
}

/// Runs a plan, through a Poolhouse of its own if it asks for one.
fn run_through_poolhouse(
    runs: &Runs,
    plan: &Plan,
    run: impl Fn(&Plan) -> Result<BenchResult, RunError>,
) -> Result<BenchResult, RunError> {
    let compression = runs.scenario.compression.unwrap_or(1.0);
    let (Some(wishes), Some(database)) = (&plan.poolhouse, &runs.database) else {
        let subject = runs.doctor.then(|| doctor_subject(&plan.target, runs.database.as_ref()));
        return run_with_doctor(subject, compression, || run(plan));
    };
    let poolhouse =
        database.start_poolhouse(wishes, runs.doctor).map_err(|error| TargetError::machine(format!("{error:#}")))?;
    let mut plan = plan.clone();
    plan.target.point_at(&poolhouse.url);
    let subject = runs.doctor.then(|| poolhouse.admin.clone().map(LookTarget::Poolhouse));
    let result = run_with_doctor(subject, compression, || run(&plan));
    database.stop(&poolhouse);
    result
}

/// The server that the doctor can look at where no Poolhouse is in front.
fn doctor_subject(target: &Target, database: Option<&PrivateDatabase>) -> Option<LookTarget> {
    let Target::Postgres(target) = target else { return None };
    let watcher = database.and_then(PrivateDatabase::watcher).unwrap_or(&target.url);
    Some(LookTarget::Postgres(watcher.clone()))
}

/// Runs while the doctor looks, if `subject` wants one. Its inner `None`: there is no server to look at.
fn run_with_doctor(
    subject: Option<Option<LookTarget>>,
    compression: f64,
    run: impl FnOnce() -> Result<BenchResult, RunError>,
) -> Result<BenchResult, RunError> {
    let Some(subject) = subject else { return run() };
    let doctor = subject.map(|subject| BackgroundDoctor::start(subject, compression));
    let result = run();
    let said = doctor.map_or_else(|| vec![NOTHING_TO_EXAMINE.to_owned()], BackgroundDoctor::finish);
    result.map(|mut result| {
        result.about.doctor = said;
        result
    })
}

/// Reports the failure of the run with this number: bad usage if the user can change it, a failure otherwise.
fn report_failure(error: RunError, plans: &[Plan], number: usize) -> anyhow::Result<ExitCode> {
    let whose =
        plans.get(number).filter(|_| plans.len() > 1).map(|plan| format!("{}: ", plan.name)).unwrap_or_default();
    match &error {
        RunError::Target(TargetError { blame: Blame::Target | Blame::Machine, .. }) => {
            Err(anyhow::anyhow!("{whose}{error}"))
        }
        RunError::Target(_) | RunError::Plan(_) => Ok(bad_usage(&format!("{whose}{error}"))),
    }
}

fn prepare(args: &BenchArgs, interrupt: &Interrupt) -> Result<Job, StartError> {
    let text = match (&args.what, &args.url_file) {
        (Some(what), _) if is_scenario(what) => return from_scenario(args, Path::new(what), interrupt),
        (Some(what), _) => what.clone(),
        (None, Some(path)) => settings::read_small(path)
            .map_err(|error| StartError::Usage(format!("cannot read {}: {error}", path.display())))?,
        (None, None) => unreachable!("clap asks for a URL, a file with it, or a scenario"),
    };
    if args.target.is_some() {
        return Err(StartError::Usage(
            "--target goes with a scenario file; with a URL, give that URL alone".to_owned(),
        ));
    }
    let plan = plan_at(args, secret_url(&text)?)?;
    let (init, doctor) = (args.requests.init(), args.output.doctor);
    Ok(Job::Runs(Box::new(Runs {
        plans: vec![plan],
        init,
        doctor,
        scenario: ScenarioNotes::default(),
        database: None,
    })))
}

/// The plan of a command line without a scenario.
fn plan_at(args: &BenchArgs, url: Secret) -> Result<Plan, StartError> {
    let target = args.requests.target(url).map_err(StartError::Usage)?;
    let target = args.requests.at_scale_of_tables(target).map_err(|error| match error.blame {
        Blame::Configuration => StartError::Usage(error.to_string()),
        Blame::Target | Blame::Machine => StartError::Failed(anyhow::anyhow!("{error}")),
    })?;
    let shape = args.load.shape();
    Ok(Plan {
        name: args.output.name().unwrap_or_else(|| ::load::run::shown(target.url())),
        pool: args.pool.pool(&shape),
        target,
        shape,
        faults: args.faults.faults(),
        warmup: args.load.warmup(),
        timeout: args.load.timeout(),
        seed: args.output.seed(),
        fail_if: Vec::new(),
        freeze: args.faults.freeze(),
        poolhouse: None,
    })
}

/// The plan that this process runs for its parent, which has started everything that the run needs.
fn plan_of_child(args: &BenchArgs, child: &frozen::ChildRun) -> Result<Plan, StartError> {
    let Some(path) = args.what.as_deref().filter(|what| is_scenario(what)) else {
        return plan_at(args, child.target.clone());
    };
    let mut scenario = load_scenario(args, Path::new(path))?;
    scenario.point_at(&child.target);
    plans_of(args, &scenario)
        .into_iter()
        .nth(child.number)
        .ok_or_else(|| StartError::Usage("there is no such run".to_owned()))
}

fn is_scenario(what: &str) -> bool {
    !what.contains("://") && Path::new(what).extension().is_some_and(|extension| extension == "toml")
}

fn secret_url(text: &str) -> Result<Secret, StartError> {
    let url = settings::interpolate_url(text.trim(), &settings::environment);
    url.map(Secret::new).map_err(|message| StartError::Usage(format!("the URL: {message}")))
}

fn from_scenario(args: &BenchArgs, path: &Path, interrupt: &Interrupt) -> Result<Job, StartError> {
    check_no_load_flags(args).map_err(|message| StartError::Usage(message.to_owned()))?;
    let mut scenario = load_scenario(args, path)?;
    let scale = scenario.largest_table_scale();
    let about = Some(scenario.about.trim().to_owned()).filter(|about| !about.is_empty());
    let notes = ScenarioNotes { about, compression: scenario.compression, columns: scenario.columns.clone() };
    let doctor = args.output.doctor;
    let mut runs = Runs { plans: Vec::new(), init: args.requests.init(), doctor, scenario: notes, database: None };
    if let Some(url) = &args.target {
        scenario.point_at(&secret_url(url)?);
    } else if let Some(start) = scenario.start {
        serve::raise_descriptor_limit();
        // The doctor has a connection of a PostgreSQL, too, and the load is to have all of its own.
        let more = u32::from(doctor && start.kind == Kind::Postgres);
        let database = PrivateDatabase::start(start.kind, start.max_connections + more, &interrupt.cleanup)
            .map_err(StartError::Failed)?;
        scenario.point_at(database.url());
        runs.database = Some(database);
        runs.init = scale.is_some();
    }
    if let Some(mut plan) = scenario.sweep.take() {
        plan.options.seed = args.output.seed.unwrap_or(plan.options.seed);
        let Runs { init, scenario: ScenarioNotes { about, .. }, database, .. } = runs;
        let sweep = SweepOfScenario { plan, about, init, doctor, database };
        return Ok(Job::Sweep(Box::new(sweep)));
    }
    runs.plans = plans_of(args, &scenario);
    Ok(Job::Runs(Box::new(runs)))
}

fn load_scenario(args: &BenchArgs, path: &Path) -> Result<Scenario, StartError> {
    let mut scenario = scenario::load(path).map_err(|problems| StartError::Usage(problems.to_string()))?;
    check_options_fit(args, &scenario).map_err(|message| StartError::Usage(message.to_owned()))?;
    if let Some(name) = args.output.name() {
        scenario.rename(&name);
    }
    Ok(scenario)
}

/// The runs of a scenario, with what the command line says of them.
fn plans_of(args: &BenchArgs, scenario: &Scenario) -> Vec<Plan> {
    let mut plans = scenario.plans.clone();
    let made = args.requests.init() || (scenario.start.is_some() && args.target.is_none());
    for plan in &mut plans {
        // The tables of the largest scale serve all.
        if let (Target::Postgres(target), true, Some(scale)) = (&mut plan.target, made, scenario.largest_table_scale())
        {
            target.scale = scale;
        }
        plan.seed = args.output.seed.unwrap_or(plan.seed);
    }
    plans
}

/// Refuses flags for what a scenario file contains.
fn check_no_load_flags(args: &BenchArgs) -> Result<(), &'static str> {
    let nothing = args.load == LoadFlags::default()
        && args.requests == RequestFlags::only_init(args.requests.init())
        && args.pool == PoolFlags::default()
        && args.faults == FaultFlags::default();
    if nothing {
        Ok(())
    } else {
        Err("with a scenario file, load, pool, faults and what is asked stand in the file; only --init may stand \
             beside it, and makes the tables at the file's scale")
    }
}

/// Refuses options that have no effect on a scenario.
fn check_options_fit(args: &BenchArgs, scenario: &Scenario) -> Result<(), &'static str> {
    let sweep = scenario.sweep.is_some();
    match () {
        () if sweep && !args.output.fail_if.is_empty() => {
            Err("--fail-if goes with a run, and this scenario is a sweep")
        }
        () if sweep && args.output.name().is_some() => Err("--name goes with a run, and this scenario is a sweep"),
        () if args.target.is_some() && scenario.plans.iter().any(|plan| plan.poolhouse.is_some()) => {
            Err("--target cannot be given: this scenario starts a Poolhouse in front of its own database")
        }
        () if args.requests.init() && !scenario.needs_making() => Err(
            "--init makes the tables of the built-in scripts, or the documents of MongoDB's built-in operations, and \
             this scenario asks for none of them",
        ),
        () => Ok(()),
    }
}

fn sweep_of_scenario(sweep: SweepOfScenario, outputs: Outputs, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let SweepOfScenario { plan, about, init, doctor, database } = sweep;
    if plan.through_clients.is_some() && database.is_none() {
        eprintln!("through a pooler is measured only with the scenario's own database; see poolhouse sweep --through");
    }
    let target = plan.target.clone();
    let subject = doctor.then(|| doctor_subject(&target, database.as_ref())).flatten();
    if doctor && subject.is_none() {
        eprintln!("doctor: {NOTHING_TO_EXAMINE}");
    }
    let through = plan.through_clients.zip(database.as_ref()).map(|(clients, database)| {
        let start = move |max_size| {
            // A sweep measures how long clients wait, so Poolhouse must not refuse them.
            let max_wait_time = Some(Some(SWEEP_WAIT_TIME));
            let wishes = PoolhouseWishes { max_size: Some(max_size), max_wait_time, ..PoolhouseWishes::default() };
            let poolhouse = database
                .start_poolhouse(&wishes, false)
                .map_err(|error| SweepError { blame: Blame::Machine, message: format!("{error:#}") })?;
            let mut through = target.clone();
            through.point_at(&poolhouse.url);
            Ok(through)
        };
        Through { pooler: Pooler::Started(Box::new(start)), clients }
    });
    let request = SweepRequest {
        target: plan.target,
        through,
        options: plan.options,
        timeout: plan.timeout,
        command: Some(command_line()),
        scenario: about,
    };
    sweep::carry_out(request, init, subject, outputs, stop)
}

/// Runs a plan, here or in a process that is frozen now and then.
fn run_one(plan: &Plan, number: usize, cleanup: &Cleanup, stop: &AtomicBool) -> Result<BenchResult, RunError> {
    let mut result = match plan.freeze {
        Some(window) => frozen::run_in_child(plan, window, number, cleanup, stop),
        None => shown(plan, stop),
    }?;
    result.about.command = Some(command_line());
    Ok(result)
}

/// Runs a plan here, with a display of how far it is.
fn shown(plan: &Plan, stop: &AtomicBool) -> Result<BenchResult, RunError> {
    let mut live: Option<Live> = None;
    let mut shown: Option<Instant> = None;
    let mut watch = |engine: &::load::engine::Engine, now| {
        if shown.is_some_and(|at| at.elapsed() < DISPLAY_INTERVAL) {
            return;
        }
        shown = Some(Instant::now());
        let progress = engine.progress(now);
        let live = live.get_or_insert_with(|| Live::new(&plan.name, progress.length));
        let counts = Counts { requests: progress.succeeded, errors: progress.errors, dropped: progress.dropped };
        live.show(progress.at, progress.step, progress.last, counts);
    };
    let result = ::load::run::run(plan, stop, &mut watch);
    if let Some(mut live) = live {
        live.finish();
    }
    result
}

/// Share of failed operations above which a run has failed.
const MAX_ERROR_SHARE: f64 = 0.5;

/// Says so if most operations failed, and why. An interrupted run may have ended in the middle of trouble.
fn describe_mostly_errors(result: &BenchResult) -> Option<String> {
    let errors: u64 = result.total.errors.values().sum();
    let share = errors as f64 / (errors + result.total.requests).max(1) as f64;
    let (kind, count) = result.total.errors.iter().max_by_key(|(_, count)| **count)?;
    (share > MAX_ERROR_SHARE && !result.interrupted).then(|| {
        format!("{:.1}% of all operations failed, {count} of {errors} with: {}", share * 100.0, printable::line(kind))
    })
}

/// The conditions of `fail_if` that hold, with the name of the run where there are several. An interrupted run is not
/// judged.
fn find_failures(fail_if: &[Comparison], plans: &[Plan], results: &[BenchResult]) -> Vec<String> {
    let mut failures = Vec::new();
    for (plan, result) in plans.iter().zip(results).filter(|(_, result)| !result.interrupted) {
        let own = plan.fail_if.iter().map(|text| Comparison::parse(text).expect("it was read before the run"));
        for comparison in own.chain(fail_if.iter().cloned()) {
            if let Some(failure) = comparison.failure(&result.total) {
                let lead = if results.len() > 1 { format!("{}: ", result.name) } else { String::new() };
                failures.push(format!("{lead}{failure}"));
            }
        }
    }
    failures
}

#[cfg(test)]
mod tests {
    use std::{io::Read, io::Write, net::TcpListener, thread};

    use ::load::plan::{HttpTarget, PoolWishes, Shape};
    use clap::Parser;

    use super::*;

    fn args(words: &[&str]) -> BenchArgs {
        let words = ["poolhouse", "bench"].iter().chain(words);
        match crate::Command::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).verb {
            crate::Verb::Bench(args) => *args,
            _ => unreachable!("it is the verb that was given"),
        }
    }

    #[test]
    fn a_run_has_failed_when_most_of_it_did() {
        let result = |requests, errors: &[(&str, u64)], interrupted| {
            let errors = errors.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect();
            let total = ::report::result::Measured { requests, errors, ..Default::default() };
            BenchResult { total, interrupted, ..BenchResult::default() }
        };
        let of_two = [("sqlstate 53300", 90), ("timeout", 3)];
        let notes = describe_mostly_errors(&result(7, &of_two, false)).unwrap();
        assert_eq!(notes, "93.0% of all operations failed, 90 of 93 with: sqlstate 53300");
        assert_eq!(describe_mostly_errors(&result(7, &of_two, true)), None);
        assert_eq!(describe_mostly_errors(&result(93, &of_two, false)), None);
        assert_eq!(describe_mostly_errors(&result(0, &[], false)), None);
    }

    fn scenario(rest: &str) -> Scenario {
        let text = format!("[scenario]\nname = \"x\"\n[target]\nstart = \"postgres\"\n{rest}");
        scenario::from_text(Path::new("x.toml"), &text, &|_| None, false).unwrap_or_else(|wrong| panic!("{wrong}"))
    }

    #[test]
    fn beside_a_scenario_stands_what_says_something_to_it() {
        let load = "[load]\nclients = 1\nduration = \"1s\"\n";
        let (tables, own, sweep) =
            (scenario(load), scenario(&format!("sql = \"select 1;\"\n{load}")), scenario("[sweep]\nto = 5\n"));
        let said = |scenario: &Scenario, words: &[&str]| {
            let args = args(&[&["x.toml"], words].concat());
            check_no_load_flags(&args).and_then(|()| check_options_fit(&args, scenario)).err().unwrap_or_default()
        };
        assert_eq!(said(&tables, &["--init", "--target", "postgres://h/d", "--name", "y"]), "");
        assert_eq!(said(&sweep, &["--init", "--target", "postgres://h/d"]), "");
        assert!(said(&tables, &["--init", "--scale", "10"]).contains("at the file's scale"));
        assert!(said(&own, &["--init"]).contains("asks for none of them"));
        assert!(said(&sweep, &["--name", "y"]).contains("--name goes with a run"));
        assert!(said(&sweep, &["--fail-if", "p99>5ms"]).contains("--fail-if goes with a run"));
    }

    /// Answers each request with 200.
    fn server() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                thread::spawn(move || {
                    let (mut stream, mut request) = (stream.unwrap(), [0; 4096]);
                    while stream.read(&mut request).is_ok_and(|read| read > 0) {
                        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
                    }
                });
            }
        });
        format!("http://{address}/")
    }

    fn plan(name: &str, url: &str) -> Plan {
        let duration = Duration::from_millis(50);
        let shape = Shape::Closed { clients: 1, think: Duration::from_millis(5), duration, operations: None };
        let (url, method) = (Secret::new(url), "GET".to_owned());
        let target = Target::Http(HttpTarget { url, method, headers: Vec::new(), body: None, expect: Vec::new() });
        let pool = PoolWishes::default().pool(&shape);
        Plan::new(name.to_owned(), target, shape, pool)
    }

    #[test]
    fn what_was_measured_before_a_failure_is_kept_and_the_failure_is_told() {
        let closed_port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let plans = vec![plan("x: one", &server()), plan("x: two", &format!("http://{closed_port}/"))];
        let about = Some("what it shows".to_owned());
        let scenario = ScenarioNotes { about, compression: Some(75.0), ..ScenarioNotes::default() };
        let runs = Runs { plans, init: false, doctor: true, scenario, database: None };
        let (results, failed) = execute_all(&runs, &Cleanup::default(), &AtomicBool::new(false));
        let names: Vec<_> = results.iter().map(|result| result.name.as_str()).collect();
        assert_eq!(names, ["x: one"]);
        assert!(results[0].total.requests > 0 && results[0].about.compression == Some(75.0));
        assert_eq!(results[0].about.scenario.as_deref(), Some("what it shows"));
        assert_eq!(results[0].about.doctor, [NOTHING_TO_EXAMINE], "a service has nothing to show to the doctor");
        let error =
            report_failure(failed.expect("no server answers"), &runs.plans, results.len()).unwrap_err().to_string();
        assert!(error.starts_with("x: two: "), "{error}");
    }
}
