//! Simulates the product: real workers and sessions, in virtual time, over a simulated network, between simulated
//! clients and databases. A seed decides everything that happens, and every step is checked.
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
