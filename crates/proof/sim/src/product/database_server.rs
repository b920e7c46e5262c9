//! Connects a model of a database to the simulated network.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    time::Duration,
};

use pool::Time;

use crate::{
    databases::{Connection, Database},
    network::{EndId, Network},
};

pub struct DatabaseServer<D> {
    pub database: D,
    /// Whether to print all messages.
    trace: bool,
    connections: BTreeMap<EndId, ServerConnection>,
    ends: BTreeMap<Connection, EndId>,
    due: Option<Time>,
    cleaning_kills: CleaningKills,
}

/// Kills of sessions that the pooler cleans.
struct CleaningKills {
    /// The next session that the pooler cleans is killed.
    is_planned: bool,
    /// How many sessions may still be killed: at the third kill, a client gets an error, as documented.
    left: u32,
}

impl CleaningKills {
    fn plan(&mut self) {
        self.is_planned = self.left > 0;
    }

    fn carry_out(&mut self) {
        self.is_planned = false;
        self.left -= 1;
    }
}

impl<D: Database> fmt::Debug for DatabaseServer<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} open, connected {:?}", self.database.open_connections(), self.ends)
    }
}

struct ServerConnection {
    connection: Connection,
    has_received: bool,
    unsent: VecDeque<u8>,
    /// It is closed when its output has been sent.
    closing: bool,
    /// Further input is dropped, so that it does not turn the last message into a reset.
    discards_input: bool,
}

pub fn elapsed(now: Time) -> Duration {
    Duration::from_nanos(now.0)
}

impl<D: Database> DatabaseServer<D> {
    pub fn new(database: D, trace: bool) -> Self {
        let ends = BTreeMap::new();
        Self {
            database,
            trace,
            connections: BTreeMap::new(),
            ends,
            due: None,
            cleaning_kills: CleaningKills { is_planned: false, left: 2 },
        }
    }

    pub fn owns_end(&self, end: EndId) -> bool {
        self.connections.contains_key(&end)
    }

    pub fn accept(&mut self, network: &Network, now: Time) {
        while let Some((end, host)) = network.accept() {
            let connection = self.database.connect_to(host, elapsed(now));
            self.connections.insert(
                end,
                ServerConnection {
                    connection,
                    has_received: false,
                    unsent: VecDeque::new(),
                    closing: false,
                    discards_input: false,
                },
            );
            self.ends.insert(connection, end);
            self.on_event(network, end, now);
        }
    }

    pub fn on_event(&mut self, network: &Network, end: EndId, now: Time) {
        let Some(server) = self.connections.get_mut(&end) else { return };
        let connection = server.connection;
        let bytes = network.receive(end, usize::MAX);
        server.has_received |= !bytes.is_empty();
        if self.trace && !bytes.is_empty() {
            println!("{:>12.6}   to session {connection}: {}", now.0 as f64 / 1e9, bytes.escape_ascii());
        }
        if self.cleaning_kills.is_planned && self.database.is_cleaning(connection, &bytes) {
            // The session ends before it reads the cleaning.
            self.cleaning_kills.carry_out();
            server.discards_input = true;
            self.database.kill(connection, true, elapsed(now));
        }
        if !bytes.is_empty() {
            self.database.receive(connection, &bytes, elapsed(now));
        }
        if network.has_input_ended(end) {
            self.database.hang_up(connection, elapsed(now));
            self.close(network, end);
        }
        self.flush(network);
    }

    /// Number of sessions that count for the limit.
    pub fn sessions(&self) -> usize {
        self.connections
            .values()
            .filter(|server| server.has_received && self.database.counts_as_session(server.connection))
            .count()
    }

    /// Plans to kill the next session that the pooler cleans, as an administrator would.
    pub fn plan_cleaning_kill(&mut self) {
        self.cleaning_kills.plan();
    }

    pub fn tick(&mut self, network: &Network, now: Time) {
        self.database.tick(elapsed(now));
        self.flush(network);
    }

    pub fn due(&self) -> Option<Time> {
        self.due
    }

    /// Sends the output of the database, as far as windows allow. Each call of the database is followed by this.
    pub fn flush(&mut self, network: &Network) {
        self.due = self.database.due().map(|due| Time(due.as_nanos() as u64));
        for (connection, bytes) in self.database.take_output() {
            if self.trace {
                println!("{:>12}   from session {connection}: {}", "", bytes.escape_ascii());
            }
            if let Some(server) = self.ends.get(&connection).and_then(|end| self.connections.get_mut(end)) {
                server.unsent.extend(bytes);
            }
        }
        for connection in self.database.take_closed() {
            if let Some(server) = self.ends.get(&connection).and_then(|end| self.connections.get_mut(end)) {
                server.closing = true;
            }
        }
        let mut done = Vec::new();
        for (end, server) in &mut self.connections {
            if !server.unsent.is_empty() {
                let sent = network.send(*end, server.unsent.make_contiguous());
                server.unsent.drain(..sent);
            }
            if server.closing && server.unsent.is_empty() {
                if server.discards_input {
                    network.shut(*end);
                } else {
                    done.push(*end);
                }
            }
        }
        for end in done {
            self.close(network, end);
        }
    }

    fn close(&mut self, network: &Network, end: EndId) {
        network.close(end);
        let server = self.connections.remove(&end).expect("the connection is open");
        self.ends.remove(&server.connection);
    }

    pub fn kill(&mut self, network: &Network, connection: Connection, politely: bool, now: Time) {
        self.database.kill(connection, politely, elapsed(now));
        self.flush(network);
    }

    pub fn disturb(&mut self, network: &Network, lot: u64, gently: bool, now: Time) {
        self.database.disturb(lot, gently, elapsed(now));
        self.flush(network);
    }

    /// Breaks the connection of a session.
    pub fn reset(&mut self, network: &Network, connection: Connection) {
        if let Some(end) = self.ends.get(&connection) {
            network.reset(*end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kills_count_and_not_plans() {
        let mut kills = CleaningKills { is_planned: false, left: 2 };
        for _ in 0..2 {
            (0..3).for_each(|_| kills.plan());
            assert!(kills.is_planned, "a kill is left");
            kills.carry_out();
            assert!(!kills.is_planned, "one plan leads to one kill");
        }
        kills.plan();
        assert!(!kills.is_planned, "no kill is left");
    }
}
