//! What people see of a result: a table at the end, a display while it runs, a page for the browser. Knows results
//! only: neither how they were measured nor who asks for them.

pub mod figures;
pub mod files;
pub mod grid;
pub mod html;
pub mod live;
pub mod side_by_side;
pub mod table;

mod charts;
mod distribution;
mod elements;
#[cfg(test)]
mod sample;
mod sweep;
mod tables;

pub use figures::printable;

use crate::result::About;

/// What the scenario of a result shows, for a terminal; `None`: it is of no scenario.
pub fn scenario(about: &About) -> Option<String> {
    figures::scenario(about).map(|text| grid::wrap(&printable(&text), 0, grid::WIDTH))
}
