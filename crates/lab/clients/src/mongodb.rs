//! MongoDB, or a pooler in front of one.

mod asker;
mod link;
mod place;

pub use asker::{Asker, Reply};
pub use link::{Link, kind_of};
pub use place::Place;
