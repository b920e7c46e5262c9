//! Numbers in what clients say, as strictly as Redis reads them.

use std::time::Duration;

use super::reply::Refusal;

const NO_INTEGER: &str = "ERR value is not an integer or out of range";

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

/// An argument that has to be a number.
pub fn required(text: &[u8]) -> Result<i64, Refusal> {
    integer(text).ok_or(NO_INTEGER.into())
}

/// One that must not be negative.
pub fn positive(text: &[u8]) -> Result<usize, Refusal> {
    integer(text)
        .and_then(|number| usize::try_from(number).ok())
        .ok_or("ERR value is out of range, must be positive".into())
}

/// For how long to wait, said in seconds. `None`: for ever.
pub fn seconds(text: &[u8]) -> Result<Option<Duration>, Refusal> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    let Some(number) = number.filter(|number| !number.is_nan()) else {
        return Err("ERR timeout is not a float or out of range".into());
    };
    let milliseconds = (number * 1000.0).ceil();
    // What is too large becomes the smallest there is.
    wait(if milliseconds >= i64::MAX as f64 { -1 } else { milliseconds as i64 })
}

/// For how long to wait, said in milliseconds. `None`: for ever.
pub fn milliseconds(text: &[u8]) -> Result<Option<Duration>, Refusal> {
    wait(integer(text).ok_or("ERR timeout is not an integer or out of range")?)
}

fn wait(milliseconds: i64) -> Result<Option<Duration>, Refusal> {
    match u64::try_from(milliseconds) {
        Ok(0) => Ok(None),
        Ok(milliseconds) => Ok(Some(Duration::from_millis(milliseconds))),
        Err(_) => Err("ERR timeout is negative".into()),
    }
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
    fn seconds_may_have_fractions_and_zero_is_for_ever() {
        assert_eq!(seconds(b"0.25"), Ok(Some(Duration::from_millis(250))));
        assert_eq!(seconds(b"0"), Ok(None));
        assert_eq!(seconds(b"1e100"), Err("ERR timeout is negative".into()));
        assert_eq!(seconds(b"nan"), Err("ERR timeout is not a float or out of range".into()));
    }
}
