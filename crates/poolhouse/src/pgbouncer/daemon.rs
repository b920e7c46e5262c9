//! Runs the process in the background: it is started once more, in a session of its own, and the first one stays until
//! clients are served or starting has failed.

use std::{
    ffi::OsString,
    fs::OpenOptions,
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    process::{Command, ExitCode, Stdio},
};

use anyhow::Context;

/// What the process in the background is told, and nothing else.
pub const IN_BACKGROUND: &str = "--in-background";

/// The line on standard error with which it tells that it serves.
const SERVING: &str = "serving in the background";

/// Starts the process in the background with the same words, and waits until it serves. What it says until then is
/// passed on.
pub fn start(words: &[OsString]) -> anyhow::Result<ExitCode> {
    let (program, arguments) = words.split_first().context("no words of a command line")?;
    let executable = std::env::current_exe().context("cannot find the executable")?;
    let mut command = Command::new(executable);
    command.arg0(program).args(arguments).arg(IN_BACKGROUND);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot start the process in the background")?;
    let said = child.stderr.take().context("no standard error of the process in the background")?;
    for line in BufReader::new(said).lines() {
        let line = line.context("cannot read what the process in the background says")?;
        if line == SERVING {
            return Ok(ExitCode::SUCCESS);
        }
        eprintln!("{line}");
    }
    child.wait().context("the process in the background is lost")?;
    Ok(ExitCode::FAILURE)
}

/// Leaves the terminal. For the process in the background, before it does anything else.
pub fn leave_terminal() {
    // It fails for the leader of a session, which has none to leave.
    let _ = rustix::process::setsid();
}

/// Tells the first process that clients are served, and says nothing more on standard error.
pub fn tell_serving() {
    eprintln!("{SERVING}");
    if let Ok(null) = OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stderr(null);
    }
}
