//! The connections that are open, being made or being closed, of all pools together, and what each is doing.

use pool::{ServerId, Time};

use super::ConnId;
use crate::record::Cause;

/// What a connection is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Connecting,
    /// Made, without an operation.
    Idle,
    Busy,
    Closing,
}

#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Distinguishes the connection from earlier ones with its number.
    pub serial: u32,
    pub state: State,
    /// The instance whose pool the connection belongs to.
    pub instance: u32,
    /// The pool's id of the connection; `None`: there is no pool.
    pub server: Option<ServerId>,
    /// The client whose operation runs on the connection, or waits for it.
    pub op: Option<u32>,
    pub cause: Cause,
    /// When the target took the order to connect; until then, when the order was given.
    pub since: Time,
}

/// All connections by number; numbers are used again.
#[derive(Debug, Default)]
pub struct Connections {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    serials: u32,
}

impl Connections {
    pub fn open(
        &mut self,
        instance: u32,
        server: Option<ServerId>,
        op: Option<u32>,
        cause: Cause,
        now: Time,
    ) -> ConnId {
        self.serials = self.serials.wrapping_add(1);
        let entry = Entry { serial: self.serials, state: State::Connecting, instance, server, op, cause, since: now };
        let at = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            u32::try_from(self.entries.len() - 1).expect("fewer connections than 2^32")
        });
        self.entries[at as usize] = Some(entry);
        ConnId(at)
    }

    /// Removes a connection; its number is free.
    pub fn remove(&mut self, conn: ConnId) {
        let entry = self.entries.get_mut(conn.0 as usize).and_then(Option::take);
        assert!(entry.is_some(), "{conn:?} was reported twice to be gone");
        self.free.push(conn.0);
    }

    #[inline]
    pub fn get(&self, conn: ConnId) -> &Entry {
        self.entries.get(conn.0 as usize).and_then(Option::as_ref).expect("the connection exists")
    }

    #[inline]
    pub fn get_mut(&mut self, conn: ConnId) -> &mut Entry {
        self.entries.get_mut(conn.0 as usize).and_then(Option::as_mut).expect("the connection exists")
    }

    #[inline]
    pub fn find(&mut self, conn: ConnId, serial: u32) -> Option<&mut Entry> {
        self.entries.get_mut(conn.0 as usize)?.as_mut().filter(|entry| entry.serial == serial)
    }

    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Connections that are not being closed: O(n).
    pub fn present(&self) -> Vec<ConnId> {
        let entries = (0..).zip(&self.entries);
        let present = |entry: &Option<Entry>| entry.as_ref().is_some_and(|entry| entry.state != State::Closing);
        entries.filter(|(_, entry)| present(entry)).map(|(at, _)| ConnId(at)).collect()
    }
}
