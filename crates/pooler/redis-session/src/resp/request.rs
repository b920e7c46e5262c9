//! Commands, as arrays of bulk strings or inline. Only a whole command is read, so no part of one reaches a shared
//! connection. Its arguments are not copied.

use super::{inline, number::number};

/// Longest inline command, and longest line before a number, in bytes (Redis: `PROTO_INLINE_MAX_SIZE`).
const MAX_INLINE: usize = 64 * 1024;

/// The first bytes of a TLS handshake: the type of its record, and the version.
const TLS_HANDSHAKE: &[u8] = &[22, 3];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Most arguments of a command, its name included.
    pub arguments: u32,
    /// Longest argument in bytes (Redis: `proto-max-bulk-len`).
    pub argument: u64,
}

impl Limits {
    /// After the login: Redis's defaults.
    pub const AUTHENTICATED: Self = Self { arguments: i32::MAX as u32, argument: 512 * 1024 * 1024 };
    /// Before the login: enough for HELLO with AUTH and SETNAME.
    pub const UNAUTHENTICATED: Self = Self { arguments: 10, argument: 16 * 1024 };
}

/// What a client's bytes begin with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// An empty line or an empty array of this length, which has no reply.
    Nothing(usize),
    /// A command of this length, with its arguments.
    Command(usize, Arguments<'a>),
    /// An inline command of this length, with its arguments.
    Inline(usize, Vec<Vec<u8>>),
    /// A part of a command, which has at least this length.
    Incomplete(u64),
}

/// The arguments of a command, its name first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arguments<'a> {
    /// From the first `$` on.
    bytes: &'a [u8],
    left: u32,
}

impl<'a> Iterator for Arguments<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        let (length, used) = number(&self.bytes[1..]).ok().flatten().expect("a command was read to its end");
        let begin = 1 + used;
        let end = begin + length as usize;
        let argument = &self.bytes[begin..end];
        self.bytes = &self.bytes[end + 2..];
        Some(argument)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Arguments<'_> {}

/// The error that Redis answers with to a client that broke the protocol, before it closes the connection.
fn malformed(what: &str) -> String {
    format!("Protocol error: {what}")
}

/// Reads the beginning of `bytes`, which may be empty.
pub fn read<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Request<'a>, String> {
    match bytes.first() {
        None => Ok(Request::Incomplete(1)),
        Some(b'*') => array(bytes, limits),
        Some(_) => line(bytes),
    }
}

fn array<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Request<'a>, String> {
    let (count, used) = match number(&bytes[1..]) {
        Ok(Some(count)) => count,
        Ok(None) => return Ok(Request::Incomplete(bytes.len() as u64 + 1)),
        Err(_) => return Err(malformed("invalid multibulk length")),
    };
    let begin = 1 + used;
    let Ok(count @ 1..) = u64::try_from(count) else { return Ok(Request::Nothing(begin)) };
    let count = match u32::try_from(count) {
        Ok(count) if count <= limits.arguments => count,
        Ok(count) if count <= Limits::AUTHENTICATED.arguments => {
            return Err(malformed("unauthenticated multibulk length"));
        }
        _ => return Err(malformed("invalid multibulk length")),
    };
    let mut at = begin;
    for left in (0..count).rev() {
        // Each of the others takes at least `$0\r\n\r\n`.
        let others = u64::from(left) * 6;
        let Some(&mark) = bytes.get(at) else { return Ok(Request::Incomplete(at as u64 + 6 + others)) };
        if mark != b'$' {
            return Err(malformed(&format!("expected '$', got '{}'", mark.escape_ascii())));
        }
        let Some((length, used)) = number(&bytes[at + 1..]).map_err(|_| malformed("invalid bulk length"))? else {
            return Ok(Request::Incomplete(bytes.len() as u64 + 1 + others));
        };
        let length = match u64::try_from(length) {
            Ok(length) if length <= limits.argument => length,
            Ok(length) if length <= Limits::AUTHENTICATED.argument => {
                return Err(malformed("unauthenticated bulk length"));
            }
            _ => return Err(malformed("invalid bulk length")),
        };
        let end = (at + 1 + used) as u64 + length;
        if end + 2 > bytes.len() as u64 {
            return Ok(Request::Incomplete(end + 2 + others));
        }
        let end = end as usize;
        if &bytes[end..end + 2] != b"\r\n" {
            return Err(malformed("an argument is longer or shorter than announced"));
        }
        at = end + 2;
    }
    Ok(Request::Command(at, Arguments { bytes: &bytes[begin..at], left: count }))
}

/// The first two arguments of a partial command, as far as they are there. `None`: its name is not.
pub fn beginning(bytes: &[u8]) -> Option<Beginning<'_>> {
    let (count, used) = number(bytes.strip_prefix(b"*")?).ok().flatten()?;
    let mut arguments = [None; 2];
    let mut at = 1 + used;
    for argument in arguments.iter_mut().take(count.clamp(0, 2) as usize) {
        let Some((length, used)) = bytes.get(at + 1..).and_then(|rest| number(rest).ok().flatten()) else { break };
        let begin = at + 1 + used;
        let Some(found) = usize::try_from(length).ok().and_then(|length| bytes.get(begin..begin.checked_add(length)?))
        else {
            break;
        };
        *argument = Some(found);
        at = begin + found.len() + 2;
    }
    Some(Beginning { name: arguments[0]?, second: arguments[1] })
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Beginning<'a> {
    pub name: &'a [u8],
    pub second: Option<&'a [u8]>,
}

fn line(bytes: &[u8]) -> Result<Request<'_>, String> {
    // Its end may never come.
    if bytes.starts_with(TLS_HANDSHAKE) {
        return Err(malformed("a TLS handshake, and TLS is off here: see `tls` of the [[listener]]"));
    }
    let window = &bytes[..bytes.len().min(MAX_INLINE)];
    let Some(end) = window.iter().position(|&byte| byte == b'\n') else {
        return match window.len() {
            MAX_INLINE => Err(malformed("too big inline request")),
            length => Ok(Request::Incomplete(length as u64 + 1)),
        };
    };
    let text = window[..end].strip_suffix(b"\r").unwrap_or(&window[..end]);
    let arguments = inline::split(text).ok_or_else(|| malformed("unbalanced quotes in request"))?;
    Ok(if arguments.is_empty() { Request::Nothing(end + 1) } else { Request::Inline(end + 1, arguments) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn arguments(bytes: &[u8]) -> (usize, Vec<Vec<u8>>) {
        match read(bytes, &Limits::AUTHENTICATED).expect("a command") {
            Request::Command(taken, arguments) => (taken, arguments.map(<[u8]>::to_vec).collect()),
            Request::Inline(taken, arguments) => (taken, arguments),
            other => panic!("{other:?}"),
        }
    }

    fn words(words: &[&str]) -> Vec<Vec<u8>> {
        words.iter().map(|word| word.as_bytes().to_vec()).collect()
    }

    fn written(command: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
        for argument in command {
            bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            bytes.extend_from_slice(argument);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes
    }

    #[test]
    fn a_command_is_its_arguments() {
        assert_eq!(arguments(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*1\r\n"), (20, words(&["GET", "a"])));
        assert_eq!(arguments(b"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n"), (20, words(&["ECHO", ""])));
        assert_eq!(arguments(b"SET a 'b c'\r\nGET a\r\n"), (13, words(&["SET", "a", "b c"])));
        assert_eq!(arguments(b"PING\n"), (5, words(&["PING"])));
    }

    #[test]
    fn nothing_is_asked_by_an_empty_line_or_array() {
        for (bytes, taken) in [("\r\n", 2), ("\n", 1), ("  \r\nPING\r\n", 4), ("*0\r\n", 4), ("*-1\r\nPING\r\n", 5)] {
            assert_eq!(read(bytes.as_bytes(), &Limits::AUTHENTICATED), Ok(Request::Nothing(taken)), "{bytes:?}");
        }
    }

    #[test]
    fn what_is_no_command_is_refused_in_the_words_of_redis() {
        let said = |bytes: &str, limits: &Limits| read(bytes.as_bytes(), limits).expect_err(bytes);
        for (bytes, words) in [
            ("*a\r\n", "invalid multibulk length"),
            ("*2147483648\r\n", "invalid multibulk length"),
            ("*1\r\n:1\r\n", "expected '$', got ':'"),
            ("*1\r\n$-1\r\n", "invalid bulk length"),
            ("*1\r\n$536870913\r\n", "invalid bulk length"),
            ("GET 'a\r\n", "unbalanced quotes in request"),
        ] {
            assert_eq!(said(bytes, &Limits::AUTHENTICATED), format!("Protocol error: {words}"));
        }
        assert_eq!(said("*11\r\n", &Limits::UNAUTHENTICATED), "Protocol error: unauthenticated multibulk length");
        assert_eq!(said("*1\r\n$16385\r\n", &Limits::UNAUTHENTICATED), "Protocol error: unauthenticated bulk length");
        assert_eq!(said(&"a".repeat(MAX_INLINE), &Limits::AUTHENTICATED), "Protocol error: too big inline request");
        assert_eq!(
            said("*1\r\n$1\r\nabc\r\n", &Limits::AUTHENTICATED),
            "Protocol error: an argument is longer or shorter than announced",
        );
    }

    #[test]
    fn a_large_argument_is_announced_before_it_arrives() {
        let begun = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1000000\r\nabc";
        let Ok(Request::Incomplete(needed)) = read(begun, &Limits::AUTHENTICATED) else { panic!("it is incomplete") };
        assert_eq!(needed, begun.len() as u64 - 3 + 1_000_002);
    }

    #[test]
    fn the_name_of_a_command_is_known_before_it_is_whole() {
        let known = |bytes: &'static str| beginning(bytes.as_bytes()).map(|b| (b.name, b.second));
        assert_eq!(known("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$9\r\nx"), Some((&b"SET"[..], Some(&b"a"[..]))));
        assert_eq!(known("*3\r\n$3\r\nSET\r\n$5\r\na"), Some((&b"SET"[..], None)));
        for nothing in
            ["", "*", "*3\r\n$3\r\nSE", "*-1\r\n", "*1\r\n$-1\r\n", "PING", "*1\r\n$99999999999999999999\r\n"]
        {
            assert_eq!(known(nothing), None, "{nothing:?}");
        }
    }

    #[test]
    fn a_handshake_of_tls_is_told_from_a_line() {
        for hello in [&b"\x16\x03\x01"[..], b"\x16\x03\x01\x02\x00\x01\x00\n\"\n"] {
            let error = read(hello, &Limits::UNAUTHENTICATED).expect_err("it is no command");
            assert!(error.contains("TLS handshake"), "{error}");
        }
        assert_eq!(read(b"\x16", &Limits::UNAUTHENTICATED), Ok(Request::Incomplete(2)));
        assert_eq!(arguments(b"\x16\r\n"), (3, words(&["\x16"])));
    }

    proptest! {
        /// Whole, a command is what was written; cut anywhere, it is incomplete, and what is needed is never more than
        /// it is.
        #[test]
        fn commands_are_read_as_they_were_written(
            command in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..30), 1..6),
            cut in any::<prop::sample::Index>(),
        ) {
            let bytes = written(&command);
            prop_assert_eq!(arguments(&bytes), (bytes.len(), command));
            match read(&bytes[..cut.index(bytes.len())], &Limits::AUTHENTICATED) {
                Ok(Request::Incomplete(needed)) => prop_assert!(needed <= bytes.len() as u64),
                other => prop_assert!(false, "{:?}", other),
            }
        }

        /// Whatever a client writes, it is read or refused; what is needed is always more than is there.
        #[test]
        fn anything_may_come(bytes in proptest::collection::vec(
            prop_oneof![any::<u8>(), Just(b'\r'), Just(b'\n'), Just(b'*'), Just(b'$'), Just(b'1')], 0..200,
        )) {
            match read(&bytes, &Limits::UNAUTHENTICATED) {
                Ok(Request::Incomplete(needed)) => prop_assert!(needed > bytes.len() as u64),
                Ok(Request::Nothing(taken) | Request::Inline(taken, _)) => prop_assert!(taken <= bytes.len()),
                Ok(Request::Command(taken, arguments)) => {
                    prop_assert!(taken <= bytes.len());
                    prop_assert_eq!(arguments.len(), arguments.count());
                }
                Err(error) => prop_assert!(error.starts_with("Protocol error: ")),
            }
        }
    }
}
