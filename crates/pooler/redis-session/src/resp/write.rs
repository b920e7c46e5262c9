//! Writes commands and replies of Poolhouse itself.

use std::io::Write;

use super::Version;

pub fn command(to: &mut Vec<u8>, arguments: &[&[u8]]) {
    head(to, arguments.len());
    for argument in arguments {
        text(to, argument);
    }
}

/// The beginning of a command with this number of arguments. Each follows as a bulk string.
pub fn head(to: &mut Vec<u8>, arguments: usize) {
    write!(to, "*{arguments}\r\n").expect("writing to memory cannot fail");
}

pub fn text(to: &mut Vec<u8>, text: &[u8]) {
    write!(to, "${}\r\n", text.len()).expect("writing to memory cannot fail");
    to.extend_from_slice(text);
    to.extend_from_slice(b"\r\n");
}

pub fn verbatim(to: &mut Vec<u8>, said: &[u8], version: Version) {
    if version == Version::Resp2 {
        return text(to, said);
    }
    write!(to, "={}\r\ntxt:", said.len() + 4).expect("writing to memory cannot fail");
    to.extend_from_slice(said);
    to.extend_from_slice(b"\r\n");
}

/// An error. Its first word is the code. Line ends become spaces.
pub fn error(to: &mut Vec<u8>, message: &str) {
    to.push(b'-');
    to.extend(message.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
    to.extend_from_slice(b"\r\n");
}

/// A null in the place of a string.
pub fn null(to: &mut Vec<u8>, version: Version) {
    to.extend_from_slice(match version {
        Version::Resp2 => b"$-1\r\n",
        Version::Resp3 => b"_\r\n",
    });
}

/// A null in the place of an array.
pub fn null_array(to: &mut Vec<u8>, version: Version) {
    to.extend_from_slice(match version {
        Version::Resp2 => b"*-1\r\n",
        Version::Resp3 => b"_\r\n",
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line() {
        let mut bytes = Vec::new();
        error(&mut bytes, "ERR a\r\nb");
        assert_eq!(bytes, b"-ERR a  b\r\n");
    }
}
