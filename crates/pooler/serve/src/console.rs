//! The console: a small server of PostgreSQL's protocol inside the process, with PgBouncer's commands. It listens on an
//! abstract Unix socket that only this process may connect to; clients reach it as they reach any database, by a pool
//! whose servers are dedicated. So who a client is has been proved before a connection comes here.
//!
//! - [`connection`]: one connection; [`running`]: all of them;
//! - [`orders`]: commands that change something; [`settings`]: SHOW CONFIG and SET;
//! - [`sockets`], [`inventory`], [`statistics`], [`dns`]: the lists; [`over_http`]: the same at the admin address.

mod connection;
mod dns;
mod inventory;
mod orders;
mod over_http;
mod running;
mod settings;
mod sockets;
mod statistics;
mod utc;

use std::{
    io,
    os::{linux::net::SocketAddrExt, unix::net},
    sync::Arc,
    time::Duration,
};

use console::{Role, Show, Table, Value};
use driver::Handle;
use tokio::{
    net::{UnixListener, UnixStream},
    sync::Semaphore,
};

use self::{running::Running, statistics::Statistics};
use crate::{admin::Admin, config::PGBOUNCER_NAME, console_socket, reload::Reloader};

/// The version of PgBouncer whose console this follows.
macro_rules! pgbouncer_version {
    () => {
        "1.26.1"
    };
}

/// Connections at a time; further ones are closed.
const MAX_CONNECTIONS: usize = 256;
/// Connections of users who may only look. The rest is for users who give orders.
const MAX_VIEWER_CONNECTIONS: usize = 192;
/// The pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub struct Console {
    handle: Handle,
    admin: Admin,
    running: Running,
    viewer_places: Arc<Semaphore>,
    statistics: Statistics,
}

/// The socket that the console listens on.
pub struct ConsoleSocket(net::UnixListener);

impl ConsoleSocket {
    /// Opens the socket.
    ///
    /// # Errors
    /// When the system refuses; so for the following one.
    pub fn bind() -> io::Result<Self> {
        let socket = net::UnixListener::bind_addr(&net::SocketAddr::from_abstract_name(console_socket::name())?)?;
        socket.set_nonblocking(true)?;
        Ok(Self(socket))
    }

    /// Gives the socket to the runtime, within which this is called.
    #[allow(clippy::missing_errors_doc)]
    pub fn listen(self) -> io::Result<UnixListener> {
        UnixListener::from_std(self.0)
    }
}

impl Console {
    pub fn new(handle: Handle, admin: Admin) -> Arc<Self> {
        let statistics = Statistics::new(handle.snapshot());
        Arc::new(Self {
            handle,
            admin,
            running: Running::default(),
            viewer_places: Arc::new(Semaphore::new(MAX_VIEWER_CONNECTIONS)),
            statistics,
        })
    }

    /// Serves connections for ever.
    pub async fn serve(self: Arc<Self>, listener: UnixListener) {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        tokio::spawn(Arc::clone(&self).keep_averages());
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "the console cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
            if is_of_this_process(&stream) {
                let console = Arc::clone(&self);
                tokio::spawn(async move {
                    // A client that goes in the middle of an answer is no trouble of the console's.
                    let _ = connection::serve(stream, console).await;
                    drop(place);
                });
            } else {
                tracing::warn!("another process has tried to connect to the console's own socket");
            }
        }
    }

    async fn keep_averages(self: Arc<Self>) {
        loop {
            tokio::time::sleep(statistics::period(&self.reloader().in_force())).await;
            let console = Arc::clone(&self);
            let _ =
                tokio::task::spawn_blocking(move || console.statistics.begin_period(console.handle.snapshot())).await;
        }
    }

    fn reloader(&self) -> &Reloader {
        &self.admin.control().reloader
    }

    fn role(&self, user: &str, is_owner: bool) -> Option<Role> {
        if is_owner { Some(Role::Admin) } else { self.reloader().in_force().console_role(user) }
    }

    /// What a client is told at its login.
    fn parameters(&self) -> Vec<(&'static str, &'static str)> {
        let mut parameters = vec![
            ("client_encoding", "UTF8"),
            ("server_encoding", "UTF8"),
            ("DateStyle", "ISO"),
            ("TimeZone", "GMT"),
            ("standard_conforming_strings", "on"),
            ("is_superuser", "on"),
        ];
        // Programs tell PgBouncer's console from a database by its version.
        parameters.extend(match self.is_pgbouncers() {
            true => vec![
                ("pgbouncer.version", pgbouncer_version!()),
                ("server_version", concat!(pgbouncer_version!(), "/bouncer")),
            ],
            false => vec![("server_version", SERVER_VERSION)],
        });
        parameters
    }

    /// The list that a SHOW asks for. Blocks while workers answer.
    fn show(&self, show: Show) -> Table {
        let mut table = show.table();
        match show {
            Show::Clients | Show::Servers | Show::Sockets | Show::ActiveSockets => self.list_sockets(show, &mut table),
            Show::Databases => self.list_databases(&mut table),
            Show::Pools => self.list_pools(&mut table),
            Show::Users => self.list_users(&mut table),
            Show::Lists => self.list_counts(&mut table),
            Show::Mem => self.list_memory(&mut table),
            Show::Config => self.list_settings(&mut table),
            Show::Stats | Show::StatsTotals | Show::StatsAverages | Show::Totals => {
                self.list_statistics(show, &mut table);
            }
            Show::State => {
                let paused = self.handle.are_all_paused();
                for (key, holds) in [("active", !paused), ("paused", paused)] {
                    table.push([key.into(), Value::from(if holds { "yes" } else { "no" })]);
                }
            }
            Show::Version => table.push([Value::from(self.version())]),
            Show::Peers => self.list_peers(&mut table),
            Show::PeerPools => self.list_peer_pools(&mut table),
            Show::DnsHosts => self.list_hosts(&mut table),
            Show::DnsZones => self.list_zones(&mut table),
            Show::Help => unreachable!("it is a notice"),
        }
        table
    }

    fn version(&self) -> &'static str {
        match self.is_pgbouncers() {
            true => concat!("PgBouncer ", pgbouncer_version!(), " (Poolhouse ", env!("CARGO_PKG_VERSION"), ")"),
            false => concat!("Poolhouse ", env!("CARGO_PKG_VERSION")),
        }
    }

    /// Whether it stands in for PgBouncer's console.
    fn is_pgbouncers(&self) -> bool {
        self.reloader().in_force().console.name == PGBOUNCER_NAME
    }
}

/// The version that drivers are told, which expect a number.
const SERVER_VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "/poolhouse");

fn is_of_this_process(stream: &UnixStream) -> bool {
    let peer = stream.peer_cred().ok().and_then(|peer| peer.pid());
    peer.and_then(|pid| u32::try_from(pid).ok()) == Some(std::process::id())
}
