//! Events among the hosts: a host crashes, the primary steps down, another is elected. No other file changes the
//! primary.
//!
//! A primary that is cut off stays primary in its own belief for a while. Meanwhile it can acknowledge no write by a
//! majority, and in the end it rolls its writes back.

use std::time::Duration;

use mongodb_session::wire::Answers;

use super::{
    HOSTS, Kind, MongoDb, at_host, document, errors,
    message::Request,
    writes::{Recent, Record, SessionKey, last_of},
};
use crate::databases::Connection;

/// Within this time, the answer to the next write is lost.
const LOST_ANSWER_TIME: Duration = Duration::from_millis(500);

/// A former primary that does not know of its successor.
pub struct Stale {
    pub host: usize,
    /// The term in which it was elected.
    pub term: u64,
    pub until: Duration,
    /// Requests that wait for a majority.
    pub waiting: Vec<(Connection, Answers)>,
    /// Writes that it has acknowledged alone since.
    pub recent: Vec<Recent>,
}

impl Stale {
    /// The last write of a session here.
    pub fn last_of(&self, session: &SessionKey) -> Option<Record> {
        last_of(&self.recent, session)
    }
}

impl MongoDb {
    /// Whether a host acts as the primary, or is a mongos.
    pub(super) fn takes_writes(&self, host: usize) -> bool {
        self.is_reference || self.kind == Kind::Sharded || self.primary == Some(host) || self.is_stale(host)
    }

    pub(super) fn is_stale(&self, host: usize) -> bool {
        self.stale.as_ref().is_some_and(|stale| stale.host == host)
    }

    /// The term that a host knows of, and the version of the configuration.
    pub(super) fn believed(&self, host: usize) -> (u64, i32) {
        let stale = self.stale.as_ref().filter(|stale| stale.host == host);
        (stale.map_or(self.term, |stale| stale.term), self.version)
    }

    /// Delays the answer to a write until a majority has it.
    pub(super) fn wait_for_majority(&mut self, from: Connection, request: &Request<'_>) {
        let stale = self.stale.as_mut().expect("it is one");
        if !request.silent {
            stale.waiting.push((from, request.answers));
            self.sessions.get_mut(&from).expect("it speaks").waits = true;
        }
    }

    /// Causes the event that `lot` selects; with `gently`, one that no client notices.
    pub(super) fn change_hosts(&mut self, lot: u64, gently: bool) {
        let (what, some) = (lot % 6, Duration::from_micros(lot / 18 % 20_000));
        let host = (lot / 6 % 3) as usize;
        if gently {
            self.version += 1;
            return;
        }
        if what == 5 {
            self.answer_lost_until = Some(self.now + LOST_ANSWER_TIME);
            return;
        }
        let busy =
            self.election.is_some() || self.stale.is_some() || self.hosts.iter().any(|host| host.down_until.is_some());
        if busy {
            return;
        }
        match self.kind {
            // A crash loses no acknowledged write.
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
                // The others elect a primary at once, and this host learns of it later.
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
            // A planned stepdown: the successor has all writes.
            _ => {
                self.written.replicate();
                self.hold_election(some, host);
            }
        }
    }

    /// Begins an election. There is no primary until its end.
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
            host.down_until.take_if(|until| *until <= now);
        }
        if let Some((_, favourite)) = self.election.take_if(|election| election.0 <= now) {
            let can = |host: &usize| self.hosts[*host].down_until.is_none() && !self.is_stale(*host);
            self.primary = (0..HOSTS).map(|n| (favourite + n) % HOSTS).find(can);
            self.term += 1;
        }
        if let Some(stale) = self.stale.take_if(|stale| stale.until <= now) {
            let error = document(|error| {
                errors::write_error(error, "operation was interrupted: stepped down", 11_602);
            });
            self.written.lose(stale.recent);
            for (to, answers) in stale.waiting {
                self.send_answer(to, answers, &error);
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

    /// A host goes down: its connections and cursors are lost. It never reuses the id of a cursor.
    fn crash(&mut self, host: usize, until: Duration) {
        at_host(&self.sessions, host).into_iter().for_each(|connection| self.drop_session(connection));
        self.hosts[host].down_until = Some(until);
        self.hosts[host].cursors.clear();
        self.abort_all(host);
    }
}
