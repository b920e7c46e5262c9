//! `poolhouse sweep`: how many connections a database can use. Reads the command line and shows what was found;
//! measures and concludes nothing itself.

use std::{
    io::{IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
    sync::atomic::AtomicBool,
    time::Duration,
};

use ::load::{
    plan::{SweepOptions, Target},
    target::{self, Blame},
};
use ::report::{self, result::sweep::SweepResult};
use ::sweep::{
    Progress,
    run::{self, Pooler, SweepRequest, Through},
};
use anyhow::{Context, bail};
use clap::{Arg, Args, value_parser};
use settings::Secret;

use crate::{
    BAD_USAGE,
    command_line::command_line,
    doctor::background::{BackgroundDoctor, LookTarget},
    interrupt,
    output_file::Outputs,
    request_flags::{RequestFlags, warmup},
};

mod table;

/// Most clients of a sweep.
const MAX_CLIENTS: u32 = 10_000;
const EXAMPLES: &str = "\
Examples:
  poolhouse sweep 'postgres://app:${APP_PASSWORD}@10.0.0.5/shop' --script checkout.sql
  poolhouse sweep postgres://app@10.0.0.5/shop --init --scale 100 --select-only --html connections.html
  poolhouse sweep postgres://app@10.0.0.5/shop --tpcb-like --scale 256 --through postgres://app@10.0.0.6:6432/shop
  poolhouse sweep 'mongodb://app:${APP_PASSWORD}@10.0.0.7/shop' --init --operation update --documents 100000
  poolhouse sweep redis://10.0.0.8:6379 --script visits.redis

The sweep measures throughput at 1, 2, 4, ... clients until well past the best, and then around the best, in several \
rounds and in random order. With the defaults it takes about five minutes. The load is real: use a copy of the \
database, or an hour when it disturbs no users.

Exit status: 0 done, 1 it failed, 2 bad usage.";

/// Find the number of connections at which a database stops gaining
#[derive(Args)]
#[command(after_help = EXAMPLES)]
#[command(mut_args(hide_flag_of_http))]
pub struct SweepArgs {
    /// The database: postgres://user:password@host/name, mongodb://user:password@host/name or
    /// redis://user:password@host:port. Other users of this machine can read it (`ps`): write ${NAME} in single quotes
    /// for the password, or use --url-file
    #[arg(value_name = "URL", required_unless_present = "url_file")]
    url: Option<String>,

    /// Read the URL from a file
    #[arg(long, value_name = "FILE", conflicts_with = "url")]
    url_file: Option<PathBuf>,

    /// Numbers of clients; of a PostgreSQL within its own limit
    #[arg(long, value_name = "FROM..TO", default_value = "1..256", value_parser = range)]
    clients: (u32, u32),

    #[command(flatten)]
    requests: RequestFlags,

    /// How long each measurement counts
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = settings::parse_duration_on)]
    point_time: Duration,

    /// Load before that, which is not counted
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = warmup)]
    warmup: Duration,

    /// How often each number in question is measured
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = value_parser!(u32).range(1..=100))]
    rounds: u32,

    /// Measure a second curve, through the pooler at this URL
    #[arg(long, value_name = "URL")]
    through: Option<String>,

    /// Largest number of clients of the second curve
    #[arg(long, value_name = "N", default_value_t = MAX_CLIENTS, value_parser = value_parser!(u32).range(2..=10_000),
          requires = "through")]
    through_clients: u32,

    /// An operation that takes longer has failed
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = settings::parse_duration_on)]
    timeout: Duration,

    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Write the result to a file; - is standard output, which then has nothing else
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write a page with charts, which needs no network
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// A sweep asks no HTTP service: its help has none of the flags for one.
fn hide_flag_of_http(flag: Arg) -> Arg {
    let is_of_http = ["method", "header", "body", "expect"].contains(&flag.get_id().as_str());
    if is_of_http { flag.hide(true) } else { flag }
}

/// Sweeps and tells.
pub fn run(args: SweepArgs) -> anyhow::Result<ExitCode> {
    let mut request = match request(&args) {
        Ok(request) => request,
        Err(error) => {
            eprintln!("error: {error:#}");
            return Ok(BAD_USAGE.into());
        }
    };
    let outputs = match Outputs::open(args.json.as_deref(), args.html.as_deref()) {
        Ok(outputs) => outputs,
        Err(message) => {
            eprintln!("error: {message}");
            return Ok(BAD_USAGE.into());
        }
    };
    let interrupt = interrupt::watch()?;
    match args.requests.at_scale_of_tables(request.target.clone()) {
        Ok(target) => at_one_scale(&mut request, target),
        Err(error) => return Ok(failed(error.blame, &error.message)),
    }
    carry_out(request, args.requests.init(), None, outputs, &interrupt.stop)
}

/// The target, and the same scale for what is asked through a pooler.
fn at_one_scale(request: &mut SweepRequest<'_>, target: Target) {
    let through = request.through.as_mut().map(|through| &mut through.pooler);
    if let (Target::Postgres(target), Some(Pooler::At(Target::Postgres(through)))) = (&target, through) {
        through.scale = target.scale;
    }
    request.target = target;
}

/// Makes the tables or documents if `init` says so, sweeps, and shows the result, with the findings of the doctor if
/// there is a `subject`.
pub(crate) fn carry_out(
    request: SweepRequest<'_>,
    init: bool,
    subject: Option<LookTarget>,
    outputs: Outputs,
    stop: &AtomicBool,
) -> anyhow::Result<ExitCode> {
    serve::raise_descriptor_limit();
    if let Err(error) = request.check() {
        return Ok(failed(error.blame, &error.message));
    }
    if init {
        match &request.target {
            Target::Postgres(target) => {
                eprintln!("making the tables at scale {} in schema {}", target.scale, target.schema);
            }
            _ => eprintln!("making the documents"),
        }
        if let Err(error) = target::init(&request.target, stop) {
            return Ok(failed(error.blame, &error.message));
        }
    }
    let terminal = std::io::stderr().is_terminal();
    let doctor = subject.map(|subject| BackgroundDoctor::start(subject, 1.0));
    let swept = run::run(request, stop, &mut |name, now| show(name, now, terminal));
    let doctor = doctor.map(BackgroundDoctor::finish).unwrap_or_default();
    let mut result = match swept {
        Ok(result) => result,
        Err(error) => return Ok(failed(error.blame, &error.message)),
    };
    result.about.doctor = doctor;
    if terminal {
        eprint!("\r\x1b[K");
    }
    write(outputs, &result)?;
    let whole = result.verdict.is_some() && result.failed.is_none();
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn failed(blame: Blame, message: &str) -> ExitCode {
    eprintln!("error: {}", report::printable(message));
    if blame == Blame::Configuration { BAD_USAGE.into() } else { ExitCode::FAILURE }
}

/// What the arguments ask for.
fn request(args: &SweepArgs) -> anyhow::Result<SweepRequest<'static>> {
    let url = match (&args.url, &args.url_file) {
        (Some(url), _) => url.clone(),
        (None, Some(path)) => settings::read_small(path)
            .map(|text| text.trim().to_owned())
            .with_context(|| format!("cannot read {}", path.display()))?,
        (None, None) => unreachable!("clap asks for a URL or a file with it"),
    };
    let target = asked(&url, &args.requests)?;
    let through = match &args.through {
        Some(url) => {
            let pooler = asked(url, &args.requests).context("--through")?;
            if std::mem::discriminant(&pooler) != std::mem::discriminant(&target) {
                bail!("--through names a pooler of another kind of database");
            }
            Some(Through { pooler: Pooler::At(pooler), clients: args.through_clients })
        }
        None => None,
    };
    Ok(SweepRequest {
        target,
        through,
        options: SweepOptions {
            from: args.clients.0,
            to: args.clients.1,
            rounds: args.rounds,
            duration: args.point_time,
            warmup: args.warmup,
            seed: args.seed,
        },
        timeout: args.timeout,
        command: Some(command_line()),
        scenario: None,
    })
}

fn secret(url: &str) -> anyhow::Result<Secret> {
    settings::interpolate_url(url, &settings::environment).map(Secret::new).map_err(anyhow::Error::msg)
}

/// The target at a URL.
fn asked(url: &str, requests: &RequestFlags) -> anyhow::Result<Target> {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    if !["postgres", "postgresql", "redis", "rediss", "mongodb"].contains(&scheme) {
        bail!(
            "a sweep asks a database: write postgres://user:password@host/name, mongodb://user:password@host/name or \
             redis://user:password@host:port"
        );
    }
    if requests.init() && requests.has_scripts() {
        bail!("--init makes what the built-in loads ask for, and with --script there is nothing to make");
    }
    requests.target(secret(url)?).map_err(anyhow::Error::msg)
}

/// `1..256`, or `256` for `1..256`.
fn range(text: &str) -> Result<(u32, u32), String> {
    let (from, to) = text.split_once("..").unwrap_or(("1", text));
    let number = |text: &str| text.parse::<u32>().map_err(|_| format!("`{text}` is no number: write 1..256"));
    match (number(from)?, number(to)?) {
        (from, to) if from >= 1 && from < to && to <= MAX_CLIENTS => Ok((from, to)),
        _ => Err(format!("write the smaller number first, both from 1 to {MAX_CLIENTS}: 1..256")),
    }
}

/// One line on a terminal that is written over; elsewhere nothing.
fn show(name: &str, now: &Progress<'_>, terminal: bool) {
    if !terminal {
        return;
    }
    let last = now.last.map_or(String::new(), |visit| {
        format!("; {} clients did {}/s", visit.clients, report::sweep_sentences::format_amount(visit.throughput))
    });
    let all = now.done + now.left as usize;
    let line = format!("{name}: {}/{all} at most, {} clients now{last}", now.done + 1, now.clients);
    eprint!("\r\x1b[K{line}");
    let _ = std::io::stderr().flush();
}

/// The table, and the files asked for.
fn write(outputs: Outputs, result: &SweepResult) -> anyhow::Result<()> {
    let json = || Ok(serde_json::to_string_pretty(result).context("the result")? + "\n");
    let page = || report::html::report(&[report::html::Part::Sweep(result)]);
    outputs.write_all(|out| out.write_all(table::text(result).as_bytes()), json, page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_two_numbers_or_the_largest() {
        assert_eq!(range("4..97"), Ok((4, 97)));
        assert_eq!(range("256"), Ok((1, 256)));
        for wrong in ["0..5", "9..9", "9..3", "1..20000", "many", ""] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
    }
}
