//! The parts of a flat reply, such as a message of pub/sub or MONITOR.

use super::number::{Line, line, number};

/// The strings and numbers of a whole reply that is one, or an array of them. Nested values and nulls are left out.
pub fn parts(reply: &[u8]) -> Vec<&[u8]> {
    let mut rest = reply;
    let mut found = Vec::new();
    while let Some((kind, behind)) = rest.split_first() {
        let Line::Ends(end) = line(behind) else { break };
        let text = &behind[..end];
        rest = &behind[end + 2..];
        match kind {
            b'*' | b'>' => {}
            b'$' => {
                let Ok(Some((length @ 0.., _))) = number(behind) else { continue };
                let Some((bytes, behind)) = rest.split_at_checked(length as usize) else { break };
                found.push(bytes);
                rest = behind.get(2..).unwrap_or_default();
            }
            _ => found.push(text),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_numbers_are_found() {
        assert_eq!(parts(b"+OK\r\n"), [b"OK"]);
        assert_eq!(parts(b"*3\r\n$1\r\na\r\n:12\r\n$2\r\n\r\n\r\n"), [&b"a"[..], b"12", b"\r\n"]);
        assert_eq!(parts(b"*2\r\n$-1\r\n+x\r\n"), [b"x"]);
    }
}
