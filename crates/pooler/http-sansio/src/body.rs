//! The body of a request in HTTP/1.1, which arrives in pieces (RFC 9112, sections 6 and 7).

use crate::{Denied, head::Framing};

/// Maximum length of the line before a chunk, in bytes: its size and extensions.
const MAX_CHUNK_LINE: usize = 256;

/// Maximum number of trailer fields, which are ignored.
const MAX_TRAILER_FIELDS: u32 = 64;

/// Maximum number of body bytes that are discarded after a request was refused, before the connection is closed. Many
/// clients read the answer only after they have sent the whole body, and closing earlier may destroy the answer on its
/// way.
pub(crate) const MAX_DISCARDED_BODY: u64 = 1024 * 1024 * 1024;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Body {
    pub bytes: Vec<u8>,
    state: State,
    most: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// This many bytes remain of a body with a known length.
    Plain(u64),
    /// A chunk's size line comes next.
    Size,
    /// This many bytes remain of the current chunk.
    Chunk(u64),
    /// The line end after a chunk comes next.
    End,
    /// Trailer fields and an empty line come next. This many fields have come.
    Trailer(u32),
    Whole,
}

impl Body {
    /// A body of at most `most` bytes.
    ///
    /// # Errors
    ///
    /// Its declared length is greater.
    pub(crate) fn new(framing: Framing, most: usize) -> Result<Self, Denied> {
        let state = match framing {
            Framing::Length(length) if length > most as u64 => return Err(Denied::too_large(most)),
            Framing::Length(0) => State::Whole,
            Framing::Length(length) => State::Plain(length),
            Framing::Chunked => State::Size,
        };
        Ok(Self { bytes: Vec::new(), state, most })
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.state == State::Whole
    }

    /// The framing of the part that has not come.
    pub(crate) fn rest(&self) -> Framing {
        match self.state {
            State::Plain(left) => Framing::Length(left),
            State::Whole => Framing::Length(0),
            State::Size | State::Chunk(_) | State::End | State::Trailer(_) => Framing::Chunked,
        }
    }

    /// Consumes the part of the input that belongs to the body. Returns its length.
    pub(crate) fn take(&mut self, input: &[u8]) -> Result<usize, Denied> {
        let mut at = 0;
        while at < input.len() && !self.is_whole() {
            let rest = &input[at..];
            let taken = match self.state {
                State::Plain(left) => {
                    let taken = self.keep(rest, left)?;
                    self.state = if taken as u64 == left { State::Whole } else { State::Plain(left - taken as u64) };
                    taken
                }
                State::Chunk(left) => {
                    let taken = self.keep(rest, left)?;
                    self.state = if taken as u64 == left { State::End } else { State::Chunk(left - taken as u64) };
                    taken
                }
                State::Size | State::End | State::Trailer(_) => match self.line(rest)? {
                    0 => break,
                    taken => taken,
                },
                State::Whole => unreachable!("seen above"),
            };
            at += taken;
        }
        Ok(at)
    }

    fn keep(&mut self, rest: &[u8], left: u64) -> Result<usize, Denied> {
        let taken = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if self.bytes.len() + taken > self.most {
            return Err(Denied::too_large(self.most));
        }
        self.bytes.extend_from_slice(&rest[..taken]);
        Ok(taken)
    }

    /// Consumes a line if it is complete. Returns its length, or 0.
    fn line(&mut self, rest: &[u8]) -> Result<usize, Denied> {
        let broken = || Denied::new(400, "the body's chunks are broken");
        let Some(end) = rest.iter().take(MAX_CHUNK_LINE).position(|byte| *byte == b'\n') else {
            return if rest.len() >= MAX_CHUNK_LINE { Err(broken()) } else { Ok(0) };
        };
        let line = rest[..end].strip_suffix(b"\r").filter(|line| !line.contains(&b'\r')).ok_or_else(broken)?;
        self.state = match self.state {
            State::Size => {
                let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
                match hexadecimal(digits).ok_or_else(broken)? {
                    0 => State::Trailer(0),
                    size if size > (self.most - self.bytes.len()) as u64 => return Err(Denied::too_large(self.most)),
                    size => State::Chunk(size),
                }
            }
            State::End if line.is_empty() => State::Size,
            State::End => return Err(broken()),
            State::Trailer(_) if line.is_empty() => State::Whole,
            State::Trailer(MAX_TRAILER_FIELDS) => return Err(broken()),
            State::Trailer(count) => State::Trailer(count + 1),
            other => other,
        };
        Ok(end + 1)
    }
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    let plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit);
    plain.then(|| u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a body that arrives in pieces of this size. Returns it, and the length consumed.
    fn read(framing: Framing, input: &[u8], piece: usize) -> Result<(Vec<u8>, usize), Denied> {
        let (mut body, mut held, mut at) = (Body::new(framing, 1000)?, Vec::new(), 0);
        for piece in input.chunks(piece) {
            held.extend_from_slice(piece);
            let used = body.take(&held)?;
            held.drain(..used);
            at += used;
        }
        assert!(body.is_whole());
        Ok((body.bytes, at))
    }

    #[test]
    fn a_body_comes_in_pieces_of_any_size() {
        let chunks = b"4;x=y\r\nWiki\r\n5\r\npedia\r\n0\r\nT: v\r\n\r\nGET";
        for piece in 1..40 {
            assert_eq!(read(Framing::Length(5), b"helloGET", piece), Ok((b"hello".to_vec(), 5)));
            assert_eq!(read(Framing::Chunked, chunks, piece), Ok((b"Wikipedia".to_vec(), chunks.len() - 3)));
        }
    }

    #[test]
    fn a_body_is_bounded_however_it_is_framed() {
        assert_eq!(read(Framing::Length(1001), b"", 1).expect_err("too large").status, 413);
        let chunk = format!("400\r\n{}", "x".repeat(1024));
        assert_eq!(read(Framing::Chunked, chunk.as_bytes(), 100).expect_err("too large").status, 413);
    }

    #[test]
    fn broken_chunks_are_refused() {
        for broken in ["x\r\n", "\r\n", "1\r\nab\r\n", "1\nx", "-1\r\n", "fffffffffffffffff\r\n"] {
            assert_eq!(read(Framing::Chunked, broken.as_bytes(), 1).expect_err(broken).status, 400);
        }
        assert_eq!(read(Framing::Chunked, &[b'1'; 300], 300).expect_err("a long line").status, 400);
    }
}
