//! `poolhouse bench`: turns the command line into plans, has them run, and shows what came out. What a plan does is
//! known below.

pub mod fault_flags;
mod frozen;
pub mod load;
mod output;
pub mod pool_under_test;
mod runs;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};

use crate::{BAD_USAGE, request_flags::RequestFlags};

const EXAMPLE: &str = "\
Examples:
  poolhouse bench 'postgres://app:${APP_PASSWORD}@db/bench' --init --scale 10 --clients 20 --duration 30s
  poolhouse bench URL --rate 500 --duration 1m --max-size 20 --fail-if 'p99>50ms' --fail-if 'errors>0'
  poolhouse bench URL --stage 1m:100..100 --stage 1m:300 --stage 1m:300..300 --html report.html
  poolhouse bench URL --burst 50 --idle 30s --rounds 5 --min-size 10 --max-idle-time 10s
  poolhouse bench URL --rate 200 --duration 1m --stall 200ms/2s/20s --max-size 100
  poolhouse bench http://127.0.0.1:8080/readings --rate 100 --duration 30s --body '{\"value\": {{random 1 100}}}' \
    --expect 201
  poolhouse bench 'redis://:${REDIS_PASSWORD}@cache:6379' --clients 50 --duration 30s --writes 0.1 --keys 100000
  poolhouse bench redis://127.0.0.1:6379 --command 'INCR visits' --rate 1000 --no-reuse
  poolhouse bench mongodb://127.0.0.1:27017/app --init --operation find-one --clients 50 --duration 30s
  poolhouse bench mongodb://127.0.0.1:27017/app \
    --command '{\"insert\": \"visits\", \"documents\": [{\"at\": 1}]}' --rate 1000
  poolhouse bench scenarios/churn-trouble.toml --html churn.html

Stages: DURATION:RATE is a straight ramp from the rate before to RATE (the first stage stays at its own rate, unless \
--rate says where to begin); DURATION:FROM..TO says both. Two equal numbers are a step.
Without --rate, --stage or --burst the load is a closed loop: each client begins its next operation when the last \
has ended, on a connection of its own. Such a loop is blind to stalls; an open one (--rate) is not, since its \
operations arrive by the clock.
Thresholds: p50 p90 p95 p99 p999 mean max (of response, or with service_, pool_wait_, connect_ in front), errors, \
dropped (also in %), rate, requests, created; with > >= < <=. A missed threshold ends with status 99; a run of a URL \
in which more than half of all operations failed, with 1.
Ctrl-C ends a run early and reports what it measured.";

/// Measure a PostgreSQL, a Redis, a MongoDB or an HTTP service under load, and what its connections cost
#[derive(Args)]
#[command(after_help = EXAMPLE, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct BenchArgs {
    #[command(subcommand)]
    verb: Option<BenchVerb>,

    /// postgres://user:password@host/name, redis://user:password@host:port, mongodb://user:password@host/name,
    /// http://..., https://..., or a scenario file. Other users can read a password there (`ps`): write ${ENV} in
    /// single quotes, or use --url-file
    #[arg(value_name = "URL|SCENARIO.toml", required_unless_present = "url_file")]
    what: Option<String>,

    /// Read the URL from a file
    #[arg(long, value_name = "FILE", conflicts_with = "what")]
    url_file: Option<PathBuf>,

    /// With a scenario file: load this URL instead of the scenario's own target; --init makes its tables
    #[arg(long, value_name = "URL")]
    target: Option<String>,

    #[command(flatten)]
    load: load::LoadFlags,

    #[command(flatten)]
    requests: RequestFlags,

    #[command(flatten)]
    pool: pool_under_test::PoolFlags,

    #[command(flatten)]
    faults: fault_flags::FaultFlags,

    #[command(flatten)]
    output: output::OutputFlags,
}

#[derive(Subcommand)]
enum BenchVerb {
    /// Merge the results of several load machines into one
    #[command(after_help = "Example:\n  poolhouse bench merge one.json two.json --json both.json")]
    Merge(output::MergeArgs),
    /// Write an HTML page from one or more results
    #[command(after_help = "Example:\n  poolhouse bench report before.json after.json --html report.html")]
    Report(output::ReportArgs),
}

/// Runs the verb.
pub fn run(args: BenchArgs) -> anyhow::Result<ExitCode> {
    match args.verb {
        Some(BenchVerb::Merge(args)) => output::merge(&args),
        Some(BenchVerb::Report(args)) => output::report(&args),
        None => runs::run(args),
    }
}

/// Reports a mistake in the command line or the scenario.
fn bad_usage(message: &dyn std::fmt::Display) -> ExitCode {
    let message = message.to_string();
    let lead = if message.contains("error: ") { "" } else { "error: " };
    eprintln!("{lead}{message}");
    BAD_USAGE.into()
}
