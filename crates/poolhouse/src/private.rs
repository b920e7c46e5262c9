//! A database of one's own for as long as a command runs: for scenarios that bring theirs along, and for the demo.
//! Nothing is left behind. Refuses to know what it is used for.

pub mod cleanup;
pub mod cluster;
pub mod command;
mod poolhouse;
mod redis;

use std::{fmt::Write as _, io::Read, net::SocketAddr};

use ::load::scenario::Kind;
use anyhow::Context;
use rustix::process::geteuid;
use settings::Secret;

use cleanup::{Cleanup, ProcessId, Sweeper};
use cluster::{Cluster, ClusterOptions, DATABASE, USER};
use command::{Account, Shell};

/// A running database whose application logs in with a password, as in production. It is stopped and removed when
/// dropped.
pub struct PrivateDatabase {
    kind: Kind,
    url: Secret,
    /// How the superuser of a PostgreSQL reaches it, whom it lets in when no connection is left for others.
    watcher: Option<Secret>,
    password: String,
    shell: Shell,
    _sweeper: Sweeper,
}

/// A Poolhouse in front of it.
pub struct PrivatePoolhouse {
    /// How the application reaches it.
    pub url: Secret,
    /// Its admin address, if it has one.
    pub admin: Option<String>,
    id: ProcessId,
}

impl PrivateDatabase {
    /// Makes and starts one; prints nothing.
    ///
    /// # Errors
    /// None of this kind is installed, or it does not start; the message says what to do.
    pub fn start(kind: Kind, max_connections: u32, cleanup: &Cleanup) -> anyhow::Result<Self> {
        let account = if geteuid().is_root() && kind == Kind::Postgres { Some(Account::unprivileged()?) } else { None };
        let sweeper = cleanup.guard();
        let directory = tempfile::Builder::new().prefix("poolhouse-").tempdir()?.keep();
        cleanup.add_directory(&directory);
        let shell = Shell::new(cleanup.clone(), directory, account, false);
        shell.give_away(&shell.directory)?;
        let password = password().context("no random numbers are to be had")?;
        let (address, watcher) = match kind {
            Kind::Postgres => {
                let cluster =
                    Cluster::start(&shell, None, &ClusterOptions { max_connections, password: Some(&password) })?;
                (cluster.address, Some(cluster.superuser()))
            }
            Kind::Redis => (redis::start(&shell, max_connections, &password)?, None),
            Kind::MongoDb => anyhow::bail!("a MongoDB cannot be started here in this version: name one by its URL"),
        };
        let url = url(kind, &password, address);
        Ok(Self { kind, url, watcher, password, shell, _sweeper: sweeper })
    }

    /// How the application reaches it.
    pub fn url(&self) -> &Secret {
        &self.url
    }

    /// How the doctor reaches the database, also when the application has taken all connections.
    pub fn watcher(&self) -> Option<&Secret> {
        self.watcher.as_ref()
    }

    /// Ends a Poolhouse in front of it.
    pub fn stop(&self, poolhouse: &PrivatePoolhouse) {
        self.shell.cleanup.stop(poolhouse.id);
    }
}

fn url(kind: Kind, password: &str, address: SocketAddr) -> Secret {
    Secret::new(match kind {
        Kind::Postgres => format!("postgres://{USER}:{password}@{address}/{DATABASE}"),
        Kind::Redis => format!("redis://:{password}@{address}"),
        Kind::MongoDb => format!("mongodb://{USER}:{password}@{address}"),
    })
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
