//! The request of which a part or all is held in the session of its client.

#[derive(Default)]
pub struct HeldRequest {
    bytes: Vec<u8>,
    /// The rest has to come in time.
    is_timed: bool,
}

impl HeldRequest {
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// One more piece of the request has come, and the rest has to come in time.
    pub fn append(&mut self, piece: &[u8]) {
        self.bytes.extend(piece);
        self.is_timed = true;
    }

    pub fn set(&mut self, bytes: Vec<u8>) {
        self.bytes = bytes;
    }

    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// The rest need not come in time any more. True if it had to.
    pub fn stop_timer(&mut self) -> bool {
        std::mem::take(&mut self.is_timed)
    }
}
