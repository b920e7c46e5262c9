//! A virtual world for the pool core and the seam: time jumps from event to event, chance comes from a seed, and
//! everything is checked after every step. It knows `pool` and `protocol`; neither knows it.
#![forbid(unsafe_code)]

pub mod agenda;
pub mod databases;
pub mod network;
pub mod product;
pub mod random;
pub mod runner;
pub mod seam;
pub mod shrink;
pub mod toys;
pub mod world;
