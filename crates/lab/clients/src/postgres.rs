//! PostgreSQL, or a pooler in front of one.

mod options;
mod protocol;
mod querier;
mod requester;

pub use options::ConnectOptions;
pub use protocol::kind_of;
pub use querier::Querier;
pub use requester::{Answer, MAX_PREPARED, Parameters, Requester, Row, SqlError, TransactionStatus, Verdict};
