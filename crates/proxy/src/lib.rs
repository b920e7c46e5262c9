//! A Poolhouse that serves: configuration, sockets to listen on, the admin address, logs and signals around a
//! [`driver::Driver`]. Moves no byte between clients and servers itself.
#![forbid(unsafe_code)]

mod check;
mod config;
mod password;
mod pools;
mod secret;

pub use check::{Machine, check};
pub use config::*;
pub use password::Password;
pub use pools::Pools;
pub use secret::Secret;
