//! What SQL says, and what is said in SQL: `tokens` cuts a text into words, and `scan` finds in them what may outlive a
//! transaction (`suspects` are its findings, and `harmless` the functions that leave nothing behind). `parameters` are
//! what a session has set, and `parameter_names` what a name says of one. `deallocate` reads DEALLOCATE, and `reset`
//! rewrites RESET. `catalogue` tells what a database could do behind a text. It knows no session.

pub(crate) mod catalogue;
pub(crate) mod deallocate;
pub(crate) mod harmless;
pub(crate) mod parameter_names;
pub(crate) mod parameters;
pub(crate) mod reset;
pub(crate) mod scan;
pub(crate) mod suspects;
pub(crate) mod tokens;

pub(crate) use catalogue::{Catalogue, Reading};
pub(crate) use deallocate::{Deallocate, deallocates, deallocates_all};
pub(crate) use parameters::{Pairs, Settings, is_fact, is_identity, write_literal};
pub(crate) use reset::Tag;
pub(crate) use scan::scan_beginning;
pub(crate) use suspects::{ALL_CHANNELS, ALL_PARAMETERS, Findings, Suspects};
