//! Passwords that are probably a mistake: a shell's variable, which is taken literally, and an invalid hash. Shows no
//! password.

use settings::{Problem, Spots};

use crate::config::Config;

pub fn secrets(config: &Config, found: &mut Vec<Problem>) {
    for user in &config.users {
        let plain = user.password.as_ref().and_then(|password| password.plain());
        if plain.is_some_and(|password| password.reveal().starts_with("md5")) {
            let message = format!("the password of `{}` begins with md5 and is no md5 hash", user.name);
            let problem = Problem::warning(message);
            let problem = problem.hint("it is taken for the password itself; a hash is md5 and 32 hexadecimal digits");
            found.push(config.locate(problem, &user.spots, "password"));
        }
        variables(config, &user.spots, &["password"], found);
    }
    for database in &config.databases {
        variables(config, &database.spots, &["password", "auth_password", "url"], found);
    }
    variables(config, &config.admin.spots, &["token"], found);
}

/// Values that are a shell's variable without braces.
fn variables(config: &Config, spots: &Spots, keys: &[&'static str], found: &mut Vec<Problem>) {
    let Some(source) = &config.source else { return };
    for key in keys {
        let value = spots.get(key).and_then(|span| source.text.reveal().get(span.clone())).unwrap_or_default();
        let value = value.trim_matches(['"', '\'']);
        if is_variable(if *key == "url" { password_of(value) } else { value }) {
            let problem =
                Problem::warning(format!("the {} is a name behind a `$`, and is taken as it stands", of(key)));
            let hint = "for a variable of the environment write ${NAME}, in braces";
            found.push(config.locate(problem.hint(hint), spots, key));
        }
    }
}

fn of(key: &str) -> &str {
    if key == "url" { "password in the url" } else { key }
}

/// The password in a URL; empty without one.
fn password_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let login = rest.rsplit_once('@').map_or("", |(login, _)| login);
    login.split_once(':').map_or("", |(_, password)| password)
}

/// Whether a text looks like `$APP_PASSWORD`.
fn is_variable(text: &str) -> bool {
    let name = text.strip_prefix('$').unwrap_or_default();
    name.starts_with(|first: char| first.is_ascii_uppercase() || first == '_')
        && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
}
