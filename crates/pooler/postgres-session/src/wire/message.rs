//! Framing: message types, the codes of start-up packets, headers, and writing and reading message bodies. It knows no
//! session and no meaning.

/// Bytes of a header: its type and the length, which counts itself but not the type.
pub const HEADER: usize = 5;

/// Longest control message of a client, and longest start-up packet, as in PostgreSQL.
pub const SMALL_LIMIT: u32 = 10_000;

/// Longest data message of a client, as in PostgreSQL.
pub const LARGE_LIMIT: u32 = 0x3fff_ffff;

pub mod front {
    pub const BIND: u8 = b'B';
    pub const CLOSE: u8 = b'C';
    pub const COPY_DATA: u8 = b'd';
    pub const COPY_DONE: u8 = b'c';
    pub const COPY_FAIL: u8 = b'f';
    pub const DESCRIBE: u8 = b'D';
    pub const EXECUTE: u8 = b'E';
    pub const FLUSH: u8 = b'H';
    pub const FUNCTION_CALL: u8 = b'F';
    pub const PARSE: u8 = b'P';
    pub const PASSWORD: u8 = b'p';
    pub const QUERY: u8 = b'Q';
    pub const SYNC: u8 = b'S';
    pub const TERMINATE: u8 = b'X';
}

pub mod back {
    pub const AUTHENTICATION: u8 = b'R';
    pub const BACKEND_KEY_DATA: u8 = b'K';
    pub const BIND_COMPLETE: u8 = b'2';
    pub const CLOSE_COMPLETE: u8 = b'3';
    pub const COMMAND_COMPLETE: u8 = b'C';
    pub const COPY_BOTH_RESPONSE: u8 = b'W';
    pub const COPY_DATA: u8 = b'd';
    pub const COPY_DONE: u8 = b'c';
    pub const COPY_IN_RESPONSE: u8 = b'G';
    pub const COPY_OUT_RESPONSE: u8 = b'H';
    pub const DATA_ROW: u8 = b'D';
    pub const EMPTY_QUERY_RESPONSE: u8 = b'I';
    pub const ERROR_RESPONSE: u8 = b'E';
    pub const FUNCTION_CALL_RESPONSE: u8 = b'V';
    pub const NEGOTIATE_PROTOCOL_VERSION: u8 = b'v';
    pub const NO_DATA: u8 = b'n';
    pub const NOTICE_RESPONSE: u8 = b'N';
    pub const NOTIFICATION_RESPONSE: u8 = b'A';
    pub const PARAMETER_DESCRIPTION: u8 = b't';
    pub const PARAMETER_STATUS: u8 = b'S';
    pub const PARSE_COMPLETE: u8 = b'1';
    pub const PORTAL_SUSPENDED: u8 = b's';
    pub const READY_FOR_QUERY: u8 = b'Z';
    pub const ROW_DESCRIPTION: u8 = b'T';
}

pub const SSL_REQUEST: u32 = 80_877_103;
pub const GSSENC_REQUEST: u32 = 80_877_104;
pub const CANCEL_REQUEST: u32 = 80_877_102;
/// The version Poolhouse speaks to servers.
pub const PROTOCOL_3_0: u32 = 3 << 16;
/// The newest version that clients may speak: their cancel keys are longer. 3.1 was never used.
pub const PROTOCOL_3_2: u32 = PROTOCOL_3_0 + 2;

/// ReadyForQuery's status outside a transaction.
pub const IDLE: u8 = b'I';

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    pub kind: u8,
    /// The length field: 4 for an empty body. Not checked.
    pub length: u32,
}

impl Header {
    /// The header at the beginning of `bytes`; `None` if more bytes are needed.
    #[inline]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let header = bytes.first_chunk::<HEADER>()?;
        Some(Self { kind: header[0], length: u32::from_be_bytes([header[1], header[2], header[3], header[4]]) })
    }

    /// Bytes of the whole message, type included.
    #[inline]
    pub fn total(self) -> usize {
        1 + self.length as usize
    }
}

/// Appends a message with the body that `body` appends.
pub fn write(to: &mut Vec<u8>, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
    to.push(kind);
    write_sized(to, body);
}

/// Appends a length and what `body` appends: a start-up packet, which has no type.
pub fn write_sized(to: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = to.len();
    to.extend_from_slice(&[0; 4]);
    body(to);
    let length = u32::try_from(to.len() - start).expect("our own messages are short");
    to[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// Appends text and the zero byte that ends it. Zero bytes within are left out: they would end it early.
pub fn write_text(to: &mut Vec<u8>, text: &str) {
    to.extend(text.bytes().filter(|&b| b != 0));
    to.push(0);
}

pub fn write_query(to: &mut Vec<u8>, sql: &[u8]) {
    write(to, front::QUERY, |to| {
        to.extend_from_slice(sql);
        to.push(0);
    });
}

pub fn write_ready(to: &mut Vec<u8>, status: u8) {
    write(to, back::READY_FOR_QUERY, |to| to.push(status));
}

pub fn write_parameter(to: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    write(to, back::PARAMETER_STATUS, |to| {
        for text in [name, value] {
            to.extend_from_slice(text);
            to.push(0);
        }
    });
}

/// Appends a request to cancel the work of the connection with this key.
pub fn write_cancel(to: &mut Vec<u8>, pid: u32, secret: &[u8]) {
    write_sized(to, |to| {
        to.extend_from_slice(&CANCEL_REQUEST.to_be_bytes());
        to.extend_from_slice(&pid.to_be_bytes());
        to.extend_from_slice(secret);
    });
}

pub fn take_text<'a>(body: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = body.iter().position(|&b| b == 0)?;
    let text = &body[..end];
    *body = &body[end + 1..];
    Some(text)
}

pub fn take_u16(body: &mut &[u8]) -> Option<u16> {
    let (number, rest) = body.split_first_chunk::<2>()?;
    *body = rest;
    Some(u16::from_be_bytes(*number))
}

/// Takes a value of a row or of a Bind off the front: the inner `None` is NULL, the outer one a malformed body.
pub fn take_value<'a>(body: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let length = take_u32(body)?;
    if length == u32::MAX {
        return Some(None);
    }
    let (value, rest) = body.split_at_checked(length as usize)?;
    *body = rest;
    Some(Some(value))
}

/// The values in the body of a DataRow of `N` columns; `None` if it is malformed.
pub fn read_row<const N: usize>(mut body: &[u8]) -> Option<[Option<&[u8]>; N]> {
    let mut values = [None; N];
    if usize::from(take_u16(&mut body)?) != N {
        return None;
    }
    for value in &mut values {
        *value = take_value(&mut body)?;
    }
    Some(values)
}

/// The body of a DataRow.
#[cfg(test)]
pub fn row_body(values: &[Option<&str>]) -> Vec<u8> {
    let mut body = (values.len() as u16).to_be_bytes().to_vec();
    for value in values {
        body.extend(value.map_or(u32::MAX, |text| text.len() as u32).to_be_bytes());
        body.extend(value.unwrap_or_default().as_bytes());
    }
    body
}

pub fn take_u32(body: &mut &[u8]) -> Option<u32> {
    let (number, rest) = body.split_first_chunk::<4>()?;
    *body = rest;
    Some(u32::from_be_bytes(*number))
}

/// Appends a Parse under this name; `body` is what follows the name.
pub fn write_parse(to: &mut Vec<u8>, name: &[u8], body: &[u8]) {
    write(to, front::PARSE, |to| {
        to.extend_from_slice(name);
        to.push(0);
        to.extend_from_slice(body);
    });
}

/// Appends a Bind of a statement without parameters to the unnamed portal, with text for all results.
pub fn write_bind(to: &mut Vec<u8>, statement: &[u8]) {
    write(to, front::BIND, |to| {
        to.push(0);
        to.extend_from_slice(statement);
        to.extend_from_slice(&[0; 7]);
    });
}

/// Appends an Execute of the unnamed portal for all its rows.
pub fn write_execute(to: &mut Vec<u8>) {
    write(to, front::EXECUTE, |to| to.extend_from_slice(&[0; 5]));
}

pub fn write_parse_complete(to: &mut Vec<u8>) {
    write(to, back::PARSE_COMPLETE, |_| {});
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_written_with_the_length_of_its_body() {
        let mut bytes = Vec::new();
        write_query(&mut bytes, b"SELECT 1");
        assert_eq!(bytes, b"Q\0\0\0\x0dSELECT 1\0");
        assert_eq!(Header::read(&bytes), Some(Header { kind: b'Q', length: 13 }));
        assert_eq!(Header::read(&bytes).unwrap().total(), bytes.len());
        assert_eq!(Header::read(&bytes[..4]), None);
    }
}
