//! What of the connections of clients is logged now. It writes no line.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::config::LoggedConnections;

pub(crate) struct LogSwitches {
    logins: AtomicBool,
    attempts: AtomicBool,
    ends: AtomicBool,
    errors: AtomicBool,
}

impl LogSwitches {
    pub(crate) fn new(LoggedConnections { logins, attempts, ends, errors }: LoggedConnections) -> Self {
        Self { logins: logins.into(), attempts: attempts.into(), ends: ends.into(), errors: errors.into() }
    }

    pub(crate) fn set(&self, LoggedConnections { logins, attempts, ends, errors }: LoggedConnections) {
        self.logins.store(logins, Relaxed);
        self.attempts.store(attempts, Relaxed);
        self.ends.store(ends, Relaxed);
        self.errors.store(errors, Relaxed);
    }

    pub(crate) fn load(&self) -> LoggedConnections {
        LoggedConnections {
            logins: self.logins.load(Relaxed),
            attempts: self.attempts.load(Relaxed),
            ends: self.ends.load(Relaxed),
            errors: self.errors.load(Relaxed),
        }
    }
}
