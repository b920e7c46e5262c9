//! Checks at the servers that the pooler (a) never sends a client's write twice, and (b) sends no write to a former
//! primary: not if the client issued it after the pooler had learned of the new term, and not at all after [`LATE`]. It
//! checks only requests with unique ids and a time.

use std::{collections::BTreeSet, time::Duration};

use mongodb_session::bson::{Document, Value};

use super::{Kind, MongoDb, message::Request};
use crate::databases::Connection;

/// The first id of requests that are checked.
pub const FIRST_ID: i32 = 1_000_000_000;

/// The element of a command with the time at which it was issued, in nanoseconds.
pub const ASKED: &str = "asked";

/// How long after the pooler has learned of a failover a write may still arrive at the former primary: by then waiting
/// requests are rerouted, and bytes in flight have arrived.
const LATE: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct PoolerChecks {
    /// Writes so far, by user and id.
    seen: BTreeSet<(usize, i32)>,
    /// Connections to which the primary of `informed_term` has answered a `hello`.
    informed: BTreeSet<Connection>,
    /// The term of `informed`.
    informed_term: u64,
    /// The last term that the pooler certainly knows, and since when.
    known: (u64, Duration),
}

fn integer(body: Document<'_>, name: &str) -> Option<i64> {
    body.get(name).ok().flatten().and_then(Value::integer)
}

impl MongoDb {
    /// Notes a `hello`. A second one on the same connection proves that the first answer was read.
    pub(super) fn note_hello(&mut self, to: Connection, host: usize) {
        if self.is_reference || self.kind != Kind::Set || self.primary != Some(host) {
            return;
        }
        let pooler_checks = &mut self.pooler_checks;
        if pooler_checks.informed_term != self.term {
            (pooler_checks.informed_term, pooler_checks.informed) = (self.term, BTreeSet::new());
        }
        if !pooler_checks.informed.insert(to) && pooler_checks.known.0 < self.term {
            pooler_checks.known = (self.term, self.now);
        }
    }

    pub(super) fn check_request(&mut self, from: Connection, message: &[u8]) {
        let Ok(Request { answers, body, .. }) = Request::read(message) else { return };
        let session = &self.sessions[&from];
        let (user, host) = (session.user, session.host);
        let Some(Ok(first)) = body.elements().next() else { return };
        let Some(asked) = integer(body, ASKED) else { return };
        let writes = matches!(first.name, "insert" | "update" | "commitTransaction" | "abortTransaction");
        if answers.id < FIRST_ID || !writes {
            return;
        }
        assert!(self.pooler_checks.seen.insert((user, answers.id)), "a write comes twice: {} of {user}", answers.id);
        let (term, since) = self.pooler_checks.known;
        let is_abort = first.name == "abortTransaction";
        let replaced =
            self.kind == Kind::Set && !self.is_reference && self.primary.is_some_and(|primary| primary != host);
        let late = replaced && !is_abort && term == self.term && self.now > since + LATE;
        assert!(
            !late,
            "a write waits for host {host} though it is known since {since:?} that another was elected: {body:?}"
        );
        let outdated = self.stale.as_ref().is_some_and(|stale| stale.host == host && stale.term < term);
        let outdated = outdated && !is_abort && Duration::from_nanos(asked as u64) > since;
        assert!(!outdated, "a write goes to host {host}, of whose successor it is known since {since:?}: {body:?}");
    }
}
