//! `poolhouse pgbouncer`, and the same executable under the name `pgbouncer`: PgBouncer's command line, which serves
//! what a `pgbouncer.ini` says.

mod daemon;

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use clap::{ArgAction, Args, CommandFactory, Parser, error::ErrorKind};
use serve::{Config, LogFormat, LogOptions, ServeError, ServeOptions};
use settings::{Problem, Problems};

/// The name under which the executable is PgBouncer's.
pub const PROGRAM: &str = "pgbouncer";

/// The version of PgBouncer whose manual is followed.
const FOLLOWED_VERSION: &str = "1.26.1";

const EXAMPLE: &str = "\
Examples:
  poolhouse pgbouncer /etc/pgbouncer/pgbouncer.ini
  ln -s poolhouse pgbouncer; ./pgbouncer -d /etc/pgbouncer/pgbouncer.ini

At SIGTERM clients may stay until they leave, at SIGINT until their transactions end; at SIGQUIT, or a second signal,
the process ends at once. SIGHUP reads the file again, SIGUSR1 pauses, SIGUSR2 resumes.

Exit status: 0 stopped by a signal, 1 anything else, as PgBouncer's.";

/// Serve what a pgbouncer.ini says, in PgBouncer's place and with its command line
#[derive(Args)]
#[command(disable_version_flag = true, after_help = EXAMPLE)]
pub struct PgBouncerArgs {
    /// Run in the background; needs a pidfile
    #[arg(short, long)]
    daemon: bool,

    /// Do not log to standard error
    #[arg(short, long)]
    quiet: bool,

    /// Become this user at the start
    #[arg(short, long, value_name = "USERNAME")]
    user: Option<String>,

    /// Log more; may be given several times
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,

    /// Show the version
    #[arg(short = 'V', long)]
    version: bool,

    /// Take over the sockets of the process that serves the same file, if there is one: an upgrade that no client
    /// notices
    #[arg(long)]
    take_over: bool,

    /// Gone from PgBouncer: use --take-over
    #[arg(short = 'R', long = "reboot", hide = true)]
    reboot: bool,

    /// This is the process in the background
    #[arg(long, hide = true)]
    in_background: bool,

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
        println!("PgBouncer {FOLLOWED_VERSION} (Poolhouse {})", env!("CARGO_PKG_VERSION"));
        return Ok(ExitCode::SUCCESS);
    }
    if args.reboot {
        eprintln!("error: PgBouncer 1.26 has no -R any more\n      = start with --take-over: no client notices it");
        return Ok(ExitCode::FAILURE);
    }
    if args.ini.is_none() {
        eprintln!("error: no configuration file specified");
        eprintln!("{}", Program::command().render_usage());
        return Ok(ExitCode::FAILURE);
    }
    if args.daemon && !args.in_background {
        let words: Vec<OsString> = std::env::args_os().collect();
        return daemon::start(&words);
    }
    if args.in_background {
        daemon::leave_terminal();
    }
    let log = LogOptions {
        format: LogFormat::Text,
        level: level(args.verbose).map(str::to_owned),
        quiet: args.quiet || args.in_background,
    };
    let on_serving = || {
        if args.in_background {
            daemon::tell_serving();
        }
    };
    let options = ServeOptions { log, take_over: args.take_over, on_serving: &on_serving };
    let served = configuration(&args)
        .map_err(ServeError::from)
        .and_then(|config| serve::serve(config, &options, || Box::<doctor::PoolerWindow>::default()));
    match served {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(ServeError::Configuration(problems)) => {
            eprintln!("{problems}\nFATAL cannot load config file");
            Ok(ExitCode::FAILURE)
        }
        Err(error) => Err(error.into()),
    }
}

/// What the file and the command line say together.
fn configuration(args: &PgBouncerArgs) -> Result<Config, Problems> {
    let ini = args.ini.as_deref().expect("there is a file");
    let mut config = serve::from_ini(ini)?;
    if let Some(user) = &args.user {
        config.serve.user = Some(user.clone());
    }
    if args.daemon && config.serve.pid_file.is_none() {
        let problem = Problem::error("a process in the background needs a pidfile");
        return Err(problem.hint("set pidfile, or start it without -d").in_file(ini).into());
    }
    Ok(config)
}

/// The level that `-v` asks for; without it, the file's holds.
fn level(verbose: u8) -> Option<&'static str> {
    match verbose {
        0 => None,
        1 | 2 => Some("debug"),
        _ => Some("trace"),
    }
}
