//! Memory that calls into sessions use again and again.

use seam::Outbox;

/// Bytes of memory that are kept for joining sends.
const MAX_IDLE_JOIN_BUFFER: usize = 256 * 1024;

/// Outboxes that are not in use, and a buffer for joining sends.
#[derive(Default)]
pub(super) struct Outboxes {
    /// One call at a time needs an outbox; a call within a call needs another.
    spare: Vec<Outbox>,
    joined: Vec<u8>,
}

impl Outboxes {
    /// An empty outbox.
    pub(super) fn take(&mut self) -> Outbox {
        self.spare.pop().unwrap_or_default()
    }

    /// Takes an outbox back, and drops what is in it.
    pub(super) fn put(&mut self, mut out: Outbox) {
        out.clear();
        self.spare.push(out);
    }

    /// An empty buffer for joining sends.
    pub(super) fn take_joined(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.joined)
    }

    /// Takes the buffer back, and drops what is in it.
    pub(super) fn put_joined(&mut self, mut joined: Vec<u8>) {
        joined.clear();
        joined.shrink_to(MAX_IDLE_JOIN_BUFFER);
        self.joined = joined;
    }
}
