//! What a client's bytes ask: commands as arrays or as lines, and what is wrong with them, in the words of Redis. It
//! knows no commands.

use super::{numbers::integer, reply::Refusal};

const MAX_LINE: usize = 64 * 1024;
const MAX_ARGUMENT: i64 = 512 << 20;

/// What stands at the beginning of the bytes.
#[derive(PartialEq, Eq, Debug)]
pub enum Request {
    Incomplete,
    /// So many bytes that ask for these words; none: for nothing.
    Command(usize, Vec<Vec<u8>>),
}

/// Reads what stands at the beginning. `logged_out`: who speaks has not logged in, and may say little.
pub fn read(bytes: &[u8], logged_out: bool) -> Result<Request, Refusal> {
    match bytes.first() {
        None => Ok(Request::Incomplete),
        Some(b'*') => array(bytes, logged_out),
        Some(_) => line(bytes),
    }
}

/// Where a line's carriage return is, if the line is there. A zero byte hides what is behind it.
fn end(bytes: &[u8], too_long: &str) -> Result<Option<usize>, Refusal> {
    match bytes.iter().position(|byte| b"\r\0".contains(byte)).filter(|&at| bytes[at] == b'\r') {
        Some(at) => Ok((at + 2 <= bytes.len()).then_some(at)),
        None if bytes.len() > MAX_LINE => Err(too_long.into()),
        None => Ok(None),
    }
}

fn array(bytes: &[u8], logged_out: bool) -> Result<Request, Refusal> {
    let Some(at) = end(bytes, "ERR Protocol error: too big mbulk count string")? else {
        return Ok(Request::Incomplete);
    };
    let count = match integer(&bytes[1..at]) {
        Some(count) if count <= i64::from(i32::MAX) => count,
        _ => return Err("ERR Protocol error: invalid multibulk length".into()),
    };
    if count > 10 && logged_out {
        return Err("ERR Protocol error: unauthenticated multibulk length".into());
    }
    let (mut words, mut begin) = (Vec::new(), at + 2);
    for _ in 0..count {
        let rest = &bytes[begin..];
        let Some(at) = end(rest, "ERR Protocol error: too big bulk count string")? else {
            return Ok(Request::Incomplete);
        };
        if rest[0] != b'$' {
            let said = Refusal([b"ERR Protocol error: expected '$', got '", &rest[..1], b"'"].concat());
            return Err(said);
        }
        let length = match integer(&rest[1..at]) {
            Some(length @ 0..=MAX_ARGUMENT) => length as usize,
            _ => return Err("ERR Protocol error: invalid bulk length".into()),
        };
        if length > 16 * 1024 && logged_out {
            return Err("ERR Protocol error: unauthenticated bulk length".into());
        }
        let Some(word) = rest.get(at + 2..at + 2 + length) else { return Ok(Request::Incomplete) };
        // The two bytes behind it are not looked at.
        begin += at + 2 + length + 2;
        if begin > bytes.len() {
            return Ok(Request::Incomplete);
        }
        words.push(word.to_vec());
    }
    Ok(Request::Command(begin, words))
}

fn line(bytes: &[u8]) -> Result<Request, Refusal> {
    let Some(end) = bytes.iter().position(|byte| b"\n\0".contains(byte)).filter(|&at| bytes[at] == b'\n') else {
        return match bytes.len() > MAX_LINE {
            true => Err("ERR Protocol error: too big inline request".into()),
            false => Ok(Request::Incomplete),
        };
    };
    let text = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
    match split(text) {
        Some(words) => Ok(Request::Command(end + 1, words)),
        None => Err("ERR Protocol error: unbalanced quotes in request".into()),
    }
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || (9..=13).contains(&byte)
}

/// The words of a line; `None` if a quote does not end where it should.
fn split(mut rest: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    loop {
        let begin = rest.iter().position(|&byte| !is_blank(byte));
        let Some(begin) = begin else { return Some(words) };
        rest = &rest[begin..];
        let mut word = Vec::new();
        loop {
            match rest {
                [] | [b' ' | b'\n' | b'\r' | b'\t', ..] => break,
                [mark @ (b'"' | b'\''), behind @ ..] => {
                    rest = quoted(*mark, behind, &mut word)?;
                    if rest.first().is_some_and(|&byte| !is_blank(byte)) {
                        return None;
                    }
                    break;
                }
                [byte, behind @ ..] => {
                    word.push(*byte);
                    rest = behind;
                }
            }
        }
        words.push(word);
    }
}

/// Takes what stands in quotes. Returns what is behind them.
fn quoted<'a>(mark: u8, mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (byte, behind) = match rest {
            [] => return None,
            [byte, behind @ ..] if *byte == mark => return Some(behind),
            [b'\\', b'x', high, low, behind @ ..]
                if mark == b'"' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (digit(*high) << 4 | digit(*low), behind)
            }
            [b'\\', escaped, behind @ ..] if mark == b'"' => {
                let meaning = match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                };
                (meaning, behind)
            }
            [b'\\', b'\'', behind @ ..] if mark == b'\'' => (b'\'', behind),
            [byte, behind @ ..] => (*byte, behind),
        };
        word.push(byte);
        rest = behind;
    }
}

fn digit(hex: u8) -> u8 {
    match hex {
        b'0'..=b'9' => hex - b'0',
        _ => (hex | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(bytes: &str) -> (usize, Vec<String>) {
        match read(bytes.as_bytes(), false) {
            Ok(Request::Command(taken, words)) => {
                (taken, words.into_iter().map(|word| String::from_utf8(word).expect("text")).collect())
            }
            other => panic!("{bytes:?}: {other:?}"),
        }
    }

    #[test]
    fn commands_are_arrays_or_lines() {
        let expected = |taken, words: &[&str]| (taken, words.iter().map(|word| (*word).to_owned()).collect());
        assert_eq!(words("*2\r\n$3\r\nGET\r\n$1\r\na\r\nPING\r\n"), expected(20, &["GET", "a"]));
        assert_eq!(words("*1\r\n$4\r\nPINGxx"), expected(14, &["PING"]));
        assert_eq!(words("ECHO \"a \\x41\" 'b\\'c'\r\n"), expected(22, &["ECHO", "a A", "b'c"]));
        assert_eq!(words("*-1\r\n"), expected(5, &[]));
        assert_eq!(words(" \n"), expected(2, &[]));
    }

    #[test]
    fn what_has_not_come_whole_is_waited_for() {
        let whole = "*2\r\n$3\r\nGET\r\n$1\r\na\r\n";
        for end in 0..whole.len() {
            assert_eq!(read(&whole.as_bytes()[..end], false), Ok(Request::Incomplete), "{end}");
        }
        // The line tells what it is only when it is there.
        assert_eq!(read(b"*1\r\n:", false), Ok(Request::Incomplete));
    }

    #[test]
    fn what_is_wrong_is_said_in_the_words_of_redis() {
        for (bytes, why) in [
            ("*x\r\n", "invalid multibulk length"),
            ("*1\r\n:5\r\n", "expected '$', got ':'"),
            ("*1\r\n$-1\r\n", "invalid bulk length"),
            ("ECHO \"a\r\n", "unbalanced quotes in request"),
        ] {
            assert_eq!(read(bytes.as_bytes(), false), Err(format!("ERR Protocol error: {why}").into()), "{bytes:?}");
        }
        assert_eq!(read(b"*11\r\n", true), Err("ERR Protocol error: unauthenticated multibulk length".into()));
    }
}
