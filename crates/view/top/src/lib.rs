//! A running Poolhouse in a terminal: its pools, who holds servers, and why.
//!
//! A [`Report`] is made of two looks; a [`Screen`] shows the last one and takes keys; [`run`] gives it a terminal.
//! Refuses to know how the process is asked.
#![forbid(unsafe_code)]

mod columns;
mod draw;
mod foreign;
mod hangup;
mod report;
mod screen;
mod signals;
mod terminal;
mod words;

pub use foreign::{name, width};
pub use report::{ClientRow, Door, PoolRow, Report, Summary};
pub use screen::{Key, Screen, View, Wish};
pub use terminal::run;
