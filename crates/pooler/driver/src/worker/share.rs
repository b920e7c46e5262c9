//! What a server is to the clients of a worker that share it. Knows no client, no session and no connection.

mod due_answer;
mod server_stalls;

use std::time::Duration;

use pool::Time;
use seam::Verdict;

pub(super) use self::{
    due_answer::{Answered, DueAnswer},
    server_stalls::ServerStalls,
};

/// Bytes for a shared server that are collected before they are sent.
const MAX_COLLECTED: usize = 16 << 10;

/// What a server is to the clients that share it.
pub(super) struct Share {
    /// The clients that have a share, by slot.
    clients: Vec<u32>,
    /// The worst verdict of the clients that have left.
    worst: Verdict,
    /// When the mux got the server.
    since: Time,
    /// No client joins any more, and those that have a share send nothing.
    yielding: bool,
    /// A client has joined since the last tick.
    joined: bool,
    /// Requests that have been answered since the last tick.
    answered: u64,
    /// Bytes for the server.
    collected: Vec<u8>,
    pub(super) due: DueAnswer,
    pub(super) stalls: ServerStalls,
}

/// What became of bytes for a shared server.
pub(super) struct Collected {
    /// They are the first since the last send.
    pub(super) first: bool,
    /// No more are to be collected before they are sent.
    pub(super) full: bool,
}

impl Share {
    pub(super) fn new(now: Time) -> Self {
        Self {
            clients: Vec::new(),
            worst: Verdict::Clean,
            since: now,
            yielding: false,
            joined: false,
            answered: 0,
            collected: Vec::new(),
            due: DueAnswer::default(),
            stalls: ServerStalls::default(),
        }
    }

    // ---- its clients ----

    /// The clients that have a share, by slot.
    pub(super) fn clients(&self) -> impl Iterator<Item = usize> + Clone {
        self.clients.iter().map(|slot| *slot as usize)
    }

    pub(super) fn len(&self) -> usize {
        self.clients.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Whether more clients may join, as far as the server's connection lets them.
    pub(super) fn is_open(&self) -> bool {
        !self.yielding && self.worst != Verdict::Discard && !self.is_unresponsive()
    }

    /// A client joins. Returns its index among the clients.
    pub(super) fn join(&mut self, client: usize) -> u32 {
        let index = self.clients.len() as u32;
        self.clients.push(client as u32);
        self.joined = true;
        index
    }

    /// The client at this index leaves. Returns the client that has got the index.
    pub(super) fn leave(&mut self, index: u32, verdict: Verdict) -> Option<usize> {
        self.clients.swap_remove(index as usize);
        self.worst = self.worst.max(verdict);
        self.answered += 1;
        if self.clients.is_empty() {
            self.due = DueAnswer::default();
        }
        self.clients.get(index as usize).map(|client| *client as usize)
    }

    // ---- its return to the pool ----

    /// From now on the server is given back as soon as it has no clients.
    pub(super) fn start_yielding(&mut self) {
        self.yielding = true;
    }

    pub(super) fn is_yielding(&self) -> bool {
        self.yielding
    }

    /// Whether the server is given back as soon as it has no clients.
    pub(super) fn is_to_be_returned(&self) -> bool {
        self.yielding || self.worst != Verdict::Clean
    }

    /// The verdict with which the server is given back.
    pub(super) fn verdict(&self) -> Verdict {
        self.worst
    }

    pub(super) fn held_for(&self, now: Time) -> Duration {
        now - self.since
    }

    /// Whether no client has joined since this was last asked, and none is left.
    pub(super) fn take_idle(&mut self) -> bool {
        !std::mem::take(&mut self.joined) && self.clients.is_empty()
    }

    /// Requests that have been answered since these were last taken.
    pub(super) fn take_answered(&mut self) -> u64 {
        std::mem::take(&mut self.answered)
    }

    // ---- whether it answers ----

    /// Whether the server owes an answer for unusually long, or had to stop sending for a client that does not read.
    pub(super) fn is_unresponsive(&self) -> bool {
        self.due.is_overdue() || self.stalls.ever()
    }

    /// Whether the worker receives nothing from the server, because a client does not read.
    pub(super) fn is_stalled(&self) -> bool {
        self.stalls.is_any()
    }

    // ---- bytes for it ----

    /// Keeps bytes until they leave together.
    pub(super) fn collect(&mut self, bytes: &[u8]) -> Collected {
        let first = self.collected.is_empty();
        self.collected.extend_from_slice(bytes);
        Collected { first, full: self.collected.len() >= MAX_COLLECTED }
    }

    pub(super) fn collected(&self) -> &[u8] {
        &self.collected
    }

    /// What was collected has been sent.
    pub(super) fn note_sent(&mut self, now: Time) {
        self.collected.clear();
        self.due.begin(now);
    }
}
