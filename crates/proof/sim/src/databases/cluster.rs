//! The database of the toy for a cluster: three hosts that hold the same rows, of which one is the primary and takes
//! writes. What is written is on all hosts at once. For a player it is a single host, always the primary.

use std::{collections::BTreeMap, time::Duration};

use super::{Connection, Database};

const HOSTS: usize = 3;

#[derive(Default)]
pub struct Cluster {
    /// It belongs to one player.
    own: bool,
    term: u64,
    primary: Option<usize>,
    /// When there is to be a primary again, and which.
    election: Option<(Duration, usize)>,
    /// Until when each host is down.
    down: [Option<Duration>; HOSTS],
    /// Until then: the next write is carried out, and its session dies before it says so.
    ambush: Option<Duration>,
    sessions: BTreeMap<Connection, Session>,
    last: Connection,
    /// All that was ever written, in order.
    writes: Vec<(String, String)>,
    output: Vec<(Connection, Vec<u8>)>,
    closed: Vec<Connection>,
}

struct Session {
    host: usize,
    input: Vec<u8>,
    watches: bool,
}

impl Cluster {
    /// Three hosts, without a primary for the moment.
    pub fn new() -> Self {
        Self { election: Some((Duration::from_millis(1), 0)), ..Self::default() }
    }

    pub fn own() -> Self {
        Self { own: true, primary: Some(0), ..Self::default() }
    }

    /// What was written under keys that begin so, in order.
    pub fn written(&self, prefix: &str) -> Vec<String> {
        let ours = self.writes.iter().filter(|(key, _)| key.starts_with(prefix));
        ours.map(|(key, value)| format!("{key}={value}")).collect()
    }

    /// How many sessions are told of changes.
    pub fn watched(&self) -> usize {
        self.sessions.values().filter(|session| session.watches).count()
    }

    fn say(&mut self, to: Connection, what: &str) {
        self.output.push((to, format!("{what}\n").into_bytes()));
    }

    fn role(&self, host: usize) -> String {
        let role = if self.primary == Some(host) { "primary" } else { "secondary" };
        format!("{role} {}", self.term)
    }

    /// From now on this host is the primary, or none.
    fn turn_to(&mut self, primary: Option<usize>) {
        self.term += 1;
        self.primary = primary;
        let watchers: Vec<_> = self.sessions.iter().filter(|s| s.1.watches).map(|s| (*s.0, s.1.host)).collect();
        watchers.into_iter().for_each(|(to, host)| self.say(to, &format!("*{}", self.role(host))));
    }

    fn request(&mut self, from: Connection, line: &str) {
        let session = self.sessions.get_mut(&from).expect("it speaks");
        let host = session.host;
        let words: Vec<&str> = line.split(' ').collect();
        let not_primary = self.primary != Some(host);
        let answer = match words[..] {
            ["PING"] => "=pong".into(),
            ["WATCH"] => {
                session.watches = true;
                format!("*{}", self.role(host))
            }
            ["PUT", ..] | ["GET", _, "primary"] if not_primary => format!("!secondary {}", self.term),
            ["PUT", key, value] => {
                self.writes.push((key.into(), value.into()));
                if self.ambush.take().is_some() {
                    return self.end(from);
                }
                "=ok".into()
            }
            ["GET", key, "any" | "primary"] => {
                let value = self.writes.iter().rev().find(|write| write.0 == key).map_or("", |write| &write.1);
                format!("={value}")
            }
            _ if self.own => "!not understood".into(),
            _ => panic!("a host is asked {line:?}"),
        };
        self.say(from, &answer);
    }

    /// A host ends a session.
    fn end(&mut self, connection: Connection) {
        if self.sessions.remove(&connection).is_some() {
            self.closed.push(connection);
        }
    }

    fn crash(&mut self, host: usize, until: Duration) {
        let there: Vec<_> = self.sessions.iter().filter(|s| s.1.host == host).map(|s| *s.0).collect();
        there.into_iter().for_each(|connection| self.end(connection));
        self.down[host] = Some(until);
    }
}

impl Database for Cluster {
    const HOSTS: u16 = HOSTS as u16;

    fn connect(&mut self, now: Duration) -> Connection {
        self.connect_to(0, now)
    }

    fn connect_to(&mut self, host: u16, _: Duration) -> Connection {
        let host = usize::from(host);
        self.last += 1;
        if self.down[host].is_some() {
            self.closed.push(self.last);
            return self.last;
        }
        self.sessions.insert(self.last, Session { host, input: Vec::new(), watches: false });
        if !self.own {
            self.say(self.last, &format!("+{}", self.role(host)));
        }
        self.last
    }

    /// An election, a host that goes down for a while, or a session that dies at the worst moment.
    fn disturb(&mut self, lot: u64, gently: bool, now: Duration) {
        let (what, some) = (lot % 4, Duration::from_micros(lot / 12 % 20_000));
        let host = (lot / 4 % 3) as usize;
        if what == 3 && !gently {
            self.ambush = Some(now + Duration::from_millis(500));
            return;
        }
        if self.election.is_some() || self.down.iter().any(Option::is_some) {
            return;
        }
        let crashes = what == 0 && !gently;
        if crashes {
            self.crash(host, now + some * 10);
        }
        if !crashes || self.primary == Some(host) {
            let long = what == 1 && !gently;
            self.turn_to(None);
            self.election = Some((now + if long { some * 75 } else { some }, (host + 1) % HOSTS));
        }
    }

    fn receive(&mut self, connection: Connection, bytes: &[u8], now: Duration) {
        self.ambush.take_if(|until| *until < now);
        let Some(session) = self.sessions.get_mut(&connection) else { return };
        session.input.extend(bytes);
        while let Some(session) = self.sessions.get_mut(&connection) {
            let Some(end) = session.input.iter().position(|byte| *byte == b'\n') else { return };
            let line: Vec<u8> = session.input.drain(..=end).collect();
            let line = String::from_utf8(line).expect("what is sent to a host is text");
            self.request(connection, line.trim_end_matches('\n'));
        }
    }

    fn hang_up(&mut self, connection: Connection, _: Duration) {
        self.sessions.remove(&connection);
    }

    fn due(&self) -> Option<Duration> {
        let downs = self.down.iter().flatten().copied();
        downs.chain(self.election.map(|election| election.0)).min()
    }

    fn tick(&mut self, now: Duration) {
        for down in &mut self.down {
            down.take_if(|until| *until <= now);
        }
        if let Some((_, first)) = self.election.take_if(|election| election.0 <= now) {
            let up = (0..HOSTS).map(|n| (first + n) % HOSTS).find(|host| self.down[*host].is_none());
            self.turn_to(up);
        }
    }

    fn take_output(&mut self) -> Vec<(Connection, Vec<u8>)> {
        std::mem::take(&mut self.output)
    }

    fn take_closed(&mut self) -> Vec<Connection> {
        std::mem::take(&mut self.closed)
    }

    fn kill(&mut self, connection: Connection, _: bool, _: Duration) {
        self.end(connection);
    }

    fn open(&self) -> Vec<Connection> {
        self.sessions.keys().copied().collect()
    }
}
