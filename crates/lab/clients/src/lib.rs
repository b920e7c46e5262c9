//! Clients of databases: what talks to a PostgreSQL, a Redis or a MongoDB to put load on it, or to ask it about itself.
//! Puts the requester's side of each protocol on outgoing connections. It knows no load and no question.
//!
//! ```text
//! postgres redis mongodb   each: where connections go (`Place`), one connection (`Link`), questions (`Asker`)
//! lines       outgoing connections of one thread, in bytes
//! link        what links of all protocols have in common
//! connection  one link that is asked one request after the other
//! endpoint    an address, the name on its certificate, what makes TLS
//! cancel      cancel requests of PostgreSQL
//! ```
#![forbid(unsafe_code)]

mod cancel;
pub mod connection;
mod endpoint;
mod error;
pub mod lines;
pub mod link;
pub mod mongodb;
pub mod postgres;
pub mod redis;

pub use cancel::Cancels;
pub use endpoint::Endpoint;
pub use error::{Blame, ErrorKind, TargetError};
pub use link::Phases;
