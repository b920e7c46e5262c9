//! `poolhouse convert`: prints the `poolhouse.toml` that does what a `pgbouncer.ini` says.

use std::{io::IsTerminal, path::PathBuf, process::ExitCode};

use ::pgbouncer::{Machine, translate};
use clap::Args;

use crate::BAD_USAGE;

const EXAMPLE: &str = "\
Example:
  umask 077; poolhouse convert /etc/pgbouncer/pgbouncer.ini > poolhouse.toml
  poolhouse check poolhouse.toml

What is different, or without effect, is told on standard error. Paths are relative to the current folder in a
pgbouncer.ini, and absolute in what is printed.

Exit status: 0 translated, 2 not translated.";

/// Print a pgbouncer.ini as the poolhouse.toml that does the same
#[derive(Args)]
#[command(after_help = EXAMPLE)]
pub struct ConvertArgs {
    /// The file of PgBouncer's
    #[arg(value_name = "INI")]
    ini: PathBuf,
}

/// Runs the verb.
pub fn run(args: ConvertArgs) -> anyhow::Result<ExitCode> {
    let translation = match translate(&args.ini, &Machine::here()) {
        Ok(translation) => translation,
        Err(problems) => {
            eprintln!("{problems}");
            return Ok(BAD_USAGE.into());
        }
    };
    translation.notes.iter().for_each(|note| eprintln!("{note}"));
    print!("{}", translation.toml);
    if translation.has_passwords() && is_seen_by_others() {
        eprintln!("warning: what is printed contains passwords, and others can read it\n      = umask 077 before it");
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether standard output is a terminal, or a file that other users can read.
fn is_seen_by_others() -> bool {
    const READABLE_BY_OTHERS: u32 = 0o044;
    const KIND: u32 = 0o170_000;
    const REGULAR: u32 = 0o100_000;
    let out = std::io::stdout();
    out.is_terminal()
        || rustix::fs::fstat(&out)
            .is_ok_and(|meta| meta.st_mode & KIND == REGULAR && meta.st_mode & READABLE_BY_OTHERS != 0)
}
