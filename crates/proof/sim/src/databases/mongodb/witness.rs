//! Checks at the servers that the pooler (a) never sends a client's write twice, and (b) sends no write to a deposed
//! primary: not if the client issued it after the pooler was told of the new term, and not at all once [`LATE`] has
//! passed. It sees only requests of clients that number them uniquely and add the time.

use std::{collections::BTreeSet, time::Duration};

use mongodb_session::bson::{Document, Value};

use super::{Kind, MongoDb, message::Request};
use crate::databases::Connection;

/// Clients whose requests are looked at count theirs from here on.
pub const FIRST_ID: i32 = 1_000_000_000;

/// The element of a command that has the time at which it was asked, in nanoseconds.
pub const ASKED: &str = "asked";

/// How long after a failover is known a write may still arrive at the deposed primary: waiting requests are rerouted,
/// and bytes in flight arrive, within this time.
const LATE: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Witness {
    /// Writes that have come, by user and id.
    seen: BTreeSet<(usize, i32)>,
    /// Who was told by the primary of this election that it is the primary.
    told: BTreeSet<Connection>,
    of: u64,
    /// The last election of which whoever watches the hosts knows for certain, and since when.
    known: (u64, Duration),
}

fn integer(body: Document<'_>, name: &str) -> Option<i64> {
    body.get(name).ok().flatten().and_then(Value::integer)
}

impl MongoDb {
    /// A host says what it is. Whoever asks a second time has read the first answer.
    pub(super) fn tell_role(&mut self, to: Connection, host: usize) {
        if self.own || self.kind != Kind::Set || self.primary != Some(host) {
            return;
        }
        let witness = &mut self.witness;
        if witness.of != self.term {
            (witness.of, witness.told) = (self.term, BTreeSet::new());
        }
        if !witness.told.insert(to) && witness.known.0 < self.term {
            witness.known = (self.term, self.now);
        }
    }

    pub(super) fn see(&mut self, from: Connection, message: &[u8]) {
        let Ok(Request { answers, body, .. }) = Request::read(message) else { return };
        let session = &self.sessions[&from];
        let (user, host) = (session.user, session.host);
        let Some(Ok(first)) = body.elements().next() else { return };
        let Some(asked) = integer(body, ASKED) else { return };
        let writes = matches!(first.name, "insert" | "update" | "commitTransaction" | "abortTransaction");
        if answers.id < FIRST_ID || !writes {
            return;
        }
        assert!(self.witness.seen.insert((user, answers.id)), "a write comes twice: {} of {user}", answers.id);
        let (term, since) = self.witness.known;
        let ends = first.name == "abortTransaction";
        let replaced = self.kind == Kind::Set && !self.own && self.primary.is_some_and(|primary| primary != host);
        let late = replaced && !ends && term == self.term && self.now > since + LATE;
        assert!(
            !late,
            "a write waits for host {host} though it is known since {since:?} that another was elected: {body:?}"
        );
        let outdated = self.stale.as_ref().is_some_and(|stale| stale.host == host && stale.term < term);
        let outdated = outdated && !ends && Duration::from_nanos(asked as u64) > since;
        assert!(!outdated, "a write goes to host {host}, of whose successor it is known since {since:?}: {body:?}");
    }
}
