//! Model of a PostgreSQL server: it speaks the protocol, and knows the SQL that Poolhouse and the simulated clients
//! send. It refuses any other SQL with error 42601. It knows neither pools nor sockets, and takes the time from its
//! caller.

mod analysis;
mod copy;
mod execute;
mod expression_parser;
mod extended;
mod failure;
mod functions;
mod messages;
mod parameters;
mod parser;
mod pooler_queries;
mod pooler_statements;
mod session;
mod settings;
mod shared;
mod simple;
mod sql;
mod token_reader;
mod tokens;
mod values;
mod waits;
mod wire;

use std::{collections::BTreeMap, time::Duration};

use self::{
    failure::Failure,
    session::{Block, Phase, Session},
    shared::Shared,
};
use super::{Connection, Database};

#[derive(Default)]
pub struct Postgres {
    sessions: BTreeMap<Connection, Session>,
    shared: Shared,
    /// Number of connections so far.
    count: Connection,
    output: Vec<(Connection, Vec<u8>)>,
    closed: Vec<Connection>,
    /// Its configuration changes `IntervalStyle` from time to time.
    changes_configuration: bool,
}

impl Postgres {
    pub fn new() -> Self {
        Self::default()
    }

    /// A server whose configuration changes from time to time.
    pub fn with_changing_configuration() -> Self {
        Self { changes_configuration: true, ..Self::default() }
    }

    /// The committed rows, in the order of their insertion.
    pub fn ledger(&self) -> Vec<(String, i64)> {
        self.shared.ledger()
    }

    /// Whether a session is in a transaction block, which may have failed.
    pub fn in_transaction(&self, connection: Connection) -> bool {
        let open = |session: &Session| matches!(session.block, Block::Open | Block::Failed);
        self.sessions.get(&connection).is_some_and(open)
    }

    /// Whether a session is one for replication.
    pub fn is_for_replication(&self, connection: Connection) -> bool {
        self.sessions.get(&connection).is_some_and(|session| session.replication)
    }

    /// State that a new session would not have, except statements that were prepared by messages, and empty custom
    /// parameters, which no SQL removes.
    pub fn leftovers(&self, connection: Connection) -> Vec<String> {
        self.sessions.get(&connection).map(|session| session.leftovers(&self.shared)).unwrap_or_default()
    }

    /// Acts on a session, and then on sessions that this concerns.
    fn with(&mut self, connection: Connection, now: Duration, act: impl FnOnce(&mut Session, &mut Shared)) {
        let Some(session) = self.sessions.get_mut(&connection) else { return };
        session.now = now;
        act(session, &mut self.shared);
        self.work(connection);
        self.settle(now);
    }

    /// Runs a session as far as possible.
    fn work(&mut self, connection: Connection) {
        let Some(session) = self.sessions.get_mut(&connection) else { return };
        let now = session.now;
        let cancel = session.work(&mut self.shared);
        self.collect(connection);
        if let Some((pid, secret)) = cancel {
            let meant = |session: &&mut Session| (session.pid, session.secret) == (pid, secret);
            if let Some(session) = self.sessions.values_mut().find(meant) {
                session.now = now;
                let me = session.id;
                if session.cancel(&mut self.shared) {
                    self.work(me);
                }
            }
        }
    }

    /// Takes the output of a session, and removes it if it is over.
    fn collect(&mut self, connection: Connection) {
        let Some(session) = self.sessions.get_mut(&connection) else { return };
        if session.is_at_rest() && !session.inbox.is_empty() {
            session.send_notifications();
            session.flush();
        }
        if session.phase == Phase::Over {
            session.let_go(&mut self.shared);
        }
        if !session.output.is_empty() {
            self.output.push((connection, std::mem::take(&mut session.output)));
        }
        if session.phase == Phase::Over {
            self.sessions.remove(&connection);
            self.closed.push(connection);
        }
    }

    /// Delivers notifications and grants locks until no session has work.
    fn settle(&mut self, now: Duration) {
        loop {
            for notification in std::mem::take(&mut self.shared.notifications) {
                let listens = |session: &&mut Session| {
                    session.pid != notification.pid
                        && session.database == notification.database
                        && session.channels.contains(&notification.channel)
                };
                let mut notified = Vec::new();
                for session in self.sessions.values_mut().filter(listens) {
                    session.inbox.push(notification.clone());
                    notified.push(session.id);
                }
                notified.into_iter().for_each(|connection| self.collect(connection));
            }
            let Some(next) = self.shared.granted.pop_front() else { return };
            if let Some(session) = self.sessions.get_mut(&next) {
                session.now = now;
                session.take_lock();
                self.work(next);
            }
        }
    }
}

impl Database for Postgres {
    fn connect(&mut self, now: Duration) -> Connection {
        self.count += 1;
        let session = Session { changes_configuration: self.changes_configuration, ..Session::new(self.count, now) };
        self.sessions.insert(self.count, session);
        self.count
    }

    fn receive(&mut self, connection: Connection, bytes: &[u8], now: Duration) {
        self.with(connection, now, |session, _| session.input.extend_from_slice(bytes));
    }

    fn hang_up(&mut self, connection: Connection, now: Duration) {
        if let Some(mut session) = self.sessions.remove(&connection) {
            session.let_go(&mut self.shared);
            self.settle(now);
        }
    }

    fn due(&self) -> Option<Duration> {
        self.sessions.values().filter_map(Session::due).min()
    }

    fn tick(&mut self, now: Duration) {
        let due = |session: &&Session| session.due().is_some_and(|due| due <= now);
        let all: Vec<Connection> = self.sessions.values().filter(due).map(|session| session.id).collect();
        for connection in all {
            self.with(connection, now, |session, _| session.tick());
        }
    }

    fn take_output(&mut self) -> Vec<(Connection, Vec<u8>)> {
        std::mem::take(&mut self.output)
    }

    fn take_closed(&mut self) -> Vec<Connection> {
        std::mem::take(&mut self.closed)
    }

    fn kill(&mut self, connection: Connection, politely: bool, now: Duration) {
        self.with(connection, now, |session, _| {
            if politely {
                session.end_with(Failure::new("57P01", "terminating connection due to administrator command"));
            } else {
                session.buffer.clear();
                session.phase = Phase::Over;
            }
        });
    }

    fn is_cleaning(&self, connection: Connection, bytes: &[u8]) -> bool {
        let begins = |place: usize, with: &[u8]| bytes.get(place..).is_some_and(|rest| rest.starts_with(with));
        // Only the pooler's statements have such names, and only the pooler closes the unnamed statement right after a
        // DISCARD ALL.
        let kept = begins(0, b"B") && bytes.get(6..).is_some_and(|name| name.starts_with(b"poolhouse_"))
            || begins(0, b"P") && begins(5, b"poolhouse_");
        let name = bytes.get(5..).unwrap_or_default().split(|byte| *byte == 0).find(|name| !name.is_empty());
        let ours = kept && name.is_some_and(|name| name.ends_with(b"_0000"))
            || begins(5, b"\0DISCARD ALL\0") && begins(43, b"C")
            || begins(5, b"\0BEGIN ISOLATION LEVEL READ COMMITTED, NOT DEFERRABLE\0");
        ours && !self.in_transaction(connection)
    }

    fn counts_as_session(&self, connection: Connection) -> bool {
        self.sessions.get(&connection).is_some_and(|session| session.phase == Phase::Ready)
    }

    fn most_sessions_of_a_user(&self) -> usize {
        let mut sessions: BTreeMap<&str, usize> = BTreeMap::new();
        for session in self.sessions.values().filter(|session| session.phase == Phase::Ready) {
            *sessions.entry(&session.user).or_default() += 1;
        }
        sessions.into_values().max().unwrap_or(0)
    }

    fn open_connections(&self) -> Vec<Connection> {
        self.sessions.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests;
