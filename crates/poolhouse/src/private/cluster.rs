//! A private, throw-away PostgreSQL cluster: finds the installed programs, makes a cluster in a directory of its own,
//! and runs it on a free port.
//!
//! Over TCP only the application's user may log in, and only to its own database; the superuser comes in through a
//! Unix socket in the private directory. Refuses to know poolers and loads.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use clients::postgres::Querier;
use settings::Secret;

use super::{
    cleanup::POSTMASTER,
    command::{self, Shell},
};

/// The application's database.
pub const DATABASE: &str = "shop";
/// The user that applications log in as.
pub const USER: &str = "app";

const SUPERUSER: &str = "postgres";
/// How connections call themselves.
const APPLICATION_NAME: &str = "poolhouse-demo";
/// Bounds connecting, and a query.
pub const QUERY_TIMEOUT: Duration = Duration::from_secs(20);

/// Connects to a database without a password.
pub fn connect(url: &Secret) -> anyhow::Result<Querier<'static>> {
    Ok(Querier::connect_to(url, APPLICATION_NAME, QUERY_TIMEOUT)?)
}

/// How an application reaches its database at an address.
pub fn application_url(address: SocketAddr) -> Secret {
    Secret::new(format!("postgres://{USER}@{address}/{DATABASE}?sslmode=disable"))
}

/// What is wished of a cluster.
pub struct ClusterOptions<'w> {
    /// The server's own limit.
    pub max_connections: u32,
    /// The application logs in with it, by SCRAM; without one it is trusted.
    pub password: Option<&'w str>,
}

/// A running cluster.
pub struct Cluster {
    /// Directory of `pgbench` and the other programs.
    pub bin: PathBuf,
    /// Where it accepts TCP connections.
    pub address: SocketAddr,
    /// What it calls itself, for instance `15.18`.
    pub version: String,
    /// The folder of its Unix socket.
    directory: PathBuf,
}

impl Cluster {
    /// Makes and starts a cluster, with the application's user and database.
    pub fn start(shell: &Shell, bin: Option<&Path>, options: &ClusterOptions<'_>) -> anyhow::Result<Cluster> {
        let bin = locate(bin)?;
        let version = version_of(shell, &bin)?;
        let data = shell.directory.join("data");
        let [address] = free_addresses()?;
        let mut initdb = shell.server_command(bin.join("initdb"));
        initdb.arg("-D").arg(&data).args(["-U", SUPERUSER, "-A", "trust", "--no-sync", "--locale=C", "-E", "UTF8"]);
        shell.run(&mut initdb, Duration::from_secs(60))?;
        fs::write(data.join("pg_hba.conf"), hba(options.password.is_some())).context("cannot write pg_hba.conf")?;
        let cluster = Cluster { bin, address, version, directory: shell.directory.clone() };
        cluster.run_postmaster(shell, &data, options.max_connections)?;
        cluster.create(shell, options.password)?;
        Ok(cluster)
    }

    /// How the superuser reaches the database, also when all ordinary connections are taken.
    pub fn superuser(&self) -> Secret {
        self.superuser_of(DATABASE)
    }

    fn superuser_of(&self, database: &str) -> Secret {
        let (folder, port) = (url_encoded(&self.directory), self.address.port());
        Secret::new(format!("postgres:///{database}?host={folder}&port={port}&user={SUPERUSER}"))
    }

    fn run_postmaster(&self, shell: &Shell, data: &Path, max_connections: u32) -> anyhow::Result<()> {
        let mut postgres = shell.server_command(self.bin.join("postgres"));
        postgres.arg("-D").arg(data).arg("-k").arg(&shell.directory);
        postgres.args(["-h", "127.0.0.1", "-p", &self.address.port().to_string()]);
        postgres.arg("-c").arg(format!("max_connections={max_connections}"));
        for setting in [
            "shared_buffers=256MB",
            // A throw-away cluster need not survive a power cut.
            "fsync=off",
            "synchronous_commit=off",
            "full_page_writes=off",
            "wal_level=minimal",
            "max_wal_senders=0",
            "autovacuum=off",
        ] {
            postgres.arg("-c").arg(setting);
        }
        let started = shell.start(&mut postgres, POSTMASTER)?;
        let deadline = Instant::now() + Duration::from_secs(30);
        while let Err(error) = connect(&self.superuser_of("postgres")) {
            if shell.cleanup.poll(started.id)?.is_some() || Instant::now() > deadline {
                bail!("PostgreSQL did not start ({error:#}):\n{}", shell.last_errors(&started).trim());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn create(&self, shell: &Shell, password: Option<&str>) -> anyhow::Result<()> {
        let mut administrator = connect(&self.superuser_of("postgres"))?;
        for statement in [format!("create role {USER} login"), format!("create database {DATABASE} owner {USER}")] {
            shell.print(&format!("sql> {statement}"));
            administrator.query(&statement, QUERY_TIMEOUT)?;
        }
        if let Some(password) = password {
            administrator.query(&format!("alter role {USER} password '{password}'"), QUERY_TIMEOUT)?;
        }
        Ok(())
    }

    /// Loads pgbench's tables.
    pub fn load(&self, shell: &Shell, scale: u32) -> anyhow::Result<()> {
        let mut pgbench = shell.command(self.bin.join("pgbench"));
        pgbench.args(["-i", "-q", "-s", &scale.to_string(), "-h", "127.0.0.1"]);
        pgbench.args(["-p", &self.address.port().to_string(), "-U", USER, DATABASE]);
        shell.run(&mut pgbench, Duration::from_secs(120))?;
        Ok(())
    }
}

/// A path as the value of a URL's parameter.
fn url_encoded(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes().iter();
    bytes
        .map(|&byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// Different loopback addresses that are free.
pub fn free_addresses<const N: usize>() -> anyhow::Result<[SocketAddr; N]> {
    // All are held until the last is known, or one might be given out twice.
    let mut listeners = Vec::with_capacity(N);
    let mut addresses = [SocketAddr::from(([127, 0, 0, 1], 0)); N];
    for address in &mut addresses {
        let listener = TcpListener::bind(*address).context("no free port on loopback")?;
        *address = listener.local_addr()?;
        listeners.push(listener);
    }
    Ok(addresses)
}

fn hba(password: bool) -> String {
    let method = if password { "scram-sha-256" } else { "trust" };
    format!("local all {SUPERUSER} trust\nhost {DATABASE} {USER} 127.0.0.1/32 {method}\n")
}

fn locate(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(directory) = given {
        if !complete(directory) {
            bail!("{} does not hold initdb, postgres and pgbench", directory.display());
        }
        return Ok(directory.to_path_buf());
    }
    candidates().into_iter().find(|directory| complete(directory)).context(
        "no PostgreSQL found on the search path, by pg_config or in /usr/lib/postgresql; \
         install it (Debian: apt-get install postgresql) or name its programs' directory with --pg-bin",
    )
}

fn complete(directory: &Path) -> bool {
    ["initdb", "postgres", "pgbench"].iter().all(|program| directory.join(program).is_file())
}

/// Directories that may hold PostgreSQL's programs, the best first.
fn candidates() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        command::find("initdb").and_then(|path| path.canonicalize().ok()).into_iter().collect();
    found.retain_mut(|path| path.pop());
    if let Ok(output) = std::process::Command::new("pg_config").arg("--bindir").output() {
        found.push(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    }
    let mut debian: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    debian.sort();
    found.extend(debian.into_iter().rev().map(|(_, path)| path));
    found
}

fn version_of(shell: &Shell, bin: &Path) -> anyhow::Result<String> {
    let output = shell.run(shell.command(bin.join("postgres")).arg("--version"), Duration::from_secs(10))?;
    Ok(output.stdout.split_whitespace().nth(2).unwrap_or("of unknown version").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_any_name_is_the_value_of_one_parameter() {
        assert_eq!(url_encoded(Path::new("/tmp/a%b&c d-1")), "/tmp/a%25b%26c%20d-1");
    }

    #[test]
    fn only_the_application_may_come_in_over_tcp() {
        for (password, method) in [(false, "trust"), (true, "scram-sha-256")] {
            let hba = hba(password);
            let tcp: Vec<_> = hba.lines().filter(|line| line.starts_with("host")).collect();
            assert_eq!(tcp, [format!("host shop app 127.0.0.1/32 {method}")]);
        }
    }

    #[test]
    fn a_directory_without_the_programs_is_refused_by_name() {
        let error = locate(Some(Path::new("/nowhere"))).unwrap_err();
        assert!(error.to_string().contains("/nowhere"));
    }
}
