//! PgBouncer's console as bytes: the server's side of PostgreSQL's protocol 3, the commands, and the columns of each
//! table. The program that uses it moves the bytes, fills the tables and carries out orders.
//!
//! - [`session`]: one connection, from its start-up packet on;
//! - [`command`]: the text of a command;
//! - [`shows`]: what SHOW lists, and the columns of each list;
//! - [`table`]: rows as they are sent;
//! - [`wire`], [`writing`]: messages.
//!
//! It opens no socket, and knows no pooler and no configuration.

mod answer;
mod command;
mod extended;
mod session;
mod shows;
mod table;
mod wire;
mod writing;

pub use answer::{Answer, Failure};
pub use command::{Command, Role, Shutdown};
pub use session::{MAX_MESSAGE_BYTES, NOT_ALLOWED, Next, OWNER_PARAMETER, Session};
pub use shows::Show;
pub use table::{Column, Table, Type, Value};
