//! Requests that have come in part: whoever sends nothing of the rest for a while holds memory of all, or a server
//! connection.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use seam::ClientTag;

/// How long nothing may come of a request that has begun.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whose requests have begun, by their keys, and when something came last.
#[derive(Default)]
pub struct Stalls(Mutex<Table>);

#[derive(Default)]
struct Table {
    now: Duration,
    begun: HashMap<u64, (ClientTag, Duration)>,
}

impl Stalls {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something has come, and more is to come.
    pub fn progress(&self, client: ClientTag, key: u64) {
        let mut table = self.table();
        let now = table.now;
        table.begun.insert(key, (client, now));
    }

    /// All has come, or nobody waits for it any more.
    pub fn over(&self, key: u64) {
        self.table().begun.remove(&key);
    }

    /// It has been waited for too long.
    pub fn is_stale(&self, key: u64) -> bool {
        let table = self.table();
        table.begun.get(&key).is_some_and(|(_, since)| *since + PATIENCE <= table.now)
    }

    /// Those that have been waited for too long.
    pub fn on_tick(&self, now: Duration) -> Vec<(ClientTag, u64)> {
        let mut table = self.table();
        table.now = table.now.max(now);
        let now = table.now;
        let late = table.begun.iter().filter(|(_, (_, since))| *since + PATIENCE <= now);
        let mut late: Vec<_> = late.map(|(key, (client, _))| (*client, *key)).collect();
        late.sort_by_key(|(_, key)| *key);
        late
    }
}
