//! Finds how many servers a pool should have while it runs. The controller is shown what the pool did, and says which
//! size the pool is to have, with the evidence. It has no clock, opens nothing, and knows no pool: time is an argument,
//! and sizes are numbers.
//!
//! - [`Tuner`]: when a size is tried, and what follows from the outcome;
//! - `search`: which size is tried next;
//! - `trial`: a candidate and the present size by turns, and the outcome;
//! - `ranks`: whether a difference is more than chance;
//! - `window`: what was seen of a pool between two samples;
//! - `evidence`: what a decision rests on.
//!
//! Order of calls: [`Tuner::observe`] about once a second with the pool's counters; then [`Tuner::size`] is the size
//! that the pool is to have.

#![forbid(unsafe_code)]

mod evidence;
mod limits;
mod ranks;
mod search;
mod trial;
mod tuner;
mod window;

pub use evidence::{Evidence, Reason, Step};
pub use limits::Limits;
pub use tuner::{Finding, Tuner, TunerState};
pub use window::{Sample, Window};
