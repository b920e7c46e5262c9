//! What load there is, as plain values and sequences of times: how operations arrive, and what goes wrong on the way. Says when, never
//! does: no socket, no clock, no file.
#![forbid(unsafe_code)]

mod fault;
mod shape;

pub use fault::{Fault, Window};
pub use shape::{Shape, Spacing, Stage};
