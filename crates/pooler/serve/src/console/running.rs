//! The connections to the console, by the keys under which their clients may cancel a command.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::Notify;

/// The process number and the secret of a connection.
pub type Key = (u32, u32);

/// All connections that have logged in.
#[derive(Default)]
pub struct Running(Arc<Mutex<HashMap<Key, Arc<Notify>>>>);

/// A connection, for as long as it is there.
pub struct Entry {
    key: Key,
    cancelled: Arc<Notify>,
    all: Arc<Mutex<HashMap<Key, Arc<Notify>>>>,
}

impl Running {
    pub fn enter(&self) -> Entry {
        let mut random = [0; 8];
        getrandom::fill(&mut random).expect("the system has random numbers");
        let number = u64::from_ne_bytes(random);
        let key = ((number >> 32) as u32, number as u32);
        let cancelled = Arc::new(Notify::new());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(&cancelled));
        Entry { key, cancelled, all: Arc::clone(&self.0) }
    }

    /// Cancels what this connection's command waits for. A wrong key does nothing.
    pub fn cancel(&self, key: Key) {
        if let Some(cancelled) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            // Only a command that waits hears it.
            cancelled.notify_waiters();
        }
    }

    pub fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl Entry {
    pub fn key(&self) -> Key {
        self.key
    }

    pub async fn cancelled(&self) {
        self.cancelled.notified().await;
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}
