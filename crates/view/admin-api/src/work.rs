//! What the sessions of a pool's servers do, as the database itself tells: whether they run, and what they wait for.
//! Knows the names that PostgreSQL gives to waits.

use serde::{Deserialize, Serialize};

use crate::Backend;

/// Sessions of a pool's servers, by what they do at one look; and what of the whole database bears on them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
pub struct Work {
    /// The database has them among its sessions.
    pub sessions: u64,
    /// They run, or wait for nothing but a processor.
    pub ready: u64,
    /// They wait for what other sessions have: locks, latches, pages in use.
    pub locked: u64,
    pub disks: u64,
    /// They wait for a client that does not take an answer.
    pub clients: u64,
    /// They wait for something else, such as a time, or another server.
    pub others: u64,
    /// Of all sessions of the database, how many run or wait for a processor.
    pub all_ready: u64,
    /// Processors of its machine, if they are known.
    pub processors: Option<u64>,
}

impl Work {
    pub fn working(&self) -> u64 {
        crate::sum(&[self.ready, self.locked, self.disks, self.clients, self.others])
    }

    /// Counts one of the sessions.
    pub(crate) fn count(&mut self, backend: &Backend) {
        self.sessions += 1;
        if !backend.works() {
            return;
        }
        *match backend.wait.as_deref() {
            None => &mut self.ready,
            Some("Lock" | "LWLock" | "BufferPin" | "Buffer") => &mut self.locked,
            Some("IO") => &mut self.disks,
            Some("Client") => &mut self.clients,
            Some(_) => &mut self.others,
        } += 1;
    }
}
