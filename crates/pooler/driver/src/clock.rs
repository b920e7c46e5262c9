//! The clock, turned into the numbers that pools and sessions are told. The only one in the data path: the real one, or
//! one that a simulator sets.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Instant,
};

use pool::Time;

/// Tells the time since the driver was started, or since another origin.
#[derive(Clone, Debug)]
pub enum Clock {
    /// Time passes by itself since then.
    Real(Instant),
    /// A number of nanoseconds, until it is [set](Clock::set) to another.
    Virtual(Arc<AtomicU64>),
}

impl Clock {
    /// The real one, beginning now.
    pub fn start() -> Self {
        Self::Real(Instant::now())
    }

    /// One that stands still until it is set. Its clones show the same time.
    pub fn standing(at: Time) -> Self {
        Self::Virtual(Arc::new(AtomicU64::new(at.0)))
    }

    /// Sets a clock that stands still.
    ///
    /// # Panics
    /// When it is the real one, or would go backwards.
    pub fn set(&self, to: Time) {
        let Self::Virtual(nanoseconds) = self else { panic!("the real clock cannot be set") };
        assert!(nanoseconds.swap(to.0, SeqCst) <= to.0, "time does not go backwards");
    }

    #[inline]
    pub fn now(&self) -> Time {
        match self {
            Self::Real(origin) => Time(u64::try_from(origin.elapsed().as_nanos()).expect("584 years fit")),
            Self::Virtual(nanoseconds) => Time(nanoseconds.load(SeqCst)),
        }
    }

    /// Nanoseconds that the calling thread has worked; none where time stands still.
    pub(crate) fn cpu_time(&self) -> u64 {
        match self {
            Self::Real(_) => {
                let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
                time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
            }
            Self::Virtual(_) => 0,
        }
    }
}
