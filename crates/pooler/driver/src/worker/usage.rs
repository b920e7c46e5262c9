//! Who uses a server. Calls no session, and asks no pool.

use pool::Time;
use seam::Verdict;

use super::share::Share;

/// Who uses a server: one user at a time.
pub(super) enum Usage {
    /// No client: its pool has it, it is starting or being probed, or its share is about to end.
    Free,
    Held(Hold),
    /// The clients of a mux share it.
    Shared(Box<Share>),
    /// Its session retains it, and its pool does not have it back.
    Retained,
    /// It was released while cancel requests for it were under way. When they have ended it is checked in with this
    /// verdict.
    AwaitsCancels(Verdict),
}

/// A client's hold on a server.
pub(super) struct Hold {
    client: u32,
    /// When the client's transaction began, if it is in one.
    transaction_began: Time,
    /// When bytes last came from the server or from the client.
    last_activity: Time,
    /// When the request of the client began, if the server waits for the rest of it.
    awaited_since: Option<Time>,
}

impl Hold {
    pub(super) fn new(client: usize, now: Time) -> Self {
        Self { client: client as u32, transaction_began: now, last_activity: now, awaited_since: None }
    }

    pub(super) fn client(&self) -> usize {
        self.client as usize
    }

    /// When the client's transaction began; while it is in none, when the last one did.
    pub(super) fn transaction_began(&self) -> Time {
        self.transaction_began
    }

    pub(super) fn begin_transaction(&mut self, now: Time) {
        self.transaction_began = now;
    }

    pub(super) fn last_activity(&self) -> Time {
        self.last_activity
    }

    /// When the client's request began of which the server waits for the rest.
    pub(super) fn awaited_since(&self) -> Option<Time> {
        self.awaited_since
    }

    /// The server waits for the rest of a request that began at `since`.
    pub(super) fn await_rest(&mut self, since: Time) {
        self.awaited_since = Some(since);
    }

    /// Bytes have come: neither side waits for the other any more, as far as can be told. Returns when the request
    /// began of which the server waited for the rest.
    pub(super) fn note_activity(&mut self, now: Time) -> Option<Time> {
        self.last_activity = now;
        self.awaited_since.take()
    }
}

impl Usage {
    pub(super) fn is_free(&self) -> bool {
        matches!(self, Self::Free)
    }

    pub(super) fn is_retained(&self) -> bool {
        matches!(self, Self::Retained)
    }

    pub(super) fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }

    /// Whether a client, a mux or the session has it, and is told when it is gone.
    pub(super) fn is_in_use(&self) -> bool {
        matches!(self, Self::Held(_) | Self::Shared(_) | Self::Retained)
    }

    pub(super) fn hold(&self) -> Option<&Hold> {
        if let Self::Held(hold) = self { Some(hold) } else { None }
    }

    pub(super) fn hold_mut(&mut self) -> Option<&mut Hold> {
        if let Self::Held(hold) = self { Some(hold) } else { None }
    }

    /// The client that holds it.
    pub(super) fn holder(&self) -> Option<usize> {
        self.hold().map(Hold::client)
    }

    pub(super) fn share(&self) -> Option<&Share> {
        if let Self::Shared(share) = self { Some(share) } else { None }
    }

    pub(super) fn share_mut(&mut self) -> Option<&mut Share> {
        if let Self::Shared(share) = self { Some(share) } else { None }
    }

    /// Its clients share it no longer.
    pub(super) fn take_share(&mut self) -> Option<Box<Share>> {
        match std::mem::replace(self, Self::Free) {
            Self::Shared(share) => Some(share),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Its client holds it no longer. Returns the client.
    pub(super) fn end_hold(&mut self) -> usize {
        match std::mem::replace(self, Self::Free) {
            Self::Held(hold) => hold.client(),
            _ => panic!("a server is released once, by its holder"),
        }
    }
}
