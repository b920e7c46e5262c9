//! What a shared server has seen of clients that do not read.

use std::time::Duration;

use pool::Time;

/// The stalls of one shared server: how many clients hold it up now, and how long others have waited for them.
#[derive(Default)]
pub(in crate::worker) struct ServerStalls {
    /// The clients on account of which the worker receives nothing from the server.
    clients: u32,
    /// Up to when `others_waited` counts.
    counted: Time,
    /// How long other clients have waited, over all stalls of this server.
    others_waited: Duration,
    ever: bool,
}

impl ServerStalls {
    pub(super) fn is_any(&self) -> bool {
        self.clients > 0
    }

    /// Whether any client has stalled the server.
    pub(super) fn ever(&self) -> bool {
        self.ever
    }

    /// A client does not read.
    pub(in crate::worker) fn note_stall(&mut self) {
        self.ever = true;
    }

    /// The worker receives nothing from the server on account of one more client.
    pub(in crate::worker) fn add(&mut self, now: Time) {
        if self.clients == 0 {
            self.counted = now;
        }
        self.clients += 1;
    }

    /// One of these clients keeps the worker no longer from receiving from the server.
    pub(in crate::worker) fn remove(&mut self) {
        self.clients -= 1;
    }

    /// Counts the time since this was last called as waiting time, if others wait.
    pub(in crate::worker) fn count_waiting(&mut self, others: bool, now: Time) {
        if others {
            self.others_waited += now - self.counted;
        }
        self.counted = now;
    }

    pub(in crate::worker) fn others_waited(&self) -> Duration {
        self.others_waited
    }
}
