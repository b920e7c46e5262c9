//! The books of a run: what the engine tells them, by step and by second. They know no pool, no connection and no
//! target; what has been written down they turn into a result.

mod books;

pub use clients::{ErrorKind, Phases};

pub use books::{Books, Cause, EPHEMERAL, Gauges, MAX_ERROR_KINDS, MAX_SECONDS, MAX_STEPS, Part};
