//! Connects a model of a database to the simulated network: hands it what arrives, and sends what it answers.

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

pub struct Site<D> {
    pub database: D,
    /// Whether to print all that is said.
    trace: bool,
    wires: BTreeMap<EndId, Wire>,
    ends: BTreeMap<Connection, EndId>,
    due: Option<Time>,
    /// The next session that is to be cleaned is ended instead.
    lies_in_wait: bool,
    /// How often that may yet be ordered: a client that meets it three times is told, as is documented.
    waits_left: u32,
}

impl<D: Database> fmt::Debug for Site<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} open, on the wires {:?}", self.database.open(), self.ends)
    }
}

struct Wire {
    connection: Connection,
    /// Something has come over it.
    spoken: bool,
    unsent: VecDeque<u8>,
    /// It is closed when all has been sent.
    closing: bool,
    /// What still comes is read and thrown away, so that the peer hears the last words for certain, whatever it sends
    /// meanwhile.
    lingers: bool,
}

/// Since time zero.
pub fn elapsed(now: Time) -> Duration {
    Duration::from_nanos(now.0)
}

impl<D: Database> Site<D> {
    /// A database without connections.
    pub fn new(database: D, trace: bool) -> Self {
        let ends = BTreeMap::new();
        Self { database, trace, wires: BTreeMap::new(), ends, due: None, lies_in_wait: false, waits_left: 2 }
    }

    /// Whether an end is one of its.
    pub fn has(&self, end: EndId) -> bool {
        self.wires.contains_key(&end)
    }

    /// Takes those who have arrived.
    pub fn accept(&mut self, network: &Network, now: Time) {
        while let Some((end, host)) = network.accept() {
            let connection = self.database.connect_to(host, elapsed(now));
            self.wires.insert(
                end,
                Wire { connection, spoken: false, unsent: VecDeque::new(), closing: false, lingers: false },
            );
            self.ends.insert(connection, end);
            self.listen(network, end, now);
        }
    }

    /// Something has happened to an end.
    pub fn listen(&mut self, network: &Network, end: EndId, now: Time) {
        let Some(wire) = self.wires.get_mut(&end) else { return };
        let connection = wire.connection;
        let bytes = network.receive(end, usize::MAX);
        wire.spoken |= !bytes.is_empty();
        if self.trace && !bytes.is_empty() {
            println!("{:>12.6}   to session {connection}: {}", now.0 as f64 / 1e9, bytes.escape_ascii());
        }
        if self.lies_in_wait && self.database.is_cleaning(connection, &bytes) {
            // Of what has come nothing is read any more.
            self.lies_in_wait = false;
            wire.lingers = true;
            self.database.kill(connection, true, elapsed(now));
        }
        if !bytes.is_empty() {
            self.database.receive(connection, &bytes, elapsed(now));
        }
        if network.is_over(end) {
            self.database.hang_up(connection, elapsed(now));
            self.let_go(network, end);
        }
        self.speak(network);
    }

    /// Sessions that a limit of the database counts.
    pub fn sessions(&self) -> usize {
        self.wires.values().filter(|wire| wire.spoken && self.database.counts(wire.connection)).count()
    }

    /// The next session that is to be cleaned is ended by an administrator before it has read that.
    pub fn lie_in_wait(&mut self) {
        self.lies_in_wait |= self.waits_left > 0;
        self.waits_left = self.waits_left.saturating_sub(1);
    }

    pub fn tick(&mut self, network: &Network, now: Time) {
        self.database.tick(elapsed(now));
        self.speak(network);
    }

    pub fn due(&self) -> Option<Time> {
        self.due
    }

    /// Sends what was said, as far as windows allow. Whatever is done to the database ends with this.
    pub fn speak(&mut self, network: &Network) {
        self.due = self.database.due().map(|due| Time(due.as_nanos() as u64));
        for (connection, bytes) in self.database.take_output() {
            if self.trace {
                println!("{:>12}   from session {connection}: {}", "", bytes.escape_ascii());
            }
            if let Some(wire) = self.ends.get(&connection).and_then(|end| self.wires.get_mut(end)) {
                wire.unsent.extend(bytes);
            }
        }
        for connection in self.database.take_closed() {
            if let Some(wire) = self.ends.get(&connection).and_then(|end| self.wires.get_mut(end)) {
                wire.closing = true;
            }
        }
        let mut done = Vec::new();
        for (end, wire) in &mut self.wires {
            if !wire.unsent.is_empty() {
                let sent = network.send(*end, wire.unsent.make_contiguous());
                wire.unsent.drain(..sent);
            }
            if wire.closing && wire.unsent.is_empty() {
                if wire.lingers {
                    network.shut(*end);
                } else {
                    done.push(*end);
                }
            }
        }
        for end in done {
            self.let_go(network, end);
        }
    }

    fn let_go(&mut self, network: &Network, end: EndId) {
        network.close(end);
        let wire = self.wires.remove(&end).expect("it is one of its");
        self.ends.remove(&wire.connection);
    }

    /// Breaks the connection of a session off, or ends it; see [`Database::kill`].
    pub fn kill(&mut self, network: &Network, connection: Connection, politely: bool, now: Time) {
        self.database.kill(connection, politely, elapsed(now));
        self.speak(network);
    }

    /// Something happens among the hosts of the database; see [`Database::disturb`].
    pub fn disturb(&mut self, network: &Network, lot: u64, gently: bool, now: Time) {
        self.database.disturb(lot, gently, elapsed(now));
        self.speak(network);
    }

    /// The network breaks a connection off.
    pub fn cut(&mut self, network: &Network, connection: Connection) {
        if let Some(end) = self.ends.get(&connection) {
            network.reset(*end);
        }
    }
}
