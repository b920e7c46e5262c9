//! Whose last values of sequences a server's session knows. Why that matters is told in the feature of the same name.
//! It knows no connection.

use crate::session::client_id::ClientId;

/// The last values that `currval` and `lastval` would return on a server. `advanced`: the holder asks for last values,
/// and may have advanced a sequence.
pub(crate) enum Sequences {
    /// They may be of any client.
    OfAny { advanced: bool },
    /// They are of this client, which asks for last values.
    Of { client: ClientId, advanced: bool },
}

impl Default for Sequences {
    fn default() -> Self {
        Self::OfAny { advanced: false }
    }
}

impl Sequences {
    /// The server is granted, to `asker` if that client asks for last values. True if the server has to forget those
    /// that it knows.
    #[inline]
    pub(crate) fn begin_lease(&mut self, asker: Option<ClientId>) -> bool {
        let Some(asker) = asker else {
            *self = Self::default();
            return false;
        };
        let same = matches!(self, Self::Of { client, .. } if *client == asker);
        *self = Self::Of { client: asker, advanced: false };
        !same
    }

    /// The server forgets its values for this client, which asks for the first time.
    pub(crate) fn give_to(&mut self, asker: ClientId) {
        *self = Self::Of { client: asker, advanced: self.is_advanced() };
    }

    pub(crate) fn clear_owner(&mut self) {
        *self = Self::OfAny { advanced: self.is_advanced() };
    }

    pub(crate) fn note_advance(&mut self) {
        *self.advanced() = true;
    }

    /// The holder has discarded its last values.
    pub(crate) fn discard(&mut self) {
        *self.advanced() = false;
    }

    pub(crate) fn is_advanced(&self) -> bool {
        match self {
            Self::OfAny { advanced } | Self::Of { advanced, .. } => *advanced,
        }
    }

    fn advanced(&mut self) -> &mut bool {
        match self {
            Self::OfAny { advanced } | Self::Of { advanced, .. } => advanced,
        }
    }
}
