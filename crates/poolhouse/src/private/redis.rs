//! A private, throw-away Redis: keeps nothing on disk, and lets in over loopback who knows the password. Refuses to
//! know poolers and loads.

use std::{
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use super::{
    cleanup::TERMINATE,
    cluster::free_addresses,
    command::{self, Shell},
};

/// How long it may take until it serves.
const START_LIMIT: Duration = Duration::from_secs(15);

/// Starts one.
///
/// # Errors
/// None is installed, or it does not come up.
pub(super) fn start(shell: &Shell, max_connections: u32, password: &str) -> anyhow::Result<SocketAddr> {
    let program = command::find("redis-server").context(
        "no redis-server found on the search path; install it (Debian: apt-get install redis-server), or give another \
         target with --target",
    )?;
    let [address] = free_addresses()?;
    // On the command line others could read the password.
    let file = shell.directory.join("redis.conf");
    shell
        .write_secret(&file, &configuration(address, max_connections, password, &shell.directory.to_string_lossy()))?;
    let started = shell.start(shell.server_command(program).arg(&file), TERMINATE)?;
    let deadline = Instant::now() + START_LIMIT;
    while TcpStream::connect(address).is_err() {
        if shell.cleanup.poll(started.id)?.is_some() || Instant::now() > deadline {
            bail!("Redis did not start:\n{}", shell.last_errors(&started).trim());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(address)
}

fn configuration(address: SocketAddr, max_connections: u32, password: &str, directory: &str) -> String {
    format!(
        "bind {}\nport {}\nmaxclients {max_connections}\nrequirepass {password}\ndir \"{directory}\"\nsave \
         \"\"\nappendonly no\n\
         daemonize no\ntcp-backlog 1024\n",
        address.ip(),
        address.port()
    )
}
