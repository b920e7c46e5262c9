//! Results of measurements and simulations: JSON files, a table, an HTML page, and a display during a run.
//!
//! ```text
//! result      the types of the JSON files: of a run, and of a sweep
//! histogram   durations, and the percentiles taken from them
//! merge       one result of several load machines
//! comparison  a metric against a limit: conditions that fail a run, objectives of a plan
//! findings    the findings of a sweep in sentences
//! table live  a result in the terminal, at the end and during the run
//! html files  pages, also of result files
//! ```
#![forbid(unsafe_code)]

pub mod comparison;
pub mod figures;
pub mod files;
pub mod findings;
pub mod grid;
pub mod histogram;
pub mod html;
pub mod live;
pub mod merge;
pub mod result;
pub mod side_by_side;
pub mod table;

mod charts;
mod distribution;
mod elements;
#[cfg(test)]
mod sample;
mod sweep_page;
mod tables;

pub use figures::printable;

use crate::result::About;

/// The description of a result's scenario, for a terminal.
pub fn scenario(about: &About) -> Option<String> {
    figures::scenario(about).map(|text| grid::wrap(&printable(&text), 0, grid::WIDTH))
}
