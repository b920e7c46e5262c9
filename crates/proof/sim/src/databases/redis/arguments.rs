//! Numbers among the arguments of commands, as strictly as Redis reads them.

use std::time::Duration;

use super::reply::Refusal;

/// A number without a plus sign, blanks or zeros in front.
pub fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        b"0" => return (text.len() == 1).then_some(0),
        [b'1'..=b'9', rest @ ..] if rest.iter().all(u8::is_ascii_digit) => {}
        _ => return None,
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// An argument that has to be an integer.
pub fn required_integer(text: &[u8]) -> Result<i64, Refusal> {
    integer(text).ok_or("ERR value is not an integer or out of range".into())
}

/// A time-out in seconds; `None` if it never ends.
pub fn timeout(text: &[u8]) -> Result<Option<Duration>, Refusal> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    let Some(number) = number.filter(|number| !number.is_nan()) else {
        return Err("ERR timeout is not a float or out of range".into());
    };
    let milliseconds = (number * 1000.0).ceil();
    if milliseconds < 0.0 || milliseconds >= i64::MAX as f64 {
        return Err("ERR timeout is negative".into());
    }
    Ok((milliseconds > 0.0).then(|| Duration::from_millis(milliseconds as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_written_in_one_way_only() {
        for (text, number) in [("0", 0), ("-1", -1), ("9223372036854775807", i64::MAX)] {
            assert_eq!(integer(text.as_bytes()), Some(number));
        }
        for text in ["", "-", "-0", "+1", "01", " 1", "1 ", "9223372036854775808", "1.0"] {
            assert_eq!(integer(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn a_timeout_may_have_a_fraction_and_zero_never_ends() {
        assert_eq!(timeout(b"0.25"), Ok(Some(Duration::from_millis(250))));
        assert_eq!(timeout(b"0"), Ok(None));
        assert_eq!(timeout(b"1e100"), Err("ERR timeout is negative".into()));
        assert_eq!(timeout(b"nan"), Err("ERR timeout is not a float or out of range".into()));
    }
}
