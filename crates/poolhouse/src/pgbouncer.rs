//! `poolhouse pgbouncer`, and the same executable under the name `pgbouncer`: PgBouncer's command line, which serves
//! what a `pgbouncer.ini` says.

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use clap::{ArgAction, Args, CommandFactory, Parser, error::ErrorKind};
use serve::{LogFormat, LogOptions, ServeError};

/// The name under which the executable is PgBouncer's.
pub const PROGRAM: &str = "pgbouncer";

/// The version of PgBouncer whose manual is followed.
const FOLLOWED_VERSION: &str = "1.26.1";

const EXAMPLE: &str = "\
Examples:
  poolhouse pgbouncer /etc/pgbouncer/pgbouncer.ini
  ln -s poolhouse pgbouncer; ./pgbouncer -v /etc/pgbouncer/pgbouncer.ini

Exit status: 0 stopped by a signal, 1 anything else, as PgBouncer's.";

/// Serve what a pgbouncer.ini says, in PgBouncer's place and with its command line
#[derive(Args)]
#[command(disable_version_flag = true, after_help = EXAMPLE)]
pub struct PgBouncerArgs {
    /// Log more; may be given several times
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,

    /// Show the version
    #[arg(short = 'V', long)]
    version: bool,

    /// Take over the sockets of the process that serves the same file, if there is one: an upgrade that no client notices
    #[arg(long)]
    take_over: bool,

    /// Gone from PgBouncer: use --take-over
    #[arg(short = 'R', long = "reboot", hide = true)]
    reboot: bool,

    /// PgBouncer's configuration
    #[arg(value_name = "INI")]
    ini: Option<PathBuf>,
}

/// The command line of the executable called `pgbouncer`.
#[derive(Parser)]
#[command(name = PROGRAM, disable_version_flag = true, max_term_width = 100)]
struct Program {
    #[command(flatten)]
    args: PgBouncerArgs,
}

/// Whether the executable was called by the name of PgBouncer.
pub fn is_called_so(words: &[OsString]) -> bool {
    let program = words.first().map(PathBuf::from);
    program.is_some_and(|program| program.file_name().is_some_and(|name| name == PROGRAM))
}

/// Reads the words of the executable called `pgbouncer`, and runs it.
pub fn run_as_program(words: &[OsString]) -> anyhow::Result<ExitCode> {
    match Program::try_parse_from(words) {
        Ok(program) => run(program.args),
        Err(error) if error.kind() == ErrorKind::DisplayHelp => error.exit(),
        Err(error) => {
            eprint!("{error}");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Runs the verb.
pub fn run(args: PgBouncerArgs) -> anyhow::Result<ExitCode> {
    if args.version {
        println!("Poolhouse {}, in place of PgBouncer {FOLLOWED_VERSION}", env!("CARGO_PKG_VERSION"));
        return Ok(ExitCode::SUCCESS);
    }
    if args.reboot {
        eprintln!("error: PgBouncer 1.26 has no -R any more\n      = start with --take-over: no client notices it");
        return Ok(ExitCode::FAILURE);
    }
    let Some(ini) = args.ini else {
        eprintln!("error: no configuration file specified");
        eprintln!("{}", Program::command().render_usage());
        return Ok(ExitCode::FAILURE);
    };
    let level = match args.verbose {
        0 => "info",
        1 | 2 => "debug",
        _ => "trace",
    };
    let log = LogOptions { format: LogFormat::Text, level: level.to_owned() };
    let served = serve::from_ini(&ini)
        .map_err(ServeError::from)
        .and_then(|config| serve::serve(config, &log, args.take_over, || Box::<doctor::PoolerWindow>::default()));
    match served {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(ServeError::Configuration(problems)) => {
            eprintln!("{problems}");
            Ok(ExitCode::FAILURE)
        }
        Err(error) => Err(error.into()),
    }
}
