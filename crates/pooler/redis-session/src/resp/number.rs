//! Lines and the numbers in them.

/// Longest line that holds a number, without its end: a sign and the digits of 64 bits, with a margin.
const MAX_DIGITS: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Line {
    /// The line ends before this byte; its end is two bytes long.
    Ends(usize),
    /// Its end has not arrived.
    Open,
    /// A CR without an LF behind it.
    Torn,
}

pub(crate) fn line(bytes: &[u8]) -> Line {
    match bytes.iter().position(|&byte| byte == b'\r') {
        None => Line::Open,
        Some(at) => match bytes.get(at + 1) {
            None => Line::Open,
            Some(b'\n') => Line::Ends(at),
            Some(_) => Line::Torn,
        },
    }
}

/// A line that is a number, at the beginning of `bytes`: the number, and what its line takes with its end. `Ok(None)`:
/// it has not arrived whole.
pub(crate) fn number(bytes: &[u8]) -> Result<Option<(i64, usize)>, NoNumber> {
    let window = &bytes[..bytes.len().min(MAX_DIGITS)];
    match line(window) {
        Line::Ends(end) => Ok(Some((parse(&window[..end]).ok_or(NoNumber)?, end + 2))),
        Line::Open if window.len() < MAX_DIGITS => Ok(None),
        Line::Open | Line::Torn => Err(NoNumber),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoNumber;

/// As Redis reads numbers: a minus or nothing before the digits, no zero before others.
pub(crate) fn parse(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let plain = match digits {
        [] => false,
        [b'0'] => digits.len() == text.len(),
        [b'0', ..] => false,
        _ => digits.iter().all(u8::is_ascii_digit),
    };
    if !plain {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_redis_reads_them() {
        let read = |text: &str| number(text.as_bytes());
        assert_eq!(read("0\r\n"), Ok(Some((0, 3))));
        assert_eq!(read("-1\r\nrest"), Ok(Some((-1, 4))));
        assert_eq!(read("9223372036854775807\r\n"), Ok(Some((i64::MAX, 21))));
        assert_eq!(read("-9223372036854775808\r\n"), Ok(Some((i64::MIN, 22))));
        for open in ["", "1", "12\r"] {
            assert_eq!(read(open), Ok(None), "{open:?}");
        }
        for wrong in
            ["\r\n", "-\r\n", "+1\r\n", "01\r\n", "-0\r\n", "1 \r\n", "9223372036854775808\r\n", "1\rx", "x\r\n"]
        {
            assert_eq!(read(wrong), Err(NoNumber), "{wrong:?}");
        }
    }

    #[test]
    fn a_line_without_end_is_no_number() {
        assert_eq!(number(&[b'1'; MAX_DIGITS - 1]), Ok(None));
        assert_eq!(number(&[b'1'; MAX_DIGITS]), Err(NoNumber));
    }
}
