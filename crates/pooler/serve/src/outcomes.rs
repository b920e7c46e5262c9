//! What workers do not wait for themselves: other threads note outcomes here, and the next tick of a worker takes them.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

/// Outcomes that no worker has taken yet. There are as many at most as clients that wait for one.
pub struct Outcomes<T> {
    /// How many there are, so that a worker takes no lock when there are none.
    count: AtomicUsize,
    all: Mutex<Vec<T>>,
}

impl<T> Default for Outcomes<T> {
    fn default() -> Self {
        Self { count: AtomicUsize::new(0), all: Mutex::default() }
    }
}

impl<T> Outcomes<T> {
    pub fn note(&self, outcome: T) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(outcome);
        self.count.store(all.len(), SeqCst);
    }

    /// Takes the outcomes that there are.
    pub fn take(&self) -> Vec<T> {
        if self.count.load(SeqCst) == 0 {
            return Vec::new();
        }
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        self.count.store(0, SeqCst);
        std::mem::take(&mut *all)
    }
}
