//! Texts with fields that are filled in for each request: `{{random 1 100}}`, `{{now}}`, `{{now_ms}}`, `{{uuid}}`,
//! `{{seq}}`. Knows no HTTP; what else stands in the text is left as it is.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::random::Random;

/// Fields that one text may have.
const MAX_FIELDS: usize = 1_000;
/// What stands between the braces, for messages.
const FIELDS: &str = "{{random 1 100}}, {{now}}, {{now_ms}}, {{uuid}}, {{seq}}";

/// A text with fields, read once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Template(Vec<Part>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    Text(String),
    /// A whole number, either end included.
    Random(i64, i64),
    /// The date and time in UTC, as RFC 3339 writes them, to the millisecond.
    Now,
    /// Milliseconds since 1970.
    NowMillis,
    /// A random one (version 4, RFC 9562).
    Uuid,
    /// Counts requests from 1.
    Sequence,
}

/// What fields are filled in with.
pub(super) struct TemplateInput {
    pub(super) random: Random,
    /// The request's number.
    pub(super) sequence: u64,
    pub(super) now: SystemTime,
}

impl Template {
    /// Reads a text.
    ///
    /// # Errors
    /// An unknown field, or one that makes no sense.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some(begin) = rest.find("{{") {
            let behind = &rest[begin + 2..];
            let Some(end) = behind.find("}}") else {
                return Err(format!("`{{{{` without `}}}}`; fields are {FIELDS}"));
            };
            if parts.len() >= 2 * MAX_FIELDS {
                return Err(format!("more than {MAX_FIELDS} fields"));
            }
            parts.push(Part::Text(rest[..begin].to_owned()));
            parts.push(field(behind[..end].trim())?);
            rest = &behind[end + 2..];
        }
        parts.push(Part::Text(rest.to_owned()));
        parts.retain(|part| !matches!(part, Part::Text(text) if text.is_empty()));
        Ok(Self(parts))
    }

    /// The text with its fields filled in.
    pub(super) fn fill(&self, template_input: &mut TemplateInput) -> String {
        use std::fmt::Write;
        let mut out = String::new();
        for part in &self.0 {
            let written = match part {
                Part::Text(text) => out.write_str(text),
                Part::Random(min, max) => write!(out, "{}", template_input.random.uniform(*min, *max)),
                Part::Now => write!(out, "{}", timestamp(millis(template_input.now))),
                Part::NowMillis => write!(out, "{}", millis(template_input.now)),
                Part::Uuid => write!(out, "{}", uuid(template_input.random.bits(), template_input.random.bits())),
                Part::Sequence => write!(out, "{}", template_input.sequence),
            };
            written.expect("writing to memory cannot fail");
        }
        out
    }
}

fn field(text: &str) -> Result<Part, String> {
    let mut words = text.split_ascii_whitespace();
    let name = words.next().unwrap_or_default();
    let arguments: Vec<&str> = words.collect();
    let part = match (name, &arguments[..]) {
        ("now", []) => Part::Now,
        ("now_ms", []) => Part::NowMillis,
        ("uuid", []) => Part::Uuid,
        ("seq", []) => Part::Sequence,
        ("random", [min, max]) => match (min.parse(), max.parse()) {
            (Ok(min), Ok(max)) if min <= max => Part::Random(min, max),
            _ => return Err(format!("`{{{{{text}}}}}`: random takes two whole numbers, the smaller first")),
        },
        ("random", _) => return Err(format!("`{{{{{text}}}}}`: write {{{{random 1 100}}}}")),
        ("now" | "now_ms" | "uuid" | "seq", _) => {
            return Err(format!("`{{{{{text}}}}}`: nothing stands behind {name}"));
        }
        _ => return Err(format!("unknown field `{{{{{text}}}}}`; there are {FIELDS}")),
    };
    Ok(part)
}

fn millis(now: SystemTime) -> u64 {
    now.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Milliseconds since 1970 as a date in the Gregorian calendar: of the days since 1 March of year 0, 400 years are
/// 146,097, and in a year that begins in March a month m begins with day (153 m + 2) / 5.
fn timestamp(millis: u64) -> String {
    let (seconds, milli) = (millis / 1000, millis % 1000);
    let days = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

fn uuid(high: u64, low: u64) -> String {
    let (a, b, c) = (high >> 32, high >> 16 & 0xffff, high & 0x0fff | 0x4000);
    let (d, e) = (low >> 48 & 0x3fff | 0x8000, low & 0xffff_ffff_ffff);
    format!("{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn template_input() -> TemplateInput {
        let now = UNIX_EPOCH + Duration::from_millis(1_709_210_096_007);
        TemplateInput { random: Random::new(1, 0), sequence: 12, now }
    }

    #[test]
    fn fields_are_filled_in_and_the_rest_stays() {
        let template =
            Template::parse("{\"n\": {{seq}}, \"at\": \"{{now}}\", \"ms\": {{ now_ms }}, \"x\": {}}").unwrap();
        assert_eq!(
            template.fill(&mut template_input()),
            "{\"n\": 12, \"at\": \"2024-02-29T12:34:56.007Z\", \"ms\": 1709210096007, \"x\": {}}"
        );
    }

    #[test]
    fn random_fields_stay_within_their_range_and_identifiers_are_of_version_4() {
        let template = Template::parse("{{random -2 2}} {{uuid}}").unwrap();
        let mut template_input = template_input();
        for _ in 0..100 {
            let text = template.fill(&mut template_input);
            let (number, uuid) = text.split_once(' ').unwrap();
            assert!((-2..=2).contains(&number.parse::<i64>().unwrap()));
            assert_eq!(uuid.len(), 36);
            assert_eq!(uuid.as_bytes()[14], b'4');
            assert!(b"89ab".contains(&uuid.as_bytes()[19]));
        }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (951_868_799, "2000-02-29T23:59:59.000Z"),
            (1_767_225_600, "2026-01-01T00:00:00.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(timestamp(seconds * 1000), expected);
        }
    }

    #[test]
    fn an_unknown_field_is_refused_with_those_there_are() {
        for (text, part) in [
            ("{{nov}}", "{{now}}"),
            ("{{random 5 1}}", "smaller first"),
            ("{{random}}", "{{random 1 100}}"),
            ("{{uuid 4}}", "nothing stands behind uuid"),
            ("{{now", "without"),
        ] {
            let error = Template::parse(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    proptest! {
        #[test]
        fn a_text_without_fields_is_itself(text in "[^{]{0,40}") {
            prop_assert_eq!(Template::parse(&text).unwrap().fill(&mut template_input()), text);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "(\\{\\{|\\}\\}|random|now|[ 0-9a-z-]){0,20}") {
            if let Ok(template) = Template::parse(&text) {
                template.fill(&mut template_input());
            }
        }
    }
}
