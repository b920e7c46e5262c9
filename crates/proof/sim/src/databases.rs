//! Databases that are not there: they speak real protocols to bytes, in a time that somebody else tells. They know
//! neither pools nor sockets, and nothing of who connects to them.

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

    /// Somebody has connected.
    fn connect(&mut self, now: Duration) -> Connection;

    /// Somebody has connected to one of its ports.
    fn connect_to(&mut self, _port: u16, now: Duration) -> Connection {
        self.connect(now)
    }

    /// Something happens among its hosts, by lot. `gently`: nothing that a client need feel.
    fn disturb(&mut self, _lot: u64, _gently: bool, _now: Duration) {}

    /// Bytes came, in any pieces. A connection that is closed ignores them.
    fn receive(&mut self, connection: Connection, bytes: &[u8], now: Duration);

    /// The peer has gone, or the connection is broken: what the session held is let go of.
    fn hang_up(&mut self, connection: Connection, now: Duration);

    /// How many acknowledged writes it has taken back, as it may with those that asked for no more.
    fn taken_back(&self) -> u64 {
        0
    }

    /// When something is to happen by itself: a sleep ends, a time-out is due.
    fn due(&self) -> Option<Duration>;

    fn tick(&mut self, now: Duration);

    /// What was said since this was asked last, in the order in which it was said.
    fn take_output(&mut self) -> Vec<(Connection, Vec<u8>)>;

    /// Connections that the database has closed since this was asked last: after all that it said there.
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
