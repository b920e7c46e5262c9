//! What happens among the hosts: one goes down for a while, the primary steps down, another is elected. It is the only
//! file that changes who the primary is.
//!
//! A primary that is cut off from the others believes in itself until it finds out. It cannot acknowledge a write
//! meanwhile, for no majority gets it, and in the end it takes it back.

use std::time::Duration;

use mongodb_session::wire::Answers;

use super::{
    HOSTS, Kind, MongoDb, at_host, document, errors,
    message::Request,
    writes::{Recent, Record, Session, last_of},
};
use crate::databases::Connection;

/// For so long a session lies in wait for a write.
const AMBUSH: Duration = Duration::from_millis(500);

/// A primary that was, and does not know it.
pub struct Stale {
    pub host: usize,
    /// Of which election it was the primary.
    pub term: u64,
    pub until: Duration,
    /// Who waits for a majority to have a write.
    pub waiting: Vec<(Connection, Answers)>,
    /// What it has acknowledged alone meanwhile.
    pub recent: Vec<Recent>,
}

impl Stale {
    /// A session's last write that only it knows.
    pub fn last_of(&self, session: &Session) -> Option<Record> {
        last_of(&self.recent, session)
    }
}

impl MongoDb {
    /// Whether a host believes that it takes writes.
    pub(super) fn takes_writes(&self, host: usize) -> bool {
        self.own || self.kind == Kind::Sharded || self.primary == Some(host) || self.is_stale(host)
    }

    pub(super) fn is_stale(&self, host: usize) -> bool {
        self.stale.as_ref().is_some_and(|stale| stale.host == host)
    }

    /// The last election that a host knows of, and the version of the configuration.
    pub(super) fn believed(&self, host: usize) -> (u64, i32) {
        let stale = self.stale.as_ref().filter(|stale| stale.host == host);
        (stale.map_or(self.term, |stale| stale.term), self.version)
    }

    /// A write is not answered before a majority has it.
    pub(super) fn wait_for_majority(&mut self, from: Connection, request: &Request<'_>) {
        let stale = self.stale.as_mut().expect("it is one");
        if !request.silent {
            stale.waiting.push((from, request.answers));
            self.sessions.get_mut(&from).expect("it speaks").waits = true;
        }
    }

    /// Something happens, by lot. `gently`: nothing that a client need feel.
    pub(super) fn upset(&mut self, lot: u64, gently: bool) {
        let (what, some) = (lot % 6, Duration::from_micros(lot / 18 % 20_000));
        let host = (lot / 6 % 3) as usize;
        if gently {
            self.version += 1;
            return;
        }
        if what == 5 {
            self.ambush = Some(self.now + AMBUSH);
            return;
        }
        let busy = self.election.is_some() || self.stale.is_some() || self.hosts.iter().any(|host| host.down.is_some());
        if busy {
            return;
        }
        match self.kind {
            // Its disk keeps what it has acknowledged.
            Kind::Standalone => return self.crash(0, self.now + some * 10),
            Kind::Sharded => return self.crash(host, self.now + some * 10),
            Kind::Set => {}
        }
        match (what, self.primary) {
            (0, _) => {
                self.crash(host, self.now + some * 10);
                if self.primary == Some(host) {
                    self.written.roll_back();
                    self.hold_election(some, host + 1);
                }
            }
            (1, Some(primary)) => {
                // The others elect another one at once, and it finds out later.
                let until = self.now + some * 150;
                let (waiting, recent) = (Vec::new(), Vec::new());
                self.stale = Some(Stale { host: primary, term: self.term, until, waiting, recent });
                self.written.roll_back();
                self.hold_election(some / 10, primary + 1);
            }
            (2, _) => {
                self.written.roll_back();
                self.hold_election(some * 75, host);
            }
            // It steps down when another one has all that it has.
            _ => {
                self.written.replicate();
                self.hold_election(some, host);
            }
        }
    }

    /// There is no primary until one is elected.
    fn hold_election(&mut self, after: Duration, favourite: usize) {
        let before = self.primary.take();
        if let Some(before) = before.filter(|before| !self.is_stale(*before)) {
            self.abort_all(before);
        }
        self.election = Some((self.now + after, favourite % HOSTS));
    }

    pub(super) fn settle(&mut self) {
        let now = self.now;
        for host in &mut self.hosts {
            host.down.take_if(|until| *until <= now);
        }
        if let Some((_, favourite)) = self.election.take_if(|election| election.0 <= now) {
            let can = |host: &usize| self.hosts[*host].down.is_none() && !self.is_stale(*host);
            self.primary = (0..HOSTS).map(|n| (favourite + n) % HOSTS).find(can);
            self.term += 1;
        }
        if let Some(stale) = self.stale.take_if(|stale| stale.until <= now) {
            let error = document(|error| {
                errors::fail(error, "operation was interrupted: stepped down", 11_602);
            });
            self.written.lose(stale.recent);
            for (to, answers) in stale.waiting {
                self.say(to, answers, &error);
                self.read_on(to);
            }
            self.abort_all(stale.host);
        }
        if self.written.due().is_some_and(|due| due <= now) {
            self.written.replicate();
        }
        self.end_old_transactions();
        self.feed_streams();
    }

    /// A host goes down: its connections end, and its cursors are gone. It never gives the number of one again.
    fn crash(&mut self, host: usize, until: Duration) {
        at_host(&self.sessions, host).into_iter().for_each(|connection| self.drop_session(connection));
        self.hosts[host].down = Some(until);
        self.hosts[host].cursors.clear();
        self.abort_all(host);
    }
}
