//! What a running Poolhouse shows at its admin address, a PgBouncer at its console, and a PostgreSQL in its statistics views, as values; and what
//! two looks tell of the time between them.
//!
//! Refuses to know how it is asked, and what is made of it.
#![forbid(unsafe_code)]

mod activity;
mod change;
mod console;
mod look;
mod sum;
mod times;

pub use activity::{Activity, Backend, MAX_BACKENDS, Row};
pub use change::{Change, PoolChange, Since};
pub use console::{Console, MAX_CONSOLE_ROWS, Shown};
pub use look::{
    Client, Clients, Counts, Listener, ListenerClients, Look, Pool, PoolServers, PoolSettings, Pooler, Worker,
};
pub use sum::sum;
pub use times::Times;
