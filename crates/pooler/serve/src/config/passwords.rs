//! The passwords of a `[[user]]`: one, or several that are valid at the same time.

use settings::{Problem, Secret, Section, read_small};

use crate::{Password, password::OtherPasswords};

/// Most passwords of a user.
const MAX_PASSWORDS: usize = 8;

/// The keys, of which a user has one at most.
pub const PASSWORD_KEYS: &[&str] = &["password", "password_file", "passwords", "password_files"];

/// The user's first password and the others. `None` without any, and after an error, which is reported.
pub fn of_user(section: &Section<'_>) -> Option<(Option<Password>, OtherPasswords)> {
    let given: Vec<&'static str> = PASSWORD_KEYS.iter().copied().filter(|key| section.has(key)).collect();
    let (&key, more) = given.split_first()?;
    if let Some(second) = more.first() {
        section.error(second, format!("give either `{key}` or `{second}`, not both"));
        return None;
    }
    let parse = |stored: &Secret| {
        Password::parse(stored).map_err(|message| section.error(key, format!("`{key}`: {message}"))).ok()
    };
    let stored: Vec<Secret> = match key {
        "passwords" => section.secrets(key)?,
        "password_files" => {
            let read = |name: String| {
                let path = section.resolve(&name);
                let text = read_small(&path).map_err(|error| {
                    section.error(key, format!("cannot read {}: {error}", path.display()));
                });
                text.ok().map(|text| Secret::new(text.trim_end_matches(['\n', '\r'])))
            };
            section.texts(key)?.into_iter().map(read).collect::<Option<_>>()?
        }
        _ => vec![section.secret("password", "password_file", false)?],
    };
    if stored.is_empty() || stored.len() > MAX_PASSWORDS {
        section.error(key, format!("`{key}` has 1 to {MAX_PASSWORDS} entries"));
        return None;
    }
    let mut passwords = stored.iter().map(parse).collect::<Option<Vec<_>>>()?;
    let first = passwords.remove(0);
    match OtherPasswords::beside(&first, passwords) {
        Ok(others) => Some((Some(first), others)),
        Err(why) => {
            section.report(key, Problem::error(why));
            None
        }
    }
}
