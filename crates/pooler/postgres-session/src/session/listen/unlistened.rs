//! Channels that the texts which were forwarded to a server stop listening to.

use super::{MAX_CHANNELS, Names};

/// Channels of UNLISTENs that hold unless the transaction fails.
#[derive(Default)]
pub(crate) struct Unlistened(Names);

impl Unlistened {
    pub(crate) fn add(&mut self, channel: &[u8]) {
        // A channel beyond the limit does no harm: the client goes on hearing of it.
        if self.0.len() < MAX_CHANNELS && !self.0.iter().any(|known| **known == *channel) {
            self.0.push(channel.into());
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn take(&mut self) -> Names {
        std::mem::take(&mut self.0)
    }

    /// The UNLISTENs were rolled back, or are dealt with.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.0 = Vec::new();
    }
}
