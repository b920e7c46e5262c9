//! The connections that are there, being made or being closed, of all pools together. Knows what each is doing, not
//! why.

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
    /// Tells it from others that had the same number before.
    pub serial: u32,
    pub state: State,
    /// Whose pool it belongs to.
    pub instance: u32,
    /// The pool's name for it; `None`: there is no pool.
    pub server: Option<ServerId>,
    /// The operation it has, or is made for.
    pub op: Option<u32>,
    pub cause: Cause,
    /// When its making was ordered.
    pub since: Time,
}

/// All of them, by number; numbers are used again.
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

    /// It is gone; its number is free.
    pub fn remove(&mut self, conn: ConnId) {
        let entry = self.entries.get_mut(conn.0 as usize).and_then(Option::take);
        assert!(entry.is_some(), "{conn:?} was reported twice to be gone");
        self.free.push(conn.0);
    }

    #[inline]
    pub fn get(&self, conn: ConnId) -> &Entry {
        self.entries.get(conn.0 as usize).and_then(Option::as_ref).expect("a connection that is there")
    }

    #[inline]
    pub fn get_mut(&mut self, conn: ConnId) -> &mut Entry {
        self.entries.get_mut(conn.0 as usize).and_then(Option::as_mut).expect("a connection that is there")
    }

    #[inline]
    pub fn find(&mut self, conn: ConnId, serial: u32) -> Option<&mut Entry> {
        self.entries.get_mut(conn.0 as usize)?.as_mut().filter(|entry| entry.serial == serial)
    }

    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Those that are not being closed: O(n).
    pub fn present(&self) -> Vec<ConnId> {
        let entries = (0..).zip(&self.entries);
        let present = |entry: &Option<Entry>| entry.as_ref().is_some_and(|entry| entry.state != State::Closing);
        entries.filter(|(_, entry)| present(entry)).map(|(at, _)| ConnId(at)).collect()
    }
}
