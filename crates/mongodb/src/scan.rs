//! Finds the cursor's id in an answer that is too long to be looked at as a whole, while it passes: `cursor.id` stands behind a batch of
//! up to 48 MB. What is skipped is passed on at once; only the few bytes of an element's head may have to wait for the rest of them.

use crate::{bson::value_length, wire::HEADER};

/// Where the body's first element begins: behind flags, the section's kind and the document's length.
const FIRST: usize = HEADER + 4 + 1 + 4;

/// Bytes of an element's head that may be needed at once: its type, its name, and a number or a length.
const MAX_HEAD: usize = 256;

/// See the file's head. Positions are counted from the message's beginning.
#[derive(Clone, Copy, Debug)]
pub struct Scan {
    /// Where the next element begins.
    next: usize,
    /// It is one of the document `cursor`.
    inside: bool,
    /// There is nothing more to be found.
    over: bool,
    /// The id, and where it is.
    id: Option<(i64, usize)>,
}

impl Scan {
    pub fn new() -> Self {
        Self { next: FIRST, inside: false, over: false, id: None }
    }

    /// Looks at the bytes that stand at `at` in the message. Returns how many of them are done with: the others are to be shown again, with
    /// more behind them, if there are more.
    pub fn look(&mut self, bytes: &[u8], at: usize) -> usize {
        while !self.over {
            let Some(rest) = self.next.checked_sub(at).and_then(|skipped| bytes.get(skipped..)) else {
                return bytes.len();
            };
            let (Some(kind), Some(name)) = (rest.first(), rest.get(1..).and_then(name)) else {
                return self.waits(rest, at);
            };
            if *kind == 0 {
                self.over = true;
                break;
            }
            let value = self.next + 2 + name.len();
            let raw = &rest[2 + name.len()..];
            if raw.len() < 8 {
                return self.waits(rest, at);
            }
            match (self.inside, *kind, name) {
                (false, 0x03, b"cursor") => {
                    self.inside = true;
                    self.next = value + 4;
                }
                (true, 0x12, b"id") => {
                    let id = i64::from_le_bytes(raw[..8].try_into().expect("eight bytes"));
                    (self.id, self.over) = (Some((id, value)), true);
                }
                _ => match value_length(*kind, raw) {
                    Some(length) => self.next = value + length,
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

    /// What was found.
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
            let (mut scan, mut at, mut end) = (Scan::new(), 0, 0);
            while end < message.len() {
                end = (end + piece).min(message.len());
                at += scan.look(&message[at..end], at);
            }
            let (id, place) = scan.id().expect("it is there");
            assert_eq!((id, &message[place..place + 8]), (77, &77i64.to_le_bytes()[..]), "in pieces of {piece}");
        }
    }

    #[test]
    fn an_answer_without_a_cursor_ends() {
        let mut message = Vec::new();
        wire::answer(&mut message, Answers { id: 1, old: false }, |answer: &mut Writer<'_>| {
            answer.array("cursor", |_| ()).bool("ok", true);
        });
        let mut scan = Scan::new();
        scan.look(&message, 0);
        assert_eq!(scan.id(), None);
    }
}
