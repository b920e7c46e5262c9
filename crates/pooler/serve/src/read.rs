//! Reads a configuration file, Poolhouse's own or PgBouncer's, and reports all its errors at once. `config` and `check`
//! find them.

use std::{path::Path, sync::Arc};

use ::pgbouncer::{Machine, Translation, translate};
use settings::{Problem, Problems, Variables, environment, load_text};
use upstream::Kind;

use crate::{
    check::errors_of_a_part,
    config::{Config, Reading, Source, read},
};

/// Reads a file of either kind; `${ENV}` in Poolhouse's own comes from the environment. With `insecure_no_auth`,
/// clients may connect from anywhere though no user has a password.
///
/// # Errors
/// All errors of the file. If there are none, [`crate::check()`] may find more.
pub fn from_file(path: &Path, insecure_no_auth: bool) -> Result<Config, Problems> {
    let text = load_text(path)?;
    if ::pgbouncer::is_ini(path, &text) {
        return from_ini(path);
    }
    usable(read(path, &text, &environment), insecure_no_auth)
}

/// Reads a file of PgBouncer's, which is translated; places of errors are those of that file.
///
/// # Errors
/// As [`from_file`].
pub fn from_ini(path: &Path) -> Result<Config, Problems> {
    of_translation(path, translate(path, &Machine::here())?)
}

/// What a file of PgBouncer's becomes when a setting is set beside it. It is not read again.
///
/// # Errors
/// As [`from_file`].
pub fn with_setting(path: &Path, of: &Translation, key: &str, value: &str) -> Result<Config, Problems> {
    of_translation(path, of.with_setting(key, value, &Machine::here())?)
}

fn of_translation(path: &Path, translation: Translation) -> Result<Config, Problems> {
    let translation = Arc::new(translation);
    let reading = read(path, &translation.toml, &|_| None);
    let config = usable(reading, false).map_err(|Problems(problems)| located(problems, &translation))?;
    if !config.authenticates(Kind::Postgres) {
        // Without this, clients of this machine would be let in, whom PgBouncer asks for a password.
        let problem = Problem::error("no user is known, so no client could log in").in_file(path);
        return Err(problem.hint("add users to the auth_file, or set auth_user").into());
    }
    let source = config.source.map(|source| {
        let of_ini = translation.files().filter(|_| translation.has_passwords()).map(Path::to_owned);
        let others = source.secret_files.into_iter().filter(|file| *file != source.path);
        let files = of_ini.chain(others).collect();
        Source { secret_files: files, translation: Some(translation), ..source }
    });
    Ok(Config { source, ..config })
}

/// Reads again what a configuration was read from.
///
/// # Errors
/// As [`from_file`].
pub fn again(source: &Source, insecure_no_auth: bool) -> Result<Config, Problems> {
    match source.translation {
        Some(_) => from_ini(&source.path),
        None => from_file(&source.path, insecure_no_auth),
    }
}

/// Reads anew the files that a configuration names, such as certificates and passwords; its own text is taken as it was
/// read before.
///
/// # Errors
/// As [`from_file`].
pub fn named_files_again(source: &Source, insecure_no_auth: bool) -> Result<Config, Problems> {
    let none: Variables<'_> = &|_| None;
    let variables = if source.translation.is_some() { none } else { &environment };
    let reading = read(&source.path, source.text.reveal(), variables);
    let config = usable(reading, insecure_no_auth).map_err(|Problems(problems)| match &source.translation {
        Some(translation) => located(problems, translation),
        None => Problems(problems),
    })?;
    let Source { secret_files, translation, .. } = source.clone();
    Ok(Config { source: config.source.map(|read| Source { secret_files, translation, ..read }), ..config })
}

fn located(problems: Vec<Problem>, translation: &Translation) -> Problems {
    let mut problems: Vec<Problem> = problems.into_iter().map(|problem| translation.locate(problem)).collect();
    problems.sort_by_key(Problem::position);
    problems.dedup();
    Problems(problems)
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
