//! Reads a configuration file and reports all its errors at once. `config` and `check` find them.

use std::path::Path;

use settings::{Problem, Problems, Variables, environment, load_text};

use crate::{
    check::errors_of_a_part,
    config::{Config, Reading, pgbouncer, read},
};

/// Reads a file; `${ENV}` comes from the environment. With `insecure_no_auth`, clients may connect from anywhere though
/// no user has a password.
///
/// # Errors
/// All errors of the file. If there are none, [`crate::check()`] may find more.
pub fn from_file(path: &Path, insecure_no_auth: bool) -> Result<Config, Problems> {
    let text = load_text(path)?;
    let reading = read(path, &text, &environment);
    if reading.config.is_none() && pgbouncer::is_its_file(&text) {
        let (message, hint) = pgbouncer::not_read();
        return Err(Problem::error(message).hint(hint).in_file(path).into());
    }
    usable(reading, insecure_no_auth)
}

/// Reads a file's text; the file need not exist. Relative paths in the text start at the file's folder.
///
/// # Errors
/// As [`from_file`].
pub fn from_text(path: &Path, text: &str, variables: Variables<'_>) -> Result<Config, Problems> {
    usable(read(path, text, variables), false)
}

fn usable(reading: Reading, insecure_no_auth: bool) -> Result<Config, Problems> {
    let Reading { config, intact, mut problems } = reading;
    let config = config.map(|config| Config { insecure_no_auth, ..config });
    match config {
        Some(config) if problems.is_empty() => Ok(config),
        part => {
            problems.extend(part.iter().flat_map(|config| errors_of_a_part(config, intact)));
            problems.sort_by_key(Problem::position);
            Err(Problems(problems))
        }
    }
}
