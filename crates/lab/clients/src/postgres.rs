//! PostgreSQL, or a pooler in front of one.

mod asker;
mod link;
mod place;
mod query;
mod requester;

pub use asker::{Asker, Rows};
pub use link::{Link, kind_of};
pub use place::Place;
pub use query::{Questions, connect};
pub use requester::{Answer, MAX_PREPARED, Parameters, Requester, Row, SqlError, TransactionStatus, Verdict};
