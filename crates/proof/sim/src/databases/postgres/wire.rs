//! Messages as bytes: reads messages of clients, and writes messages of servers.

/// Bytes of kind and length.
const HEADER: usize = 5;

pub(super) fn message(to: &mut Vec<u8>, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
    to.push(kind);
    let start = to.len();
    to.extend_from_slice(&[0; 4]);
    body(to);
    let length = (to.len() - start) as u32;
    to[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// Appends a text with a zero byte.
pub(super) fn text(to: &mut Vec<u8>, text: &[u8]) {
    to.extend_from_slice(text);
    to.push(0);
}

/// The start-up message, which has no kind.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StartupMessage {
    pub(super) code: u32,
    pub(super) body: Vec<u8>,
}

/// Takes the next message of the input; `None` if it is not complete.
pub(super) fn take_message(input: &mut Vec<u8>) -> Result<Option<(u8, Vec<u8>)>, ()> {
    let Some(header) = input.get(..HEADER) else { return Ok(None) };
    let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
    if !(4..=1 << 30).contains(&length) {
        return Err(());
    }
    if input.len() < length + 1 {
        return Ok(None);
    }
    let kind = input[0];
    let body = input[HEADER..=length].to_vec();
    input.drain(..=length);
    Ok(Some((kind, body)))
}

/// Takes the start-up message of the input; `None` if it is not complete.
pub(super) fn take_startup(input: &mut Vec<u8>) -> Result<Option<StartupMessage>, ()> {
    let Some(header) = input.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*header) as usize;
    if !(8..=10_000).contains(&length) {
        return Err(());
    }
    if input.len() < length {
        return Ok(None);
    }
    let code = u32::from_be_bytes([input[4], input[5], input[6], input[7]]);
    let body = input[8..length].to_vec();
    input.drain(..length);
    Ok(Some(StartupMessage { code, body }))
}

/// Reads the body of a message.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn text(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|&byte| byte == 0)?;
        let (text, rest) = (&self.0[..end], &self.0[end + 1..]);
        self.0 = rest;
        Some(text)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        Some(self.bytes(1)?[0])
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(*self.bytes(2)?.first_chunk()?))
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(*self.bytes(4)?.first_chunk()?))
    }

    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_message_is_noticed() {
        assert_eq!(take_message(&mut vec![b'Q', 0, 0, 0, 3]), Err(()));
        assert_eq!(take_startup(&mut vec![0, 0, 0, 7]), Err(()));
    }
}
