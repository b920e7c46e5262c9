//! Messages of the wire protocol: headers, OP_MSG, and OP_QUERY and OP_REPLY, which handshakes still use. See MongoDB's
//! manual, "MongoDB Wire Protocol", and the drivers' specification "OP_MSG".

use std::ops::Range;

use seam::{Outbox, Peer};

use crate::bson::{Document, Malformed, Writer, length};

/// The first bytes of a TLS handshake: the record type and the major version.
const TLS_HANDSHAKE: [u8; 2] = [0x16, 0x03];

pub const HEADER: usize = 16;

pub const MAX_MESSAGE: usize = 48_000_000;

const FLAGS: usize = 4;

const CHECKSUM: usize = 4;

/// The message ends with a CRC-32C of its other bytes (`checksumPresent`).
pub const CHECKSUM_PRESENT: u32 = 1;
/// Another message follows without a request for it. A request with this flag gets no reply (`moreToCome`).
pub const MORE_TO_COME: u32 = 1 << 1;
/// The client accepts several replies (`exhaustAllowed`).
pub const EXHAUST_ALLOWED: u32 = 1 << 16;
/// A receiver must refuse a message with an unknown flag among these.
const REQUIRED: u32 = 0xffff;

/// Maximum number of sections before the body. Drivers send two at most.
const MAX_SECTIONS: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    Msg,
    /// OP_QUERY: handshakes may begin with it.
    Query,
    /// OP_REPLY: the reply to an OP_QUERY.
    Reply,
    /// Poolhouse offers no compression.
    Compressed,
    Unknown(i32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    pub length: usize,
    /// `requestID`.
    pub id: i32,
    /// `responseTo`: the id of the request that this answers.
    pub answers: i32,
    pub op: Op,
}

impl Header {
    pub fn read(bytes: &[u8]) -> Option<Result<Self, Malformed>> {
        let word = |at: usize| Some(i32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let (declared, id, answers, op) = (word(0)?, word(4)?, word(8)?, word(12)?);
        let op = match op {
            2013 => Op::Msg,
            2004 => Op::Query,
            1 => Op::Reply,
            2012 => Op::Compressed,
            other => Op::Unknown(other),
        };
        // A message of 790 bytes begins with the same bytes, but has a known opcode.
        if matches!(op, Op::Unknown(_)) && bytes.starts_with(&TLS_HANDSHAKE) {
            return Some(Err(Malformed("a TLS handshake, and TLS is off here: see `tls` of the [[listener]]")));
        }
        let length = usize::try_from(declared).ok().filter(|length| (HEADER..=MAX_MESSAGE).contains(length));
        Some(match length {
            Some(length) => Ok(Self { length, id, answers, op }),
            None => Err(Malformed("a message is of a length that none may have")),
        })
    }
}

pub fn flags(message: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(*message.get(HEADER..)?.first_chunk()?))
}

/// Where a message's body is: the document with the command or the reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    At(Range<usize>),
    /// At least this many bytes of the message are needed to find it.
    Needs(usize),
}

/// A number that replaces another of the same size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Number {
    Int32(i32),
    Int64(i64),
}

impl Number {
    pub(crate) fn with_bytes<R>(self, make: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Self::Int32(number) => make(&number.to_le_bytes()),
            Self::Int64(number) => make(&number.to_le_bytes()),
        }
    }

    /// Writes it at this offset of a message, as far as the message reaches.
    pub(crate) fn put(self, message: &mut [u8], offset: usize) {
        self.with_bytes(|bytes| message.iter_mut().skip(offset).zip(bytes).for_each(|(to, byte)| *to = *byte));
    }

    fn write(self, to: &mut Vec<u8>) -> usize {
        self.with_bytes(|bytes| {
            to.extend_from_slice(bytes);
            bytes.len()
        })
    }
}

/// A message that is relayed in pieces. A checksum is left out: the body may change on the way, and receivers require
/// none. Drivers send none, but the `mongo` shell of MongoDB 4.2 to 5.0 does, and a server replies with one only to a
/// request that has one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Relayed {
    /// The size of the message as it arrives, with its checksum.
    pub length: usize,
    /// Its flags, or 0 if it is no OP_MSG.
    pub flags: u32,
}

impl Relayed {
    /// The size without the checksum; `None` if the message is too short to have one.
    pub fn end(self) -> Option<usize> {
        let checksum = if self.flags & CHECKSUM_PRESENT == 0 { 0 } else { CHECKSUM };
        self.length.checked_sub(checksum).filter(|end| *end >= HEADER + FLAGS)
    }

    /// The numbers at the beginning that change because the checksum is left out.
    fn head(self, end: usize) -> impl Iterator<Item = (usize, Number)> {
        let flags = self.flags & !CHECKSUM_PRESENT;
        let changed = [(0, Number::Int32(end as i32)), (HEADER, Number::Int32(flags as i32))];
        changed.into_iter().filter(move |_| end < self.length)
    }

    /// Relays `length` bytes of the input, which begin at `at` in the message, with these numbers replaced, in order.
    /// The first piece has the header and the flags.
    pub fn span(
        self,
        out: &mut Outbox,
        to: Peer,
        at: usize,
        length: usize,
        numbers: impl Iterator<Item = (usize, Number)>,
    ) {
        let end = self.end().unwrap_or(self.length);
        let (mut done, length) = (0, length.min(end.saturating_sub(at)));
        for (offset, number) in self.head(end).chain(numbers) {
            let Some(here) = offset.checked_sub(at).filter(|here| (done..length).contains(here)) else { continue };
            out.span(to, done..here);
            let mut written = 0;
            out.insert(to, |bytes| written = number.write(bytes));
            done = (here + written).min(length);
        }
        out.span(to, done..length);
    }

    /// Appends the message's first piece to `to`, as [`Relayed::span`] relays it.
    pub fn append(self, to: &mut Vec<u8>, piece: &[u8], numbers: impl Iterator<Item = (usize, Number)>) {
        let (begin, end) = (to.len(), self.end().unwrap_or(self.length));
        to.extend(&piece[..piece.len().min(end)]);
        self.head(end).chain(numbers).for_each(|(offset, number)| number.put(&mut to[begin..], offset));
    }
}

/// Finds the body of an OP_MSG that may be incomplete.
pub fn body(message: &[u8], header: &Header) -> Result<Body, Malformed> {
    let Some(flags) = flags(message) else { return too_short(header, HEADER + FLAGS) };
    if flags & REQUIRED & !(CHECKSUM_PRESENT | MORE_TO_COME) != 0 {
        return Err(Malformed("a message has an unknown required flag"));
    }
    let end = Relayed { length: header.length, flags }.end().filter(|end| *end > HEADER + FLAGS);
    let end = end.ok_or(Malformed("a message without a body"))?;
    let (mut at, mut sections) = (HEADER + FLAGS, 0);
    while at < end {
        let Some(kind) = message.get(at) else { return too_short(header, at + 1) };
        let Some(declared) = message.get(at + 1..at + 5) else {
            return if end < at + 5 { Err(Malformed("a section that does not end")) } else { Ok(Body::Needs(at + 5)) };
        };
        let declared = length(declared).filter(|declared| (5..=end - at - 1).contains(declared));
        let section = at + 1..at + 1 + declared.ok_or(Malformed("a section whose length is wrong"))?;
        match kind {
            0 if section.end > message.len() => return Ok(Body::Needs(section.end)),
            0 => {
                if message.len() >= header.length {
                    check_rest(&message[section.end..end])?;
                }
                return Ok(Body::At(section));
            }
            1 if sections == MAX_SECTIONS => return Err(Malformed("a message of too many sections")),
            1 => (at, sections) = (section.end, sections + 1),
            _ => return Err(Malformed("a section of an unknown kind")),
        }
    }
    Err(Malformed("a message without a body"))
}

/// Only document sequences may follow the body: a server closes the connection of a client that sends anything else.
fn check_rest(mut rest: &[u8]) -> Result<(), Malformed> {
    while let Some((kind, section)) = rest.split_first() {
        let declared = length(section).filter(|declared| *kind == 1 && (5..=section.len()).contains(declared));
        rest = &section[declared.ok_or(Malformed("a section that is none"))?..];
    }
    Ok(())
}

fn too_short(header: &Header, needs: usize) -> Result<Body, Malformed> {
    if header.length < needs { Err(Malformed("a message without a body")) } else { Ok(Body::Needs(needs)) }
}

/// The database and the document of a complete OP_QUERY.
pub fn query(message: &[u8]) -> Result<(&str, Document<'_>), Malformed> {
    const WRONG: Malformed = Malformed("a query that is malformed");
    let behind_flags = message.get(HEADER + 4..).ok_or(WRONG)?;
    let end = behind_flags.iter().position(|byte| *byte == 0).ok_or(WRONG)?;
    let name = std::str::from_utf8(&behind_flags[..end]).map_err(|_| WRONG)?;
    let database =
        name.strip_suffix(".$cmd").ok_or(Malformed("a query of a collection, which is no longer supported"))?;
    // Between them are the numbers of documents to skip and to return.
    let (document, _) = Document::split(behind_flags.get(end + 9..).ok_or(WRONG)?)?;
    Ok((database, document))
}

/// The request that a reply of Poolhouse is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answers {
    pub id: i32,
    /// It was an OP_QUERY, so the reply is an OP_REPLY.
    pub old: bool,
}

pub fn answer(to: &mut Vec<u8>, answers: Answers, write: impl FnOnce(&mut Writer<'_>)) {
    if answers.old {
        message(to, 0, answers.id, 1, |bytes| {
            // Flags (`AwaitCapable`), no cursor, starting from 0, one document.
            bytes.extend([8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
            write(&mut Writer::new(bytes));
        });
    } else {
        message(to, 0, answers.id, 2013, |bytes| {
            bytes.extend([0, 0, 0, 0, 0]);
            write(&mut Writer::new(bytes));
        });
    }
}

pub fn request(to: &mut Vec<u8>, id: i32, write: impl FnOnce(&mut Writer<'_>)) {
    message(to, id, 0, 2013, |bytes| {
        bytes.extend([0, 0, 0, 0, 0]);
        write(&mut Writer::new(bytes));
    });
}

pub fn request_with(to: &mut Vec<u8>, id: i32, document: &[u8]) {
    message(to, id, 0, 2013, |bytes| {
        bytes.extend([0, 0, 0, 0, 0]);
        bytes.extend_from_slice(document);
    });
}

/// Appends a request as an OP_QUERY, which servers of every version understand.
pub fn old_request(to: &mut Vec<u8>, id: i32, write: impl FnOnce(&mut Writer<'_>)) {
    message(to, id, 0, 2004, |bytes| {
        // Flags (`SlaveOk`), the collection, skip 0, return 1.
        bytes.extend([4, 0, 0, 0]);
        bytes.extend(b"admin.$cmd\0");
        bytes.extend([0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
        write(&mut Writer::new(bytes));
    });
}

fn message(to: &mut Vec<u8>, id: i32, answers: i32, op: i32, write: impl FnOnce(&mut Vec<u8>)) {
    let begun = to.len();
    to.extend([0; 4]);
    for word in [id, answers, op] {
        to.extend(word.to_le_bytes());
    }
    write(to);
    let length = (to.len() - begun) as i32;
    to[begun..begun + 4].copy_from_slice(&length.to_le_bytes());
}

/// The document of a complete reply, OP_MSG or OP_REPLY.
pub fn reply_document<'a>(message: &'a [u8], header: &Header) -> Result<Document<'a>, Malformed> {
    match header.op {
        Op::Reply => Ok(Document::split(message.get(HEADER + 20..).unwrap_or_default())?.0),
        _ => match body(message, header)? {
            Body::At(range) => Document::read(&message[range]),
            Body::Needs(_) => Err(Malformed("an answer that does not end")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut bytes = Vec::new();
        request(&mut bytes, 7, |body| {
            body.text("insert", "c").text("$db", "app");
        });
        bytes
    }

    fn find(bytes: &[u8]) -> Result<Body, Malformed> {
        body(bytes, &Header::read(&sample()).unwrap().unwrap())
    }

    #[test]
    fn the_body_is_found_as_soon_as_it_is_there() {
        let bytes = sample();
        let header = Header::read(&bytes).unwrap().unwrap();
        assert_eq!((header.length, header.id, header.op), (bytes.len(), 7, Op::Msg));
        assert_eq!(Header::read(&bytes[..15]), None);
        for cut in HEADER..bytes.len() {
            let Ok(Body::Needs(needs)) = find(&bytes[..cut]) else { panic!("at {cut}") };
            assert!((cut + 1..=bytes.len()).contains(&needs), "{needs} at {cut}");
        }
        assert_eq!(find(&bytes), Ok(Body::At(21..bytes.len())));
        let document = reply_document(&bytes, &header).unwrap();
        assert_eq!(document.get("$db").unwrap().unwrap().text(), Some("app"));
    }

    #[test]
    fn a_body_behind_its_documents_is_found() {
        let mut bytes = sample();
        let documents = [&[1][..], &14i32.to_le_bytes(), b"docs\0", &[5, 0, 0, 0, 0]].concat();
        bytes.splice(20..20, documents);
        let header = Header { length: bytes.len(), id: 7, answers: 0, op: Op::Msg };
        assert_eq!(body(&bytes, &header), Ok(Body::At(36..bytes.len())));
        assert_eq!(body(&bytes[..30], &header), Ok(Body::Needs(36)));
    }

    #[test]
    fn a_handshake_of_tls_is_told_from_a_message() {
        let mut bytes = [0x16, 0x03, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 9, 9, 9, 9, 9];
        assert!(Header::read(&bytes).unwrap().unwrap_err().0.contains("TLS"));
        bytes[2..4].fill(0);
        bytes[12..].copy_from_slice(&2013i32.to_le_bytes());
        assert_eq!(Header::read(&bytes).unwrap().unwrap().length, 790);
    }

    #[test]
    fn lies_are_refused() {
        for length in [-1, 0, 15, MAX_MESSAGE as i32 + 1] {
            let mut bytes = sample();
            bytes[..4].copy_from_slice(&length.to_le_bytes());
            assert!(Header::read(&bytes).unwrap().is_err());
        }
        for (at, byte) in [(16, 4), (20, 2), (21, 255), (21, 4), (24, 255)] {
            let mut bytes = sample();
            bytes[at] = byte;
            assert!(find(&bytes).is_err(), "{at}");
        }
    }
}
