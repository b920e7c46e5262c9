//! A request that the client's session holds in part or in whole.

#[derive(Default)]
pub struct HeldRequest {
    bytes: Vec<u8>,
    /// The next piece has to come in time.
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

    /// Adds a piece. The next has to come in time.
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

    /// The request is complete. Returns whether a timer was running.
    pub fn stop_timer(&mut self) -> bool {
        std::mem::take(&mut self.is_timed)
    }
}
