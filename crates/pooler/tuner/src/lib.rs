//! Finds how many servers a pool should have while it runs: a controller that is shown what the pool did, and says
//! which size it is to have from now on, with the evidence. It has no clock, opens nothing, and knows no pool: time is
//! an argument, and sizes are numbers.
//!
//! - [`Tuner`]: when something is tried, and what follows from it;
//! - `search`: which size is tried next;
//! - `trial`: one size beside another, by turns, and what came of it;
//! - `ranks`: whether a difference is more than chance;
//! - `window`: what was seen of a pool during some time;
//! - `evidence`: what a decision rests on.
//!
//! Call order: [`Tuner::look`] about once a second with what the pool has counted; then [`Tuner::size`] is the size it
//! is to have.

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
pub use tuner::{Known, Standing, Tuner};
pub use window::{Look, Window};
