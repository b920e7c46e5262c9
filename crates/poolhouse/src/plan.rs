//! `poolhouse plan`: turns the command line into a question, and shows the answer. How it is found is known below.

use std::{
    io::{IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use ::load::plan::{Fault, Spacing};
use anyhow::Context;
use clap::{Args, ValueEnum, value_parser};
use planner::{
    answer::predict,
    prediction::Prediction,
    products::Product,
    question::{self, ConnectOptions, Flags, Options, Question},
    report,
    sizes::Sizes,
};

use crate::{
    BAD_USAGE,
    bench::{fault_flags::stall, load::rate, pool_under_test::PoolFlags},
    output_file::Outputs,
};

/// Exit status where no setting meets the objectives.
const MISSED: u8 = 99;

const EXAMPLE: &str = "\
Examples:
  poolhouse plan --rate 800 --service 15ms --stall 200ms/3s --max-size 100
  poolhouse plan --rate 800 --service 15ms --service-p99 42ms --stall 200ms/2s/20s --objective 'p99<300ms' \
    --objective 'errors<0.1%'
  poolhouse plan --rate 2000 --measured quiet.json --instances 10 --server-limit 500 --reserved 10
  poolhouse plan --rate 3000 --curve sweep.json --cpus 8
  poolhouse plan --rate 800 --service 15ms --instances 40 --max-size 10 --for poolhouse,django
  poolhouse plan scenarios/exhaustion-trouble.toml --html exhaustion.html
  poolhouse plan scenarios/churn-trouble.toml --json churn.json

It runs the pool that Poolhouse itself uses in virtual time: first with the settings that are given, then with those \
that it finds: the smallest max size, min size and idle time with which all objectives are met. A scenario is one \
that `poolhouse bench` runs; its [plan] says what the server takes. --measured is a result of `poolhouse bench \
--json` without faults on the way; --curve one of `poolhouse sweep --json`.
Objectives are conditions that must hold: p50 p90 p95 p99 p999 mean max (of response, or with service_, pool_wait_, \
connect_ in front), errors, dropped (also in %), rate, requests, created; with > >= < <=. pool_wait_ is all waits \
for a connection on the way, those in the pool of a Poolhouse in front included.

Exit status: 0 done, 1 it failed, 2 bad usage or scenario, 99 no setting meets the objectives.";

/// Predict what the settings of a pool will do, and find the best ones
#[derive(Args)]
#[command(after_help = EXAMPLE)]
pub struct PlanArgs {
    /// A scenario file, as for `poolhouse bench`
    #[arg(value_name = "SCENARIO.toml", required_unless_present = "rate")]
    scenario: Option<PathBuf>,

    #[command(flatten)]
    load: LoadFlags,

    #[command(flatten)]
    server: ServerFlags,

    #[command(flatten)]
    pool: PoolFlags,

    #[command(flatten)]
    output: OutputFlags,
}

/// The load, where there is no scenario.
#[derive(Args)]
#[command(next_help_heading = "Load (without a scenario)")]
struct LoadFlags {
    /// Operations that arrive each second, over all instances
    #[arg(long, value_name = "R", value_parser = rate, conflicts_with = "scenario")]
    rate: Option<f64>,

    /// How long the load lasts [default: 1m]
    #[arg(long, value_name = "TIME", value_parser = settings::parse_duration_on, conflicts_with = "scenario")]
    duration: Option<Duration>,

    /// How operations arrive: at random, as those of many users do, or at equal distances [default: poisson]
    #[arg(long, value_enum, conflicts_with = "scenario")]
    spacing: Option<SpacingName>,

    /// Extra delay of everything, in each direction
    #[arg(long, value_name = "TIME", value_parser = settings::parse_duration_on, conflicts_with = "scenario")]
    delay: Option<Duration>,

    /// Answers come later in some windows: DELAY/LENGTH[/EVERY][@FIRST], for example 200ms/2s/20s. FIRST is EVERY by
    /// default, or 5s. May be given several times
    #[arg(long, value_name = "STALL", value_parser = stall, conflicts_with = "scenario")]
    stall: Vec<Fault>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SpacingName {
    Poisson,
    Even,
}

/// The server; what is said here goes before what a scenario says.
#[derive(Args)]
#[command(next_help_heading = "Server (goes before the scenario's [plan])")]
struct ServerFlags {
    /// What the server takes for one operation alone, on average: exponentially distributed, unless --service-p99 is
    /// given
    #[arg(long, value_name = "TIME", value_parser = settings::parse_duration_on, conflicts_with = "measured")]
    service: Option<Duration>,

    /// The 99th percentile of that: lognormally distributed
    #[arg(long, value_name = "TIME", value_parser = settings::parse_duration_on, requires = "service")]
    service_p99: Option<Duration>,

    /// By how much longer the first operation on a new connection takes
    #[arg(long, value_name = "TIME", value_parser = settings::parse_duration_on)]
    first: Option<Duration>,

    /// A result of `poolhouse bench --json`, without faults on the way: its service times, and what connecting took
    #[arg(long, value_name = "FILE")]
    measured: Option<PathBuf>,

    /// A result of `poolhouse sweep --json`: what more operations at once do to the server
    #[arg(long, value_name = "FILE", conflicts_with_all = ["parallel", "processor_time"])]
    curve: Option<PathBuf>,

    /// Operations that the server works on at a time; more share it
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_000_000))]
    parallel: Option<u32>,

    /// Of the service time, what an operation needs one of the --cpus for, on average; it waits for one if all are busy
    #[arg(long, value_name = "TIME", value_parser = settings::parse_duration_on, conflicts_with = "parallel")]
    processor_time: Option<Duration>,

    /// What the login of a new connection takes [default: 9ms, after 1ms for TCP]
    #[arg(long, value_name = "TIME", value_parser = settings::parse_duration_on)]
    connect: Option<Duration>,

    /// Connections that the server lets in
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_000_000))]
    server_limit: Option<u32>,

    /// Of these, those that are kept for others
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(0..=1_000_000), requires = "server_limit")]
    reserved: Option<u32>,

    /// Connections that all instances' pools may have together, because they are pools of one Poolhouse (its
    /// max_server_connections)
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_000_000))]
    budget: Option<u32>,

    /// The server's processors, for the rule of thumb beside the answer, and for --processor-time
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=10_000))]
    cpus: Option<u32>,

    /// What must hold, for example 'p99<50ms'. May be given several times
    #[arg(long, value_name = "CONDITION", value_parser = checked_objective)]
    objective: Vec<String>,

    /// By how much limits must be kept, as a share of them [default: 0.1]
    #[arg(long, value_name = "SHARE", value_parser = margin)]
    margin: Option<f64>,
}

/// What comes out.
#[derive(Args)]
#[command(next_help_heading = "Output")]
struct OutputFlags {
    /// Whose settings to print: poolhouse, pgbouncer, hikaricp, django, rails, node-postgres, sqlalchemy, pgx, mongodb;
    /// several with commas between [default: what makes sense for the database]
    #[arg(long = "for", value_name = "PRODUCT", value_parser = product, value_delimiter = ',')]
    products: Vec<Product>,

    /// Seed of all random choices [default: the scenario's, or 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Write the prediction to a file, or with - to standard output instead of the text
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write an HTML page, which needs no network
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Runs the verb.
pub fn run(args: PlanArgs) -> anyhow::Result<ExitCode> {
    let question = match question(&args) {
        Ok(question) => question,
        Err(message) => {
            let lead = if message.contains("error: ") { "" } else { "error: " };
            eprintln!("{lead}{message}");
            return Ok(BAD_USAGE.into());
        }
    };
    let outputs = match Outputs::open(args.output.json.as_deref(), args.output.html.as_deref()) {
        Ok(outputs) => outputs,
        Err(message) => {
            eprintln!("error: {message}");
            return Ok(BAD_USAGE.into());
        }
    };
    let prediction = predict_with_progress(&question);
    let json = || Ok(serde_json::to_string_pretty(&prediction).context("the prediction")? + "\n");
    outputs.write_all(|out| report::text::write(out, &prediction), json, || report::page::page(&prediction))?;
    Ok(if prediction.is_hopeless() { MISSED.into() } else { ExitCode::SUCCESS })
}

/// Answers it, with a line on a terminal that says what is being tried.
fn predict_with_progress(question: &Question) -> Prediction {
    let terminal = std::io::stderr().is_terminal();
    let mut show = |done: u32, sizes: &Sizes| {
        if terminal {
            eprint!("\r\x1b[K{done} simulations done; trying max_size {}, min_size {}", sizes.max_size, sizes.min_size);
            let _ = std::io::stderr().flush();
        }
    };
    let prediction = predict(question, &mut show);
    if terminal {
        eprint!("\r\x1b[K");
    }
    prediction
}

fn question(args: &PlanArgs) -> Result<Question, String> {
    let server = &args.server;
    let wishes = Options {
        service: server.service,
        service_p99: server.service_p99,
        first: server.first,
        measured: server.measured.clone(),
        curve: server.curve.clone(),
        parallel: server.parallel,
        processor_time: server.processor_time,
        connect: ConnectOptions { auth: server.connect, ..ConnectOptions::default() },
        server_limit: server.server_limit,
        reserved: server.reserved,
        budget: server.budget,
        objectives: server.objective.clone(),
        margin: server.margin,
        cpus: server.cpus,
        products: args.output.products.clone(),
        ..Options::default()
    };
    let mut question = match (&args.scenario, args.load.rate) {
        (Some(path), _) => {
            if args.pool != PoolFlags::default() {
                return Err("with a scenario the pool is the file's: change it there, or add a [[variant]]".to_owned());
            }
            question::from_file(path, &wishes).map_err(|problems| problems.to_string())?
        }
        (None, Some(rate)) => {
            let load = &args.load;
            let delay = load.delay.map(|delay| Fault::Delay { delay, jitter: Duration::ZERO });
            let flags = Flags {
                rate,
                duration: load.duration,
                spacing: match load.spacing {
                    Some(SpacingName::Even) => Spacing::Even,
                    Some(SpacingName::Poisson) | None => Spacing::Poisson,
                },
                faults: delay.into_iter().chain(load.stall.iter().copied()).collect(),
                pool: args.pool.wishes(),
                seed: 1,
            };
            question::from_flags(&flags, wishes)?
        }
        (None, None) => unreachable!("clap asks for a scenario or a rate"),
    };
    if let Some(seed) = args.output.seed {
        question.loads.iter_mut().for_each(|load| load.seed = seed);
    }
    Ok(question)
}

fn checked_objective(text: &str) -> Result<String, String> {
    question::parse_objective(text).map(|_| text.to_owned())
}

fn product(text: &str) -> Result<Product, String> {
    text.parse()
}

fn margin(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=0.9).contains(share));
    share.ok_or_else(|| "write a share from 0 to 0.9: 0.1 is a tenth".to_owned())
}
