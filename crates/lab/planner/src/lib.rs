//! Predicts the effect of a pool's settings by running the real pool core in virtual time, and finds the best settings:
//! `poolhouse plan`. The only I/O is reading the files of a question.
//!
//! ```text
//! question    loads, given settings, the server model, objectives
//! server      the server model: service times, concurrency, connecting, limits
//! front       the Poolhouse in front of the server: its gate and its pool
//! run         one simulation: the load generator's engine, the real pools, and the server model
//! sizes       the settings that the search varies
//! upkeep      the settings that follow from the sizes by rules
//! search      the search for the best settings
//! facts       figures by arithmetic, without simulation
//! advice      the recommended settings, and limits for clients
//! reasons     the explanation in sentences
//! products    the products for which settings are printed
//! fragments   the settings in the syntax of each product
//! answer      all of these together: a prediction
//! prediction  the types of a prediction
//! report      text, and an HTML page
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
