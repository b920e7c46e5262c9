//! The real clock, turned into the numbers that pools and sessions are told. The only one in the
//! data path.

use std::time::Instant;

use pool::Time;

/// Tells the time since the driver was started, or since another origin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Counts from `origin`.
    pub(crate) fn since(origin: Instant) -> Self {
        Self(origin)
    }

    pub(crate) fn now(self) -> Time {
        Time(u64::try_from(self.0.elapsed().as_nanos()).expect("584 years fit"))
    }
}
