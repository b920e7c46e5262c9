//! Finds what has to be told in other words in an answer that is too long to be looked at as a whole, while it passes:
//! the cursor's id (`cursor.id` stands behind a batch of up to 48 MB), and the code of an error that tells of a change
//! of the server's state (a bulk write has it in `writeConcernError`, behind thousands of errors of its own). What is
//! skipped is passed on at once; only the few bytes of an element's head may have to wait for the rest of them. What
//! comes in the place of a number is as long as it: nothing else of such an answer is changed.

use crate::{
    bson::value_length,
    errors::Code,
    reply_summary::is_state_change_code,
    wire::{HEADER, Number},
};

/// Where the body's first element begins: behind flags, the section's kind and the document's length.
const FIRST: usize = HEADER + 4 + 1 + 4;

/// Bytes of an element's head that may be needed at once: its type, its name, and a number or a length.
const MAX_HEAD: usize = 256;

/// See the file's head. Positions are counted from the message's beginning.
#[derive(Clone, Copy, Debug)]
pub struct Scan {
    /// Where the next element begins.
    next: usize,
    inside: Inside,
    /// There is nothing more to be found.
    over: bool,
    /// The id, and where it is.
    id: Option<(i64, usize)>,
}

/// A document of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Inside {
    Answer,
    /// Its `cursor`.
    Cursor,
    /// Its `writeConcernError`.
    Concern,
}

impl Scan {
    pub fn new() -> Self {
        Self { next: FIRST, inside: Inside::Answer, over: false, id: None }
    }

    /// Looks at the bytes that stand at `at` in the message. Returns how many of them are done with: the others are to
    /// be shown again, with more behind them, if there are more. Appends which numbers among those are to be told in
    /// other words, and where they are: a change of state is told as in [`reply_summary`](crate::reply_summary).
    pub fn look(&mut self, bytes: &[u8], at: usize, others: &mut Vec<(usize, Number)>) -> usize {
        while !self.over {
            let Some(rest) = self.next.checked_sub(at).and_then(|skipped| bytes.get(skipped..)) else {
                return bytes.len();
            };
            match (rest.first(), self.inside) {
                (Some(0), Inside::Answer) => {
                    self.over = true;
                    break;
                }
                (Some(0), _) => {
                    (self.inside, self.next) = (Inside::Answer, self.next + 1);
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
            match (self.inside, *kind, name) {
                (Inside::Answer, 0x03, b"cursor") => (self.inside, self.next) = (Inside::Cursor, value + 4),
                (Inside::Answer, 0x03, b"writeConcernError") => {
                    (self.inside, self.next) = (Inside::Concern, value + 4);
                }
                (Inside::Cursor, 0x12, b"id") => {
                    (self.id, self.over) = (Some((i64::from_le_bytes(*number), value)), true);
                }
                _ => match value_length(*kind, raw) {
                    Some(length) => {
                        let code = (*kind == 0x10 && name == b"code").then(|| i64::from_le_bytes(*number) as i32);
                        if self.inside != Inside::Cursor && code.is_some_and(is_state_change_code) {
                            others.push((value, Number::Short(Code::HostUnreachable as i32)));
                        }
                        self.next = value + length;
                    }
                    None => self.over = true,
                },
            }
        }
        bytes.len()
    }

    /// An element's head is not there yet.
    fn waits(&mut self, rest: &[u8], at: usize) -> usize {
        if rest.len() < MAX_HEAD {
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
    let end = bytes.iter().take(MAX_HEAD).position(|byte| *byte == 0)?;
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
            let (mut scan, mut at, mut end, mut others) = (Scan::new(), 0, 0, Vec::new());
            while end < message.len() {
                end = (end + piece).min(message.len());
                at += scan.look(&message[at..end], at, &mut others);
            }
            let (id, place) = scan.id().expect("it is there");
            assert_eq!((id, &message[place..place + 8]), (77, &77i64.to_le_bytes()[..]), "in pieces of {piece}");
            assert!(others.is_empty());
        }
    }

    /// An answer to a bulk write of which much has failed, and whose write concern has failed so.
    fn much_has_failed(code: i32) -> Vec<u8> {
        let mut message = Vec::new();
        wire::answer(&mut message, Answers { id: 1, old: false }, |answer: &mut Writer<'_>| {
            answer.int32("n", 1).array("writeErrors", |errors| {
                // What it failed with says nothing of the server's state, whatever is in it.
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
                let mut others = Vec::new();
                let done = scan.look(&message[at..end], at, &mut others);
                for (place, number) in others {
                    assert!((at..at + done - 3).contains(&place), "all of it is done with");
                    assert_eq!(number, Number::Short(6));
                    told[place..place + 4].copy_from_slice(&6i32.to_le_bytes());
                }
                at += done;
            }
            let (expected, other) = (much_has_failed(6), much_has_failed(64));
            assert!(told == expected && told.len() == other.len(), "in pieces of {piece}");
        }
        let mut others = Vec::new();
        Scan::new().look(&much_has_failed(64), 0, &mut others);
        assert!(others.is_empty(), "a write concern that took too long is the client's to know");
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
