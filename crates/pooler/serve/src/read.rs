//! A configuration file, read and looked at as a whole, so that all its errors are told at once. What they are is known
//! to `config` and `check`.

use std::path::Path;

use settings::{Problem, Problems, Variables, environment, load_text};

use crate::{
    check::errors_of_a_part,
    config::{Config, Reading, pgbouncer, read},
};

/// Reads a file; `${ENV}` comes from the environment. `insecure_no_auth`: clients may come from anywhere though no user
/// has a password.
///
/// # Errors
/// All that is wrong with it. Of a file that can be read there may be more, which [`crate::check()`] finds.
pub fn from_file(path: &Path, insecure_no_auth: bool) -> Result<Config, Problems> {
    let text = load_text(path)?;
    let reading = read(path, &text, &environment);
    if reading.config.is_none() && pgbouncer::is_its_file(&text) {
        let (message, hint) = pgbouncer::not_read();
        return Err(Problem::error(message).hint(hint).in_file(path).into());
    }
    usable(reading, insecure_no_auth)
}

/// Reads the text of a file that may itself not exist; relative paths in it start at its folder.
///
/// # Errors
/// As above.
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
