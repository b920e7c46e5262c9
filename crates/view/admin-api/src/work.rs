//! What the sessions of a pool's servers do, as the database itself tells: whether they run, and what they wait for.
//! Knows the names that PostgreSQL gives to waits.

use serde::{Deserialize, Serialize};

use crate::Backend;

/// Sessions of a pool's servers, by what they do at one look; and what of the whole database bears on them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
pub struct Work {
    /// Sessions of the pool's servers that the database showed.
    pub sessions: u64,
    /// Sessions that run, or wait for nothing but a processor.
    pub ready: u64,
    /// Sessions that wait for a lock of another session, which `pg_blocking_pids` names.
    pub locked: u64,
    /// Sessions that wait for what others use within the server: its latches, and pages in memory.
    #[serde(default)]
    pub latched: u64,
    /// Sessions that wait for a disk.
    pub disks: u64,
    /// Sessions with a statement under way that wait for their client: for the rest of a pipeline or of a COPY, or
    /// until it takes an answer.
    pub clients: u64,
    /// Sessions that wait for something else, such as a time, or another server.
    pub others: u64,
    /// Of all sessions of the database, how many run or wait for a processor.
    pub all_ready: u64,
    /// Processors of its machine, if they are known.
    pub processors: Option<u64>,
}

impl Work {
    pub fn working(&self) -> u64 {
        crate::sum(&[self.ready, self.locked, self.latched, self.disks, self.clients, self.others])
    }

    /// Counts one of the sessions.
    pub(crate) fn count(&mut self, backend: &Backend) {
        self.sessions += 1;
        if !backend.works() {
            return;
        }
        *match backend.wait.as_deref() {
            None => &mut self.ready,
            Some(_) if backend.waits_for_lock() => &mut self.locked,
            Some("LWLock" | "BufferPin" | "Buffer") => &mut self.latched,
            Some("IO") => &mut self.disks,
            Some("Client") => &mut self.clients,
            Some(_) => &mut self.others,
        } += 1;
    }
}
