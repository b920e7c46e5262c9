//! Run-time parameters that the model knows: their defaults, which values they take, and how PostgreSQL shows these. It
//! knows no session.

use super::failure::Failure;

pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) default: &'static str,
    kind: Kind,
    /// A session reports each change to its client.
    pub(super) reported: bool,
}

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Ascii,
    Milliseconds,
    Kilobytes,
    Role,
}

use Kind::{Ascii, Kilobytes, Milliseconds, Role, Text};

pub(super) const INTERVAL_STYLES: [&str; 4] = ["postgres", "postgres_verbose", "sql_standard", "iso_8601"];
const TIME_UNITS: &[(&str, i64)] = &[("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1)];
const SIZE_UNITS: &[(&str, i64)] = &[("TB", 1 << 30), ("GB", 1 << 20), ("MB", 1 << 10), ("kB", 1)];

const fn parameter(name: &'static str, default: &'static str, kind: Kind, reported: bool) -> Parameter {
    Parameter { name, default, kind, reported }
}

/// All parameters, in the order in which they are reported.
pub(super) static ALL: &[Parameter] = &[
    parameter("application_name", "", Ascii, true),
    parameter("client_encoding", "UTF8", Text, true),
    parameter("DateStyle", "ISO, MDY", Text, true),
    parameter("default_transaction_read_only", "off", Text, true),
    parameter("in_hot_standby", "off", Text, true),
    parameter("integer_datetimes", "on", Text, true),
    parameter("IntervalStyle", "postgres", Text, true),
    parameter("is_superuser", "off", Text, true),
    parameter("jit", "on", Text, false),
    parameter("lock_timeout", "0", Milliseconds, false),
    parameter("role", "none", Role, false),
    parameter("server_encoding", "UTF8", Text, true),
    parameter("server_version", "15.18", Text, true),
    parameter("session_authorization", "", Role, true),
    parameter("standard_conforming_strings", "on", Text, true),
    parameter("statement_timeout", "0", Milliseconds, false),
    parameter("TimeZone", "UTC", Text, true),
    parameter("work_mem", "4096", Kilobytes, false),
];

/// The parameter of this name, in any case.
pub(super) fn find(name: &str) -> Option<&'static Parameter> {
    ALL.iter().find(|parameter| parameter.name.eq_ignore_ascii_case(name))
}

impl Parameter {
    /// The value as it is kept. `user`: the user that has logged in.
    pub(super) fn accept(&self, value: &str, user: &str) -> Result<String, Failure> {
        let kept = match self.kind {
            Text => Some(value.to_owned()),
            Ascii => {
                let printable = |byte: u8| if (32..127).contains(&byte) { char::from(byte) } else { '?' };
                Some(value.bytes().map(printable).collect())
            }
            Milliseconds => number(value, TIME_UNITS).map(|number| number.to_string()),
            Kilobytes => number(value, SIZE_UNITS).map(|number| number.to_string()),
            Role => (value == user || (self.name == "role" && value == "none")).then(|| value.to_owned()),
        };
        let name = self.name;
        kept.ok_or_else(|| Failure::new("22023", format!("invalid value for parameter \"{name}\": \"{value}\"")))
    }

    /// The value as SHOW shows it.
    pub(super) fn show(&self, value: &str) -> String {
        let units = match self.kind {
            Milliseconds => TIME_UNITS,
            Kilobytes => SIZE_UNITS,
            Text | Ascii | Role => return value.to_owned(),
        };
        let number: i64 = value.parse().unwrap_or_default();
        let unit = units.iter().find(|(_, size)| number % size == 0).filter(|_| number > 0);
        unit.map_or_else(|| number.to_string(), |(name, size)| format!("{}{name}", number / size))
    }
}

/// A number with its unit, if it has one.
fn number(value: &str, units: &[(&str, i64)]) -> Option<i64> {
    let value = value.trim();
    let end = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let number: i64 = value[..end].parse().ok()?;
    let unit = value[end..].trim();
    let factor = if unit.is_empty() { 1 } else { units.iter().find(|(name, _)| *name == unit)?.1 };
    number.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_as_postgresql_shows_them() {
        for (name, value, expected) in [
            ("statement_timeout", "250", Ok("250ms")),
            ("statement_timeout", "2000", Ok("2s")),
            ("statement_timeout", "0", Ok("0")),
            ("statement_timeout", "5x", Err("invalid value for parameter \"statement_timeout\": \"5x\"")),
            ("work_mem", "8MB", Ok("8MB")),
            ("work_mem", "100", Ok("100kB")),
            ("application_name", "ä", Ok("??")),
            ("role", "nosuch", Err("invalid value for parameter \"role\": \"nosuch\"")),
        ] {
            let parameter = find(name).unwrap();
            let shown = parameter.accept(value, "app").map(|kept| parameter.show(&kept));
            assert_eq!(shown.map_err(|failure| failure.message), expected.map(str::to_owned).map_err(str::to_owned));
        }
    }
}
