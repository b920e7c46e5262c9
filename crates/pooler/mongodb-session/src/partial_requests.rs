//! Requests of which a part or all is held in the session: those whose body comes after more than the driver's buffer
//! holds, until it is known where they go, and those that may have to be sent to several hosts. A client that sends
//! nothing of the rest for a while is closed.

use std::sync::Arc;

use seam::{Blame, ClientTag, CloseReason, Outbox};

use crate::{
    MongoDb,
    client::{Client, State},
    errors::{Code, Failure},
};

/// What became of a held request that was looked at.
pub enum Kept {
    Yes,
    No,
}

impl MongoDb {
    /// Holds one more piece of a request. False if there is no room for it, or if the client has not logged in: what it
    /// may send before is never so long.
    pub(crate) fn hold(&self, me: ClientTag, client: &mut Client, piece: &[u8]) -> bool {
        if !client.access.is_authenticated() || !self.held_memory.take(client.access.user(), piece.len()) {
            return false;
        }
        client.held.append(piece);
        self.stalls.progress(me, client.key);
        true
    }

    /// Holds a whole request, which may have to be sent to several hosts.
    pub(crate) fn hold_whole(&self, client: &mut Client, request: &[u8]) {
        client.held.set(request.to_vec());
        self.held_memory.note(client.access.user(), request.len());
    }

    /// Lets `look` look at what is held, which stays held if `look` says so.
    pub(crate) fn with_held(&self, client: &mut Client, look: impl FnOnce(&mut Client, &[u8]) -> Kept) {
        // A login may change the user.
        let (bytes, user) = (client.held.take(), Arc::clone(client.access.user()));
        match look(client, &bytes) {
            Kept::Yes => client.held.set(bytes),
            Kept::No => self.held_memory.give_back(&user, bytes.len()),
        }
    }

    /// Nothing of the client's request is needed here any more.
    pub(crate) fn release_held(&self, client: &mut Client) {
        let bytes = client.held.take();
        self.held_memory.give_back(client.access.user(), bytes.len());
        self.end_progress(client);
    }

    /// The rest of the client's request need not come in time any more.
    pub(crate) fn end_progress(&self, client: &mut Client) {
        if client.held.stop_timer() {
            self.stalls.over(client.key);
        }
    }

    /// Closes the client if the rest of its request has not come in time.
    pub(crate) fn close_if_stalled(&self, me: ClientTag, client: &mut Client, out: &mut Outbox) {
        let is_partial = client.state == State::Idle && !client.held.is_empty();
        if !is_partial || !self.stalls.is_stale(client.key) {
            return;
        }
        let failure = Failure::new(Code::CommandFailed, "Poolhouse: the rest of this message does not come");
        client.tell_failure(me, &failure, out);
        client.close(me, CloseReason::Error(Blame::Client, "the rest of a message does not come".to_owned()), out);
    }
}
