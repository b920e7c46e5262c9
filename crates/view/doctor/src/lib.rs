//! What is wrong between clients, pools and a database: from looks at a running pooler, or at the database itself, over
//! some time, names symptoms with the evidence, the rival cause that it rules out, and the setting to change. No I/O
//! and no clock.
//!
//! ```text
//! gauge         numbers that are read at each look
//! origin        where connections come from, for people
//! series        looks at one server: the first, the last, how many; and the window of a database server
//! pooler        what looks at a pooler tell of each pool
//! postgres      what looks at a PostgreSQL itself tell of its sessions; mongodb and redis likewise
//! finding       symptoms, and what is said of one: present, or undecided and what would decide it
//! symptoms      one file for each kind of trouble: what decides it
//! forecast      the interface of a simulation that predicts what a pool does
//! values        values of settings, computed with such a forecast
//! diagnosis     all of that together, as text and as JSON
//! findings      the answer of a Poolhouse that examines itself
//! recording     looks as lines of a file, and back
//! driver_files  looks from files about drivers' own pools that other programs wrote
//! ```
#![forbid(unsafe_code)]

mod diagnosis;
mod driver_files;
mod finding;
mod findings;
mod forecast;
mod gauge;
mod mongodb;
mod origin;
mod pooler;
mod postgres;
mod recording;
mod redis;
mod series;
mod symptoms;
mod values;

pub use diagnosis::{Diagnosis, Source, examine, examine_mongodb, examine_postgres, examine_redis, examine_with};
pub use driver_files::{FileReader, INCOMPLETE_SERIES};
pub use finding::{Finding, Instead, Predicted, Setting, Symptom, Undecided};
pub use forecast::{Arrivals, Effect, Forecast, ForecastPool, HoldTimes, Load};
pub use mongodb::MongoWindow;
pub use pooler::PoolerWindow;
pub use postgres::PostgresWindow;
pub use recording::{Line, MAX_LINE_BYTES, MAX_LOOKS, MAX_RECORDING_BYTES, ReadError, RecordingReader, Subject};
pub use redis::RedisWindow;
