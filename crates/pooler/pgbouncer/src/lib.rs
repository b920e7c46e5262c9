//! PgBouncer's configuration, translated into the text of a `poolhouse.toml` that does the same. Serves nothing, and
//! knows of Poolhouse only the names of its keys.
#![forbid(unsafe_code)]

mod general;
mod ini;
mod known;
mod lines;
mod machine;
mod page;
mod pairs;
mod toml_text;
mod translate;
mod values;

pub use known::can_change;
pub use machine::Machine;
pub use page::{names, table};
pub use translate::{Translation, translate};

use std::path::Path;

/// Whether a text is a configuration of PgBouncer's, and not one of Poolhouse's: by the file's name, or by a section
/// that only PgBouncer has.
pub fn is_ini(path: &Path, text: &str) -> bool {
    match path.extension().and_then(|end| end.to_str()) {
        Some("ini") => true,
        Some("toml") => false,
        _ => has_its_section(text),
    }
}

/// Whether a text has a section that PgBouncer's file has.
pub fn has_its_section(text: &str) -> bool {
    text.lines().any(|line| matches!(line.trim(), "[pgbouncer]" | "[databases]"))
}
