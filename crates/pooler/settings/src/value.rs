//! Values as people write them: durations with a unit, and strings with `${ENV}` in them. Knows no file and no key.

use std::time::Duration;

/// What a duration may look like, for error messages.
pub const DURATION_UNITS: &str = "us, ms, s, m, h or d (for example \"250ms\", \"310s\", \"5m\")";

/// A duration, or `None` for `off`. The error says what was expected.
pub fn parse_duration(text: &str) -> Result<Option<Duration>, String> {
    let text = text.trim();
    if text == "off" {
        return Ok(None);
    }
    match micros(text, ", or \"off\"")? {
        0 => Err("a duration of zero is ambiguous: write \"off\" to switch it off".to_owned()),
        micros => Ok(Some(Duration::from_micros(micros))),
    }
}

/// `otherwise`: what else would do, for the error.
fn micros(text: &str, otherwise: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(format!("`{text}` is no duration: write a whole number and a unit, {DURATION_UNITS}{otherwise}"));
    }
    let number: u64 = number.parse().map_err(|_| format!("`{text}` is too long a duration"))?;
    let each: u64 = match unit {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        "" => return Err(format!("`{text}` has no unit: {DURATION_UNITS}")),
        _ => return Err(wrong_unit(text, unit)),
    };
    number.checked_mul(each).ok_or_else(|| format!("`{text}` is too long a duration"))
}

/// What is wrong with what stands behind the number.
fn wrong_unit(text: &str, unit: &str) -> String {
    let trimmed = unit.trim();
    if trimmed != unit && ["us", "ms", "s", "m", "h", "d"].contains(&trimmed) {
        let number = text.strip_suffix(unit).unwrap_or_default();
        return format!("`{text}` has a blank in it: write \"{number}{trimmed}\"");
    }
    match trimmed.bytes().any(|b| b.is_ascii_digit() || b == b'.') {
        true => format!("`{text}` is no duration: write one whole number and one unit, {DURATION_UNITS}"),
        false => format!("unknown unit `{trimmed}` in `{text}`: {DURATION_UNITS}"),
    }
}

/// A duration that cannot be switched off.
pub fn parse_duration_on(text: &str) -> Result<Duration, String> {
    let no = |what| Err(format!("this cannot be {what}: write a number and a unit, {DURATION_UNITS}"));
    match text.trim() {
        "off" => no("off"),
        text => match micros(text, "")? {
            0 => no("zero"),
            micros => Ok(Duration::from_micros(micros)),
        },
    }
}

/// A duration as it would be written in a configuration.
pub fn show_duration(duration: Duration) -> String {
    let units = [(86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "m"), (1_000_000, "s"), (1_000, "ms")];
    let micros = duration.as_micros();
    match units.iter().find(|(size, _)| micros >= *size && micros.is_multiple_of(*size)) {
        Some((size, unit)) => format!("{}{unit}", micros / size),
        None => format!("{micros}us"),
    }
}

/// Where variables come from: the environment, or a test's own.
pub type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The process's own environment.
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Replaces each `${NAME}`; `$${` stands for a literal `${`.
pub fn interpolate(text: &str, variables: Variables<'_>) -> Result<String, String> {
    replace(text, variables, |_, value| value)
}

/// As [`interpolate`], for a URL: a value that stands before the `@` is percent-encoded, so that a password may
/// hold any character. A URL that begins with a variable is taken as the variable has it.
pub fn interpolate_url(text: &str, variables: Variables<'_>) -> Result<String, String> {
    let login = match text.find("://") {
        Some(scheme) if !text.starts_with("${") => scheme..text.rfind('@').filter(|at| *at > scheme).unwrap_or(scheme),
        _ => 0..0,
    };
    replace(text, variables, |at, value| if login.contains(&at) { percent_encode(&value) } else { value })
}

fn replace(text: &str, variables: Variables<'_>, encode: impl Fn(usize, String) -> String) -> Result<String, String> {
    let mut result = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(found) = text[at..].find("${") {
        let open = at + found;
        if text[..open].ends_with('$') {
            result.push_str(&text[at..open]);
            result.push('{');
            at = open + 2;
            continue;
        }
        result.push_str(&text[at..open]);
        let close = text[open..].find('}').ok_or("`${` without a `}`: write `$${` for a literal `${`")? + open;
        let name = &text[open + 2..close];
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Err(format!("`${{{name}}}` does not name an environment variable"));
        }
        let value = variables(name).ok_or_else(|| format!("the environment variable {name} is not set"))?;
        result.push_str(&encode(open, value));
        at = close + 1;
    }
    result.push_str(&text[at..]);
    Ok(result)
}

fn percent_encode(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => result.push(byte as char),
            _ => result.push_str(&format!("%{byte:02X}")),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn variables(name: &str) -> Option<String> {
        match name {
            "PW" => Some("p@ss/w:rd".to_owned()),
            "URL" => Some("postgres://a:b%40@h/d".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(parse_duration("310s"), Ok(Some(Duration::from_secs(310))));
        assert_eq!(parse_duration("5m"), Ok(Some(Duration::from_secs(300))));
        assert_eq!(parse_duration("250ms"), Ok(Some(Duration::from_millis(250))));
        assert_eq!(parse_duration("off"), Ok(None));
    }

    #[test]
    fn a_wrong_unit_lists_the_right_ones() {
        let error = parse_duration("5 min").unwrap_err();
        assert!(error.contains("`min`") && error.contains("us, ms, s, m, h or d"), "{error}");
        assert_eq!(parse_duration("5 s").unwrap_err(), "`5 s` has a blank in it: write \"5s\"");
        for text in ["1.5s", "1m30s", "1h 30m"] {
            let error = parse_duration(text).unwrap_err();
            assert!(
                error.starts_with(&format!("`{text}` is no duration: write one whole number and one unit")),
                "{error}"
            );
        }
        assert!(parse_duration("5").unwrap_err().contains("no unit"));
        assert!(parse_duration("0s").unwrap_err().contains("off"));
        let on = |text| parse_duration_on(text).unwrap_err();
        assert!(on("off").starts_with("this cannot be off: write a number"));
        assert!(on("0s").starts_with("this cannot be zero: write a number"));
        assert!(!on("soon").contains("off"), "what would be refused next is not proposed");
        assert!(parse_duration("99999999999999999999s").is_err());
        assert!(parse_duration("18446744073709551615d").is_err());
    }

    #[test]
    fn a_duration_is_shown_as_it_is_written() {
        for text in ["250ms", "5m", "310s", "1d", "7us", "36h"] {
            assert_eq!(show_duration(parse_duration_on(text).unwrap()), text);
        }
    }

    #[test]
    fn variables_are_filled_in_and_a_missing_one_is_named() {
        assert_eq!(interpolate("x-${PW}-y", &variables).unwrap(), "x-p@ss/w:rd-y");
        assert_eq!(interpolate("a $${PW} b", &variables).unwrap(), "a ${PW} b");
        assert_eq!(interpolate("SCRAM-SHA-256$4096:x$y:z", &variables).unwrap(), "SCRAM-SHA-256$4096:x$y:z");
        assert!(interpolate("${NOPE}", &variables).unwrap_err().contains("NOPE is not set"));
        assert!(interpolate("${PW", &variables).is_err());
    }

    #[test]
    fn a_password_in_a_url_may_hold_any_character() {
        let url = interpolate_url("postgres://app:${PW}@h/d", &variables).unwrap();
        assert_eq!(url, "postgres://app:p%40ss%2Fw%3Ard@h/d");
        assert_eq!(interpolate_url("${URL}", &variables).unwrap(), "postgres://a:b%40@h/d");
    }

    proptest! {
        #[test]
        fn no_text_makes_a_parser_panic(text in ".{0,60}") {
            let _ = parse_duration(&text);
            let _ = interpolate(&text, &variables);
            let _ = interpolate_url(&text, &variables);
        }
    }
}
