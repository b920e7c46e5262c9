//! `poolhouse manual`: writes the man pages and the completions of shells, for those who make packages. Both come from
//! the same description of the command line as `--help`. Knows no verb but by that.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use clap::{Args, Command};
use clap_complete::Shell;

const EXAMPLE: &str = "\
Example:
  poolhouse manual --to target/manual";

/// The man pages that other programs look for in section 1.
const PAGES: &str = "man1";
const COMPLETIONS: &str = "completions";

/// Write man pages and the completions of shells into a folder
#[derive(Args)]
#[command(after_help = EXAMPLE)]
pub struct ManualArgs {
    /// The folder; it is created if it does not exist
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
}

/// Runs the verb.
pub fn run(args: ManualArgs, command: Command) -> anyhow::Result<ExitCode> {
    let (pages, completions) = (args.to.join(PAGES), args.to.join(COMPLETIONS));
    for folder in [&pages, &completions] {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    write_pages(&command, &pages)?;
    write_completions(command, &completions)?;
    Ok(ExitCode::SUCCESS)
}

fn write_pages(command: &Command, folder: &Path) -> anyhow::Result<()> {
    clap_mangen::generate_to(command.clone(), folder).with_context(|| format!("cannot write to {}", folder.display()))
}

fn write_completions(mut command: Command, folder: &Path) -> anyhow::Result<()> {
    let name = command.get_name().to_owned();
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        clap_complete::generate_to(shell, &mut command, &name, folder)
            .with_context(|| format!("cannot write to {}", folder.display()))?;
    }
    Ok(())
}
