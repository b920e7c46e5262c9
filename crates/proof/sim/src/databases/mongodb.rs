//! Model of MongoDB: a standalone server, a replica set of three hosts with elections, or three mongos. It speaks the
//! real wire protocol, and knows the commands that the simulator needs. It knows neither pools nor sockets.
//!
//! No election loses rows that a majority has, so all hosts share the collections. A write with a weaker concern is
//! acknowledged earlier, and may be rolled back. Each host has the role in which it acts, open transactions, and
//! cursors. All hosts give their cursors the same numbers.
//!
//! Every user has a port of its own at every host, which shows the user of a connection without a login.
//!
//! - [`message`] parses requests and their sections;
//! - [`hello`] answers `hello`;
//! - [`commands`] dispatches all commands;
//! - [`writes`] keeps the rows, and recognises retried writes;
//! - [`transactions`] has the open transactions, their lock, and the requests that wait for it;
//! - [`pooler_checks`] sees what no pooler may do;
//! - [`cursors`] returns batches;
//! - [`streams`] returns awaited batches (`awaitData`), and all batches for one request (`exhaustAllowed`);
//! - [`elections`] has all events among the hosts.

mod commands;
mod cursors;
mod elections;
mod errors;
mod hello;
mod message;
mod pooler_checks;
mod streams;
#[cfg(test)]
mod tests;
mod transactions;
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
    cursors::Cursor, elections::Stale, message::Next, pooler_checks::PoolerChecks, streams::Streams,
    transactions::Transactions, writes::Written,
};
pub use self::{
    pooler_checks::{ASKED, FIRST_ID},
    transactions::HOT,
    writes::RowState,
};
use super::{Connection, Database};

/// Number of hosts of a replica set, and of mongos.
pub const HOSTS: usize = 3;

/// Number of users. The ports of the first user come first.
pub const USERS: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Standalone,
    Set,
    Sharded,
}

/// The id of the first cursor of each host.
const FIRST_CURSOR: i64 = 1001;

pub struct MongoDb {
    /// The reference of a client: a mongos or a standalone server without events.
    is_reference: bool,
    kind: Kind,
    hosts: [Host; HOSTS],
    sessions: BTreeMap<Connection, Session>,
    last: Connection,
    primary: Option<usize>,
    term: u64,
    /// Version of the configuration of the replica set.
    version: i32,
    /// When the next primary is elected, and the preferred host.
    election: Option<(Duration, usize)>,
    /// A former primary that does not know of its successor.
    stale: Option<Stale>,
    /// Until this time, the session of the next executed write ends without an answer.
    answer_lost_until: Option<Duration>,
    written: Written,
    transactions: Transactions,
    pooler_checks: PoolerChecks,
    streams: Streams,
    now: Duration,
    output: Vec<(Connection, Vec<u8>)>,
    closed: Vec<Connection>,
}

/// A host, as far as it has state of its own.
#[derive(Default)]
struct Host {
    cursors: BTreeMap<i64, Cursor>,
    /// Number of cursors opened so far.
    cursors_opened: i64,
    down_until: Option<Duration>,
    /// Time of the last `hello`.
    last_hello: Duration,
}

struct Session {
    host: usize,
    user: usize,
    input: Vec<u8>,
    /// A request is not answered yet.
    waits: bool,
}

fn document(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut Writer::new(&mut bytes));
    bytes
}

impl MongoDb {
    fn with_role(is_reference: bool, kind: Kind) -> Self {
        Self {
            is_reference,
            kind,
            hosts: <[Host; HOSTS]>::default(),
            sessions: BTreeMap::new(),
            last: 0,
            primary: Some(0),
            term: 1,
            version: 1,
            election: None,
            stale: None,
            answer_lost_until: None,
            written: Written::default(),
            transactions: Transactions::default(),
            pooler_checks: PoolerChecks::default(),
            streams: Streams::default(),
            now: Duration::ZERO,
            output: Vec::new(),
            closed: Vec::new(),
        }
    }

    pub fn new(kind: Kind) -> Self {
        Self::with_role(false, kind)
    }

    /// A reference for a client of such a deployment.
    pub fn reference(kind: Kind) -> Self {
        Self::with_role(true, kind)
    }

    /// The rows of a collection that a majority has, in the order of their writing.
    pub fn rows(&self, collection: &str) -> Vec<String> {
        self.written.rows(collection)
    }

    pub fn row_state(&self, collection: &str, row: &str) -> RowState {
        let stale = self.stale.iter().flat_map(|stale| &stale.recent);
        self.written.row_state(collection, row, stale)
    }

    /// Cursors and transactions of a session.
    pub fn open_of(&self, user: usize, session: &[u8]) -> Vec<String> {
        let session = (user, session.to_vec());
        let cursors = self.hosts.iter().enumerate().flat_map(|(host, at)| {
            let own = at.cursors.iter().filter(|(_, cursor)| cursor.is_of(&session));
            own.map(move |(id, _)| format!("cursor {id} at host {host}"))
        });
        cursors.chain(self.transactions.open_of(&session)).collect()
    }

    /// Hosts without a `hello` for this long.
    pub fn unwatched(&self, long: Duration) -> Vec<String> {
        let hosts = self.hosts.iter().take(if self.kind == Kind::Standalone { 1 } else { HOSTS }).enumerate();
        let unwatched = hosts.filter(|(_, host)| host.last_hello + long < self.now);
        unwatched.map(|(host, _)| format!("no monitor watches host {host}")).collect()
    }

    pub fn advance_clock(&mut self, now: Duration) {
        self.now = self.now.max(now);
    }

    fn send_answer(&mut self, to: Connection, answers: Answers, said: &[u8]) {
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

    /// Executes the complete requests of a session, until one has to wait.
    fn read_on(&mut self, connection: Connection) {
        while let Some(session) = self.sessions.get_mut(&connection).filter(|session| !session.waits) {
            match message::next(&session.input) {
                Next::Incomplete => return,
                Next::Malformed => return self.drop_session(connection),
                Next::Whole(length) => {
                    let message: Vec<u8> = session.input.drain(..length).collect();
                    self.check_request(connection, &message);
                    self.handle(connection, &message);
                    self.feed_streams();
                }
            }
        }
    }

    /// Limits the awaited batches of a user at each host.
    pub fn limit_streams(&mut self, most: usize) {
        self.streams.most = Some(most);
    }

    /// Ends a session and closes its connection.
    fn drop_session(&mut self, connection: Connection) {
        if self.sessions.remove(&connection).is_some() {
            self.closed.push(connection);
            self.transactions.forget_connection(connection);
            self.streams.forget_connection(connection);
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
        self.advance_clock(now);
        self.last += 1;
        let (host, user) = (usize::from(port) % HOSTS, usize::from(port) / HOSTS);
        if self.hosts[host].down_until.is_some() {
            self.closed.push(self.last);
        } else {
            self.sessions.insert(self.last, Session { host, user, input: Vec::new(), waits: false });
        }
        self.last
    }

    fn disturb(&mut self, lot: u64, gently: bool, now: Duration) {
        self.advance_clock(now);
        self.change_hosts(lot, gently);
    }

    fn rolled_back(&self) -> u64 {
        self.written.rolled_back()
    }

    fn receive(&mut self, connection: Connection, bytes: &[u8], now: Duration) {
        self.advance_clock(now);
        self.answer_lost_until.take_if(|until| *until < now);
        let Some(session) = self.sessions.get_mut(&connection) else { return };
        session.input.extend(bytes);
        self.read_on(connection);
    }

    fn hang_up(&mut self, connection: Connection, now: Duration) {
        self.advance_clock(now);
        self.sessions.remove(&connection);
        self.transactions.forget_connection(connection);
        self.streams.forget_connection(connection);
    }

    fn due(&self) -> Option<Duration> {
        let downs = self.hosts.iter().filter_map(|host| host.down_until);
        let stale = self.stale.as_ref().map(|stale| stale.until);
        let election = self.election.map(|election| election.0);
        let others = [election, stale, self.transactions.due(), self.written.due(), self.streams.due()];
        downs.chain(others.into_iter().flatten()).min()
    }

    fn tick(&mut self, now: Duration) {
        self.advance_clock(now);
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

    fn open_connections(&self) -> Vec<Connection> {
        self.sessions.keys().copied().collect()
    }
}

/// The connections to a host.
fn at_host(sessions: &BTreeMap<Connection, Session>, host: usize) -> BTreeSet<Connection> {
    sessions.iter().filter(|(_, session)| session.host == host).map(|(connection, _)| *connection).collect()
}
