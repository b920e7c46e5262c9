//! What a running Poolhouse shows at its admin address, a PgBouncer at its console, and a PostgreSQL, a MongoDB and a
//! Redis of themselves, as values, and what drivers tell of their own pools; and what two looks tell of the time
//! between them.
//!
//! Refuses to know how it is asked, and what is made of it. `Examiner` is what `serve` asks of the doctor.
#![forbid(unsafe_code)]

mod activity;
mod beside;
mod change;
mod cmap;
mod console;
mod counts;
mod examiner;
mod hikari;
mod look;
mod mongodb;
mod pool;
mod redis;
mod times;
mod tuning;
mod work;

pub use activity::{Activity, Backend, MAX_BACKENDS, Row};
pub use beside::ServerOf;
pub use change::{Change, PoolChange, Since};
pub use cmap::{Cmap, CmapEvent};
pub use console::{Console, MAX_CONSOLE_ROWS, Shown};
pub use counts::{Counts, sum};
pub use examiner::{Examiner, NewExaminer, Observation};
pub use hikari::{Hikari, Scrape, Taken};
pub use look::{Client, Clients, Listener, ListenerClients, Look, Pooler, Server, Servers, Worker};
pub use mongodb::{Command, MAX_SESSIONS, Mongo, Session, Transactions};
pub use pool::{Pool, PoolServers, PoolSettings};
pub use redis::{MAX_INFO, MAX_LIST, MAX_LISTED, Redis, RedisClient};
pub use times::{Summarized, Times};
pub use tuning::{Tuning, TuningEvidence, TuningStep, TuningTrial};
pub use work::Work;
