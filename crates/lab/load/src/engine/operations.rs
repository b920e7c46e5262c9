//! The operations that have begun and not ended, one for each client at most. Knows how long each has been under way,
//! not what it does.

use std::time::Duration;

use pool::Time;

use super::{ConnId, INSTANT_OPERATION_PAUSE};
use crate::record::Part;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
pub struct Operation {
    pub scheduled: Time,
    pub started: Time,
    /// The part of the run that the operation belongs to.
    pub part: Part,
    /// `None`: the operation waits for a connection.
    pub conn: Option<ConnId>,
    /// How long the operation waited for its connection, where a second wait follows.
    pub waited: Duration,
    present: bool,
    /// The operation is in the list of running time-outs, between the two neighbours below.
    has_timeout: bool,
    timeout_since: Time,
    before: u32,
    after: u32,
}

impl Operation {
    /// How long the client pauses after the operation, so that operations which take no time do not follow one another
    /// without end.
    #[inline]
    pub fn pause(&self, now: Time) -> Duration {
        if now > self.started { Duration::ZERO } else { INSTANT_OPERATION_PAUSE }
    }
}

/// `started` of an operation that has not been sent: later than any moment, so that a pause follows it.
const NEVER_SENT: Time = Time::NEVER;

const ABSENT: Operation = Operation {
    scheduled: Time(0),
    started: NEVER_SENT,
    part: Part::WarmUp,
    conn: None,
    waited: Duration::ZERO,
    present: false,
    has_timeout: false,
    timeout_since: Time(0),
    before: NONE,
    after: NONE,
};

/// All operations that have begun and not ended, by client. Those with a running time-out form a list in the order of
/// their times, so that only its head has to be looked at.
#[derive(Debug)]
pub struct Operations {
    entries: Vec<Operation>,
    head: u32,
    tail: u32,
    len: u32,
    with_connection: u32,
}

impl Default for Operations {
    fn default() -> Self {
        Self { entries: Vec::new(), head: NONE, tail: NONE, len: 0, with_connection: 0 }
    }
}

impl Operations {
    /// Begins an operation, which has no connection yet.
    #[inline]
    pub fn begin(&mut self, client: u32, scheduled: Time, part: Part) {
        let at = client as usize;
        if self.entries.len() <= at {
            self.entries.resize(at + 1, ABSENT);
        }
        assert!(!self.entries[at].present, "client {client} has begun an operation before its last one ended");
        self.entries[at] = Operation { scheduled, part, present: true, ..ABSENT };
        self.len += 1;
    }

    /// Gives an operation a connection of its own, which is being made: the time-out begins.
    pub fn connect(&mut self, client: u32, conn: ConnId, now: Time) {
        self.grant(client, conn);
        self.start_timeout(client, now);
    }

    /// Gives a connection to an operation. Returns the part of the run that the operation belongs to.
    #[inline]
    pub fn grant(&mut self, client: u32, conn: ConnId) -> Part {
        let op = self.get_mut(client);
        assert!(op.conn.is_none(), "client {client} was given two connections");
        op.conn = Some(conn);
        let part = op.part;
        self.with_connection += 1;
        part
    }

    /// Notes how long an operation has waited for its connection, where a second wait follows.
    pub fn note_wait(&mut self, client: u32, waited: Duration) {
        self.get_mut(client).waited = waited;
    }

    /// Sends an operation: the time-out begins, unless it has begun with the connection.
    #[inline]
    pub fn start(&mut self, client: u32, now: Time) {
        let op = self.get_mut(client);
        op.started = now;
        if !op.has_timeout {
            self.start_timeout(client, now);
        }
    }

    #[inline]
    pub fn end(&mut self, client: u32) -> Operation {
        let op = *self.get(client);
        self.entries[client as usize].present = false;
        self.len -= 1;
        self.with_connection -= u32::from(op.conn.is_some());
        if op.has_timeout {
            self.unlink(op);
        }
        op
    }

    #[inline]
    pub fn get(&self, client: u32) -> &Operation {
        self.entries.get(client as usize).filter(|op| op.present).expect("an operation that has begun")
    }

    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Operations that have a connection.
    #[inline]
    pub fn with_connection(&self) -> u32 {
        self.with_connection
    }

    /// When the first time-out is due.
    #[inline]
    pub fn first_due(&self, timeout: Duration) -> Time {
        self.entries.get(self.head as usize).map_or(Time::NEVER, |op| op.timeout_since + timeout)
    }

    /// The client whose time-out is due first.
    pub fn first(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    /// Clients that have no connection: O(n).
    pub fn waiting(&self) -> Vec<u32> {
        (0..).zip(&self.entries).filter(|(_, op)| op.present && op.conn.is_none()).map(|(client, _)| client).collect()
    }

    /// Clients that have a connection: O(n).
    pub fn under_way(&self) -> Vec<u32> {
        (0..).zip(&self.entries).filter(|(_, op)| op.present && op.conn.is_some()).map(|(client, _)| client).collect()
    }

    #[inline]
    fn get_mut(&mut self, client: u32) -> &mut Operation {
        self.entries.get_mut(client as usize).filter(|op| op.present).expect("an operation that has begun")
    }

    #[inline]
    fn start_timeout(&mut self, client: u32, now: Time) {
        let tail = self.tail;
        let timeout_since = match self.entries.get(tail as usize) {
            Some(last) => now.max(last.timeout_since),
            None => now,
        };
        let op = self.get_mut(client);
        (op.has_timeout, op.timeout_since, op.before, op.after) = (true, timeout_since, tail, NONE);
        match tail {
            NONE => self.head = client,
            _ => self.entries[tail as usize].after = client,
        }
        self.tail = client;
    }

    #[inline]
    fn unlink(&mut self, op: Operation) {
        match op.before {
            NONE => self.head = op.after,
            before => self.entries[before as usize].after = op.after,
        }
        match op.after {
            NONE => self.tail = op.before,
            after => self.entries[after as usize].before = op.before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_to_be_sent_is_the_first_whose_time_is_up() {
        let mut ops = Operations::default();
        let second = Duration::from_secs(1);
        for client in [3, 1, 2] {
            ops.begin(client, Time(0), Part::WarmUp);
            ops.grant(client, ConnId(client));
            ops.start(client, Time(u64::from(10 - client)));
        }
        assert_eq!((ops.first(), ops.first_due(second)), (Some(3), Time(7) + second));
        ops.end(1);
        ops.end(3);
        assert_eq!((ops.first(), ops.first_due(second)), (Some(2), Time(9) + second));
        ops.end(2);
        assert_eq!((ops.first(), ops.first_due(second), ops.len()), (None, Time::NEVER, 0));
    }

    #[test]
    #[should_panic = "before its last one ended"]
    fn a_client_has_one_operation_at_a_time() {
        let mut ops = Operations::default();
        ops.begin(0, Time(0), Part::WarmUp);
        ops.begin(0, Time(0), Part::WarmUp);
    }
}
