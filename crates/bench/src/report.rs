//! What people see of a result: a table at the end, a display while it runs, a page for the browser. Knows results only: neither how
//! they were measured nor who asks for them.

pub mod compare;
pub mod files;
pub mod html;
pub mod live;
pub mod table;

mod charts;
mod distribution;
mod figures;
mod grid;
#[cfg(test)]
mod sample;
mod sweep;
mod tables;

pub use figures::printable;
