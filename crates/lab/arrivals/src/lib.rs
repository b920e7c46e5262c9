//! Loads and faults as plain values and sequences of times: when operations arrive, and what goes wrong on the way to
//! the database. No socket, no clock, no file.
#![forbid(unsafe_code)]

mod arrivals;
mod fault;
mod shape;
mod weather;

pub use arrivals::{Arrival, Arrivals};
pub use fault::{Fault, Window};
pub use random::Random;
pub use shape::{Shape, Spacing, Stage};
pub use weather::{Direction, Weather, nanos};
