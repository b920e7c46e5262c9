//! MongoDB, or a pooler in front of one.

mod asker;
mod link;
mod place;
mod requester;

pub use asker::{Asker, Reply};
pub use link::{Link, kind_of};
pub use place::Place;
pub use requester::{CommandError, Fault, Requester, Verdict};
