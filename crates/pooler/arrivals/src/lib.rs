//! What load there is, as plain values and sequences of times: how operations arrive, and what goes wrong on the way.
//! Says when, never does: no socket, no clock, no file.
#![forbid(unsafe_code)]

mod arrivals;
mod fault;
mod random;
mod shape;
mod weather;

pub use arrivals::{Arrival, Arrivals};
pub use fault::{Fault, Window};
pub use random::Random;
pub use shape::{Shape, Spacing, Stage};
pub use weather::{Direction, Weather, nanos};
