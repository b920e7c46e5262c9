//! Values of settings as PgBouncer reads them: numbers of C, times in seconds, words in any case. Knows no setting.

use std::time::Duration;

/// What a setting's value may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A whole number, decimal, octal (`0770`) or hexadecimal (`0x1f8`). As a truth value, 0 is false.
    Number,
    /// Seconds, with a fraction if need be.
    Time,
    /// One of these words, in any case.
    Word(&'static [&'static str]),
    Text,
}

impl Kind {
    /// Whether a value is of this kind.
    pub fn admits(self, value: &str) -> bool {
        match self {
            Self::Number => number(value).is_some(),
            Self::Time => time(value).is_some(),
            Self::Word(words) => word(words, value).is_some(),
            Self::Text => true,
        }
    }

    /// What a value must be, for errors.
    pub fn describe(self) -> String {
        match self {
            Self::Number => "a whole number".to_owned(),
            Self::Time => "a number of seconds".to_owned(),
            Self::Word(words) => format!("one of {}", words.join(", ")),
            Self::Text => "a text".to_owned(),
        }
    }
}

/// A number as C's `strtol` reads it with base 0. What is beyond 32 bits is as good as their ends.
pub fn number(text: &str) -> Option<i64> {
    let (digits, sign) = match text.strip_prefix('-') {
        Some(digits) => (digits, -1),
        None => (text.strip_prefix('+').unwrap_or(text), 1),
    };
    let lower = digits.to_ascii_lowercase();
    let (digits, radix) = match lower.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None if lower.len() > 1 && lower.starts_with('0') => (&lower[1..], 8),
        None => (lower.as_str(), 10),
    };
    if digits.starts_with(['-', '+']) {
        return None;
    }
    let number = i64::from_str_radix(digits, radix).ok()? * sign;
    Some(number.clamp(i32::MIN.into(), i32::MAX.into()))
}

/// Seconds.
pub fn time(text: &str) -> Option<Duration> {
    let is_decimal = text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    let seconds: f64 = text.parse().ok().filter(|_| is_decimal)?;
    // 68 years are as good as for ever, and no sum of such times overflows.
    let is_sane = (0.0..=f64::from(i32::MAX)).contains(&seconds);
    is_sane.then(|| Duration::from_micros((seconds * 1e6).round() as u64))
}

/// The word of the list that this is.
pub fn word(words: &[&'static str], text: &str) -> Option<&'static str> {
    words.iter().find(|word| word.eq_ignore_ascii_case(text)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_c() {
        for (text, value) in [("5", 5), ("-1", -1), ("0x1F", 31), ("0770", 504), ("0", 0), ("+3", 3)] {
            assert_eq!(number(text), Some(value), "{text}");
        }
        assert_eq!(number("99999999999"), Some(i64::from(i32::MAX)));
        for text in ["", "5s", "yes", "--1", "0x", "1.5", "089"] {
            assert_eq!(number(text), None, "{text}");
        }
    }

    #[test]
    fn times_are_seconds() {
        assert_eq!(time("5.5"), Some(Duration::from_millis(5500)));
        assert_eq!(time("1e3"), Some(Duration::from_secs(1000)));
        for text in ["", "-1", "5s", "inf", "nan", "1e99", "x"] {
            assert_eq!(time(text), None, "{text}");
        }
    }
}
