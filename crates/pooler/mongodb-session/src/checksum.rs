//! The checksum of a message (CRC-32C) some bytes of which are told as others. What that makes of the checksum follows
//! from these bytes and from where they stand, because the checksum of two messages' difference is, but for what
//! depends on their length alone, the difference of their checksums. So a message that was damaged before it came here
//! is still seen to be so by whom it is for, and one that passes in pieces is not held. It knows not what the bytes
//! mean.

use crate::wire::Number;

/// Bytes of a checksum, which are the last ones of its message.
pub const LENGTH: usize = 4;

/// Bytes that are skipped one by one; more of them in an effort that grows with the logarithm of their number only, and
/// is as large as that.
const MAX_STEP: usize = 16 << 10;
static NO_DIFFERENCE: [u8; MAX_STEP] = [0; MAX_STEP];

/// The difference of a message as it is told and as it came, from its beginning up to some place of it: the remainder
/// of that for the polynomial of CRC-32C.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Difference {
    remainder: u32,
    at: usize,
}

impl Difference {
    /// In the place of these bytes, which stand behind all that was noted before, a number is told that is as long.
    pub fn note(&mut self, place: usize, came: &[u8], told: Number) {
        self.skip_to(place);
        told.with_bytes(|told| {
            for (came, told) in came.iter().zip(told) {
                self.append(&[came ^ told]);
            }
        });
    }

    /// No other byte is told as another before this place.
    fn skip_to(&mut self, place: usize) {
        match place.saturating_sub(self.at) {
            0 => {}
            _ if self.remainder == 0 => self.at = place,
            same @ ..=MAX_STEP => self.append(&NO_DIFFERENCE[..same]),
            same => {
                self.remainder = crc32c::crc32c_combine(self.remainder, 0, same);
                self.at = place;
            }
        }
    }

    fn append(&mut self, differ: &[u8]) {
        // A checksum begins with ones, and ends with the contrary; a difference does neither.
        self.remainder = !crc32c::crc32c_append(!self.remainder, differ);
        self.at += differ.len();
    }

    /// What is told in the place of the checksum, byte by byte, as far as this piece has it, which stands at `at` in a
    /// message of this length.
    pub fn checksum(mut self, length: usize, at: usize, piece: &[u8]) -> impl Iterator<Item = (usize, Number)> {
        let place = length.saturating_sub(LENGTH);
        if at + piece.len() > place {
            self.skip_to(place);
        }
        (place..length).zip(self.remainder.to_le_bytes()).filter_map(move |(place, differs)| {
            let came = piece.get(place.checked_sub(at)?)?;
            (differs != 0).then_some((place, Number::Byte(came ^ differs)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message with its checksum.
    fn sealed(mut message: Vec<u8>) -> Vec<u8> {
        let checksum = crc32c::crc32c(&message);
        message.extend(checksum.to_le_bytes());
        message
    }

    #[test]
    fn a_checksum_is_that_of_what_is_told_wherever_that_differs_and_in_whatever_pieces_it_comes() {
        let came: Vec<u8> = (0..5_000).map(|number: u32| (number * 7 % 251) as u8).collect();
        for places in [&[][..], &[0], &[4_992], &[16, 24, 40], &[100, 356, 357 + 8, 4_000]] {
            let (message, mut told, mut difference) = (sealed(came.clone()), came.clone(), Difference::default());
            for place in places {
                let number = i64::MAX - *place as i64;
                difference.note(*place, &came[*place..place + 8], Number::Long(number));
                Number::Long(number).put(&mut told, *place);
            }
            let expected = sealed(told.clone());
            for piece in [1, 3, 1_000, message.len()] {
                let mut told = [&told[..], &message[5_000..]].concat();
                for at in (0..message.len()).step_by(piece) {
                    let piece = &message[at..(at + piece).min(message.len())];
                    for (place, number) in difference.checksum(message.len(), at, piece) {
                        number.put(&mut told, place);
                    }
                }
                assert!(told == expected, "{places:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn a_message_that_was_damaged_is_still_seen_to_be_so() {
        let (mut message, mut difference) = (sealed(vec![9; 100]), Difference::default());
        message[50] ^= 1;
        difference.note(60, &message[60..64], Number::Short(7));
        let mut told = message.clone();
        Number::Short(7).put(&mut told, 60);
        for (place, number) in difference.checksum(message.len(), 0, &message) {
            number.put(&mut told, place);
        }
        assert_ne!(told, sealed(told[..100].to_vec()));
        told[50] ^= 1;
        assert_eq!(told, sealed(told[..100].to_vec()));
    }
}
