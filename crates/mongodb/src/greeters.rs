//! Connections that only ever say `hello`, as drivers' monitors do: they never log in, so no time-out runs for them. There may be so many
//! and no more; those above that are treated like anybody whose login is still to come.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

/// How many there are.
#[derive(Default)]
pub struct Greeters(Arc<AtomicU32>);

/// One of them, until this is dropped.
#[derive(Debug)]
pub struct Greeter(Arc<AtomicU32>);

impl Drop for Greeter {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Greeters {
    /// One more; `None` if there are so many already.
    pub fn enter(&self, most: u32) -> Option<Greeter> {
        let enters = self.0.fetch_update(Relaxed, Relaxed, |count| (count < most).then_some(count + 1));
        enters.ok().map(|_| Greeter(Arc::clone(&self.0)))
    }
}
