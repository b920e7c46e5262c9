//! Clients of databases: what talks to a PostgreSQL, a Redis or a MongoDB to put load on it, or to ask it about itself.
//! They know no load and no question.
//!
//! ```text
//! postgres redis mongodb   each: `ConnectOptions`, the protocol (`Requester`), questions one at a time (`Querier`)
//! blocking    a client that waits for each answer
//! client      one connection in the protocol of a database
//! cancel      cancel requests of PostgreSQL
//! transport   outgoing connections of one thread, in bytes
//! endpoint    an address, the name on its certificate, TLS
//! ```
#![forbid(unsafe_code)]

pub mod blocking;
mod cancel;
pub mod client;
mod endpoint;
mod error;
pub mod mongodb;
pub mod postgres;
pub mod redis;
pub mod transport;

pub use cancel::Cancels;
pub use client::Phases;
pub use endpoint::Endpoint;
pub use error::{Blame, ErrorKind, TargetError};
