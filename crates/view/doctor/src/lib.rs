//! What is wrong between clients, pools and a database: from looks at a running pooler, or at the database itself, over
//! some time, names symptoms with the evidence, the rival cause that it rules out, and the setting to change. No I/O
//! and no clock.
//!
//! ```text
//! course     looks at one run of one server: the first, the last, how many
//! window     looks at a pooler over some time, and what they tell of each pool
//! database   the same of a PostgreSQL itself: what its sessions tell; mongodb and redis likewise
//! symptoms   one file for each kind of trouble: what decides it
//! finding    what is said of a symptom: present, or undecided and what would decide it
//! forecast   the interface of a simulation that predicts what a pool does
//! values     values of settings, computed with such a forecast
//! diagnosis  all of that together, as text and as JSON; databases examines those that are no pooler and no PostgreSQL
//! findings   the answer of a Poolhouse that examines itself
//! recording  looks as lines of a file, and back; foreign reads what others recorded of drivers' own pools
//! ```
#![forbid(unsafe_code)]

mod course;
mod database;
mod databases;
mod diagnosis;
mod finding;
mod findings;
mod forecast;
mod foreign;
mod mongodb;
mod recording;
mod redis;
mod symptoms;
mod values;
mod window;

pub use database::DatabaseWindow;
pub use databases::{examine_mongodb, examine_redis};
pub use diagnosis::{Diagnosis, Source, examine, examine_database, examine_with};
pub use finding::{Finding, Instead, Predicted, Setting, Symptom, Told, Undecided};
pub use forecast::{Begins, Effect, Forecast, Held, Load, Sizes};
pub use foreign::{FileReading, NOT_WHOLE};
pub use mongodb::MongoWindow;
pub use recording::{Damage, Line, MAX_LINE, MAX_LOOKS, MAX_RECORDING, Patient, Reading};
pub use redis::RedisWindow;
pub use window::Window;
