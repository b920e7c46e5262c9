//! The database of the toy for a cluster: three hosts that hold the same rows, of which one is the primary and takes writes. What is written
//! is on all hosts at once. Cursors are a host's own, and numbered by each host from 1 on; a connection that ends does not end them.
//!
//! For a player it is a single host, always the primary, that numbers the cursors of each connection.

use std::{collections::BTreeMap, time::Duration};

use super::{Connection, Database};

/// Rows of one batch.
const BATCH: u32 = 3;
const HOSTS: usize = 3;

/// See the file's head.
#[derive(Default)]
pub struct Cluster {
    /// It belongs to one player.
    own: bool,
    term: u64,
    primary: Option<usize>,
    /// When there is to be a primary again, and which.
    election: Option<(Duration, usize)>,
    hosts: [Host; HOSTS],
    /// Until then: the next write is carried out, and its session dies before it says so.
    ambush: Option<Duration>,
    sessions: BTreeMap<Connection, Session>,
    last: Connection,
    /// All that was ever written, in order.
    writes: Vec<(String, String)>,
    output: Vec<(Connection, Vec<u8>)>,
    closed: Vec<Connection>,
}

#[derive(Default)]
struct Host {
    last_cursor: u32,
    cursors: BTreeMap<(Connection, u32), Cursor>,
    /// Until when it is down.
    down: Option<Duration>,
}

struct Cursor {
    label: String,
    next: u32,
    end: u32,
    /// That it exists may have been told to nobody: the connection ended behind its first batch.
    lost: bool,
}

struct Session {
    host: usize,
    input: Vec<u8>,
    /// It is told of changes.
    watches: bool,
    /// The cursor that its last request has opened.
    opened: Option<u32>,
}

impl Cluster {
    /// Three hosts, without a primary for the moment.
    pub fn new() -> Self {
        Self { election: Some((Duration::from_millis(1), 0)), ..Self::default() }
    }

    /// A host for one player.
    pub fn own() -> Self {
        Self { own: true, primary: Some(0), ..Self::default() }
    }

    /// What was written under keys that begin so, in order.
    pub fn written(&self, prefix: &str) -> Vec<String> {
        let ours = self.writes.iter().filter(|(key, _)| key.starts_with(prefix));
        ours.map(|(key, value)| format!("{key}={value}")).collect()
    }

    /// Cursors that are open though somebody was told of them.
    pub fn open_cursors(&self) -> Vec<String> {
        let hosts = self.hosts.iter().enumerate();
        let open = hosts.flat_map(|(host, at)| at.cursors.iter().map(move |((_, id), cursor)| (host, id, cursor)));
        let open = open.filter(|(.., cursor)| !cursor.lost);
        open.map(|(host, id, cursor)| format!("cursor {id} of host {host}, {}", cursor.label)).collect()
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

    /// Where a connection's cursors are kept: those of a player's host are the connection's own.
    fn key(&self, connection: Connection, id: u32) -> (Connection, u32) {
        (if self.own { connection } else { 0 }, id)
    }

    /// The next rows of a cursor, which ends with the last of them.
    fn batch(&mut self, host: usize, key: (Connection, u32)) -> String {
        let Some(cursor) = self.hosts[host].cursors.get_mut(&key) else { return "!no cursor".into() };
        let from = cursor.next;
        cursor.next = cursor.end.min(from.saturating_add(BATCH));
        let rows: Vec<_> = (from..cursor.next).map(|n| format!("{}.{n}", cursor.label)).collect();
        let more = cursor.next < cursor.end;
        if !more {
            self.hosts[host].cursors.remove(&key);
        }
        format!("#{} {}", if more { key.1 } else { 0 }, rows.join(" "))
    }

    fn open_cursor(&mut self, connection: Connection, host: usize, end: u32, label: &str) -> String {
        let last = &mut self.hosts[host].last_cursor;
        let ends_at_once = end <= BATCH;
        *last += u32::from(!ends_at_once);
        let key = self.key(connection, if ends_at_once { 0 } else { self.hosts[host].last_cursor });
        self.sessions.get_mut(&connection).expect("it speaks").opened = (!ends_at_once).then_some(key.1);
        let cursor = Cursor { label: label.into(), next: 0, end, lost: false };
        self.hosts[host].cursors.insert(key, cursor);
        self.batch(host, key)
    }

    fn request(&mut self, from: Connection, line: &str) {
        let session = self.sessions.get_mut(&from).expect("it speaks");
        let host = session.host;
        session.opened = None;
        let id = |text: &str| text.parse::<u32>().expect("a number of a cursor");
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
                    self.end(from);
                    return self.closed.push(from);
                }
                "=ok".into()
            }
            ["GET", key, "any" | "primary"] => {
                let value = self.writes.iter().rev().find(|write| write.0 == key).map_or("", |write| &write.1);
                format!("={value}")
            }
            ["OPEN", count, label] => self.open_cursor(from, host, id(count), label),
            ["MORE", cursor] => self.batch(host, self.key(from, id(cursor))),
            ["CLOSE", cursor] => {
                self.hosts[host].cursors.remove(&self.key(from, id(cursor)));
                format!("-{cursor}")
            }
            _ if self.own => "!not understood".into(),
            _ => panic!("a host is asked {line:?}"),
        };
        self.say(from, &answer);
    }

    /// A session is over. A cursor that it has opened last may be known to nobody.
    fn end(&mut self, connection: Connection) {
        let Some(session) = self.sessions.remove(&connection) else { return };
        let key = session.opened.map(|id| self.key(connection, id));
        if let Some(cursor) = key.and_then(|key| self.hosts[session.host].cursors.get_mut(&key)) {
            cursor.lost = cursor.next <= BATCH;
        }
        if self.own {
            self.hosts[0] = Host::default();
        }
    }

    fn crash(&mut self, host: usize, until: Duration) {
        let there: Vec<_> = self.sessions.iter().filter(|s| s.1.host == host).map(|s| *s.0).collect();
        for connection in there {
            self.end(connection);
            self.closed.push(connection);
        }
        self.hosts[host].down = Some(until);
        self.hosts[host].cursors.clear();
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
        if self.hosts[host].down.is_some() {
            self.closed.push(self.last);
            return self.last;
        }
        self.sessions.insert(self.last, Session { host, input: Vec::new(), watches: false, opened: None });
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
        if self.election.is_some() || self.hosts.iter().any(|host| host.down.is_some()) {
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
        self.end(connection);
    }

    fn due(&self) -> Option<Duration> {
        let downs = self.hosts.iter().filter_map(|host| host.down);
        downs.chain(self.election.map(|election| election.0)).min()
    }

    fn tick(&mut self, now: Duration) {
        for host in &mut self.hosts {
            host.down.take_if(|until| *until <= now);
        }
        if let Some((_, first)) = self.election.take_if(|election| election.0 <= now) {
            let up = (0..HOSTS).map(|n| (first + n) % HOSTS).find(|host| self.hosts[*host].down.is_none());
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
        self.closed.push(connection);
    }

    fn open(&self) -> Vec<Connection> {
        self.sessions.keys().copied().collect()
    }
}
