//! Requests that the session holds in part or in whole: those whose body does not fit into the driver's buffer, and
//! those that may have to be sent to several hosts. A client that stops sending in the middle of a request is closed.

use std::sync::Arc;

use seam::{Blame, CloseReason, Outbox};

use crate::{
    MongoDb,
    client::{Client, State},
    errors::{Code, Failure},
};

impl MongoDb {
    /// Holds one more piece of a request. False if there is no memory left for it, or if the client has not logged in.
    pub(crate) fn hold(&self, client: &mut Client, piece: &[u8]) -> bool {
        if !client.access.is_authenticated() || !self.held_memory.take(client.access.user(), piece.len()) {
            return false;
        }
        client.held.append(piece);
        self.stall_timers.restart(client.tag, client.key);
        true
    }

    /// Holds a whole request, which may have to be sent to several hosts.
    pub(crate) fn hold_whole(&self, client: &mut Client, request: &[u8]) {
        client.held.set(request.to_vec());
        self.held_memory.note(client.access.user(), request.len());
    }

    /// Calls `process` with the held bytes, and keeps them if it returns true.
    pub(crate) fn with_held(&self, client: &mut Client, process: impl FnOnce(&mut Client, &[u8]) -> bool) {
        // `process` may complete a login, which changes the user.
        let (bytes, user) = (client.held.take(), Arc::clone(client.access.user()));
        match process(client, &bytes) {
            true => client.held.set(bytes),
            false => self.held_memory.give_back(&user, bytes.len()),
        }
    }

    pub(crate) fn release_held(&self, client: &mut Client) {
        let bytes = client.held.take();
        self.held_memory.give_back(client.access.user(), bytes.len());
        self.stop_stall_timer(client);
    }

    pub(crate) fn stop_stall_timer(&self, client: &mut Client) {
        if client.held.stop_timer() {
            self.stall_timers.stop(client.key);
        }
    }

    /// Closes the client if the rest of its request has not come in time.
    pub(crate) fn close_if_stalled(&self, client: &mut Client, out: &mut Outbox) {
        let is_partial = client.state == State::Idle && !client.held.is_empty();
        if !is_partial || !self.stall_timers.is_overdue(client.key) {
            return;
        }
        let failure = Failure::new(Code::CommandFailed, "Poolhouse: the rest of this message does not come");
        client.send_failure(&failure, out);
        client.close(CloseReason::Error(Blame::Client, "the rest of a message does not come".to_owned()), out);
    }
}
