//! A PostgreSQL of one's own for as long as a command runs: for scenarios that bring their database along, and for the demo. Nothing is
//! left behind. Refuses to know what it is used for.

pub mod cleanup;
pub mod cluster;
pub mod command;
pub mod probe;

use std::{
    fmt::Write as _,
    fs,
    io::{Read, Write as _},
    net::{SocketAddr, TcpStream},
    os::unix::fs::OpenOptionsExt,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use rustix::process::geteuid;
use settings::Secret;

use cleanup::{Cleanup, DRAIN, Sweeper};
use cluster::{Cluster, DATABASE, USER, Wish, free_addresses};
use command::{Account, Shell};

/// How long a pooler may take until it serves.
const START_LIMIT: Duration = Duration::from_secs(15);

/// A running PostgreSQL whose application logs in by SCRAM, as in production. It is stopped and removed when dropped.
pub struct PrivatePostgres {
    url: Secret,
    password: String,
    shell: Shell,
    _sweeper: Sweeper,
}

impl PrivatePostgres {
    /// Makes and starts one; prints nothing.
    ///
    /// # Errors
    /// No PostgreSQL is installed, or it does not start; the message says what to do.
    pub fn start(max_connections: u32, cleanup: &Cleanup) -> anyhow::Result<Self> {
        let account = if geteuid().is_root() { Some(Account::unprivileged()?) } else { None };
        let sweeper = cleanup.guard();
        let directory = tempfile::Builder::new().prefix("poolhouse-").tempdir()?.keep();
        cleanup.add_directory(&directory);
        let shell = Shell::new(cleanup.clone(), directory, account, false);
        shell.give_away(&shell.directory)?;
        let password = password().context("no random numbers are to be had")?;
        let cluster = Cluster::start(&shell, None, &Wish { max_connections, password: Some(&password) })?;
        Ok(Self { url: url(&password, cluster.address), password, shell, _sweeper: sweeper })
    }

    /// Starts this very Poolhouse in front of it, with a pool of so many connections; it ends with the database. Returns how the
    /// application reaches it.
    ///
    /// # Errors
    /// It does not come up.
    pub fn start_poolhouse(&self, max_size: u32) -> anyhow::Result<Secret> {
        let [listen] = free_addresses()?;
        let file = self.shell.directory.join("url");
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&file)
            .and_then(|mut file| file.write_all(self.url.reveal().as_bytes()))
            .context("cannot write the database's URL")?;
        let executable = std::env::current_exe().context("cannot tell where poolhouse itself is")?;
        let mut command = self.shell.command(executable);
        command.arg("serve").arg("--url-file").arg(&file).args(["--listen", &listen.to_string(), "--admin", "off"]);
        // Whoever sweeps wants to see how long clients wait, not that they are sent away.
        command.args(["--max-size", &max_size.to_string(), "--max-wait-time", "120s"]);
        let started = self.shell.start(&mut command, DRAIN)?;
        let deadline = Instant::now() + START_LIMIT;
        while TcpStream::connect(listen).is_err() {
            if self.shell.cleanup.poll(started.id)?.is_some() || Instant::now() > deadline {
                bail!("Poolhouse did not come up:\n{}", self.shell.complaints(&started).trim());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(url(&self.password, listen))
    }

    /// How the application reaches it.
    pub fn url(&self) -> &Secret {
        &self.url
    }
}

fn url(password: &str, address: SocketAddr) -> Secret {
    Secret::new(format!("postgres://{USER}:{password}@{address}/{DATABASE}"))
}

/// 128 random bits in hexadecimal digits.
fn password() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to memory cannot fail");
        text
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_passwords_differ_and_need_no_encoding() {
        let (one, other) = (password().unwrap(), password().unwrap());
        assert_ne!(one, other);
        assert!(one.len() == 32 && one.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
}
