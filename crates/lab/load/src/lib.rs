//! The load generator: plans a run, and carries it out against a database or an HTTP service.
//!
//! ```text
//! scenario  a file that says what is to be run
//! plan      what is to be run: a shape of load, a pool under test, a target, faults on the way
//! engine    the state machine between them: arrivals, pool, metrics; no I/O and no clock
//! target    carries out what the engine orders: databases through the driver, HTTP through hyper
//! script    the requests of an operation: the script language of pgbench, commands of Redis and MongoDB
//! relay     faults between generator and target: delays, stalls, cuts
//! record    the metrics of a run: counters, histograms, the series by second
//! run       one run from the beginning to the end
//! describe  a plan in words, for the result
//! ```
#![forbid(unsafe_code)]

pub mod describe;
pub mod engine;
pub mod plan;
mod random;
pub mod record;
pub mod relay;
pub mod run;
pub mod scenario;
pub mod script;
pub mod target;
