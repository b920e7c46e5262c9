//! A virtual world for the pool core and the product itself: time jumps from event to event, chance comes from a seed,
//! and everything is checked after every step. It knows the pool, the driver and the protocols; none of them knows it.
#![forbid(unsafe_code)]

pub mod agenda;
pub mod crowd;
pub mod databases;
pub mod house;
pub mod network;
pub mod product;
pub mod random;
pub mod runner;
pub mod shrink;
pub mod stage;
pub mod world;
