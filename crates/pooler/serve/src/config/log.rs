//! The keys of `[log]`. Opens nothing.

use std::{path::PathBuf, time::Duration};

use settings::{Section, choose};

pub const LOG_KEYS: &[&str] = &["file", "level", "syslog", "syslog_ident", "syslog_facility", "stats_period"];

const LEVELS: &[&str] = &["error", "warn", "info", "debug", "trace"];

const FACILITIES: &[&str] = &[
    "auth", "authpriv", "daemon", "user", "local0", "local1", "local2", "local3", "local4", "local5", "local6",
    "local7",
];

/// Where the log goes beside standard error, and what is in it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Log {
    pub file: Option<PathBuf>,
    /// The level, unless the command line says another.
    pub level: Option<&'static str>,
    pub syslog: Option<Syslog>,
    /// How often a line with sums is written; `None` is never.
    pub stats_period: Option<Duration>,
}

/// How lines are marked in the system's log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Syslog {
    pub ident: String,
    pub facility: &'static str,
}

/// Reads the section.
pub fn log(section: &Section<'_>) -> Log {
    let (ident, facility) = (section.string("syslog_ident"), word(section, "syslog_facility", FACILITIES));
    let is_on = section.truth("syslog").unwrap_or(false);
    let key = ["syslog_ident", "syslog_facility"].into_iter().find(|key| !is_on && section.has(key));
    if let Some(key) = key {
        section.error(key, format!("`{key}` has no effect without syslog = true"));
    }
    let syslog = is_on.then(|| Syslog {
        ident: ident.unwrap_or_else(|| "poolhouse".to_owned()),
        facility: facility.unwrap_or("daemon"),
    });
    Log {
        file: section.path("file"),
        level: word(section, "level", LEVELS),
        syslog,
        stats_period: section.duration("stats_period").flatten(),
    }
}

fn word(section: &Section<'_>, key: &'static str, words: &'static [&'static str]) -> Option<&'static str> {
    let choices: Vec<(&str, &'static str)> = words.iter().map(|word| (*word, *word)).collect();
    section.text(key, |text| choose(text, &choices))
}
