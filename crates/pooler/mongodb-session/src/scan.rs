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
    /// The scan is complete.
    over: bool,
    /// The cursor's id, and its place.
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
        Self { next: FIRST_ELEMENT, within: Within::Answer, over: false, id: None }
    }

    /// Scans `bytes`, which begin at `at` in the message. Returns how many are done: the rest has to be shown again
    /// with more input after it. Appends numbers to be replaced among those, and their places.
    pub fn look(&mut self, bytes: &[u8], at: usize, replacements: &mut Vec<(usize, Number)>) -> usize {
        while !self.over {
            let Some(rest) = self.next.checked_sub(at).and_then(|skipped| bytes.get(skipped..)) else {
                return bytes.len();
            };
            match (rest.first(), self.within) {
                (Some(0), Within::Answer) => {
                    self.over = true;
                    break;
                }
                (Some(0), _) => {
                    (self.within, self.next) = (Within::Answer, self.next + 1);
                    continue;
                }
                _ => {}
            }
            let (Some(kind), Some(name)) = (rest.first(), rest.get(1..).and_then(name)) else {
                return self.waits(rest, at);
            };
            let value = self.next + 2 + name.len();
            let raw = &rest[2 + name.len()..];
            let Some(number) = raw.first_chunk::<8>() else { return self.waits(rest, at) };
            match (self.within, *kind, name) {
                (Within::Answer, 0x03, b"cursor") => (self.within, self.next) = (Within::Cursor, value + 4),
                (Within::Answer, 0x03, b"writeConcernError") => {
                    (self.within, self.next) = (Within::WriteConcernError, value + 4);
                }
                (Within::Cursor, 0x12, b"id") => {
                    (self.id, self.over) = (Some((i64::from_le_bytes(*number), value)), true);
                }
                _ => match value_length(*kind, raw) {
                    Some(length) => {
                        let code = (*kind == 0x10 && name == b"code").then(|| i64::from_le_bytes(*number) as i32);
                        if self.within != Within::Cursor && code.is_some_and(is_state_change_code) {
                            replacements.push((value, Number::Int32(Code::HostUnreachable as i32)));
                        }
                        self.next = value + length;
                    }
                    None => self.over = true,
                },
            }
        }
        bytes.len()
    }

    /// The head of an element is incomplete.
    fn waits(&mut self, rest: &[u8], at: usize) -> usize {
        if rest.len() < MAX_ELEMENT_HEAD {
            return self.next - at;
        }
        self.over = true;
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

    #[test]
    fn the_id_is_found_in_whatever_pieces_it_comes() {
        let mut message = Vec::new();
        wire::answer(&mut message, Answers { id: 1, old: false }, |answer: &mut Writer<'_>| {
            answer.text("before", &"x".repeat(300));
            answer.document("cursor", |cursor| {
                cursor.array("firstBatch", |batch| _ = batch.text("0", &"y".repeat(500)));
                cursor.int64("id", 77).text("ns", "app.c");
            });
            answer.double("ok", 1.0);
        });
        for piece in [1, 2, 7, 100, 5000] {
            let (mut scan, mut at, mut end, mut replacements) = (Scan::new(), 0, 0, Vec::new());
            while end < message.len() {
                end = (end + piece).min(message.len());
                at += scan.look(&message[at..end], at, &mut replacements);
            }
            let (id, place) = scan.id().expect("it is there");
            assert_eq!((id, &message[place..place + 8]), (77, &77i64.to_le_bytes()[..]), "in pieces of {piece}");
            assert!(replacements.is_empty());
        }
    }

    /// The reply to a bulk write with failed writes, and with this code in its write concern error.
    fn much_has_failed(code: i32) -> Vec<u8> {
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
    fn a_change_of_state_behind_much_else_is_told_in_another_number_in_whatever_pieces_it_comes() {
        for piece in [1, 2, 7, 100, 5000] {
            let message = much_has_failed(91);
            let (mut scan, mut at, mut end, mut told) = (Scan::new(), 0, 0, message.clone());
            while end < message.len() {
                end = (end + piece).min(message.len());
                let mut replacements = Vec::new();
                let done = scan.look(&message[at..end], at, &mut replacements);
                for (place, number) in replacements {
                    assert!((at..at + done - 3).contains(&place), "all of it is done with");
                    assert_eq!(number, Number::Int32(6));
                    told[place..place + 4].copy_from_slice(&6i32.to_le_bytes());
                }
                at += done;
            }
            let (expected, other) = (much_has_failed(6), much_has_failed(64));
            assert!(told == expected && told.len() == other.len(), "in pieces of {piece}");
        }
        let mut replacements = Vec::new();
        Scan::new().look(&much_has_failed(64), 0, &mut replacements);
        assert!(replacements.is_empty(), "a write concern that took too long is the client's to know");
    }

    #[test]
    fn an_answer_without_a_cursor_ends() {
        let mut message = Vec::new();
        wire::answer(&mut message, Answers { id: 1, old: false }, |answer: &mut Writer<'_>| {
            answer.array("cursor", |_| ()).bool("ok", true);
        });
        let mut scan = Scan::new();
        scan.look(&message, 0, &mut Vec::new());
        assert_eq!(scan.id(), None);
    }
}
