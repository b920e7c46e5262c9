//! Whose last values of sequences a server's session knows.

use crate::session::client_id::ClientId;

/// The last values that `currval` and `lastval` would return on a server.
#[derive(Default)]
pub(crate) struct Sequences {
    /// The client that the values are of, if it asks for last values; otherwise they may be of any client.
    owner: Option<ClientId>,
    /// The holder asks for last values, and may have advanced a sequence.
    pub(crate) advanced: bool,
}

impl Sequences {
    /// The server is granted, to `asker` if that client asks for last values. True if the server has to forget those
    /// that it knows.
    #[inline]
    pub(crate) fn begin_lease(&mut self, asker: Option<ClientId>) -> bool {
        let is_other = asker.is_some() && self.owner != asker;
        *self = Self { owner: asker, advanced: false };
        is_other
    }

    /// The server forgets its values for this client, which asks for the first time.
    pub(crate) fn give_to(&mut self, asker: ClientId) {
        self.owner = Some(asker);
    }

    /// The server was cleaned.
    pub(crate) fn clear_owner(&mut self) {
        self.owner = None;
    }
}
