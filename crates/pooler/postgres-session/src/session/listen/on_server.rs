//! What one server has to do with LISTEN.

use super::{MAX_CHANNELS, Names};

/// What a server listens to, and for whom.
#[derive(Default)]
pub(crate) struct ServerListening {
    /// It is the hub of its pool: it listens for all clients that want to, whose wishes come with this key. A server
    /// without a key serves clients one by one.
    hub: Option<u64>,
    /// Channels that the texts that were forwarded stop listening to, unless the transaction fails.
    unlistened: Names,
}

impl ServerListening {
    /// The key that clients' wishes come with, if this is the hub of its pool.
    #[inline]
    pub(crate) fn hub(&self) -> Option<u64> {
        self.hub
    }

    pub(crate) fn become_hub(&mut self, key: u64) {
        self.hub = Some(key);
    }

    /// It listens for others no more. Returns the key that it had.
    pub(crate) fn end_hub(&mut self) -> Option<u64> {
        self.hub.take()
    }

    /// An UNLISTEN is forwarded.
    pub(crate) fn note_unlisten(&mut self, channel: &[u8]) {
        // One more than there can be of channels does no harm: the client goes on hearing of it.
        if self.unlistened.len() < MAX_CHANNELS && !self.unlistened.iter().any(|known| **known == *channel) {
            self.unlistened.push(channel.into());
        }
    }

    #[inline]
    pub(crate) fn has_unlistened(&self) -> bool {
        !self.unlistened.is_empty()
    }

    pub(crate) fn take_unlistened(&mut self) -> Names {
        std::mem::take(&mut self.unlistened)
    }

    /// The UNLISTENs were rolled back, or are dealt with.
    #[inline]
    pub(crate) fn forget_unlistened(&mut self) {
        self.unlistened = Vec::new();
    }
}
