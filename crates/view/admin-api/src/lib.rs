//! What a running Poolhouse shows at its admin address, a PgBouncer at its console, and a PostgreSQL, a MongoDB and a
//! Redis of themselves, as values, and what drivers tell of their own pools; and what two looks tell of the time
//! between them.
//!
//! Refuses to know how it is asked, and what is made of it.
#![forbid(unsafe_code)]

mod activity;
mod beside;
mod change;
mod cmap;
mod console;
mod hikari;
mod look;
mod mongodb;
mod redis;
mod sum;
mod times;
mod work;

pub use activity::{Activity, Backend, MAX_BACKENDS, Row};
pub use beside::ServerOf;
pub use change::{Change, PoolChange, Since};
pub use cmap::{Cmap, CmapEvent};
pub use console::{Console, MAX_CONSOLE_ROWS, Shown};
pub use hikari::{Hikari, Scrape, Taken};
pub use look::{
    Client, Clients, Counts, Listener, ListenerClients, Look, Pool, PoolServers, PoolSettings, Pooler, Server, Servers,
    Tuned, Worker,
};
pub use mongodb::{Command, MAX_SESSIONS, Mongo, Session, Transactions};
pub use redis::{MAX_INFO, MAX_LIST, MAX_LISTED, Redis, RedisClient};
pub use sum::sum;
pub use times::Times;
pub use work::Work;
