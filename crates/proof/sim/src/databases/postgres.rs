//! Model of a PostgreSQL server: it speaks the protocol, and knows as much SQL as Poolhouse and the clients of
//! the simulator need. What it does not know it says so, with error 42601. It knows neither poolers nor sockets, and
//! has no clock but the one it is told.

mod analysis;
mod copy;
mod dialogue;
mod execute;
mod expressions;
mod extended;
mod failure;
mod functions;
mod own;
mod parameters;
mod query;
mod reading;
mod service;
mod session;
mod settings;
mod shared;
mod sql;
mod time;
mod tokens;
mod values;
mod wire;
mod words;

use std::{collections::BTreeMap, time::Duration};

use self::{
    failure::Failure,
    session::{Block, Session, Stage},
    shared::Shared,
};
use super::{Connection, Database};

#[derive(Default)]
pub struct Postgres {
    sessions: BTreeMap<Connection, Session>,
    shared: Shared,
    /// Connections that there have been.
    count: Connection,
    output: Vec<(Connection, Vec<u8>)>,
    closed: Vec<Connection>,
    /// How intervals are written is changed in its configuration now and then.
    is_reloaded: bool,
}

impl Postgres {
    /// A server without connections.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with a configuration in which it is changed now and then how intervals are written.
    pub fn reloaded() -> Self {
        Self { is_reloaded: true, ..Self::default() }
    }

    /// The rows that have been committed, in the order in which they were inserted.
    pub fn ledger(&self) -> Vec<(String, i64)> {
        self.shared.ledger()
    }

    /// Whether a transaction is open, or has failed and is not over, that its client has begun.
    pub fn in_transaction(&self, connection: Connection) -> bool {
        let open = |session: &Session| matches!(session.block, Block::Open | Block::Failed);
        self.sessions.get(&connection).is_some_and(open)
    }

    /// What the session has that one which has just begun would not have, but for statements that messages have
    /// prepared, and for names of custom parameters that are empty now: no SQL takes these back.
    pub fn leftovers(&self, connection: Connection) -> Vec<String> {
        self.sessions.get(&connection).map(|session| session.leftovers(&self.shared)).unwrap_or_default()
    }

    /// The process number that the session tells its client.
    pub fn pid(&self, connection: Connection) -> Option<u32> {
        self.sessions.get(&connection).map(|session| session.pid)
    }

    /// Has a session do something, and everybody what follows from that.
    fn with(&mut self, connection: Connection, now: Duration, act: impl FnOnce(&mut Session, &mut Shared)) {
        let Some(session) = self.sessions.get_mut(&connection) else { return };
        session.now = now;
        act(session, &mut self.shared);
        self.work(connection);
        self.settle(now);
    }

    /// Has a session go on, and looks at what has become of it.
    fn work(&mut self, connection: Connection) {
        let Some(session) = self.sessions.get_mut(&connection) else { return };
        let now = session.now;
        let cancel = session.work(&mut self.shared);
        self.look_at(connection);
        if let Some((pid, secret)) = cancel {
            let meant = |session: &&mut Session| (session.pid, session.secret) == (pid, secret);
            if let Some(session) = self.sessions.values_mut().find(meant) {
                session.now = now;
                let me = session.me;
                if session.cancel(&mut self.shared) {
                    self.work(me);
                }
            }
        }
    }

    /// Takes what a session has said, and ends it if it is over.
    fn look_at(&mut self, connection: Connection) {
        let Some(session) = self.sessions.get_mut(&connection) else { return };
        if session.is_at_rest() && !session.inbox.is_empty() {
            session.tell_notifications();
            session.flush();
        }
        if session.stage == Stage::Over {
            session.let_go(&mut self.shared);
        }
        if !session.output.is_empty() {
            self.output.push((connection, std::mem::take(&mut session.output)));
        }
        if session.stage == Stage::Over {
            self.sessions.remove(&connection);
            self.closed.push(connection);
        }
    }

    /// Hands out notifications and locks until no session has work because of another.
    fn settle(&mut self, now: Duration) {
        loop {
            for notification in std::mem::take(&mut self.shared.notifications) {
                let hears = |session: &&mut Session| {
                    session.pid != notification.pid
                        && session.database == notification.database
                        && session.channels.contains(&notification.channel)
                };
                let mut told = Vec::new();
                for session in self.sessions.values_mut().filter(hears) {
                    session.inbox.push(notification.clone());
                    told.push(session.me);
                }
                told.into_iter().for_each(|connection| self.look_at(connection));
            }
            let Some(next) = self.shared.granted.pop_front() else { return };
            if let Some(session) = self.sessions.get_mut(&next) {
                session.now = now;
                session.got_lock();
                self.work(next);
            }
        }
    }
}

impl Database for Postgres {
    fn connect(&mut self, now: Duration) -> Connection {
        self.count += 1;
        let session = Session { is_reloaded: self.is_reloaded, ..Session::new(self.count, now) };
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
        let all: Vec<Connection> = self.sessions.values().filter(due).map(|session| session.me).collect();
        for connection in all {
            self.with(connection, now, |session, shared| session.tick(shared));
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
                session.stage = Stage::Over;
            }
        });
    }

    fn is_cleaning(&self, connection: Connection, bytes: &[u8]) -> bool {
        let begins = |place: usize, with: &[u8]| bytes.get(place..).is_some_and(|rest| rest.starts_with(with));
        // Its statements for this have names that nobody else's have; and no client closes the unnamed statement at
        // once behind these.
        let kept = begins(0, b"B") && bytes.get(6..).is_some_and(|name| name.starts_with(b"poolhouse_"))
            || begins(0, b"P") && begins(5, b"poolhouse_");
        let name = bytes.get(5..).unwrap_or_default().split(|byte| *byte == 0).find(|name| !name.is_empty());
        let ours = kept && name.is_some_and(|name| name.ends_with(b"_0000"))
            || begins(5, b"\0DISCARD ALL\0") && begins(43, b"C")
            || begins(5, b"\0BEGIN ISOLATION LEVEL READ COMMITTED, NOT DEFERRABLE\0");
        ours && !self.in_transaction(connection)
    }

    fn counts(&self, connection: Connection) -> bool {
        self.sessions.get(&connection).is_some_and(|session| session.stage == Stage::Ready)
    }

    fn open(&self) -> Vec<Connection> {
        self.sessions.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests;
