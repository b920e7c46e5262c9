//! PostgreSQL, or a pooler in front of one.

mod asker;
mod link;
mod place;
mod query;

pub use asker::{Asker, Rows};
pub use link::{Link, kind_of};
pub use place::Place;
pub use postgres_session::Row;
pub use query::{Questions, connect};
