//! A running Poolhouse in a terminal: its pools, the clients that hold servers, and why.
//!
//! A [`Report`] is made of two looks; a [`Screen`] shows the last one and takes keys; [`run`] gives it a terminal.
//! Refuses to know how the process is asked.
#![forbid(unsafe_code)]

mod columns;
mod draw;
mod hangup;
mod names;
mod numbers;
mod report;
mod screen;
mod signals;
mod terminal;

pub use names::{format_name, text_width};
pub use report::{ClientRow, ListenerRow, PoolRow, Report, Summary};
pub use screen::{Key, Outcome, Screen, View};
pub use terminal::run;
