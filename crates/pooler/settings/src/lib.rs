//! Settings as people write them: tables of a TOML file, durations, variables and secrets, and what is wrong with them,
//! with its place and what to do. Knows no particular setting.
#![forbid(unsafe_code)]

mod problem;
mod secret;
mod section;
mod value;

pub use problem::{Place, Problem, Problems, Severity};
pub use secret::Secret;
pub use section::{
    Document, MAX_SECRET_FILE_BYTES, Section, Spots, choose, load_text, nearest, read_in_part, read_small, read_text,
};
pub use value::{Variables, environment, interpolate_url, parse_duration, parse_duration_on, show_duration};
