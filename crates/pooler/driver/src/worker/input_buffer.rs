//! Input that a session has not consumed yet. However small the pieces in which it arrives and is consumed, each byte
//! is copied a few times at most: what arrives is appended, and what was consumed is dropped in large parts.

/// What stands for [`seam::Outbox::UNTIL_WOKEN`] here.
const UNTIL_WOKEN: u32 = u32::MAX;

#[derive(Default)]
pub(super) struct InputBuffer {
    bytes: Vec<u8>,
    /// The first bytes, which have been consumed.
    start: u32,
    /// The session cannot go on with fewer bytes.
    need: u32,
    /// Bytes copied, the growth of the buffer included.
    #[cfg(test)]
    copied: usize,
}

impl InputBuffer {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.start as usize
    }

    /// What has not been consumed.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start as usize..]
    }

    /// Appends what has arrived.
    pub(super) fn extend(&mut self, piece: &[u8]) {
        #[cfg(test)]
        if self.bytes.capacity() - self.bytes.len() < piece.len() {
            self.copied += self.bytes.len();
        }
        self.bytes.extend_from_slice(piece);
        #[cfg(test)]
        (self.copied += piece.len());
    }

    /// Drops what was consumed, and notes what the session [needs](seam::Outbox::need) next.
    pub(super) fn consumed(&mut self, count: usize, need: usize) {
        self.start += count as u32;
        self.need = match need {
            seam::Outbox::UNTIL_WOKEN => UNTIL_WOKEN,
            // What a peer says of the length of its message may be anything.
            need => need.min(UNTIL_WOKEN as usize - 1) as u32,
        };
        let start = self.start as usize;
        if start == self.bytes.len() {
            // An idle client keeps no memory.
            self.bytes = Vec::new();
            self.start = 0;
        } else if start > self.len() {
            // What is moved is less than what was consumed since the last time.
            #[cfg(test)]
            (self.copied += self.len());
            self.bytes.drain(..start);
            self.start = 0;
        }
    }

    /// Whether the session is to be called: there is as much as it needs, or as much as is kept. A session that waits
    /// until it is woken is not.
    pub(super) fn is_enough(&self, most: usize) -> bool {
        self.need != UNTIL_WOKEN && self.len() >= (self.need as usize).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 60_000;

    #[test]
    fn a_message_in_pieces_of_one_byte_is_copied_a_few_times_and_not_for_each_piece() {
        let mut input = InputBuffer::default();
        for n in 0..SIZE {
            input.extend(&[n as u8]);
            input.consumed(0, 0);
        }
        assert!(input.bytes().iter().enumerate().all(|(n, byte)| *byte == n as u8));
        assert!(input.copied < 4 * SIZE, "{} bytes were copied for {SIZE}", input.copied);
    }

    #[test]
    fn many_small_messages_that_are_consumed_one_by_one_are_copied_a_few_times_in_all() {
        let mut input = InputBuffer::default();
        let all: Vec<u8> = (0..SIZE).map(|n| n as u8).collect();
        input.extend(&all);
        let mut at = 0;
        while !input.is_empty() {
            assert_eq!(input.bytes(), &all[at..]);
            let part = input.len().min(7);
            input.consumed(part, 0);
            at += part;
        }
        assert!(input.copied < 4 * SIZE, "{} bytes were copied for {SIZE}", input.copied);
        assert_eq!(input.bytes.capacity(), 0, "an idle client keeps no memory");
    }

    #[test]
    fn a_session_sees_what_is_held_when_it_has_what_it_needs_or_no_more_is_kept() {
        let mut input = InputBuffer::default();
        input.extend(b"12345");
        assert!(input.is_enough(100), "the session has not said how much it needs");
        input.consumed(2, 4);
        assert!(!input.is_enough(100));
        input.extend(b"6");
        assert!(input.is_enough(100));
        input.consumed(0, 1_000);
        assert!(!input.is_enough(100));
        input.extend(&[0; 96]);
        assert!(input.is_enough(100));
    }

    #[test]
    fn a_session_that_waits_until_it_is_woken_sees_nothing_however_much_there_is() {
        let mut input = InputBuffer::default();
        input.extend(&[0; 100]);
        input.consumed(0, seam::Outbox::UNTIL_WOKEN);
        assert!(!input.is_enough(100));
        input.consumed(0, UNTIL_WOKEN as usize);
        assert!(input.is_enough(100), "a message that is said to be so long is none");
    }
}
