//! The wire format of the toys: `len`, `kind`, four bytes of nonce, a byte of flags, filler. `len` counts what follows
//! it. The filler is a function of kind and nonce, so that a lost, doubled or foreign byte is noticed.

/// Bytes before the filler.
pub const HEADER: usize = 7;
/// The longest frame.
pub const MAX_FRAME: usize = 256;

/// A request to the server.
pub const REQUEST: u8 = b'Q';
/// Its reply; the flags tell the server's state.
pub const REPLY: u8 = b'R';
/// The proxy's own reply: the request was not executed, or nobody knows.
pub const ERROR: u8 = b'E';
/// First word of a client; the nonce is its password.
pub const LOGIN: u8 = b'L';
/// The login was accepted; the nonce is the secret with which to cancel.
pub const WELCOME: u8 = b'W';
/// Somebody wants to cancel: the nonce is the tag, the filler is replaced by eight bytes of secret.
pub const CANCEL: u8 = b'K';
/// Last word of a client, of the proxy to a server, and of a server.
pub const GOODBYE: u8 = b'G';
/// The proxy turns a client away.
pub const TURNED_AWAY: u8 = b'T';
/// First word to a server.
pub const HELLO: u8 = b'H';
/// To a server: forget transaction and settings.
pub const RESET: u8 = b'X';
/// To a server: are you there?
pub const PING: u8 = b'P';
/// A server's answer to the last three.
pub const DONE: u8 = b'Z';
/// A server refuses to start.
pub const REFUSED: u8 = b'F';
/// A server says something unasked.
pub const NOTICE: u8 = b'N';

/// Request: begin a transaction. Reply: one is open.
pub const TRANSACTION: u8 = 1;
/// Request: end the transaction.
pub const END: u8 = 2;
/// Request: leave a setting behind.
pub const SETTING: u8 = 4;
/// Request: keep the server until told otherwise.
pub const PIN: u8 = 8;
/// Request: no longer.
pub const UNPIN: u8 = 16;
/// Refused: trying again is useless.
pub const PERMANENT: u8 = 32;

/// What stands at the head of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Bytes of the whole frame.
    pub len: usize,
    /// One of the constants.
    pub kind: u8,
    /// Which request.
    pub nonce: u32,
    /// A sum of the constants.
    pub flags: u8,
}

/// Reads a header. `Ok(None)` means more, `Err` that the peer is not to be understood.
pub fn header(bytes: &[u8]) -> Result<Option<Header>, &'static str> {
    let Some(head) = bytes.get(..HEADER) else { return Ok(None) };
    let len = usize::from(head[0]) + 1;
    if len < HEADER {
        return Err("a frame shorter than its header");
    }
    let nonce = u32::from_le_bytes([head[2], head[3], head[4], head[5]]);
    Ok(Some(Header { len, kind: head[1], nonce, flags: head[6] }))
}

/// The filler byte at `i`.
pub fn filler(kind: u8, nonce: u32, i: usize) -> u8 {
    (nonce.wrapping_mul(0x9e37_79b9) >> 24) as u8 ^ kind ^ (i as u8).wrapping_mul(7)
}

/// Writes a frame with `filling` bytes of filler.
pub fn frame(to: &mut Vec<u8>, kind: u8, nonce: u32, flags: u8, filling: usize) {
    frame_with(to, kind, nonce, flags, &[], filling);
}

/// Writes a frame whose filler begins with `body`.
pub fn frame_with(to: &mut Vec<u8>, kind: u8, nonce: u32, flags: u8, body: &[u8], filling: usize) {
    let len = HEADER + body.len() + filling;
    assert!(len <= MAX_FRAME, "a frame of {len} bytes");
    to.push((len - 1) as u8);
    to.push(kind);
    to.extend(nonce.to_le_bytes());
    to.push(flags);
    to.extend_from_slice(body);
    to.extend((0..filling).map(|i| filler(kind, nonce, i)));
}

/// Whether the filler of a whole frame is the right one.
pub fn intact(frame: &[u8], body: usize) -> bool {
    let Ok(Some(h)) = header(frame) else { return false };
    frame.len() == h.len && frame[HEADER + body..].iter().enumerate().all(|(i, &b)| b == filler(h.kind, h.nonce, i))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_back_and_a_changed_byte_is_noticed() {
        let mut bytes = Vec::new();
        frame(&mut bytes, REQUEST, 77, SETTING, 20);
        assert_eq!(header(&bytes), Ok(Some(Header { len: 27, kind: REQUEST, nonce: 77, flags: SETTING })));
        assert_eq!(header(&bytes[..6]), Ok(None));
        assert!(intact(&bytes, 0));
        bytes[20] ^= 1;
        assert!(!intact(&bytes, 0));
    }
}
