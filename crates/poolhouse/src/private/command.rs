//! Runs programs and, where that is wished, prints each command line first, so that a reader can repeat what was done.
//!
//! Refuses to know what the programs are for.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::Write,
    os::unix::{
        fs::{OpenOptionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context, bail};

use super::cleanup::{Cleanup, EndSignals, ProcessId, TERMINATE};

/// Most bytes of a program's output that are read back.
const MAX_OUTPUT: usize = 4 << 20;
/// Most lines of a program's complaints that are repeated.
const MAX_COMPLAINTS: usize = 12;

/// An account to run servers as, since PostgreSQL and PgBouncer refuse to run as root.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Account {
    /// Its login name.
    pub name: String,
    uid: u32,
    gid: u32,
}

/// Where and as whom programs run.
pub struct Shell {
    /// Ends what was started.
    pub cleanup: Cleanup,
    /// Their private directory.
    pub directory: PathBuf,
    /// The account of servers; `None` when we do not run as root.
    pub account: Option<Account>,
    outputs: std::cell::Cell<u32>,
    /// Command lines are printed.
    prints_commands: bool,
}

/// What a program said.
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// A program that has been started.
pub struct Started {
    /// Its name in the clean-up list.
    pub id: ProcessId,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Account {
    /// `postgres` or `nobody`, from the system's list of accounts.
    pub fn unprivileged() -> anyhow::Result<Account> {
        let passwd = fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
        ["postgres", "nobody"]
            .iter()
            .find_map(|name| Account::parse(&passwd, name))
            .context("running as root, but there is neither an account `postgres` nor `nobody` to run PostgreSQL as")
    }

    fn parse(passwd: &str, name: &str) -> Option<Account> {
        let mut fields = passwd.lines().map(|line| line.split(':')).find_map(|mut fields| {
            let first = fields.next()?;
            (first == name).then_some(fields)
        })?;
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some(Account { name: name.to_owned(), uid, gid })
    }
}

impl Shell {
    /// A shell whose files live in `directory`. `prints_commands`: it prints what it does.
    pub fn new(cleanup: Cleanup, directory: PathBuf, account: Option<Account>, prints_commands: bool) -> Shell {
        Shell { cleanup, directory, account, outputs: std::cell::Cell::new(0), prints_commands }
    }

    /// Prints a line, if that is wished.
    pub fn print(&self, line: &str) {
        if self.prints_commands {
            println!("{line}");
        }
    }

    /// A program to be run as our own user.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        Command::new(program)
    }

    /// A program to be run as the unprivileged account, if there is one.
    pub fn server_command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        if let Some(account) = &self.account {
            command.uid(account.uid).gid(account.gid).current_dir(&self.directory);
        }
        command
    }

    /// Gives a file or directory to the unprivileged account, if there is one.
    pub fn give_away(&self, path: &Path) -> anyhow::Result<()> {
        if let Some(account) = &self.account {
            chown(path, Some(account.uid), Some(account.gid))
                .with_context(|| format!("cannot give {} to {}", path.display(), account.name))?;
        }
        Ok(())
    }

    /// Writes a new file that other users cannot read.
    pub fn write_secret(&self, path: &Path, text: &str) -> anyhow::Result<()> {
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Starts a program; its output goes to files.
    pub fn start(&self, command: &mut Command, end_signals: EndSignals) -> anyhow::Result<Started> {
        self.print(&format!("$ {}{}", render(command), self.remark(command)));
        let number = self.outputs.get();
        self.outputs.set(number + 1);
        let stdout = self.directory.join(format!("output-{number}.out"));
        let stderr = self.directory.join(format!("output-{number}.err"));
        command.stdin(Stdio::null()).stdout(File::create(&stdout)?).stderr(File::create(&stderr)?);
        let id = self.cleanup.spawn(command, end_signals)?;
        Ok(Started { id, stdout, stderr })
    }

    /// Waits for a started program and reads what it said.
    pub fn finish(&self, started: &Started, limit: Duration) -> anyhow::Result<Output> {
        let status = self.cleanup.wait(started.id, limit)?;
        Ok(Output { status, stdout: read(&started.stdout), stderr: read(&started.stderr) })
    }

    /// Runs a program to its end; an exit status other than 0 is an error that quotes it.
    pub fn run(&self, command: &mut Command, limit: Duration) -> anyhow::Result<Output> {
        let started = self.start(command, TERMINATE)?;
        let output = self.finish(&started, limit)?;
        if !output.status.success() {
            bail!("{} failed ({}):\n{}", render(command), output.status, output.stderr.trim());
        }
        Ok(output)
    }

    /// The last lines that a started program has written to standard error.
    pub fn last_errors(&self, started: &Started) -> String {
        let text = read(&started.stderr);
        let lines: Vec<&str> = text.trim().lines().collect();
        lines[lines.len().saturating_sub(MAX_COMPLAINTS)..].join("\n")
    }

    fn remark(&self, command: &Command) -> String {
        match &self.account {
            Some(account) if command.get_current_dir().is_some() => format!("    # as {}", account.name),
            _ => String::new(),
        }
    }
}

/// Finds a program on the search path or in the places where Debian keeps servers.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
}

fn read(path: &Path) -> String {
    let mut bytes = fs::read(path).unwrap_or_default();
    bytes.truncate(MAX_OUTPUT);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn render(command: &Command) -> String {
    let variables = command.get_envs().filter_map(|(name, value)| Some((name, value?))).map(|(name, value)| {
        let value = quote(value);
        format!("{}={value}", name.to_string_lossy())
    });
    let words = std::iter::once(command.get_program()).chain(command.get_args()).map(quote);
    variables.chain(words).collect::<Vec<_>>().join(" ")
}

fn quote(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=@,+%".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.into_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_command_can_be_pasted_into_a_shell() {
        let mut command = Command::new("psql");
        command.args(["-c", "select 'it'"]).env("PGOPTIONS", "-c jit=off");
        assert_eq!(render(&command), r"PGOPTIONS='-c jit=off' psql -c 'select '\''it'\'''");
    }

    #[test]
    fn an_account_is_found_by_its_whole_name() {
        let passwd =
            "root:x:0:0:root:/root:/bin/bash\npostgresql:x:7:8::/:/bin/sh\npostgres:x:101:104:,,,:/var:/bin/bash\n";
        let account = Account::parse(passwd, "postgres").unwrap();
        assert_eq!((account.uid, account.gid), (101, 104));
        assert_eq!(Account::parse(passwd, "nobody"), None);
    }
}
