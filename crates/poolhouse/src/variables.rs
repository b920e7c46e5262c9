//! Environment variables in place of a command line, for containers: each flag of `poolhouse serve` has one, and so has
//! what it serves. The command line comes first. Knows no flag but by its name.

use std::{env, ffi::OsString};

use clap::Command;

const PREFIX: &str = "POOLHOUSE_";
/// What platforms call the URL of an application's database.
const DATABASE_URL: &str = "DATABASE_URL";
/// Flags that say what to serve: their variables count only where the command line says nothing of it, because
/// `DATABASE_URL` is set in many a shell for another program.
const SUBJECTS: [&str; 2] = ["config", "url-file"];

/// What to serve.
pub enum Subject {
    Url(String),
    UrlFile(OsString),
    Config(OsString),
}

/// Gives each flag of `serve` its variable.
pub fn add_to(command: Command) -> Command {
    command.mut_subcommand("serve", |serve| {
        serve.mut_args(|flag| match flag.get_long().filter(|long| !SUBJECTS.contains(long)).map(name_of) {
            // The names are few, and needed until the process ends.
            Some(variable) => flag.env(&*variable.leak()).hide_env(true),
            None => flag,
        })
    })
}

/// What to serve according to the environment.
pub fn subject() -> Option<Subject> {
    let value = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    let [config, url_file] = SUBJECTS.map(|flag| value(&name_of(flag)));
    let url = || value(DATABASE_URL).map(|url| Subject::Url(url.to_string_lossy().into_owned()));
    config.map(Subject::Config).or_else(|| url_file.map(Subject::UrlFile)).or_else(url)
}

/// The variables of flags of a command that are set, for a message.
pub fn set_ones<'a>(flags: impl Iterator<Item = &'a str>) -> Vec<String> {
    flags.map(name_of).filter(|name| env::var_os(name).is_some()).collect()
}

fn name_of(flag: &str) -> String {
    format!("{PREFIX}{}", flag.to_uppercase().replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn a_flag_has_a_variable_of_its_name() {
        let command = add_to(crate::Command::command());
        let serve = command.find_subcommand("serve").unwrap();
        let variable = |flag: &str| {
            let mut flags = serve.get_arguments();
            flags.find(|arg| arg.get_long() == Some(flag)).unwrap().get_env().map(|name| name.to_owned())
        };
        assert_eq!(variable("max-wait-time").unwrap(), "POOLHOUSE_MAX_WAIT_TIME");
        assert_eq!(variable("admin-name").unwrap(), "POOLHOUSE_ADMIN_NAME");
        assert_eq!(variable("config"), None);
    }
}
