//! What is more than forwarding, one file or folder for each: a file may use those named before it.
//!
//! - `pins`: clients that keep their servers beyond their transactions, up to `max_pinned`.
//! - `rejection`: requests that are not allowed.
//! - `cleaning`: a client never meets what another has left behind.
//! - `listen`: LISTEN for many on one server.
//! - `settings`: SET and RESET, and what else a session has beyond its transactions, follow the client or keep its
//!   server.
//! - `plans`: cached plans of functions.
//! - `sequences`: `currval` and `lastval`.
//! - `prepared`: prepared statements, those in SQL included.
//! - `preface`: what a server is sent ahead of its new holder's request.
//!
//! What of these is known of each connection is in the file of the same name in `session`, and in the fields of
//! `Client` and `Server` that say so. `relay` calls a feature before a message is forwarded (`requests`), when one was
//! answered (`outcomes`), when the feature itself has asked a server for something (`own_queries`), and when a
//! connection ends (`ending`); and the driver, when a client is granted a server.

pub(crate) mod cleaning;
pub(crate) mod listen;
pub(crate) mod pins;
pub(crate) mod plans;
pub(crate) mod preface;
pub(crate) mod prepared;
pub(crate) mod rejection;
pub(crate) mod sequences;
pub(crate) mod settings;
