//! Scripts of operations and their variables, as a command line names them: read from their files, and not looked into.

use std::path::{Path, PathBuf};

use ::load::plan::Script;

/// A variable of scripts: `NAME=VALUE`.
pub fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a variable is NAME=VALUE")?;
    Ok((name.trim().to_owned(), value.to_owned()))
}

/// A script for PostgreSQL: `FILE`, or `FILE@WEIGHT`.
pub fn script(text: &str) -> Result<(Script, u32), String> {
    let (file, weight) = weighted(text)?;
    let text = read(&file)?;
    Ok((Script::File(file, text), weight))
}

/// `FILE`, or `FILE@WEIGHT`.
pub fn weighted(text: &str) -> Result<(PathBuf, u32), String> {
    match text.rsplit_once('@') {
        Some((file, weight)) if weight.bytes().all(|b| b.is_ascii_digit()) && !weight.is_empty() => {
            let weight = weight.parse().map_err(|_| format!("`{text}`: the weight behind the `@` is too large"))?;
            Ok((PathBuf::from(file), weight))
        }
        _ => Ok((PathBuf::from(text), 1)),
    }
}

/// The text of a file.
pub fn read(path: &Path) -> Result<String, String> {
    settings::read_small(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}
