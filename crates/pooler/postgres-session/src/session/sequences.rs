//! Whose last values of sequences a server's session knows. Why that matters is told in the feature of the same name.
//! It knows no connection.

use crate::session::client_id::ClientId;

/// The last values that `currval` and `lastval` would return on a server.
#[derive(Default)]
pub(crate) struct Sequences {
    /// The client that asks for last values and whose values these are; `None` if they are of any client.
    owner: Option<ClientId>,
    /// The holder asks for last values, and may have advanced a sequence.
    advanced: bool,
}

impl Sequences {
    /// The server is granted, to `asker` if that client asks for last values. True if the server has to forget those
    /// that it knows.
    #[inline]
    pub(crate) fn begin_lease(&mut self, asker: Option<ClientId>) -> bool {
        self.advanced = false;
        std::mem::replace(&mut self.owner, asker) != asker && asker.is_some()
    }

    /// The server forgets the values that it knows for this client, which asks for the first time.
    pub(crate) fn give_to(&mut self, asker: ClientId) {
        self.owner = Some(asker);
    }

    /// The server was cleaned.
    pub(crate) fn clear_owner(&mut self) {
        self.owner = None;
    }

    pub(crate) fn note_advance(&mut self) {
        self.advanced = true;
    }

    /// The holder has discarded its last values.
    pub(crate) fn discard(&mut self) {
        self.advanced = false;
    }

    pub(crate) fn is_advanced(&self) -> bool {
        self.advanced
    }
}
