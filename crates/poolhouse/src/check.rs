//! `poolhouse check`: says what is wrong with a configuration file, Poolhouse's own or PgBouncer's, without starting
//! anything.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Args;
use clients::postgres::{ConnectOptions, Querier};
use serve::Machine;
use settings::Severity;

use crate::BAD_USAGE;

/// How long one login may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

const EXAMPLE: &str = "\
Example:
  poolhouse check poolhouse.toml
  poolhouse check /etc/pgbouncer/pgbouncer.ini
  poolhouse check --connect poolhouse.toml

With --connect each login to a database of PostgreSQL is tried, with its TLS and the certificate of the database.

Exit status: 0 usable (there may be warnings), 1 a login of --connect failed, 2 not usable.";

/// Check a configuration file, or a pgbouncer.ini: mistakes, and settings that cannot work together
#[derive(Args)]
#[command(after_help = EXAMPLE)]
pub struct CheckArgs {
    /// The file
    #[arg(value_name = "CONFIG")]
    config: PathBuf,

    /// Log in to each database, and check its certificate
    #[arg(long)]
    connect: bool,

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
    if errors > 0 {
        return Ok(BAD_USAGE.into());
    }
    Ok(if !args.connect || connect(&config)? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Tries the logins of a configuration, and prints a line for each. Whether all succeeded.
fn connect(config: &serve::Config) -> anyhow::Result<bool> {
    let (trials, untried) = serve::trials(config)?;
    untried.iter().for_each(|why| println!("{why}"));
    let mut succeeded = true;
    for trial in trials {
        let hosts: Vec<String> = trial.hosts.iter().map(ToString::to_string).collect();
        let (database, user, hosts) = (trial.database, trial.user, hosts.join(", "));
        let options = ConnectOptions::of_login(&trial.hosts, &trial.tls, trial.login);
        match options.and_then(|options| Querier::connect(options, CONNECT_TIMEOUT)) {
            Ok(mut connection) => {
                let version = connection.version().unwrap_or_else(|| "of an unknown version".to_owned());
                println!("{database}: logged in as {user} at {hosts}, PostgreSQL {}", printable::line(&version));
            }
            Err(error) => {
                succeeded &= trial.is_of_console;
                let excuse = if trial.is_of_console { " (a user of the console, who need not)" } else { "" };
                let error = printable::line(&error.to_string());
                println!("{database}: cannot log in as {user} at {hosts}{excuse}: {error}");
            }
        }
    }
    Ok(succeeded)
}
