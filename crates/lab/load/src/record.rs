//! The books of a run: what the engine tells them, by step and by second. They know no pool, no connection and no
//! target; what has been written down they turn into a result.

mod books;
mod histogram;

pub use books::{
    Books, Cause, EPHEMERAL, ErrorKind, Gauges, MAX_ERROR_KINDS, MAX_ERROR_TEXTS, MAX_SECONDS, MAX_STEPS, Part, Phases,
};
pub use histogram::{BadHistogram, Histogram, LONGEST_US};
