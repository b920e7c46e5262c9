//! The command line: one file per verb. Knows only which verb was asked for and what the exit status says.
//!
//! Exit status: 0 done, 1 it failed, 2 bad usage or configuration, 99 a threshold or objective was missed.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

#[macro_use]
mod told;

mod bench;
mod check;
mod command_line;
mod ctl;
mod demo;
mod doctor;
mod interrupt;
mod output_file;
mod plan;
mod private;
mod remote;
mod scripts;
mod serve;
mod sweep;
mod top;
mod usage;
mod work;

/// Exit status of a bad command line or configuration; clap uses the same.
const BAD_USAGE: u8 = 2;

/// A connection pooler for PostgreSQL, MongoDB and Redis: thousands of clients on a few server connections.
#[derive(Parser)]
#[command(name = "poolhouse", version, max_term_width = 100)]
struct Command {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Serve(Box<serve::ServeArgs>),
    Check(check::CheckArgs),
    Bench(Box<bench::BenchArgs>),
    Ctl(ctl::CtlArgs),
    #[command(after_help = "Example:\n  poolhouse demo --clients 500")]
    Demo(demo::DemoArgs),
    Doctor(doctor::DoctorArgs),
    Plan(Box<plan::PlanArgs>),
    Sweep(Box<sweep::SweepArgs>),
    Top(top::TopArgs),
}

fn main() -> ExitCode {
    let words = usage::completed(std::env::args_os(), &Command::command());
    let command = Command::try_parse_from(words).unwrap_or_else(|error| usage::refuse(&error, &Command::command()));
    let done = match command.verb {
        Verb::Serve(args) => serve::run(*args),
        Verb::Check(args) => check::run(args),
        Verb::Bench(args) => bench::run(*args),
        Verb::Ctl(args) => ctl::run(args),
        Verb::Demo(args) => demo::run(args),
        Verb::Doctor(args) => doctor::run(args),
        Verb::Plan(args) => plan::run(*args),
        Verb::Sweep(args) => sweep::run(*args),
        Verb::Top(args) => top::run(args),
    };
    let status = done.unwrap_or_else(|error| {
        // Servers and files wrote a part of it.
        eprintln!("error: {}", printable::lines(&format!("{error:#}")));
        ExitCode::FAILURE
    });
    if told::is_lost() { ExitCode::FAILURE } else { status }
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
