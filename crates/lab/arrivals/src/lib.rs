//! Loads and faults as plain values and sequences of times: when operations arrive, and which faults happen on the way
//! to the database. No socket, no clock, no file.
#![forbid(unsafe_code)]

mod arrivals;
mod fault;
mod fault_timeline;
mod shape;

pub use arrivals::{Arrival, Arrivals};
pub use fault::{Fault, Window};
pub use fault_timeline::{Direction, FaultTimeline, nanos};
pub use random::Random;
pub use shape::{Shape, Spacing, Stage};
