//! Models of databases: they speak the real protocols, byte in and byte out, at a time that the caller sets. They know
//! neither pools nor sockets nor their clients.

pub mod mongodb;
pub mod postgres;
pub mod redis;

use std::time::Duration;

/// A connection to a database, as numbered by it.
pub type Connection = u64;

/// A database with any number of connections. Deterministic: the same calls give the same bytes.
///
/// Call order: [`connect`](Self::connect) first; then [`receive`](Self::receive) as bytes come, and
/// [`tick`](Self::tick) when [`due`](Self::due) has come; after each of these the output and the closed connections are
/// taken. [`hang_up`](Self::hang_up) ends it.
pub trait Database {
    /// Hosts that it consists of; they are numbered from 0 on.
    const HOSTS: u16 = 1;
    /// Ports at which they listen, in turns: each host has as many.
    const PORTS: u16 = Self::HOSTS;

    /// A connection is accepted.
    fn connect(&mut self, now: Duration) -> Connection;

    /// A connection is accepted at this port.
    fn connect_to(&mut self, _port: u16, now: Duration) -> Connection {
        self.connect(now)
    }

    /// Something happens among the hosts, such as an election; `lot` decides what. `gently`: nothing that a client
    /// notices.
    fn disturb(&mut self, _lot: u64, _gently: bool, _now: Duration) {}

    /// Bytes came, in any pieces. A connection that is closed ignores them.
    fn receive(&mut self, connection: Connection, bytes: &[u8], now: Duration);

    /// The peer has closed, or the connection is broken: the session ends, and releases what it held.
    fn hang_up(&mut self, connection: Connection, now: Duration);

    /// How many acknowledged writes it has taken back, as it may with those that asked for no more.
    fn taken_back(&self) -> u64 {
        0
    }

    /// When the database has to act by itself next: a sleep ends, or a time-out is due.
    fn due(&self) -> Option<Duration>;

    fn tick(&mut self, now: Duration);

    /// Takes the bytes to send, in order.
    fn take_output(&mut self) -> Vec<(Connection, Vec<u8>)>;

    /// Takes the connections that the database has closed. Their last bytes are sent first.
    fn take_closed(&mut self) -> Vec<Connection>;

    /// An administrator ends a session: with last words as that database has them, or without (`politely` is false: the
    /// process died).
    fn kill(&mut self, connection: Connection, politely: bool, now: Duration);

    /// Whether these bytes are the beginning of what a pooler cleans this session with, which is idle.
    fn is_cleaning(&self, _connection: Connection, _bytes: &[u8]) -> bool {
        false
    }

    /// Whether a limit of sessions counts this one, over which something has come.
    fn counts(&self, connection: Connection) -> bool {
        self.open().contains(&connection)
    }

    /// Connections that are open, in order of their making.
    fn open(&self) -> Vec<Connection>;
}
