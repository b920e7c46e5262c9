//! Timers of requests that have arrived in part, which hold memory or a server connection until the rest has come.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use seam::ClientTag;

/// Maximum time between two pieces of a request.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The clients whose request is incomplete, by key, and when the last piece came.
#[derive(Default)]
pub struct StallTimers(Mutex<Table>);

#[derive(Default)]
struct Table {
    now: Duration,
    last_pieces: HashMap<u64, (ClientTag, Duration)>,
}

impl StallTimers {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A piece has come, and more is to come.
    pub fn restart(&self, client: ClientTag, key: u64) {
        let mut table = self.table();
        let now = table.now;
        table.last_pieces.insert(key, (client, now));
    }

    pub fn stop(&self, key: u64) {
        self.table().last_pieces.remove(&key);
    }

    pub fn is_overdue(&self, key: u64) -> bool {
        let table = self.table();
        table.last_pieces.get(&key).is_some_and(|(_, since)| *since + STALL_TIMEOUT <= table.now)
    }

    pub fn on_tick(&self, now: Duration) -> Vec<(ClientTag, u64)> {
        let mut table = self.table();
        table.now = table.now.max(now);
        let now = table.now;
        let overdue = table.last_pieces.iter().filter(|(_, (_, since))| *since + STALL_TIMEOUT <= now);
        let mut overdue: Vec<_> = overdue.map(|(key, (client, _))| (*client, *key)).collect();
        overdue.sort_by_key(|(_, key)| *key);
        overdue
    }
}
