//! Results: what was measured, as it is written to JSON, and what people see of it: a table, a page for the browser, a
//! display while a run goes on. Knows neither how something was measured nor who asks.
//!
//! ```text
//! result      the types of the JSON files: of a run, and of a sweep
//! histogram   durations, and the percentiles taken from them
//! merge       one result of several load machines
//! comparison  a metric against a limit: conditions that fail a run, objectives of a plan
//! findings    what a sweep found, in words
//! table live  a result in the terminal, at the end and while it runs
//! html files  pages, also of kept results
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

/// What the scenario of a result shows, for a terminal; `None`: it is of no scenario.
pub fn scenario(about: &About) -> Option<String> {
    figures::scenario(about).map(|text| grid::wrap(&printable(&text), 0, grid::WIDTH))
}
