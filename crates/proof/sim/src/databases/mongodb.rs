//! Model of MongoDB: one server that stands alone, a replica set of three hosts with elections, or three
//! mongos. It speaks the real wire protocol, and knows the few commands that the simulator needs. It knows neither
//! pools nor sockets.
//!
//! What a majority has no election loses, so all hosts read and write the same collections. A write that asks for less
//! is acknowledged before, and may be rolled back. What each host has for itself are its role, as it believes, its open
//! transactions, and its cursors, whose numbers are the same at every host.
//!
//! Every user has a port of its own at every host, so that a connection tells whose it is without a login.
//!
//! - [`message`] reads requests as they come, with their sections;
//! - [`hello`] tells what a host is;
//! - [`commands`] chooses what it does for a client;
//! - [`writes`] keeps what is written, and knows writes from their repetition;
//! - [`transactions`] has those that are under way, what they lock, and who waits for that;
//! - [`witness`] sees what no pooler may do;
//! - [`cursors`] gives batches;
//! - [`streams`] gives batches that are waited for, and those that stream without being asked for;
//! - [`elections`] has all that happens among the hosts.

mod commands;
mod cursors;
mod elections;
mod errors;
mod hello;
mod message;
mod streams;
#[cfg(test)]
mod tests;
mod transactions;
mod witness;
mod writes;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use mongodb_session::{
    bson::{Document, Writer},
    wire::{self, Answers},
};

use self::{
    cursors::Cursor, elections::Stale, message::Next, streams::Streams, transactions::Transactions, witness::Witness,
    writes::Written,
};
pub use self::{
    transactions::HOT,
    witness::{ASKED, FIRST_ID},
    writes::Whereabouts,
};
use super::{Connection, Database};

/// Hosts of a replica set, and mongos.
pub const HOSTS: usize = 3;

/// Users, each with a port at every host: those of the first come first.
pub const USERS: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A server that stands alone.
    Standalone,
    Set,
    Sharded,
}

/// The number of a host's first cursor.
const FIRST_CURSOR: i64 = 1001;

pub struct MongoDb {
    /// The database of one client alone: a mongos, or a server that stands alone, to which nothing ever happens.
    own: bool,
    kind: Kind,
    hosts: [Host; HOSTS],
    sessions: BTreeMap<Connection, Session>,
    last: Connection,
    /// The host that takes writes, if one does.
    primary: Option<usize>,
    term: u64,
    /// Counts changes of the set's configuration.
    version: i32,
    /// When the next primary is elected, and who has the best chances.
    election: Option<(Duration, usize)>,
    /// A host that does not know yet that it is the primary no longer.
    stale: Option<Stale>,
    /// Until then the session whose write is carried out next ends without an answer.
    ambush: Option<Duration>,
    written: Written,
    transactions: Transactions,
    witness: Witness,
    streams: Streams,
    now: Duration,
    output: Vec<(Connection, Vec<u8>)>,
    closed: Vec<Connection>,
}

#[derive(Default)]
struct Host {
    cursors: BTreeMap<i64, Cursor>,
    /// How many it has opened.
    opened: i64,
    down: Option<Duration>,
    /// When it was asked last what it is.
    asked: Duration,
}

struct Session {
    host: usize,
    user: usize,
    input: Vec<u8>,
    /// What it has asked is not answered yet.
    waits: bool,
}

/// A document of these elements.
fn document(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut Writer::new(&mut bytes));
    bytes
}

impl MongoDb {
    fn new(own: bool, kind: Kind) -> Self {
        Self {
            own,
            kind,
            hosts: <[Host; HOSTS]>::default(),
            sessions: BTreeMap::new(),
            last: 0,
            primary: Some(0),
            term: 1,
            version: 1,
            election: None,
            stale: None,
            ambush: None,
            written: Written::default(),
            transactions: Transactions::default(),
            witness: Witness::default(),
            streams: Streams::default(),
            now: Duration::ZERO,
            output: Vec::new(),
            closed: Vec::new(),
        }
    }

    /// A deployment of this kind.
    pub fn of(kind: Kind) -> Self {
        Self::new(false, kind)
    }

    /// What a client sees that has all for itself, whatever is behind it.
    pub fn own(kind: Kind) -> Self {
        Self::new(true, kind)
    }

    /// The rows of a collection, in the order in which they were written.
    pub fn rows(&self, collection: &str) -> Vec<String> {
        self.written.rows(collection)
    }

    pub fn whereabouts(&self, collection: &str, row: &str) -> Whereabouts {
        let stale = self.stale.iter().flat_map(|stale| &stale.recent);
        self.written.whereabouts(collection, row, stale)
    }

    /// What a session has open at the hosts.
    pub fn open_of(&self, user: usize, session: &[u8]) -> Vec<String> {
        let session = (user, session.to_vec());
        let cursors = self.hosts.iter().enumerate().flat_map(|(host, at)| {
            let own = at.cursors.iter().filter(|(_, cursor)| cursor.is_of(&session));
            own.map(move |(id, _)| format!("cursor {id} at host {host}"))
        });
        cursors.chain(self.transactions.open_of(&session)).collect()
    }

    /// Hosts that no monitor has asked for this long.
    pub fn unwatched(&self, long: Duration) -> Vec<String> {
        let hosts = self.hosts.iter().take(if self.kind == Kind::Standalone { 1 } else { HOSTS }).enumerate();
        let unwatched = hosts.filter(|(_, host)| host.asked + long < self.now);
        unwatched.map(|(host, _)| format!("no monitor asks host {host} what it is")).collect()
    }

    pub fn on_tick(&mut self, now: Duration) {
        self.now = self.now.max(now);
    }

    fn say(&mut self, to: Connection, answers: Answers, said: &[u8]) {
        if let Some(session) = self.sessions.get_mut(&to) {
            session.waits = false;
        }
        let mut bytes = Vec::new();
        wire::answer(&mut bytes, answers, |answer| {
            for element in Document::read(said).expect("it was just written").elements() {
                answer.copy(&element.expect("it was just written"));
            }
        });
        self.output.push((to, bytes));
    }

    /// Carries out what has come, one request after the other.
    fn read_on(&mut self, connection: Connection) {
        while let Some(session) = self.sessions.get_mut(&connection).filter(|session| !session.waits) {
            match message::next(&session.input) {
                Next::Incomplete => return,
                Next::Malformed => return self.drop_session(connection),
                Next::Whole(length) => {
                    let message: Vec<u8> = session.input.drain(..length).collect();
                    self.see(connection, &message);
                    self.hear(connection, &message);
                    self.feed_streams();
                }
            }
        }
    }

    /// So many of a user may wait for what others may write, at each host.
    pub fn limit_streams(&mut self, most: usize) {
        self.streams.most = Some(most);
    }

    /// A session ends, and its connection with it.
    fn drop_session(&mut self, connection: Connection) {
        if self.sessions.remove(&connection).is_some() {
            self.closed.push(connection);
            self.transactions.give_up(connection);
            self.streams.give_up(connection);
        }
    }
}

impl Database for MongoDb {
    const HOSTS: u16 = HOSTS as u16;
    const PORTS: u16 = (HOSTS * USERS) as u16;

    fn connect(&mut self, now: Duration) -> Connection {
        self.connect_to(0, now)
    }

    fn connect_to(&mut self, port: u16, now: Duration) -> Connection {
        self.on_tick(now);
        self.last += 1;
        let (host, user) = (usize::from(port) % HOSTS, usize::from(port) / HOSTS);
        if self.hosts[host].down.is_some() {
            self.closed.push(self.last);
        } else {
            self.sessions.insert(self.last, Session { host, user, input: Vec::new(), waits: false });
        }
        self.last
    }

    fn disturb(&mut self, lot: u64, gently: bool, now: Duration) {
        self.on_tick(now);
        self.upset(lot, gently);
    }

    fn taken_back(&self) -> u64 {
        self.written.rolled_back()
    }

    fn receive(&mut self, connection: Connection, bytes: &[u8], now: Duration) {
        self.on_tick(now);
        self.ambush.take_if(|until| *until < now);
        let Some(session) = self.sessions.get_mut(&connection) else { return };
        session.input.extend(bytes);
        self.read_on(connection);
    }

    fn hang_up(&mut self, connection: Connection, now: Duration) {
        self.on_tick(now);
        self.sessions.remove(&connection);
        self.transactions.give_up(connection);
        self.streams.give_up(connection);
    }

    fn due(&self) -> Option<Duration> {
        let downs = self.hosts.iter().filter_map(|host| host.down);
        let stale = self.stale.as_ref().map(|stale| stale.until);
        let election = self.election.map(|election| election.0);
        let others = [election, stale, self.transactions.due(), self.written.due(), self.streams.due()];
        downs.chain(others.into_iter().flatten()).min()
    }

    fn tick(&mut self, now: Duration) {
        self.on_tick(now);
        self.settle();
    }

    fn take_output(&mut self) -> Vec<(Connection, Vec<u8>)> {
        std::mem::take(&mut self.output)
    }

    fn take_closed(&mut self) -> Vec<Connection> {
        std::mem::take(&mut self.closed)
    }

    fn kill(&mut self, connection: Connection, _: bool, _: Duration) {
        self.drop_session(connection);
    }

    fn open(&self) -> Vec<Connection> {
        self.sessions.keys().copied().collect()
    }
}

/// The connections that speak with a host.
fn at_host(sessions: &BTreeMap<Connection, Session>, host: usize) -> BTreeSet<Connection> {
    sessions.iter().filter(|(_, session)| session.host == host).map(|(connection, _)| *connection).collect()
}
