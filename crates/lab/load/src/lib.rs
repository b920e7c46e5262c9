//! The load generator: what `poolhouse bench` and `poolhouse sweep` do.
//!
//! ```text
//! scenario  a file that says what is to be run
//! plan      what is to be run: a shape of load, a pool under test, a target, faults on the way
//! engine    the state machine between them: arrivals, pool, books; no I/O and no clock
//! target    carries out what the engine orders: PostgreSQL and Redis through the driver, HTTP through hyper
//! script    what an operation on PostgreSQL does: the script language of pgbench
//! relay     what lies between generator and target: delays, stalls, cuts
//! record    the books of a run: histograms, counters, the series by second
//! result    what was measured, as it is written to JSON
//! run       one run from the beginning to the end
//! words     a plan in words, for the result
//! threshold merge   what is made of results
//! report    the result as a table and a page
//! sweep     many runs, and what they say about how many connections a database can use
//! ```
#![forbid(unsafe_code)]

pub mod engine;
pub mod merge;
pub mod plan;
mod random;
pub mod record;
pub mod relay;
pub mod report;
pub mod result;
pub mod run;
pub mod scenario;
pub mod script;
pub mod sweep;
pub mod target;
pub mod threshold;
mod words;
