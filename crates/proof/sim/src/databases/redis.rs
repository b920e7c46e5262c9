//! Model of Redis 7.0: one server without replicas, with the commands, scripts and subscriptions that the simulated
//! clients and the pooler use. It answers in the bytes of the real one. It knows neither pools nor sockets, and takes
//! the time from its caller.
//!
//! - [`request`], [`arguments`] and [`reply`]: the protocol;
//! - [`keyspace`] and [`session`]: the state of keys, and of a connection;
//! - [`commands`] and [`dispatch`]: which commands there are, and whether one is run, queued or refused;
//! - [`strings`], [`lists`] and [`keys`]: commands on keys;
//! - [`connection`]: commands on the connection itself;
//! - [`transactions`], [`blocking`], [`scripts`] and [`pubsub`].

mod arguments;
mod blocking;
mod commands;
mod connection;
mod dispatch;
mod keys;
mod keyspace;
mod lists;
mod pubsub;
mod reply;
mod request;
mod scripts;
mod session;
mod strings;
mod transactions;

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use self::{
    keyspace::{Keyspace, List},
    reply::{Done, Refusal, Reply},
    request::Request,
    session::Session,
};
use super::{Connection, Database};

#[derive(Default)]
pub struct Redis {
    keys: Keyspace,
    sessions: BTreeMap<Connection, Session>,
    /// Number of connections so far.
    count: Connection,
    now: Duration,
    output: Vec<(Connection, Vec<u8>)>,
    closed: Vec<Connection>,
    /// Connections that wait for a list, in order.
    waiting: BTreeMap<(usize, Vec<u8>), VecDeque<Connection>>,
    /// Lists that a connection waits for, and that exist now.
    ready: VecDeque<(usize, Vec<u8>)>,
    /// Connections whose wait is over, and whose further commands are still to be read.
    resumed: VecDeque<Connection>,
    /// Subscribers of each channel, in the order of their subscriptions.
    subscribers: BTreeMap<Vec<u8>, Vec<Connection>>,
}

impl Redis {
    /// The list at a key of the first database; empty if there is none.
    pub fn list(&self, key: &[u8]) -> Vec<Vec<u8>> {
        self.keys.find::<List>(0, key).ok().flatten().into_iter().flatten().cloned().collect()
    }

    /// State that a new connection would not have, except the protocol version, the database and the name: the pooler
    /// sets those for the next client.
    pub fn leftovers(&self, connection: Connection) -> Vec<String> {
        self.sessions.get(&connection).map(Session::leftovers).unwrap_or_default()
    }

    fn session(&mut self, client: Connection) -> &mut Session {
        self.sessions.get_mut(&client).expect("a command's connection is open")
    }

    /// The selected database of a connection.
    fn database(&self, client: Connection) -> usize {
        self.sessions[&client].database
    }

    fn send(&mut self, to: Connection, bytes: Vec<u8>) {
        match self.output.last_mut() {
            _ if bytes.is_empty() || self.sessions.get(&to).is_none_or(|session| session.closing) => {}
            Some((last, sent)) if *last == to => sent.extend(bytes),
            _ => self.output.push((to, bytes)),
        }
    }

    fn refuse(&mut self, to: Connection, why: &Refusal) {
        let mut reply = Reply::new(2);
        reply.error(why);
        self.send(to, reply.bytes);
    }

    /// Closes a connection after the replies sent so far.
    fn close(&mut self, connection: Connection) {
        if self.forget(connection) {
            self.closed.push(connection);
        }
    }

    fn close_after_reply(&mut self, connection: Connection) {
        self.session(connection).closing = true;
        self.close(connection);
    }

    /// Ends a session. Returns whether there was one.
    fn forget(&mut self, connection: Connection) -> bool {
        if !self.sessions.contains_key(&connection) {
            return false;
        }
        self.leave_queues(connection);
        self.end_subscriptions(connection);
        self.resumed.retain(|other| *other != connection);
        self.sessions.remove(&connection);
        true
    }

    /// Runs the complete commands of a connection's input, until one blocks.
    fn read(&mut self, client: Connection) {
        let mut input = Vec::new();
        let mut at = 0;
        loop {
            let Some(session) = self.sessions.get_mut(&client) else { return };
            if at == input.len() {
                input = std::mem::take(&mut session.input);
                at = 0;
            }
            if session.blocked.is_some() || session.closing {
                break;
            }
            match request::read(&input[at..]) {
                Ok(Request::Incomplete) => break,
                Ok(Request::Command(taken, words)) => {
                    at += taken;
                    if !words.is_empty() {
                        self.command(client, words);
                    }
                }
                Err(why) => {
                    self.refuse(client, &why);
                    return self.close_after_reply(client);
                }
            }
        }
        if let Some(session) = self.sessions.get_mut(&client) {
            input.drain(..at);
            input.append(&mut session.input);
            session.input = input;
        }
    }

    fn read_resumed(&mut self) {
        while let Some(client) = self.resumed.pop_front() {
            self.read(client);
        }
    }

    /// Sets the time, and ends the waits that are over.
    fn advance(&mut self, now: Duration) {
        self.now = self.now.max(now);
        self.end_waits();
        self.read_resumed();
    }
}

impl Database for Redis {
    fn connect(&mut self, now: Duration) -> Connection {
        self.advance(now);
        self.count += 1;
        self.sessions.insert(self.count, Session::new());
        self.count
    }

    fn receive(&mut self, connection: Connection, bytes: &[u8], now: Duration) {
        self.advance(now);
        let Some(session) = self.sessions.get_mut(&connection) else { return };
        session.input.extend_from_slice(bytes);
        self.read(connection);
        self.read_resumed();
    }

    fn hang_up(&mut self, connection: Connection, now: Duration) {
        self.advance(now);
        self.forget(connection);
    }

    fn due(&self) -> Option<Duration> {
        self.sessions.values().filter_map(|session| session.blocked.as_ref()?.until).min()
    }

    fn tick(&mut self, now: Duration) {
        self.advance(now);
    }

    fn take_output(&mut self) -> Vec<(Connection, Vec<u8>)> {
        std::mem::take(&mut self.output)
    }

    fn take_closed(&mut self) -> Vec<Connection> {
        std::mem::take(&mut self.closed)
    }

    fn kill(&mut self, connection: Connection, _politely: bool, now: Duration) {
        self.advance(now);
        self.close(connection);
    }

    fn open_connections(&self) -> Vec<Connection> {
        self.sessions.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests;
