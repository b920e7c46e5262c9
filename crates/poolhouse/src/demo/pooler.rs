//! Starts and stops the poolers of the comparison: Poolhouse (this very executable) and PgBouncer, both in transaction
//! mode with the same number of server connections.
//!
//! Refuses to know what is measured through them.

use std::{
    fs,
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use super::{
    cleanup::{DRAIN, TERMINATE},
    cluster::{Cluster, DATABASE, QUERY_TIMEOUT, USER, application_url, connect, free_addresses},
    command::{self, Shell, Started},
};

/// Server connections of either pooler.
pub const MAX_SIZE: u32 = 20;
/// How long a pooler may take until it serves.
const START_LIMIT: Duration = Duration::from_secs(15);

/// A running pooler.
pub struct Pooler {
    /// What the table calls it.
    pub name: &'static str,
    /// Where clients come in.
    pub address: SocketAddr,
    started: Started,
}

impl Pooler {
    /// Starts `poolhouse serve` in front of the cluster.
    pub fn poolhouse(shell: &Shell, cluster: &Cluster) -> anyhow::Result<Pooler> {
        let [address] = free_addresses()?;
        let executable = std::env::current_exe().context("cannot tell where poolhouse itself is")?;
        let mut command = shell.command(executable);
        command.arg("serve").arg(format!("postgres://{USER}@{}/{DATABASE}", cluster.address));
        command.args(["--listen", &address.to_string(), "--max-size", &MAX_SIZE.to_string()]);
        // As patient with waiting clients as PgBouncer is by default.
        command.args(["--admin", "off", "--max-wait-time", "120s"]);
        let started = shell.start(&mut command, DRAIN)?;
        Pooler { name: "Poolhouse", address, started }.when_ready(shell)
    }

    /// Starts PgBouncer in front of the cluster; `None` if it is not installed.
    pub fn pgbouncer(shell: &Shell, cluster: &Cluster, clients: u32) -> anyhow::Result<Option<Pooler>> {
        let Some(executable) = command::find("pgbouncer") else { return Ok(None) };
        let [address] = free_addresses()?;
        let ini = shell.directory.join("pgbouncer.ini");
        fs::write(&ini, configuration(address, cluster.address, clients)).context("cannot write pgbouncer.ini")?;
        println!(
            "# pgbouncer.ini: pool_mode = transaction, default_pool_size = {MAX_SIZE}, max_client_conn = {}",
            clients + 100
        );
        shell.give_away(&ini)?;
        let started = shell.start(shell.server_command(executable).arg("-q").arg(&ini), TERMINATE)?;
        Pooler { name: "PgBouncer", address, started }.when_ready(shell).map(Some)
    }

    /// An error, with what it said last, if it has ended by itself.
    pub fn must_be_alive(&self, shell: &Shell) -> anyhow::Result<()> {
        if let Some(status) = shell.cleanup.poll(self.started.id)? {
            bail!("{} has ended ({status}):\n{}", self.name, shell.last_errors(&self.started).trim());
        }
        Ok(())
    }

    /// Ends it, its server connections included.
    pub fn stop(self, shell: &Shell) {
        shell.cleanup.stop(self.started.id);
    }

    fn when_ready(self, shell: &Shell) -> anyhow::Result<Pooler> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let session = connect(&application_url(self.address));
            match session.and_then(|mut session| Ok(session.query("select 1", QUERY_TIMEOUT)?)) {
                Ok(_) => return Ok(self),
                Err(error) => {
                    if shell.cleanup.poll(self.started.id)?.is_some() || Instant::now() > deadline {
                        let said = shell.last_errors(&self.started);
                        bail!("{} did not come up ({error}):\n{}", self.name, said.trim());
                    }
                }
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn configuration(listen: SocketAddr, server: SocketAddr, clients: u32) -> String {
    format!(
        "[databases]\n\
         {DATABASE} = host={} port={} dbname={DATABASE} user={USER}\n\
         [pgbouncer]\n\
         listen_addr = {}\n\
         listen_port = {}\n\
         unix_socket_dir =\n\
         auth_type = any\n\
         pool_mode = transaction\n\
         default_pool_size = {MAX_SIZE}\n\
         max_client_conn = {}\n\
         listen_backlog = 1024\n\
         ignore_startup_parameters = extra_float_digits\n",
        server.ip(),
        server.port(),
        listen.ip(),
        listen.port(),
        clients + 100,
    )
}
