//! Models of databases: they speak the real protocols, bytes in and bytes out, at a time that the caller sets. They
//! know neither pools nor sockets.

pub mod mongodb;
pub mod postgres;
pub mod redis;

use std::time::Duration;

/// The number of a connection to a database.
pub type Connection = u64;

/// A database with any number of connections. Deterministic: the same calls give the same bytes.
///
/// Call order: [`connect`](Self::connect) first; then [`receive`](Self::receive) as bytes come, and
/// [`tick`](Self::tick) when [`due`](Self::due) has come; after each of these the output and the closed connections are
/// taken. [`hang_up`](Self::hang_up) ends it.
pub trait Database {
    /// Number of hosts, which are numbered from 0.
    const HOSTS: u16 = 1;
    /// Number of ports. Port `p` belongs to host `p % HOSTS`.
    const PORTS: u16 = Self::HOSTS;

    /// Accepts a connection.
    fn connect(&mut self, now: Duration) -> Connection;

    /// Accepts a connection at this port.
    fn connect_to(&mut self, _port: u16, now: Duration) -> Connection {
        self.connect(now)
    }

    /// Causes an event among the hosts, such as an election, which `lot` selects; with `gently`, an event that no
    /// client can notice.
    fn disturb(&mut self, _lot: u64, _gently: bool, _now: Duration) {}

    /// Receives bytes, in any pieces. A closed connection ignores them.
    fn receive(&mut self, connection: Connection, bytes: &[u8], now: Duration);

    /// The peer has closed, or the connection is broken: the session ends, and releases what it held.
    fn hang_up(&mut self, connection: Connection, now: Duration);

    /// Number of acknowledged writes that were rolled back, as weak write concerns allow.
    fn rolled_back(&self) -> u64 {
        0
    }

    /// When the database acts next by itself: a sleep ends, or a time-out is due.
    fn due(&self) -> Option<Duration>;

    fn tick(&mut self, now: Duration);

    /// Takes the bytes to send, in order.
    fn take_output(&mut self) -> Vec<(Connection, Vec<u8>)>;

    /// Takes the connections that the database has closed. Their output is sent first.
    fn take_closed(&mut self) -> Vec<Connection>;

    /// Ends a session: `politely` with an error as an administrator does, otherwise as if its process died.
    fn kill(&mut self, connection: Connection, politely: bool, now: Duration);

    /// Whether these bytes begin the cleaning of an idle session by the pooler.
    fn is_cleaning(&self, _connection: Connection, _bytes: &[u8]) -> bool {
        false
    }

    /// Whether the limit of sessions counts a connection that has received bytes.
    fn counts_as_session(&self, connection: Connection) -> bool {
        self.open_connections().contains(&connection)
    }

    /// The number of sessions of the user who has most.
    fn most_sessions_of_a_user(&self) -> usize {
        0
    }

    /// Open connections, the oldest first.
    fn open_connections(&self) -> Vec<Connection>;
}
