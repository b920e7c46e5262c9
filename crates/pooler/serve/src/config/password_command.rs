//! The keys of a `[[database]]` that name a program for its password.

use std::time::Duration;

use settings::Section;
use upstream::{Kind, UpstreamUrl};

/// The keys.
pub const PASSWORD_COMMAND_KEYS: &[&str] = &["password_command", "password_command_time", "password_command_lifetime"];

/// A program that writes the password of a database to its standard output.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PasswordCommand {
    /// The program and its arguments; no shell reads them.
    pub words: Vec<String>,
    /// How long it may take.
    pub timeout: Duration,
    /// How long a password holds, if the program does not say.
    pub lifetime: Duration,
}

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// As long as a token of Amazon RDS holds.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(15 * 60);

/// Reads the keys of a database with this URL. `has_password`: the section has a password beside that of the URL.
pub fn password_command(section: &Section<'_>, url: &UpstreamUrl, has_password: bool) -> Option<PasswordCommand> {
    let words = section.texts("password_command");
    let timeout = section.duration_on("password_command_time").unwrap_or(DEFAULT_TIMEOUT);
    let lifetime = section.duration_on("password_command_lifetime").unwrap_or(DEFAULT_LIFETIME);
    if !section.has("password_command") {
        for key in PASSWORD_COMMAND_KEYS.iter().filter(|key| section.has(key)) {
            section.error(key, format!("`{key}` has no effect without `password_command`"));
        }
        return None;
    }
    if has_password || url.password.is_some() {
        section.error("password_command", "the password is given already: take it away, or the program");
    }
    if url.user.is_none() && url.kind == Kind::Postgres {
        section.error("password_command", "`password_command` needs a user in the url, whose password it gives");
    }
    let words = words?;
    if words.first().is_none_or(String::is_empty) {
        section.error("password_command", "`password_command` names no program");
        return None;
    }
    Some(PasswordCommand { words, timeout, lifetime })
}
