//! Results of measurements and simulations: JSON files, a table, an HTML page, and a display during a run.
//!
//! ```text
//! result           the types of the JSON files: of a run, and of a sweep
//! histogram        durations, and the percentiles taken from them
//! merge            one result of several load machines
//! comparison       a metric against a limit: conditions that fail a run, objectives of a plan
//! sweep_sentences  the verdict of a sweep in sentences
//! run_text live    a result in the terminal, at the end and during the run
//! html files       pages, also of result files
//! ```
#![forbid(unsafe_code)]

pub mod comparison;
pub mod figures;
pub mod files;
pub mod grid;
pub mod histogram;
pub mod html;
pub mod live;
pub mod merge;
pub mod result;
pub mod run_text;
pub mod side_by_side;
pub mod sweep_sentences;

mod charts;
mod distribution;
mod elements;
mod page_tables;
#[cfg(test)]
mod sample;
mod sweep_page;

pub use figures::printable;

use crate::result::About;

/// The description of a result's scenario, for a terminal.
pub fn scenario(about: &About) -> Option<String> {
    figures::scenario(about).map(|text| grid::wrap(&printable(&text), 0, grid::WIDTH))
}
