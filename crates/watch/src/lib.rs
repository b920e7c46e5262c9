//! What a running Poolhouse shows at its admin address, as values, and what two looks tell of the time between them.
//!
//! Refuses to know how it is asked, and what is made of it.
#![forbid(unsafe_code)]

mod change;
mod look;
mod times;

pub use change::{Change, PoolChange, Since};
pub use look::{Client, Clients, Counts, Listener, ListenerClients, Look, Pool, PoolServers, Worker};
pub use times::Times;
