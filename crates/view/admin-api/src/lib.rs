//! What a running Poolhouse shows at its admin address, a PgBouncer at its console, and a PostgreSQL, a MongoDB and a
//! Redis of themselves, as values, and what drivers tell of their own pools; and what two looks tell of the time
//! between them.
//!
//! Refuses to know how these are asked, and what a reader makes of the answers. `Examiner` is what `serve` asks of the
//! doctor.
#![forbid(unsafe_code)]

mod activity;
mod change;
mod cmap;
mod console;
mod counts;
mod examiner;
mod hikari;
mod look;
mod mongodb;
mod outage;
mod pool;
mod redis;
mod times;
mod tuning;
mod unix_time;
mod work;

pub use activity::{Activity, Backend, MAX_BACKENDS, Row};
pub use change::{Change, PoolChange};
pub use cmap::{Cmap, CmapEvent};
pub use console::{Console, ConsoleAnswers, MAX_CONSOLE_ROWS};
pub use counts::{Counts, sum};
pub use examiner::{Examiner, NewExaminer, Observation};
pub use hikari::{Hikari, Scrape, ScrapeLine};
pub use look::{Client, Clients, Listener, ListenerClients, Look, Pooler, Server, ServerProcess, Servers, Worker};
pub use mongodb::{Command, MAX_SESSIONS, Mongo, SessionRow, Transactions};
pub use pool::{Pool, PoolServers, PoolSettings};
pub use redis::{MAX_INFO_BYTES, MAX_LIST_BYTES, MAX_LISTED_CLIENTS, Redis, RedisClient};
pub use times::{Summarized, Times};
pub use tuning::{Tuning, TuningEvidence, TuningStep, TuningTrial};
pub use work::Work;
