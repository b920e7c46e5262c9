//! Commands as arrays: the pooler sends no others. Errors are in the words of Redis. It knows no commands.

use super::{arguments::integer, reply::Refusal};

const MAX_LINE: usize = 64 * 1024;
const MAX_ARGUMENT: i64 = 512 << 20;

#[derive(PartialEq, Eq, Debug)]
pub enum Request {
    Incomplete,
    /// The length in bytes, and the words. An empty array asks for nothing.
    Command(usize, Vec<Vec<u8>>),
}

/// The position of a line's carriage return, if the line is complete. A zero byte hides what follows it.
fn end(bytes: &[u8], too_long: &str) -> Result<Option<usize>, Refusal> {
    match bytes.iter().position(|byte| b"\r\0".contains(byte)).filter(|&at| bytes[at] == b'\r') {
        Some(at) => Ok((at + 2 <= bytes.len()).then_some(at)),
        None if bytes.len() > MAX_LINE => Err(too_long.into()),
        None => Ok(None),
    }
}

/// Reads the first command of these bytes.
pub fn read(bytes: &[u8]) -> Result<Request, Refusal> {
    if bytes.first().is_some_and(|first| *first != b'*') {
        return Err("ERR Protocol error: the model knows no inline commands".into());
    }
    let Some(at) = end(bytes, "ERR Protocol error: too big mbulk count string")? else {
        return Ok(Request::Incomplete);
    };
    let count = match integer(&bytes[1..at]) {
        Some(count) if count <= i64::from(i32::MAX) => count,
        _ => return Err("ERR Protocol error: invalid multibulk length".into()),
    };
    let (mut words, mut begin) = (Vec::new(), at + 2);
    for _ in 0..count {
        let rest = &bytes[begin..];
        let Some(at) = end(rest, "ERR Protocol error: too big bulk count string")? else {
            return Ok(Request::Incomplete);
        };
        if rest[0] != b'$' {
            return Err(Refusal([b"ERR Protocol error: expected '$', got '", &rest[..1], b"'"].concat()));
        }
        let length = match integer(&rest[1..at]) {
            Some(length @ 0..=MAX_ARGUMENT) => length as usize,
            _ => return Err("ERR Protocol error: invalid bulk length".into()),
        };
        let Some(word) = rest.get(at + 2..at + 2 + length) else { return Ok(Request::Incomplete) };
        // Redis does not look at the two bytes behind a word.
        begin += at + 2 + length + 2;
        if begin > bytes.len() {
            return Ok(Request::Incomplete);
        }
        words.push(word.to_vec());
    }
    Ok(Request::Command(begin, words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_read_when_it_is_complete() {
        let whole = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*1\r\n";
        for end in 0..20 {
            assert_eq!(read(&whole[..end]), Ok(Request::Incomplete), "{end}");
        }
        assert_eq!(read(whole), Ok(Request::Command(20, vec![b"GET".to_vec(), b"a".to_vec()])));
        assert_eq!(read(b"*-1\r\n"), Ok(Request::Command(5, Vec::new())));
        // The line of a length is looked at only when it is complete.
        assert_eq!(read(b"*1\r\n:"), Ok(Request::Incomplete));
    }

    #[test]
    fn errors_are_in_the_words_of_redis() {
        for (bytes, why) in [
            ("*x\r\n", "invalid multibulk length"),
            ("*1\r\n:5\r\n", "expected '$', got ':'"),
            ("*1\r\n$-1\r\n", "invalid bulk length"),
        ] {
            assert_eq!(read(bytes.as_bytes()), Err(format!("ERR Protocol error: {why}").into()), "{bytes:?}");
        }
    }
}
