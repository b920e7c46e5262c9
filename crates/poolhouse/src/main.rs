//! The command line: one file per verb. Knows only which verb was asked for and what the exit status says.
//!
//! Exit status: 0 done, 1 it failed, 2 bad usage or configuration, 99 a threshold or objective was missed.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

#[macro_use]
mod printing;

mod check;
mod convert;
mod ctl;
mod doctor;
mod manual;
mod pgbouncer;
mod remote;
mod serve;
mod top;
mod usage;
mod variables;
mod version;

// The verbs of the lab, and the files that only they use.
#[cfg(feature = "lab")]
mod bench;
#[cfg(feature = "lab")]
mod command_line;
#[cfg(feature = "lab")]
mod demo;
#[cfg(feature = "lab")]
mod interrupt;
#[cfg(feature = "lab")]
mod output_file;
#[cfg(feature = "lab")]
mod plan;
#[cfg(feature = "lab")]
mod private;
#[cfg(feature = "lab")]
mod request_flags;
#[cfg(feature = "lab")]
mod scripts;
#[cfg(feature = "lab")]
mod sweep;

#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit status of a bad command line or configuration; clap uses the same.
const BAD_USAGE: u8 = 2;

/// Why this executable lacks verbs.
#[cfg(not(feature = "lab"))]
const WITHOUT_LAB: &str = "this Poolhouse was built without the feature `lab`";

/// A connection pooler for PostgreSQL, MongoDB and Redis: thousands of clients on a few server connections.
#[derive(Parser)]
#[command(name = "poolhouse", version = version::SHORT, long_version = version::LONG.as_str(), max_term_width = 100)]
struct Command {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Serve(Box<serve::ServeArgs>),
    Check(check::CheckArgs),
    Convert(convert::ConvertArgs),
    #[command(name = "pgbouncer")]
    PgBouncer(pgbouncer::PgBouncerArgs),
    #[cfg(feature = "lab")]
    Bench(Box<bench::BenchArgs>),
    Ctl(ctl::CtlArgs),
    #[cfg(feature = "lab")]
    #[command(after_help = "Example:\n  poolhouse demo --clients 500")]
    Demo(demo::DemoArgs),
    Doctor(doctor::DoctorArgs),
    /// For those who make packages.
    #[command(hide = true)]
    Manual(manual::ManualArgs),
    #[cfg(feature = "lab")]
    Plan(Box<plan::PlanArgs>),
    #[cfg(feature = "lab")]
    Sweep(Box<sweep::SweepArgs>),
    Top(top::TopArgs),
}

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    if pgbouncer::is_called_so(&words) {
        return exit_status(pgbouncer::run_as_program(&words));
    }
    if words.get(1).is_some_and(|verb| verb == pgbouncer::PROGRAM) {
        return exit_status(pgbouncer::run_as_program(&words[1..]));
    }
    let words = usage::add_default_address(words.into_iter(), &Command::command());
    let command = variables::add_to(Command::command())
        .try_get_matches_from(words)
        .and_then(|matches| Command::from_arg_matches(&matches))
        .unwrap_or_else(|error| usage::exit_with_error(&error, &Command::command()));
    let done = match command.verb {
        Verb::Serve(args) => serve::run(*args),
        Verb::Check(args) => check::run(args),
        Verb::Convert(args) => convert::run(args),
        Verb::PgBouncer(args) => pgbouncer::run(args),
        #[cfg(feature = "lab")]
        Verb::Bench(args) => bench::run(*args),
        Verb::Ctl(args) => ctl::run(args),
        #[cfg(feature = "lab")]
        Verb::Demo(args) => demo::run(args),
        Verb::Doctor(args) => doctor::run(args),
        Verb::Manual(args) => manual::run(args, Command::command()),
        #[cfg(feature = "lab")]
        Verb::Plan(args) => plan::run(*args),
        #[cfg(feature = "lab")]
        Verb::Sweep(args) => sweep::run(*args),
        Verb::Top(args) => top::run(args),
    };
    exit_status(done)
}

/// The exit status of what a verb has done, after an error is told.
fn exit_status(done: anyhow::Result<ExitCode>) -> ExitCode {
    let status = done.unwrap_or_else(|error| {
        // Servers and files wrote a part of it.
        eprintln!("error: {}", printable::lines(&format!("{error:#}")));
        ExitCode::FAILURE
    });
    if printing::has_failed() { ExitCode::FAILURE } else { status }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Command::command().debug_assert();
    }

    #[test]
    fn every_verb_shows_an_example() {
        for verb in Command::command().get_subcommands() {
            let example = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(example.contains("poolhouse "), "no example in the help of `{}`", verb.get_name());
        }
    }
}
