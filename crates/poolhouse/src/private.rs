//! A PostgreSQL of one's own for as long as a command runs: for scenarios that bring their database along, and for the demo. Nothing is
//! left behind. Refuses to know what it is used for.

pub mod cleanup;
pub mod cluster;
pub mod command;
pub mod probe;

use std::{fmt::Write, io::Read};

use anyhow::Context;
use rustix::process::geteuid;
use settings::Secret;

use cleanup::{Cleanup, Sweeper};
use cluster::{Cluster, DATABASE, USER, Wish};
use command::{Account, Shell};

/// A running PostgreSQL whose application logs in by SCRAM, as in production. It is stopped and removed when dropped.
pub struct PrivatePostgres {
    url: Secret,
    _sweeper: Sweeper,
}

impl PrivatePostgres {
    /// Makes and starts one; prints nothing.
    ///
    /// # Errors
    /// No PostgreSQL is installed, or it does not start; the message says what to do.
    pub fn start(max_connections: u32) -> anyhow::Result<Self> {
        let account = if geteuid().is_root() { Some(Account::unprivileged()?) } else { None };
        let cleanup = Cleanup::default();
        let sweeper = cleanup.guard();
        let directory = tempfile::Builder::new().prefix("poolhouse-").tempdir()?.keep();
        cleanup.add_directory(&directory);
        let shell = Shell::new(cleanup, directory, account, false);
        shell.give_away(&shell.directory)?;
        let password = password().context("no random numbers are to be had")?;
        let cluster = Cluster::start(&shell, None, &Wish { max_connections, password: Some(&password) })?;
        let url = Secret::new(format!("postgres://{USER}:{password}@{}/{DATABASE}", cluster.address));
        Ok(Self { url, _sweeper: sweeper })
    }

    /// How the application reaches it.
    pub fn url(&self) -> &Secret {
        &self.url
    }
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
