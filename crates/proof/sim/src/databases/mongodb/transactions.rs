//! Open transactions: each is at one host, has a number from its session, and is lost when that host is no longer the
//! primary. A transaction that writes to the collection `hot` locks it: other transactions fail there, and writes
//! outside of transactions wait.

use std::{collections::BTreeMap, time::Duration};

use mongodb_session::bson::{Document, Value};

use super::{
    Kind, MongoDb, cursors, document, errors,
    message::Request,
    writes::{Record, SessionKey, done, rows_of},
};
use crate::databases::Connection;

/// The collection that a transaction locks.
pub const HOT: &str = "hot";

/// `transactionLifetimeLimitSeconds`.
const LIFETIME: Duration = Duration::from_secs(5);

#[derive(Default)]
pub struct Transactions {
    open: BTreeMap<(usize, SessionKey), Open>,
    /// Writes that wait for the lock.
    waiting: Vec<(Connection, Vec<u8>)>,
}

struct Open {
    number: i64,
    since: Duration,
    rows: Vec<(String, String)>,
    has_hot: bool,
}

impl Transactions {
    /// When the oldest transaction expires.
    pub fn due(&self) -> Option<Duration> {
        self.open.values().map(|open| open.since + LIFETIME).min()
    }

    /// Drops the writes of a connection that wait.
    pub fn forget_connection(&mut self, connection: Connection) {
        self.waiting.retain(|(waiting, _)| *waiting != connection);
    }

    pub fn open_of(&self, session: &SessionKey) -> Vec<String> {
        let own = self.open.iter().filter(|((_, of), _)| of == session);
        own.map(|((host, _), open)| format!("transaction {} at host {host}", open.number)).collect()
    }
}

/// Whether a command of a transaction begins it; `None` for a command outside of transactions.
pub fn transaction_start(body: Document<'_>) -> Option<bool> {
    let truth = |name| body.get(name).ok().flatten().map(Value::truth);
    (truth("autocommit") == Some(false)).then(|| truth("startTransaction") == Some(true))
}

fn gone() -> Vec<u8> {
    document(|error| errors::write_transient_error(error, "the transaction has been aborted, or has never begun", 251))
}

impl MongoDb {
    /// The session of a command.
    pub(super) fn session_of(&self, from: Connection, body: Document<'_>) -> Option<SessionKey> {
        let user = self.sessions.get(&from).expect("it speaks").user;
        cursors::session(body).map(|session| (user, session))
    }

    /// Executes a command of a transaction; `None` if it is not answered now.
    pub(super) fn in_transaction(
        &mut self,
        from: Connection,
        (name, subject): (&str, Value<'_>),
        request: &Request<'_>,
        begins: bool,
    ) -> Option<Vec<u8>> {
        let host = self.sessions.get(&from).expect("it speaks").host;
        let fail = |text: &str, code| Some(document(|error| errors::write_error(error, text, code)));
        let number = request.body.get("txnNumber").ok().flatten().and_then(Value::integer);
        let Some((session, number)) = self.session_of(from, request.body).zip(number) else {
            return fail("a transaction without its number", 9);
        };
        if self.kind == Kind::Standalone {
            return fail("Transaction numbers are only allowed on a replica set member or mongos", 20);
        }
        if !self.takes_writes(host) {
            return fail("not primary", 10_107);
        }
        let key = (host, session);
        match name {
            "commitTransaction" => return self.commit(from, request, &key, number),
            "abortTransaction" => {
                let open = self.transactions.open.get(&key).is_some_and(|open| open.number == number);
                if open {
                    self.abort(&key);
                }
                return Some(if open { document(|answer| _ = answer.double("ok", 1.0)) } else { gone() });
            }
            _ => {}
        }
        if begins {
            let last = self.last_number(host, &key.1);
            let open = self.transactions.open.get(&key).map(|open| open.number);
            match open.max(last) {
                Some(last) if last > number => return fail("a later one of the session has begun", 225),
                Some(last) if last == number => return fail("this number has been used", 117),
                _ => {}
            }
            self.abort(&key);
            let open = Open { number, since: self.now, rows: Vec::new(), has_hot: false };
            self.transactions.open.insert(key.clone(), open);
        }
        if self.transactions.open.get(&key).is_none_or(|open| open.number != number) {
            return Some(gone());
        }
        match (name, subject) {
            ("insert" | "update", Value::Text(collection)) => Some(self.write_within(&key, name, collection, request)),
            ("find", Value::Text(collection)) => Some(self.find(from, collection, request.body)),
            _ => fail("no command for a transaction", 59),
        }
    }

    fn write_within(
        &mut self,
        key: &(usize, SessionKey),
        name: &str,
        collection: &str,
        request: &Request<'_>,
    ) -> Vec<u8> {
        let rows = rows_of(name, request);
        if collection == HOT && self.is_hot_locked(key.0, Some(&key.1)) {
            self.abort(key);
            return document(|error| errors::write_transient_error(error, "another transaction has it", 112));
        }
        let open = self.transactions.open.get_mut(key).expect("it is open");
        open.has_hot |= collection == HOT;
        let count = rows.len() as i32;
        open.rows.extend(rows.into_iter().map(|row| (collection.to_owned(), row)));
        done(name, count, false)
    }

    /// Whether a transaction of another session locks the hot collection.
    pub(super) fn is_hot_locked(&self, host: usize, by_others_than: Option<&SessionKey>) -> bool {
        let others = self.transactions.open.iter().filter(|((at, session), _)| {
            (*at == host || self.kind == Kind::Sharded) && Some(session) != by_others_than
        });
        others.into_iter().any(|(_, open)| open.has_hot)
    }

    /// Delays a write until a transaction ends.
    pub(super) fn wait_for_hot(&mut self, from: Connection, message: &[u8]) {
        self.sessions.get_mut(&from).expect("it speaks").waits = true;
        self.transactions.waiting.push((from, message.to_vec()));
    }

    fn commit(
        &mut self,
        from: Connection,
        request: &Request<'_>,
        key: &(usize, SessionKey),
        number: i64,
    ) -> Option<Vec<u8>> {
        if self.transactions.open.get(key).is_none_or(|open| open.number != number) {
            let known = self.written.record(&key.1);
            let committed = known.is_some_and(|known| known.number == number && known.what == Record::COMMITTED);
            if !committed && request.body.get("recoveryToken").is_ok_and(|token| token.is_some()) {
                // Another mongos has the shards abort a transaction that is not committed yet.
                self.abort_of(&key.1, number);
            }
            return Some(if committed { document(|answer| _ = answer.double("ok", 1.0)) } else { gone() });
        }
        if self.is_stale(key.0) {
            self.wait_for_majority(from, request);
            return None;
        }
        let open = self.transactions.open.remove(key).expect("it is open");
        self.written.add(open.rows, Some((key.1.clone(), Record { number, what: Record::COMMITTED })));
        let answer = document(|answer| _ = answer.double("ok", 1.0));
        let answer_lost = self.answer_lost_until.take().is_some();
        if answer_lost {
            self.drop_session(from);
        }
        self.retry_waiting_writes();
        (!answer_lost).then_some(answer)
    }

    fn abort(&mut self, key: &(usize, SessionKey)) {
        if self.transactions.open.remove(key).is_some() {
            self.retry_waiting_writes();
        }
    }

    /// Aborts a session's transaction at any host.
    fn abort_of(&mut self, session: &SessionKey, number: i64) {
        self.transactions.open.retain(|(_, of), open| of != session || open.number != number);
        self.retry_waiting_writes();
    }

    /// Ends a session's transaction and cursors at a host.
    pub(super) fn end_session(&mut self, host: usize, session: &SessionKey) {
        self.abort(&(host, session.clone()));
        self.hosts[host].cursors.retain(|_, cursor| !cursor.is_of(session));
    }

    pub(super) fn abort_all(&mut self, host: usize) {
        self.transactions.open.retain(|(at, _), _| *at != host);
        self.retry_waiting_writes();
    }

    /// Aborts expired transactions.
    pub(super) fn end_old_transactions(&mut self) {
        let now = self.now;
        let before = self.transactions.open.len();
        self.transactions.open.retain(|_, open| open.since + LIFETIME > now);
        if self.transactions.open.len() < before {
            self.retry_waiting_writes();
        }
    }

    /// Retries the writes that waited for the lock.
    fn retry_waiting_writes(&mut self) {
        for (connection, message) in std::mem::take(&mut self.transactions.waiting) {
            let Some(session) = self.sessions.get_mut(&connection) else { continue };
            session.waits = false;
            self.handle(connection, &message);
            self.read_on(connection);
        }
    }

    /// The rows of a collection as a command sees them.
    pub(super) fn visible(&self, from: Connection, collection: &str, body: Document<'_>) -> Vec<String> {
        let mut rows = self.written.visible(collection);
        let (host, session) = (self.sessions[&from].host, self.session_of(from, body));
        let number = body.get("txnNumber").ok().flatten().and_then(Value::integer);
        if transaction_start(body).is_some()
            && let Some(session) = session
            && let Some(open) = self.transactions.open.get(&(host, session)).filter(|open| Some(open.number) == number)
        {
            rows.extend(open.rows.iter().filter(|(of, _)| of == collection).map(|(_, row)| row.clone()));
        }
        rows
    }

    /// The number of a session's last write or transaction that a host knows.
    fn last_number(&self, host: usize, session: &SessionKey) -> Option<i64> {
        let here = self.stale.as_ref().filter(|stale| stale.host == host).and_then(|stale| stale.last_of(session));
        self.written.record(session).into_iter().chain(here).map(|known| known.number).max()
    }
}
