//! Scans a reply that is too long to be read as a whole, while it is relayed. It finds the cursor's id (`cursor.id` may
//! follow a batch of 48 MB), and codes of state change errors (a bulk write has one in `writeConcernError`, behind
//! thousands of write errors). Skipped bytes are relayed at once; only the head of an element may have to wait for more
//! input. Replaced numbers have the same size, and nothing else changes.

use crate::{
    bson::value_length,
    errors::Code,
    reply_summary::is_state_change_code,
    wire::{HEADER, Number},
};

/// Where the body's first element begins: after the flags, the section's kind and the document's length.
const FIRST_ELEMENT: usize = HEADER + 4 + 1 + 4;

/// Maximum size of an element's head, in bytes: its type, its name, and a number or a length.
const MAX_ELEMENT_HEAD: usize = 256;

/// Positions are counted from the beginning of the message.
#[derive(Clone, Copy, Debug)]
pub struct Scan {
    /// Where the next element begins.
    next: usize,
    within: Within,
    is_complete: bool,
    /// The cursor's id, and its offset.
    id: Option<(i64, usize)>,
}

/// The document that contains the next element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Within {
    Answer,
    Cursor,
    WriteConcernError,
}

impl Scan {
    pub fn new() -> Self {
        Self { next: FIRST_ELEMENT, within: Within::Answer, is_complete: false, id: None }
    }

    /// Scans `bytes`, which begin at `at` in the message. Returns how many are done: the rest has to be shown again
    /// with more input after it. Appends numbers to be replaced among those, and their offsets.
    pub fn advance(&mut self, bytes: &[u8], at: usize, replacements: &mut Vec<(usize, Number)>) -> usize {
        while !self.is_complete {
            let Some(rest) = self.next.checked_sub(at).and_then(|skipped| bytes.get(skipped..)) else {
                return bytes.len();
            };
            match (rest.first(), self.within) {
                (Some(0), Within::Answer) => {
                    self.is_complete = true;
                    break;
                }
                (Some(0), _) => {
                    (self.within, self.next) = (Within::Answer, self.next + 1);
                    continue;
                }
                _ => {}
            }
            let (Some(kind), Some(name)) = (rest.first(), rest.get(1..).and_then(name)) else {
                return self.wait_for_more(rest, at);
            };
            let value = self.next + 2 + name.len();
            let raw = &rest[2 + name.len()..];
            let Some(number) = raw.first_chunk::<8>() else { return self.wait_for_more(rest, at) };
            match (self.within, *kind, name) {
                (Within::Answer, 0x03, b"cursor") => (self.within, self.next) = (Within::Cursor, value + 4),
                (Within::Answer, 0x03, b"writeConcernError") => {
                    (self.within, self.next) = (Within::WriteConcernError, value + 4);
                }
                (Within::Cursor, 0x12, b"id") => {
                    (self.id, self.is_complete) = (Some((i64::from_le_bytes(*number), value)), true);
                }
                _ => match value_length(*kind, raw) {
                    Some(length) => {
                        let code = (*kind == 0x10 && name == b"code").then(|| i64::from_le_bytes(*number) as i32);
                        if self.within != Within::Cursor && code.is_some_and(is_state_change_code) {
                            replacements.push((value, Number::Int32(Code::HostUnreachable as i32)));
                        }
                        self.next = value + length;
                    }
                    None => self.is_complete = true,
                },
            }
        }
        bytes.len()
    }

    /// The head of an element is incomplete.
    fn wait_for_more(&mut self, rest: &[u8], at: usize) -> usize {
        if rest.len() < MAX_ELEMENT_HEAD {
            return self.next - at;
        }
        self.is_complete = true;
        self.next - at + rest.len()
    }

    pub fn id(&self) -> Option<(i64, usize)> {
        self.id
    }
}

fn name(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().take(MAX_ELEMENT_HEAD).position(|byte| *byte == 0)?;
    Some(&bytes[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        bson::Writer,
        wire::{self, Answers},
    };

    /// The reply to a bulk write with failed writes, and with this code in its write concern error.
    fn bulk_write_reply(code: i32) -> Vec<u8> {
        let mut message = Vec::new();
        wire::answer(&mut message, Answers { id: 1, old: false }, |answer: &mut Writer<'_>| {
            answer.int32("n", 1).array("writeErrors", |errors| {
                // The code of a write error does not tell about the server's state.
                errors.document("0", |error| _ = error.int32("code", 91).text("errmsg", &"x".repeat(500)));
            });
            answer.document("writeConcernError", |error| {
                error.int32("code", code).text("codeName", "ShutdownInProgress").text("errmsg", "down");
            });
            answer.int32("code", 50).double("ok", 1.0);
        });
        message
    }

    #[test]
    fn the_code_of_a_state_change_is_replaced_however_the_reply_is_cut() {
        for piece in [1, 2, 7, 100, 5000] {
            let message = bulk_write_reply(91);
            let (mut scan, mut at, mut end, mut rewritten) = (Scan::new(), 0, 0, message.clone());
            while end < message.len() {
                end = (end + piece).min(message.len());
                let mut replacements = Vec::new();
                let done = scan.advance(&message[at..end], at, &mut replacements);
                for (offset, number) in replacements {
                    assert!((at..at + done - 3).contains(&offset), "all of it is done with");
                    assert_eq!(number, Number::Int32(6));
                    rewritten[offset..offset + 4].copy_from_slice(&6i32.to_le_bytes());
                }
                at += done;
            }
            let (expected, other) = (bulk_write_reply(6), bulk_write_reply(64));
            assert!(rewritten == expected && rewritten.len() == other.len(), "in pieces of {piece}");
        }
        let mut replacements = Vec::new();
        Scan::new().advance(&bulk_write_reply(64), 0, &mut replacements);
        assert!(replacements.is_empty(), "a write concern that took too long is the client's to know");
    }
}
