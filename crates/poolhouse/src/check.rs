//! `poolhouse check`: says what is wrong with a configuration file, Poolhouse's own or PgBouncer's, without starting
//! anything.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use serve::Machine;
use settings::Severity;

use crate::BAD_USAGE;

const EXAMPLE: &str = "\
Example:
  poolhouse check poolhouse.toml
  poolhouse check /etc/pgbouncer/pgbouncer.ini

Exit status: 0 usable (there may be warnings), 2 not usable.";

/// Check a configuration file, or a pgbouncer.ini: mistakes, and settings that cannot work together
#[derive(Args)]
#[command(after_help = EXAMPLE)]
pub struct CheckArgs {
    /// The file
    #[arg(value_name = "CONFIG")]
    config: PathBuf,

    /// Allow a configuration that accepts clients from other machines without a password
    #[arg(long)]
    insecure_no_auth: bool,
}

/// Runs the verb.
pub fn run(args: CheckArgs) -> anyhow::Result<ExitCode> {
    let config = match serve::from_file(&args.config, args.insecure_no_auth) {
        Ok(config) => config,
        Err(problems) => {
            eprintln!("{problems}");
            return Ok(BAD_USAGE.into());
        }
    };
    let notes = config.source.iter().flat_map(serve::Source::notes);
    let problems: Vec<_> = notes.cloned().chain(serve::check(&config, Machine::here())).collect();
    problems.iter().for_each(|problem| eprintln!("{problem}"));
    let errors = problems.iter().filter(|problem| problem.severity == Severity::Error).count();
    let warnings = problems.len() - errors;
    let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    if config.source.as_ref().is_some_and(|source| source.translation.is_some()) {
        println!(
            "{}: a file of PgBouncer's, which is translated (`poolhouse convert` prints it)",
            args.config.display()
        );
    }
    println!(
        "{}: {}, {}, {}; {}, {}",
        args.config.display(),
        count(config.listeners.len(), "listener"),
        count(config.databases.len(), "database"),
        count(config.users.len(), "user"),
        count(errors, "error"),
        count(warnings, "warning"),
    );
    Ok(if errors == 0 { ExitCode::SUCCESS } else { BAD_USAGE.into() })
}
