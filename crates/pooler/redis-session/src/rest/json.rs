//! Replies of Redis as JSON.

use base64::{Engine, engine::general_purpose::STANDARD};

use super::result_format::ResultFormat;
use crate::resp::{self, Line, integer};

/// How deep arrays may be nested. Redis's own replies have a few levels, those of scripts any number.
const MAX_DEPTH: usize = 100;

/// Appends a whole reply of RESP2 as a result, `{"result":...}` or `{"error":"..."}`. Returns whether it is an error.
pub(crate) fn result(to: &mut Vec<u8>, reply: &[u8], format: ResultFormat) -> bool {
    if let Some(message) = reply.strip_prefix(b"-") {
        error(to, &String::from_utf8_lossy(message.trim_ascii_end()));
        return true;
    }
    let start = to.len();
    to.extend_from_slice(b"{\"result\":");
    if value(to, reply, format, 0).is_none() {
        to.truncate(start);
        error(
            to,
            &format!(
                "ERR the result has arrays within arrays, more than {MAX_DEPTH} deep, which Poolhouse does not write \
                as JSON"
            ),
        );
        return true;
    }
    to.push(b'}');
    false
}

/// The most bytes that a reply may become. For text, it is the exact number.
pub(crate) fn max_json_length(reply: &[u8], format: ResultFormat) -> usize {
    if format != ResultFormat::Json {
        return reply.len() / 3 * 4 + reply.len();
    }
    let foreign = if std::str::from_utf8(reply).is_ok() { 1 } else { '\u{fffd}'.len_utf8() };
    let of_byte = |byte: &u8| match byte {
        b'\r' | b'\n' | b'\t' | b'"' | b'\\' => 2,
        0..b' ' => r"\u0000".len(),
        128.. => foreign,
        _ => 1,
    };
    reply.iter().map(of_byte).sum()
}

pub(crate) fn error(to: &mut Vec<u8>, message: &str) {
    to.extend_from_slice(b"{\"error\":");
    string(to, message.as_bytes(), ResultFormat::Json);
    to.push(b'}');
}

/// Appends the reply of EXEC as an array of results. Returns false, and appends nothing, if it is no array.
pub(crate) fn results(to: &mut Vec<u8>, reply: &[u8], format: ResultFormat) -> bool {
    let Some((b'*', count, mut at)) = line(reply).map(|(kind, text, at)| (kind, integer(text), at)) else {
        return false;
    };
    let Some(count) = count.filter(|count| *count >= 0) else { return false };
    to.push(b'[');
    for index in 0..count {
        if index > 0 {
            to.push(b',');
        }
        let element = &reply[at..];
        let length = length(element);
        result(to, &element[..length], format);
        at += length;
    }
    to.push(b']');
    true
}

/// Appends a value. Returns its length in the reply; `None` if it is nested too deep. The caller passes valid RESP2
/// only.
fn value(to: &mut Vec<u8>, reply: &[u8], format: ResultFormat, depth: usize) -> Option<usize> {
    let Some((kind, text, at)) = line(reply) else {
        to.extend_from_slice(b"null");
        return Some(reply.len());
    };
    match (kind, integer(text)) {
        (b':', _) => to.extend_from_slice(text),
        (b'$', Some(length)) if length >= 0 => {
            let end = (at + length as usize).min(reply.len());
            string(to, &reply[at..end], format);
            return Some((end + 2).min(reply.len()));
        }
        (b'*', Some(count)) if count >= 0 => {
            let mut at = at;
            if depth == MAX_DEPTH {
                return None;
            }
            to.push(b'[');
            for index in 0..count {
                if index > 0 {
                    to.push(b',');
                }
                at += value(to, &reply[at..], format, depth + 1)?;
            }
            to.push(b']');
            return Some(at);
        }
        (b'$' | b'*', _) => to.extend_from_slice(b"null"),
        // The contract has no format for an error within a result.
        (b'-', _) => string(to, text, ResultFormat::Json),
        _ => string(to, text, format),
    }
    Some(at)
}

fn length(reply: &[u8]) -> usize {
    let mut scanner = resp::ReplyScanner::default();
    scanner.advance(reply).map_or(reply.len(), |end| end.taken)
}

/// The first line: its type, its text, and its length.
fn line(reply: &[u8]) -> Option<(u8, &[u8], usize)> {
    let (kind, rest) = reply.split_first()?;
    let Line::Ends(end) = resp::line(rest) else { return None };
    Some((*kind, &rest[..end], end + 3))
}

/// Appends a string. JSON has only text, so without base64 other bytes are replaced.
fn string(to: &mut Vec<u8>, bytes: &[u8], format: ResultFormat) {
    if format == ResultFormat::Base64 {
        to.push(b'"');
        let start = to.len();
        to.resize(start + bytes.len().div_ceil(3) * 4, 0);
        STANDARD.encode_slice(bytes, &mut to[start..]).expect("there is room for it");
        return to.push(b'"');
    }
    serde_json::to_writer(to, &String::from_utf8_lossy(bytes)).expect("writing to memory does not fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(reply: &str, format: ResultFormat) -> String {
        let mut to = Vec::new();
        result(&mut to, reply.as_bytes(), format);
        String::from_utf8(to).expect("JSON is text")
    }

    #[test]
    fn bytes_that_are_not_text_are_replaced_or_encoded() {
        let mut to = Vec::new();
        result(&mut to, b"$2\r\n\xff\x00\r\n", ResultFormat::Json);
        assert_eq!(to, "{\"result\":\"\u{fffd}\\u0000\"}".as_bytes());
        to.clear();
        result(&mut to, b"$2\r\n\xff\x00\r\n", ResultFormat::Base64);
        assert_eq!(to, br#"{"result":"/wA="}"#);
    }

    #[test]
    fn a_transaction_has_a_result_for_each_command() {
        let mut to = Vec::new();
        assert!(results(&mut to, b"*3\r\n+OK\r\n-ERR no\r\n*1\r\n$1\r\nx\r\n", ResultFormat::Json));
        assert_eq!(to, br#"[{"result":"OK"},{"error":"ERR no"},{"result":["x"]}]"#);
        assert!(!results(&mut to, b"*-1\r\n", ResultFormat::Json));
        assert!(!results(&mut to, b"-EXECABORT no\r\n", ResultFormat::Json));
    }

    #[test]
    fn a_reply_that_is_nested_too_deep_is_an_error() {
        let nested = |depth| format!("{}:1\r\n", "*1\r\n".repeat(depth));
        assert_eq!(
            written(&nested(MAX_DEPTH), ResultFormat::Json),
            format!("{{\"result\":{}1{}}}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH))
        );
        let refused = written(&nested(MAX_DEPTH + 1), ResultFormat::Json);
        assert!(refused.starts_with("{\"error\":\"ERR the result has arrays within arrays"), "{refused}");
        let mut to = Vec::new();
        assert!(results(&mut to, format!("*2\r\n{}+OK\r\n", nested(MAX_DEPTH + 1)).as_bytes(), ResultFormat::Json));
        assert!(to.ends_with(b",{\"result\":\"OK\"}]"));
    }
}
