//! The metrics of a run, by step and by second, as the engine reports them, and the result that follows from them. They
//! know no pool, no connection and no target.

mod metrics;

pub use clients::{ErrorKind, Phases};

pub use metrics::{CLOSED_EPHEMERAL, Cause, Gauges, MAX_ERROR_KINDS, MAX_SECONDS, MAX_STEPS, Part, RunMetrics};
