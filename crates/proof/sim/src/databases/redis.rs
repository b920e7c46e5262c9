//! Model of Redis 7.0: one server without replicas, with its commands, scripts and subscriptions as far as
//! the simulator needs them. It answers in the very bytes of the real one. It knows neither pools nor sockets, and
//! takes the time from its caller.
//!
//! - [`request`], [`numbers`] and [`reply`]: the protocol;
//! - [`keyspace`] and [`session`]: what is kept of keys, and of a connection;
//! - [`table`] and [`dispatch`]: which commands there are, and whether one is carried out now, later or never;
//! - [`strings`], [`lists`], [`collections`] and [`generic`]: commands on keys;
//! - [`connection`], [`clients`] and [`server`]: commands on connections, and on the server;
//! - [`transactions`], [`blocking`], [`pausing`] and [`scripts`]: what makes clients wait;
//! - [`pubsub`] and [`glob`]: subscriptions; [`tracking`]: what else is said unasked.

mod blocking;
mod clients;
mod collections;
mod connection;
mod dispatch;
mod generic;
mod glob;
mod keyspace;
mod lists;
mod numbers;
mod pausing;
mod pubsub;
mod reply;
mod request;
mod scripts;
mod server;
mod session;
mod strings;
mod table;
mod tracking;
mod transactions;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use self::{
    keyspace::{Keyspace, List, Text},
    pausing::Pause,
    reply::{Done, Refusal, Reply},
    request::Request,
    scripts::Running,
    session::{Blocked, Session},
    tracking::Invalidations,
};
use super::{Connection, Database};

pub struct Redis {
    /// Of the user `default`, who is the only one.
    password: Option<Vec<u8>>,
    keys: Keyspace,
    sessions: BTreeMap<Connection, Session>,
    next: Connection,
    now: Duration,
    output: Vec<(Connection, Vec<u8>)>,
    closed: Vec<Connection>,
    /// Who waits for which list, in order.
    waiting: BTreeMap<(usize, Vec<u8>), VecDeque<Connection>>,
    /// Lists that a client waits for, and that exist now.
    ready: VecDeque<(usize, Vec<u8>)>,
    /// Who goes on when the present one is done.
    resumed: VecDeque<Connection>,
    pause: Option<Pause>,
    /// Whose commands are held up, in order.
    postponed: VecDeque<Connection>,
    running: Option<Running>,
    /// Who has said something, or has gone, while nothing was read: in order.
    unread: VecDeque<Connection>,
    /// Scripts that are known by their sums.
    scripts: BTreeSet<&'static str>,
    /// Who hears channels, patterns and channels of shards: in the order of their subscriptions.
    listeners: [BTreeMap<Vec<u8>, Vec<Connection>>; 3],
    invalidations: Invalidations,
    /// Whose command is being carried out.
    at_work: Option<Connection>,
}

impl Redis {
    /// One without keys. `password`: what everybody has to say at first.
    pub fn new(password: Option<&str>) -> Self {
        Self {
            password: password.map(|password| password.as_bytes().to_vec()),
            keys: Keyspace::default(),
            sessions: BTreeMap::new(),
            next: 1,
            now: Duration::ZERO,
            output: Vec::new(),
            closed: Vec::new(),
            waiting: BTreeMap::new(),
            ready: VecDeque::new(),
            resumed: VecDeque::new(),
            pause: None,
            postponed: VecDeque::new(),
            running: None,
            unread: VecDeque::new(),
            scripts: BTreeSet::new(),
            listeners: Default::default(),
            invalidations: Invalidations::default(),
            at_work: None,
        }
    }

    /// The text at a key of the first database.
    pub fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.keys.find::<Text>(0, key).ok().flatten().cloned()
    }

    /// The list at a key of the first database; empty if there is none.
    pub fn list(&self, key: &[u8]) -> Vec<Vec<u8>> {
        self.keys.find::<List>(0, key).ok().flatten().into_iter().flatten().cloned().collect()
    }

    /// What this connection has that one would not have which has just been made and has logged in. Which version of
    /// the protocol it speaks is not told.
    pub fn leftovers(&self, connection: Connection) -> Vec<String> {
        self.sessions.get(&connection).map(Session::leftovers).unwrap_or_default()
    }

    /// The time in milliseconds.
    fn milliseconds(&self) -> u64 {
        self.now.as_millis() as u64
    }

    fn session(&mut self, me: Connection) -> &mut Session {
        self.sessions.get_mut(&me).expect("who is at work is there")
    }

    /// In which database a connection is.
    fn database(&self, me: Connection) -> usize {
        self.sessions[&me].database
    }

    /// Says what was asked for, unless it was asked not to.
    fn say(&mut self, to: Connection, bytes: Vec<u8>) {
        if self.sessions.get(&to).is_some_and(|session| !session.silence.off && !session.silence.now) {
            self.push(to, bytes);
        }
    }

    /// Says what was not asked for.
    fn push(&mut self, to: Connection, bytes: Vec<u8>) {
        match self.output.last_mut() {
            _ if bytes.is_empty() || self.sessions.get(&to).is_none_or(|session| session.closing) => {}
            Some((last, said)) if *last == to => said.extend(bytes),
            _ => self.output.push((to, bytes)),
        }
    }

    fn refuse(&mut self, to: Connection, why: &Refusal) {
        let mut reply = Reply::new(2);
        reply.error(why);
        self.say(to, reply.bytes);
    }

    /// Closes a connection, behind what was said there.
    fn close(&mut self, connection: Connection) {
        if self.forget(connection) {
            self.closed.push(connection);
        }
    }

    /// Closes a connection when what it is told now has reached it. Redis forgets to, if it is told nothing: then it is
    /// only not heard any more.
    fn close_after_reply(&mut self, connection: Connection) {
        let session = self.session(connection);
        session.closing = true;
        if !session.silence.off && !session.silence.now {
            self.close(connection);
        }
    }

    /// A connection is no more. False if it was not there.
    fn forget(&mut self, connection: Connection) -> bool {
        if !self.sessions.contains_key(&connection) {
            return false;
        }
        self.unregister(connection);
        self.unsubscribe_silently(connection);
        self.postponed.retain(|other| *other != connection);
        self.resumed.retain(|other| *other != connection);
        self.sessions.remove(&connection);
        true
    }

    /// Carries out what a connection has asked, as far as it can be.
    fn read(&mut self, me: Connection) {
        let mut input = Vec::new();
        let mut at = 0;
        loop {
            let logged_out = self.password.is_some();
            let frozen = self.is_frozen();
            let Some(session) = self.sessions.get_mut(&me) else { return };
            if at == input.len() {
                input = std::mem::take(&mut session.input);
                at = 0;
            }
            if session.blocked.is_some() || session.postponed.is_some() || session.closing || frozen {
                break;
            }
            match request::read(&input[at..], logged_out && !session.known) {
                Ok(Request::Incomplete) => break,
                Ok(Request::Command(taken, words)) => {
                    at += taken;
                    if !words.is_empty() {
                        self.command(me, words);
                    }
                }
                Err(why) => {
                    self.refuse(me, &why);
                    return self.close_after_reply(me);
                }
            }
        }
        if let Some(session) = self.sessions.get_mut(&me) {
            input.drain(..at);
            input.append(&mut session.input);
            session.input = input;
        }
    }

    /// Those who may go on do so.
    fn settle(&mut self) {
        loop {
            match &self.running {
                Some(running) if running.killed => self.end_script(),
                Some(_) => return,
                None => match self.resumed.pop_front() {
                    Some(me) => {
                        if let Some(words) = self.sessions.get_mut(&me).and_then(|session| session.postponed.take()) {
                            self.command(me, words);
                        }
                        self.read(me);
                    }
                    None => return self.broadcast(),
                },
            }
        }
    }

    /// It is so late now: what is due is done.
    fn advance(&mut self, now: Duration) {
        self.now = self.now.max(now);
        for (database, key) in self.keys.expire(self.milliseconds()) {
            self.touch(database, &key);
        }
        self.become_busy();
        if self.running.is_none() {
            self.end_waits();
            self.end_pause();
        }
        self.settle();
    }
}

impl Database for Redis {
    fn connect(&mut self, now: Duration) -> Connection {
        self.advance(now);
        let connection = self.next;
        self.next += 1;
        self.sessions.insert(connection, Session::new(self.password.is_none(), self.now));
        connection
    }

    fn receive(&mut self, connection: Connection, bytes: &[u8], now: Duration) {
        self.advance(now);
        let Some(session) = self.sessions.get_mut(&connection).filter(|session| !session.gone) else { return };
        session.input.extend_from_slice(bytes);
        if self.is_frozen() {
            self.unread.push_back(connection);
        } else {
            self.read(connection);
            self.settle();
        }
    }

    fn hang_up(&mut self, connection: Connection, now: Duration) {
        self.advance(now);
        let frozen = self.is_frozen();
        let Some(session) = self.sessions.get_mut(&connection) else { return };
        if matches!(session.blocked, Some(Blocked::Script)) {
            session.gone = true;
        } else if frozen {
            session.gone = true;
            self.unread.push_back(connection);
        } else {
            self.forget(connection);
        }
    }

    fn due(&self) -> Option<Duration> {
        if let Some(running) = &self.running {
            return running.busy_at();
        }
        let waits = self.sessions.values().filter_map(|session| session.blocked.as_ref()?.until());
        waits.chain(self.pause.as_ref().map(|pause| pause.until)).min()
    }

    fn tick(&mut self, now: Duration) {
        self.advance(now);
    }

    fn take_output(&mut self) -> Vec<(Connection, Vec<u8>)> {
        // What was said in the turn in which a script began leaves when others are heard again; to whom runs it, when
        // it ends.
        let Some(running) = &self.running else { return std::mem::take(&mut self.output) };
        let (frozen, runner) = (self.is_frozen(), running.me);
        let kept = |(to, _): &(Connection, Vec<u8>)| frozen || *to == runner;
        let (kept, said) = std::mem::take(&mut self.output).into_iter().partition(kept);
        self.output = kept;
        said
    }

    fn take_closed(&mut self) -> Vec<Connection> {
        std::mem::take(&mut self.closed)
    }

    fn kill(&mut self, connection: Connection, _politely: bool, now: Duration) {
        self.advance(now);
        self.close(connection);
    }

    fn open(&self) -> Vec<Connection> {
        self.sessions.iter().filter(|(_, session)| !session.gone).map(|(connection, _)| *connection).collect()
    }
}

#[cfg(test)]
mod tests;
