//! Run-time parameters that the model knows: what they may be set to, how PostgreSQL spells it, and who may. It knows
//! no session.

use std::{collections::HashMap, sync::LazyLock};

use super::{failure::Failure, values::read_bool};

pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) default: &'static str,
    kind: Kind,
    pub(super) rights: Rights,
    /// A session is told when it changes.
    pub(super) reported: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rights {
    Anybody,
    Superuser,
    /// Nobody, as long as the server runs.
    Start,
    Nobody,
}

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Ascii,
    Bool,
    Milliseconds,
    Kilobytes(i64),
    Integer(i64, i64),
    Words(&'static [&'static str]),
    DateStyle,
    Encoding,
    Zone,
    Names,
    Role,
}

use Kind::{Ascii, Bool, DateStyle, Encoding, Integer, Kilobytes, Milliseconds, Names, Role, Text, Words, Zone};
use Rights::{Anybody, Nobody, Start, Superuser};

pub(super) const INTERVALS: &[&str] = &["postgres", "postgres_verbose", "sql_standard", "iso_8601"];
const LEVELS: &[&str] = &["serializable", "repeatable read", "read committed", "read uncommitted"];
const MESSAGES: &[&str] = &["debug5", "debug4", "debug3", "debug2", "debug1", "log", "notice", "warning", "error"];
const ZONES: &[&str] =
    &["UTC", "GMT", "CET", "EST", "Etc/UTC", "Europe/Berlin", "Europe/London", "America/New_York", "Asia/Tokyo"];
const UNITS: &[(&str, i64)] = &[("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1)];
const SIZES: &[(&str, i64)] = &[("TB", 1 << 30), ("GB", 1 << 20), ("MB", 1 << 10), ("kB", 1)];

const fn of(name: &'static str, default: &'static str, kind: Kind, rights: Rights, reported: bool) -> Parameter {
    Parameter { name, default, kind, rights, reported }
}

/// All, in the order in which they are reported.
pub(super) static ALL: &[Parameter] = &[
    of("application_name", "", Ascii, Anybody, true),
    of("bytea_output", "hex", Words(&["escape", "hex"]), Anybody, false),
    of("client_encoding", "UTF8", Encoding, Anybody, true),
    of("client_min_messages", "notice", Words(MESSAGES), Anybody, false),
    of("DateStyle", "ISO, MDY", DateStyle, Anybody, true),
    of("deadlock_timeout", "1000", Milliseconds, Superuser, false),
    of("default_transaction_deferrable", "off", Bool, Anybody, false),
    of("default_transaction_isolation", "read committed", Words(LEVELS), Anybody, false),
    of("default_transaction_read_only", "off", Bool, Anybody, true),
    of("enable_seqscan", "on", Bool, Anybody, false),
    of("escape_string_warning", "on", Bool, Anybody, false),
    of("extra_float_digits", "1", Integer(-15, 3), Anybody, false),
    of("geqo", "on", Bool, Anybody, false),
    of("idle_in_transaction_session_timeout", "0", Milliseconds, Anybody, false),
    of("idle_session_timeout", "0", Milliseconds, Anybody, false),
    of("in_hot_standby", "off", Bool, Nobody, true),
    of("integer_datetimes", "on", Bool, Nobody, true),
    of("IntervalStyle", "postgres", Words(INTERVALS), Anybody, true),
    of("is_superuser", "off", Bool, Nobody, true),
    of("jit", "on", Bool, Anybody, false),
    of("lock_timeout", "0", Milliseconds, Anybody, false),
    of("log_statement", "none", Words(&["none", "ddl", "mod", "all"]), Superuser, false),
    of("max_connections", "100", Integer(1, 262_143), Start, false),
    of("role", "none", Role, Anybody, false),
    of("row_security", "on", Bool, Anybody, false),
    of("search_path", "\"$user\", public", Names, Anybody, false),
    of("server_encoding", "UTF8", Text, Nobody, true),
    of("server_version", "15.18", Text, Nobody, true),
    of("server_version_num", "150018", Text, Nobody, false),
    of("session_authorization", "", Role, Anybody, true),
    of("standard_conforming_strings", "on", Bool, Anybody, true),
    of("statement_timeout", "0", Milliseconds, Anybody, false),
    of("temp_buffers", "1024", Integer(100, 1_073_741_823), Anybody, false),
    of("TimeZone", "UTC", Zone, Anybody, true),
    of("work_mem", "4096", Kilobytes(64), Anybody, false),
];

/// The parameter of this name, however it is spelt.
pub(super) fn find(name: &str) -> Option<&'static Parameter> {
    static BY_NAME: LazyLock<HashMap<String, &Parameter>> =
        LazyLock::new(|| ALL.iter().map(|parameter| (parameter.name.to_ascii_lowercase(), parameter)).collect());
    match BY_NAME.get(name) {
        None if name.bytes().any(|byte| byte.is_ascii_uppercase()) => BY_NAME.get(&name.to_ascii_lowercase()),
        found => found,
    }
    .copied()
}

impl Parameter {
    /// How a list of words of a SET becomes one text.
    pub(super) fn join(&self, words: &[String]) -> Result<String, Failure> {
        match self.kind {
            Names => Ok(words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(", ")),
            DateStyle => Ok(words.join(", ")),
            _ if words.len() > 1 => {
                Err(Failure::new("22023", format!("SET {} takes only one argument", self.name.to_ascii_lowercase())))
            }
            _ => Ok(words.concat()),
        }
    }

    /// The value as it is kept. `given` is how the name was spelt, `now` what is set, `user` who has logged in.
    pub(super) fn accept(&self, given: &str, value: &str, now: &str, user: &str) -> Result<String, Failure> {
        let invalid =
            |name: &str| Failure::new("22023", format!("invalid value for parameter \"{name}\": \"{value}\""));
        match self.kind {
            Text => Ok(value.to_owned()),
            Names => {
                let plain = value.split(',').all(|name| !name.trim().is_empty()) || value.is_empty();
                let list = Failure::detail(invalid(self.name), "List syntax is invalid.");
                if plain { Ok(value.to_owned()) } else { Err(list) }
            }
            Ascii => {
                let printable = |byte: u8| if (32..127).contains(&byte) { char::from(byte) } else { '?' };
                Ok(value.bytes().map(printable).collect())
            }
            Bool => read_bool(value)
                .map(|truth| if truth { "on" } else { "off" }.to_owned())
                .ok_or_else(|| Failure::new("22023", format!("parameter \"{given}\" requires a Boolean value"))),
            Milliseconds => {
                let hint = "Valid units for this parameter are \"us\", \"ms\", \"s\", \"min\", \"h\", and \"d\".";
                in_range(given, number(value, UNITS), (0, i32::MAX.into()), " ms", invalid(given), hint)
            }
            Kilobytes(least) => {
                let hint = "Valid units for this parameter are \"B\", \"kB\", \"MB\", \"GB\", and \"TB\".";
                in_range(given, number(value, SIZES), (least, i32::MAX.into()), " kB", invalid(given), hint)
            }
            Integer(least, most) => in_range(given, number(value, &[]), (least, most), "", invalid(given), ""),
            Words(words) => {
                let found = words.iter().find(|word| word.eq_ignore_ascii_case(value));
                let hint = || format!("Available values: {}.", words.join(", "));
                found.map(|word| (*word).to_owned()).ok_or_else(|| invalid(given).hint(hint()))
            }
            DateStyle => date_style(value, now).map_err(|word| {
                invalid(self.name).detail(match word {
                    Some(word) => format!("Unrecognized key word: \"{word}\"."),
                    None => "Conflicting \"datestyle\" specifications.".to_owned(),
                })
            }),
            Encoding => {
                let plain = |c: &char| c.is_ascii_alphanumeric();
                let name: String = value.chars().filter(plain).collect::<String>().to_ascii_lowercase();
                match &*name {
                    "utf8" | "unicode" => Ok("UTF8".into()),
                    "latin1" | "iso88591" => Ok("LATIN1".into()),
                    "sqlascii" => Ok("SQL_ASCII".into()),
                    _ => Err(invalid(self.name)),
                }
            }
            Zone => ZONES
                .iter()
                .find(|zone| zone.eq_ignore_ascii_case(value))
                .map(|zone| (*zone).to_owned())
                .ok_or_else(|| invalid(self.name)),
            Role => match self.name {
                "role" if value == "none" || value == user => Ok(value.to_owned()),
                "session_authorization" if value == user => Ok(value.to_owned()),
                _ => Err(Failure::new("22023", format!("role \"{value}\" does not exist"))),
            },
        }
    }

    /// The value as people are shown it.
    pub(super) fn show(&self, value: &str) -> String {
        let units = match self.kind {
            Milliseconds => UNITS,
            Kilobytes(_) => SIZES,
            // Blocks.
            Integer(..) if self.name == "temp_buffers" => {
                let blocks: i64 = value.parse().unwrap_or_default();
                return with_unit(blocks * 8, SIZES);
            }
            _ => return value.to_owned(),
        };
        with_unit(value.parse().unwrap_or_default(), units)
    }
}

/// A number in the largest unit that it is a multiple of.
fn with_unit(number: i64, units: &[(&str, i64)]) -> String {
    let unit = units.iter().find(|(_, size)| number % size == 0).filter(|_| number > 0);
    unit.map_or_else(|| number.to_string(), |(name, size)| format!("{}{name}", number / size))
}

/// A number with its unit, if it has one; an error tells whether the unit is not known.
fn number(value: &str, units: &[(&str, i64)]) -> Result<i64, bool> {
    let value = value.trim();
    let end = value.find(|c: char| !c.is_ascii_digit() && !"+-.".contains(c)).unwrap_or(value.len());
    let number: f64 = value[..end].parse().map_err(|_| false)?;
    let unit = value[end..].trim();
    let factor = match units.iter().find(|(name, _)| *name == unit) {
        Some((_, factor)) => *factor as f64,
        None if unit.is_empty() => 1.0,
        None if unit == "us" && units == UNITS => 0.001,
        None if unit == "B" && units == SIZES => 1.0 / 1024.0,
        None => return Err(true),
    };
    Ok((number * factor).round_ties_even() as i64)
}

fn in_range(
    given: &str,
    number: Result<i64, bool>,
    (least, most): (i64, i64),
    unit: &str,
    invalid: Failure,
    hint: &str,
) -> Result<String, Failure> {
    match number {
        Ok(number) if (least..=most).contains(&number) => Ok(number.to_string()),
        Ok(number) => Err(Failure::new(
            "22023",
            format!("{number}{unit} is outside the valid range for parameter \"{given}\" ({least} .. {most})"),
        )),
        Err(true) if !hint.is_empty() => Err(invalid.hint(hint)),
        Err(_) => Err(invalid),
    }
}

/// A DateStyle in PostgreSQL's spelling; an error tells the word that is not known, or that words contradict each
/// other.
fn date_style(value: &str, now: &str) -> Result<String, Option<String>> {
    let (mut style, mut order) = now.split_once(", ").unwrap_or((now, "MDY"));
    let (mut styled, mut ordered) = (None, None);
    for word in value.split(',').map(str::trim) {
        let lower = word.to_ascii_lowercase();
        let named = match &*lower {
            "iso" => Some("ISO"),
            "sql" => Some("SQL"),
            "german" => Some("German"),
            _ if lower.starts_with("postgres") => Some("Postgres"),
            _ => None,
        };
        let sorted = match &*lower {
            "ymd" => Some("YMD"),
            "dmy" => Some("DMY"),
            "mdy" | "us" => Some("MDY"),
            _ if lower.starts_with("euro") => Some("DMY"),
            _ if lower.starts_with("noneuro") => Some("MDY"),
            _ => None,
        };
        match (named, sorted) {
            (Some(named), _) if *styled.get_or_insert(named) != named => return Err(None),
            (Some(named), _) => {
                style = named;
                if named == "German" && ordered.is_none() {
                    order = "DMY";
                }
            }
            (_, Some(sorted)) if *ordered.get_or_insert(sorted) != sorted => return Err(None),
            (_, Some(sorted)) => order = sorted,
            _ if lower == "default" => (style, order) = ("ISO", "MDY"),
            _ => return Err(Some(lower)),
        }
    }
    Ok(format!("{style}, {order}"))
}

/// A name as it is written in SQL.
fn quote(name: &str) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    if begins && name.chars().all(plain) { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(name: &str, value: &str) -> Result<String, String> {
        let parameter = find(name).unwrap();
        let kept = parameter.accept(name, value, parameter.default, "app").map_err(|failure| failure.message)?;
        Ok(parameter.show(&kept))
    }

    #[test]
    fn values_are_spelt_as_postgresql_spells_them() {
        for (name, value, expected) in [
            ("datestyle", "german", "German, DMY"),
            ("datestyle", "dmy, sql", "SQL, DMY"),
            ("statement_timeout", "250", "250ms"),
            ("statement_timeout", "2000", "2s"),
            ("statement_timeout", "1.5s", "1500ms"),
            ("statement_timeout", "0", "0"),
            ("work_mem", "8MB", "8MB"),
            ("work_mem", "100", "100kB"),
            ("client_encoding", "iso-8859-1", "LATIN1"),
            ("timezone", "europe/berlin", "Europe/Berlin"),
            ("application_name", "ä", "??"),
            ("jit", "tr", "on"),
        ] {
            assert_eq!(accept(name, value).as_deref(), Ok(expected), "{name} {value}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_in_postgresqls_words() {
        for (name, value, expected) in [
            ("datestyle", "foo", "invalid value for parameter \"DateStyle\": \"foo\""),
            (
                "statement_timeout",
                "-5",
                "-5 ms is outside the valid range for parameter \"statement_timeout\" (0 .. 2147483647)",
            ),
            ("statement_timeout", "5x", "invalid value for parameter \"statement_timeout\": \"5x\""),
            ("jit", "maybe", "parameter \"jit\" requires a Boolean value"),
            ("role", "nosuch", "role \"nosuch\" does not exist"),
        ] {
            assert_eq!(accept(name, value).unwrap_err(), expected);
        }
    }

    #[test]
    fn lists_of_names_are_quoted_where_they_must_be() {
        let path = find("search_path").unwrap();
        assert_eq!(path.join(&["a".into(), "B c".into()]).unwrap(), "a, \"B c\"");
        assert!(find("jit").unwrap().join(&["on".into(), "off".into()]).is_err());
    }
}
