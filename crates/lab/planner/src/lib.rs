//! What `poolhouse plan` does: predicts what the settings of a pool will do, by running the real pool core in virtual
//! time, and finds the best ones. No I/O but reading what it is asked.
//!
//! ```text
//! question    what is asked: loads, settings, the server, what must hold
//! server      the server in virtual time: service times, what concurrency does to them, connecting, its limit
//! front       the Poolhouse that clients connect to: its gate
//! run         one simulation: the load generator's engine with the real pools, and the server
//! sizes       the settings that are looked for
//! upkeep      those that follow from them by rules
//! search      the best settings
//! facts       what arithmetic says, without simulation
//! advice      the settings to use, and limits for clients
//! reasons     why, in words
//! products    whose settings can be told
//! fragments   the settings in the words of each product
//! answer      all of these together: a prediction
//! prediction  what it is made of
//! report      text, JSON, a page
//! ```
#![forbid(unsafe_code)]

pub mod advice;
pub mod answer;
pub mod facts;
pub mod fragments;
mod front;
pub mod prediction;
pub mod products;
pub mod question;
mod reasons;
pub mod report;
pub mod run;
pub mod search;
pub mod server;
pub mod sizes;
pub mod upkeep;
mod words;
