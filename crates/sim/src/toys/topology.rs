//! What the toy for a cluster knows of its hosts: terms and roles, who waits for a primary, which cursors nobody wants any more. Shared by all
//! workers. It tells sessions by posts, and knows nothing of their states.

use std::time::Duration;

use protocol::{ClientTag, Effect, Outbox, Peer, ServerTag};

/// Hosts of the cluster. Each has a pool, by its number, and behind all of these one of its monitor.
pub const HOSTS: usize = 3;
/// How often monitors show that they are alive.
const BEAT: Duration = Duration::from_millis(300);
/// Cursors of a host that wait to be closed.
const MAX_UNWANTED: usize = 1024;

/// See the file's head.
#[derive(Default)]
pub(super) struct Topology {
    /// The time, as the driver tells it.
    pub(super) now: Duration,
    next_beat: Duration,
    last_key: u64,
    turn: usize,
    hosts: [Host; HOSTS],
    /// Who waits for a primary, with their keys.
    parked: Vec<(ClientTag, u64)>,
}

#[derive(Default)]
struct Host {
    term: u64,
    primary: bool,
    /// Its monitor, and the monitor's key.
    monitor: Option<(ServerTag, u64)>,
    /// Cursors whose clients have left.
    unwanted: Vec<u32>,
}

fn post(to: Peer, key: u64, text: &str, out: &mut Outbox) {
    let start = out.inserted.len();
    out.inserted.extend(text.as_bytes());
    out.push(Effect::Post { to, key, bytes: start..out.inserted.len() });
}

impl Topology {
    pub(super) fn new_key(&mut self) -> u64 {
        self.last_key += 1;
        self.last_key
    }

    /// The primary of the latest term, if it is known.
    pub(super) fn primary(&self) -> Option<usize> {
        let term = self.hosts.iter().map(|host| host.term).max();
        self.hosts.iter().position(|host| host.primary && Some(host.term) == term)
    }

    /// Each host in its turn, but for these; one that is watched if there is any.
    pub(super) fn any(&mut self, without: [bool; HOSTS]) -> Option<usize> {
        self.turn += 1;
        let hosts = (0..HOSTS).map(|n| (self.turn + n) % HOSTS).filter(|host| !without[*host]);
        hosts.min_by_key(|host| self.hosts[*host].monitor.is_none())
    }

    /// A host says what it is, and in which term. Whoever waits for a primary goes on when one is known.
    pub(super) fn learn(&mut self, host: usize, said: &str, out: &mut Outbox) {
        let term = said.rsplit(' ').next().and_then(|term| term.parse().ok()).unwrap_or(0);
        let known = &mut self.hosts[host];
        if term >= known.term {
            (known.term, known.primary) = (term, said[1..].starts_with("primary"));
        }
        if self.primary().is_some() {
            self.wake_parked(out);
        }
    }

    fn wake_parked(&mut self, out: &mut Outbox) {
        self.parked.drain(..).for_each(|(client, key)| post(Peer::Client(client), key, "", out));
    }

    pub(super) fn park(&mut self, client: ClientTag, key: u64) {
        self.parked.push((client, key));
    }

    pub(super) fn forget(&mut self, key: u64) {
        self.parked.retain(|parked| parked.1 != key);
    }

    pub(super) fn watch(&mut self, host: usize, monitor: ServerTag, key: u64, out: &mut Outbox) {
        out.insert(Peer::Server(monitor), |bytes| bytes.extend(b"WATCH\n"));
        let host = &mut self.hosts[host];
        host.monitor = Some((monitor, key));
        host.unwanted.iter().for_each(|id| post(Peer::Server(monitor), key, &format!("CLOSE {id}\n"), out));
    }

    /// What the host is now nobody knows.
    pub(super) fn end_watch(&mut self, host: usize, key: u64) {
        let host = &mut self.hosts[host];
        if host.monitor.take_if(|monitor| monitor.1 == key).is_some() {
            host.primary = false;
        }
    }

    /// A client has left a cursor open: the monitor closes it, as soon as there is one.
    pub(super) fn close(&mut self, host: usize, id: u32, out: &mut Outbox) {
        let host = &mut self.hosts[host];
        if id != 0 && host.unwanted.len() < MAX_UNWANTED {
            host.unwanted.push(id);
            host.monitor.into_iter().for_each(|(to, key)| post(Peer::Server(to), key, &format!("CLOSE {id}\n"), out));
        }
    }

    pub(super) fn closed(&mut self, host: usize, id: u32) {
        self.hosts[host].unwanted.retain(|unwanted| *unwanted != id);
    }

    /// Those who wait look whether they have waited long enough; monitors show that they are alive.
    pub(super) fn tell_time(&mut self, now: Duration, out: &mut Outbox) {
        self.now = self.now.max(now);
        self.wake_parked(out);
        if now >= self.next_beat {
            self.next_beat = now + BEAT;
            let monitors = self.hosts.iter().filter_map(|host| host.monitor);
            monitors.for_each(|(monitor, key)| post(Peer::Server(monitor), key, "PING\n", out));
        }
    }
}
