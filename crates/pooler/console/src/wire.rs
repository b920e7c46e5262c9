//! Messages of protocol 3. Lengths are checked before they are used.

/// SQLSTATEs.
pub(crate) mod code {
    pub(crate) const NOTICE: &str = "00000";
    pub(crate) const FEATURE_NOT_SUPPORTED: &str = "0A000";
    pub(crate) const PROTOCOL_VIOLATION: &str = "08P01";
    pub(crate) const INVALID_STATEMENT_NAME: &str = "26000";
    pub(crate) const INVALID_PORTAL_NAME: &str = "34000";
    pub(crate) const DUPLICATE_STATEMENT: &str = "42P05";
    pub(crate) const CONFIGURATION_LIMIT_EXCEEDED: &str = "53400";
    pub(crate) const QUERY_CANCELED: &str = "57014";
    pub(crate) const CONFIG_FILE_ERROR: &str = "F0000";
}

/// Types of messages to the client.
pub(crate) mod back {
    pub(crate) const AUTHENTICATION: u8 = b'R';
    pub(crate) const PARAMETER_STATUS: u8 = b'S';
    pub(crate) const BACKEND_KEY: u8 = b'K';
    pub(crate) const READY: u8 = b'Z';
    pub(crate) const ERROR: u8 = b'E';
    pub(crate) const NOTICE: u8 = b'N';
    pub(crate) const ROW_DESCRIPTION: u8 = b'T';
    pub(crate) const DATA_ROW: u8 = b'D';
    pub(crate) const COMPLETE: u8 = b'C';
    pub(crate) const EMPTY_QUERY: u8 = b'I';
    pub(crate) const PARSE_COMPLETE: u8 = b'1';
    pub(crate) const BIND_COMPLETE: u8 = b'2';
    pub(crate) const CLOSE_COMPLETE: u8 = b'3';
    pub(crate) const NO_DATA: u8 = b'n';
    pub(crate) const PARAMETER_DESCRIPTION: u8 = b't';
    pub(crate) const SUSPENDED: u8 = b's';
}

/// A message that is being written.
pub(crate) struct Message<'o> {
    out: &'o mut Vec<u8>,
    /// Where its length stands.
    start: usize,
}

impl<'o> Message<'o> {
    pub(crate) fn begin(out: &'o mut Vec<u8>, kind: u8) -> Self {
        out.push(kind);
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        Self { out, start }
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.out.push(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn i32(&mut self, value: i32) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    /// A text and the zero byte at its end. A zero byte within ends the text.
    pub(crate) fn text(&mut self, text: &str) {
        let text = text.split('\0').next().unwrap_or_default();
        self.out.extend_from_slice(text.as_bytes());
        self.out.push(0);
    }

    /// A value of a row, with its length.
    pub(crate) fn value(&mut self, value: &[u8]) {
        self.i32(value.len() as i32);
        self.out.extend_from_slice(value);
    }

    pub(crate) fn end(self) {
        let length = (self.out.len() - self.start) as u32;
        self.out[self.start..self.start + 4].copy_from_slice(&length.to_be_bytes());
    }
}

/// A message without a body.
pub(crate) fn write_empty(out: &mut Vec<u8>, kind: u8) {
    Message::begin(out, kind).end();
}

pub(crate) fn write_text(out: &mut Vec<u8>, kind: u8, text: &str) {
    let mut message = Message::begin(out, kind);
    message.text(text);
    message.end();
}

/// An error or a notice. Its fields are those that PgBouncer sends, and a hint.
pub(crate) fn write_report(out: &mut Vec<u8>, kind: u8, severity: &str, code: &str, fields: &[(u8, &str)]) {
    let mut message = Message::begin(out, kind);
    for (field, text) in [(b'S', severity), (b'C', code)].iter().chain(fields) {
        message.u8(*field);
        message.text(text);
    }
    message.u8(0);
    message.end();
}

/// The body of the first message, and what follows it. The bytes are our own.
pub(crate) fn split_message(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = u32::from_be_bytes(bytes.get(1..5)?.try_into().ok()?) as usize;
    Some((bytes.get(5..length + 1)?, &bytes[length + 1..]))
}

/// The first value of a row, and what follows it. The bytes are our own.
pub(crate) fn split_value(bytes: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return (None, &[]) };
    match usize::try_from(i32::from_be_bytes(*length)) {
        Ok(length) => (Some(&rest[..length]), &rest[length..]),
        Err(_) => (None, rest),
    }
}

/// Reads the body of a message that the client sent.
pub(crate) struct Fields<'b> {
    rest: &'b [u8],
}

impl<'b> Fields<'b> {
    pub(crate) fn new(body: &'b [u8]) -> Self {
        Self { rest: body }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        let (first, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(u16::from_be_bytes(*first))
    }

    pub(crate) fn i32(&mut self) -> Option<i32> {
        let (first, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(i32::from_be_bytes(*first))
    }

    pub(crate) fn skip(&mut self, count: usize) -> Option<()> {
        self.rest = self.rest.get(count..)?;
        Some(())
    }

    /// A text up to its zero byte. Bytes that are no UTF-8 are replaced.
    pub(crate) fn text(&mut self) -> Option<String> {
        let end = self.rest.iter().position(|byte| *byte == 0)?;
        let text = String::from_utf8_lossy(&self.rest[..end]).into_owned();
        self.rest = &self.rest[end + 1..];
        Some(text)
    }
}
