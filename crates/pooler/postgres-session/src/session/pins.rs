//! Why clients keep servers beyond their transactions, and how many servers of each pool are kept.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use seam::PoolId;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pin {
    Temporary,
    Cursor,
    Lock,
    Listen,
    Prepare,
    Sequence,
    Settings,
    /// The client acts in a role, and with another session authorization than that of its login.
    Identity,
    /// A parameter was set whose name could not be seen.
    UnknownSetting,
}

impl Pin {
    /// The word for metrics and logs.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Pin::Temporary => "temporary_object",
            Pin::Cursor => "with_hold_cursor",
            Pin::Lock => "advisory_lock",
            Pin::Listen => "listen",
            Pin::Prepare => "sql_prepare",
            Pin::Sequence => "sequence",
            Pin::Settings => "settings",
            Pin::Identity => "identity",
            Pin::UnknownSetting => "unknown_setting",
        }
    }
}

/// Numbers of pinned servers, by pool.
#[derive(Default)]
pub(crate) struct Pins(Mutex<HashMap<PoolId, u32>>);

impl Pins {
    /// Whether one more server may be pinned.
    pub(crate) fn has_room(&self, pool: PoolId, max: u32) -> bool {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(&pool).copied().unwrap_or_default() < max
    }

    /// Pins one more, unless there are `max`.
    pub(crate) fn add(&self, pool: PoolId, max: u32) -> bool {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(pool).or_default();
        let room = *count < max;
        *count += u32::from(room);
        room
    }

    pub(crate) fn forget(&self, pool: PoolId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&pool);
    }

    pub(crate) fn remove(&self, pool: PoolId) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.get_mut(&pool).expect("a pin was counted");
        *count -= 1;
    }
}
