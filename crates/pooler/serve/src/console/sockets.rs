//! The lists of connections: SHOW CLIENTS, SERVERS, SOCKETS and ACTIVE_SOCKETS.

use std::time::Duration;

use console::{Show, Table, Value};
use driver::{ClientFilter, ClientInfo, ServerInfo};
use upstream::Kind;

use super::{Console, utc::time_ago};
use crate::admin::MAX_LIMIT;

/// Set in the `ptr` of a server, so that it differs from those of clients.
const SERVER_POINTER: u64 = 0x2000_0000_0000;
/// Set in the `ptr` of a client.
const CLIENT_POINTER: u64 = 0x1000_0000_0000;
/// Of a connection that is not for replication.
const NO_REPLICATION: &str = "none";
/// Bits of a server's tag on its worker.
const TAG_BITS: u32 = 32;
/// Figures of buffers that SHOW SOCKETS has for each connection. Poolhouse keeps no buffer for a connection that is
/// idle, so that all are 0.
const BUFFER_COLUMNS: usize = 7;

/// A client's id from its `ptr`, or from itself.
pub fn id_of_pointer(pointer: u64) -> u64 {
    if pointer >= CLIENT_POINTER { pointer & !CLIENT_POINTER } else { pointer }
}

impl Console {
    pub(super) fn list_sockets(&self, show: Show, table: &mut Table) {
        let is_busy = |state: &str| show != Show::ActiveSockets || !matches!(state, "idle");
        let with_buffers = matches!(show, Show::Sockets | Show::ActiveSockets);
        if show != Show::Servers {
            let workers = self.handle.snapshot().workers.len().max(1) as u64;
            let mut clients = self.handle.clients(ClientFilter::All, MAX_LIMIT);
            clients.retain(|client| client.protocol == Kind::Postgres.word() && client.is_logged_in());
            clients.sort_by(|a, b| (&a.database, a.id).cmp(&(&b.database, b.id)));
            let own = self.reloader().in_force().console.name.clone();
            for client in &mut clients {
                let is_own = client.database == own;
                if is_own || is_busy(client.state) {
                    let state = if is_own { state_at_console(with_buffers) } else { state_of(client) };
                    // The servers of the console's own clients are not shown.
                    client.server.take_if(|_| is_own);
                    push_client(client, state, workers, with_buffers, table);
                }
            }
        }
        if show != Show::Clients {
            let mut servers = self.handle.servers(MAX_LIMIT);
            servers.retain(|server| server.protocol == Kind::Postgres.word());
            servers.sort_by(|a, b| (&a.database, a.worker, a.id).cmp(&(&b.database, b.worker, b.id)));
            for server in servers.iter().filter(|server| is_busy(server.state)) {
                push_server(server, with_buffers, table);
            }
        }
    }
}

fn state_of(client: &ClientInfo) -> &'static str {
    match client.state {
        "waiting" => "waiting",
        _ if client.server.is_some() => "active",
        _ => "idle",
    }
}

/// The state of a client of the console, which in PgBouncer is always active as a socket, and never as a client.
fn state_at_console(as_socket: bool) -> &'static str {
    if as_socket { "active" } else { "idle" }
}

fn push_client(client: &ClientInfo, state: &'static str, workers: u64, with_buffers: bool, table: &mut Table) {
    let waited = if state == "waiting" { client.state_for } else { Duration::ZERO };
    let link = client.server.map(|tag| pointer(server_id(client.id % workers, tag) | SERVER_POINTER));
    let link = link.unwrap_or_default();
    push(
        Row {
            kind: "C",
            names: [&client.login_user, &client.database],
            replication: client.about.replication.unwrap_or(NO_REPLICATION),
            state,
            address: &client.address,
            local: &client.local,
            times: [client.connected_for, client.state_for],
            waited,
            close_needed: false,
            pointers: [&pointer(client.id | CLIENT_POINTER), &link],
            process: client.process,
            tls: &client.tls,
            application_name: &client.about.application_name,
            prepared_statements: client.about.prepared_statements,
            id: client.id,
        },
        "cl_",
        with_buffers,
        table,
    );
}

fn push_server(server: &ServerInfo, with_buffers: bool, table: &mut Table) {
    let state = match server.state {
        "connecting" => "new",
        "checking" => "tested",
        "in_use" => "active",
        _ => "idle",
    };
    let id = server_id(server.worker.into(), server.id);
    let link = server.client.map(|client| pointer(client | CLIENT_POINTER)).unwrap_or_default();
    push(
        Row {
            kind: "S",
            names: [&server.user, &server.database],
            replication: server.about.replication.unwrap_or(NO_REPLICATION),
            state,
            address: &server.address,
            local: &server.local,
            times: [server.age, server.state_for],
            waited: Duration::ZERO,
            close_needed: server.is_stale,
            pointers: [&pointer(id | SERVER_POINTER), &link],
            process: server.backend,
            tls: &server.tls,
            application_name: &server.about.application_name,
            prepared_statements: server.about.prepared_statements,
            id,
        },
        "sv_",
        with_buffers,
        table,
    );
}

/// What a row shows.
struct Row<'r> {
    kind: &'r str,
    /// User and database.
    names: [&'r str; 2],
    replication: &'r str,
    state: &'r str,
    address: &'r str,
    local: &'r str,
    /// Since the connection was made, and since the last request.
    times: [Duration; 2],
    waited: Duration,
    close_needed: bool,
    /// Its own, and that of the connection at the other side.
    pointers: [&'r str; 2],
    process: Option<u32>,
    tls: &'r str,
    application_name: &'r str,
    prepared_statements: u64,
    id: u64,
}

/// `prefix` stands before the state in lists of sockets.
fn push(row: Row<'_>, prefix: &str, with_buffers: bool, table: &mut Table) {
    let state = if with_buffers { format!("{prefix}{}", row.state) } else { row.state.to_owned() };
    let [connected, requested] = row.times.map(time_ago);
    let ((address, port), (local, local_port)) = (split(row.address), split(row.local));
    let values = [
        row.kind.into(),
        row.names[0].into(),
        row.names[1].into(),
        row.replication.into(),
        Value::from(&state),
        address.into(),
        port.into(),
        local.into(),
        local_port.into(),
        Value::from(&connected),
        Value::from(&requested),
        row.waited.as_secs().into(),
        row.waited.subsec_micros().into(),
        row.close_needed.into(),
        row.pointers[0].into(),
        row.pointers[1].into(),
        row.process.unwrap_or(0).into(),
        row.tls.into(),
        row.application_name.into(),
        row.prepared_statements.into(),
        row.id.into(),
    ];
    let buffers = [Value::Number(0); BUFFER_COLUMNS];
    let shown = if with_buffers { BUFFER_COLUMNS } else { 0 };
    table.push(values.into_iter().chain(buffers.into_iter().take(shown)));
}

/// Host and port of an address; a Unix socket is `unix`, with the number in its file's name for a port.
fn split(address: &str) -> (&str, Option<u32>) {
    if address.starts_with('/') {
        return ("unix", address.rsplit_once('.').and_then(|(_, number)| number.parse().ok()));
    }
    match address.rsplit_once(':') {
        Some((host, port)) => (host.trim_matches(['[', ']']), port.parse().ok()),
        None => (address, None),
    }
}

/// A number for a server that no other server has now.
fn server_id(worker: u64, tag: u32) -> u64 {
    worker << TAG_BITS | u64::from(tag)
}

fn pointer(number: u64) -> String {
    format!("{number:#x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_split() {
        assert_eq!(split("10.0.0.7:5432"), ("10.0.0.7", Some(5432)));
        assert_eq!(split("[::1]:5432"), ("::1", Some(5432)));
        assert_eq!(split("unix"), ("unix", None));
        assert_eq!(split("/tmp/.s.PGSQL.5432"), ("unix", Some(5432)));
    }

    #[test]
    fn a_client_is_found_by_its_pointer_or_its_id() {
        assert_eq!(id_of_pointer(24 | CLIENT_POINTER), 24);
        assert_eq!(id_of_pointer(24), 24);
        assert_ne!(id_of_pointer(24 | SERVER_POINTER), 24);
    }
}
