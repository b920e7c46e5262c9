//! Simulates the product: real workers and sessions, in virtual time, over a simulated network, between simulated
//! clients and databases. A seed decides everything that happens, and every step is checked.
//!
//! - schedule: one run of the simulation, which its seed determines;
//! - harness: the workers of the product, each of which takes a step when the simulation says so;
//! - network, end: the simulated network, and one side of a connection on it;
//! - model: a simulated database that speaks the real protocol;
//! - client: a program that sends random requests, and compares each answer with that of a reference;
//! - reference: a model of the database that belongs to one client alone, and so knows every answer;
//! - raw client: a client that sends damaged or arbitrary bytes, and checks nothing;
//! - application: a MongoDB driver with an application on top, with several connections and its own checks;
//! - self-checking client: a client that checks its answers without a reference, such as an application;
//! - fault: what the simulation breaks, such as a connection or a host;
//! - aside: a message that no request asked for, such as a notification;
//! - crowd: clients that come and go at the limits of a listener, without a database;
//! - rig: workers between clients and servers whose every message a test dictates.
#![forbid(unsafe_code)]

pub mod crowd;
pub mod databases;
pub mod harness;
pub mod network;
pub mod product;
pub mod random;
pub mod rig;
pub mod runner;
pub mod shrink;
