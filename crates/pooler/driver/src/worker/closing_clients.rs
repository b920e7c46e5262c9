//! Connections that we have ended and whose clients have not yet ended theirs: kept for a few seconds to see whether
//! they do. Those that do not have vanished or are frozen, which is what an operator wants to know. Knows sockets, no
//! clients.

use std::{collections::VecDeque, time::Duration};

use pool::Time;

use crate::{
    listener::{Listener, SentAway},
    reactor::Reactor,
};

/// How long a peer has to end its side. One that lives needs a round trip and a turn of its event loop.
const MAX_ANSWER_TIME: Duration = Duration::from_secs(5);
/// How often the connections that have not ended are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// A worker watches at most this many at a time, since each takes a descriptor. It closes further ones without a look,
/// first those of clients that had not logged in.
const MAX_CLOSING_CLIENTS: usize = 256;

pub(super) struct ClosingClients<R: Reactor> {
    /// In the order in which they were ended.
    waiting: VecDeque<ClosingClient<R::Socket>>,
    next_check: Time,
}

struct ClosingClient<S> {
    socket: S,
    listener: u16,
    /// The client had not logged in.
    unauthenticated: bool,
    /// Why it was sent away, if it was: such clients are counted if they do not answer.
    why: Option<SentAway>,
    until: Time,
}

impl<R: Reactor> ClosingClients<R> {
    pub(super) fn new() -> Self {
        Self { waiting: VecDeque::new(), next_check: Time(0) }
    }

    /// Makes room to watch another connection: that of a client that had logged in takes the place of one whose client
    /// had not. False if there is no room.
    pub(super) fn make_room(&mut self, unauthenticated: bool) -> bool {
        if self.waiting.len() < MAX_CLOSING_CLIENTS {
            return true;
        }
        let crowded_out = self.waiting.iter().position(|closing| closing.unauthenticated).filter(|_| !unauthenticated);
        crowded_out.is_some_and(|at| self.waiting.remove(at).is_some())
    }

    /// Watches a connection that was just [ended](Reactor::half_close_and_detach).
    pub(super) fn watch(
        &mut self,
        socket: R::Socket,
        (listener, unauthenticated): (u16, bool),
        why: Option<SentAway>,
        now: Time,
    ) {
        self.waiting.push_back(ClosingClient { socket, listener, unauthenticated, why, until: now + MAX_ANSWER_TIME });
    }

    /// Closes the connections of clients that have answered, and of clients that have not in time, which it counts.
    pub(super) fn check(&mut self, listeners: &[Listener], now: Time) {
        if self.waiting.is_empty() || now < self.next_check {
            return;
        }
        self.next_check = now + CHECK_INTERVAL;
        self.waiting.retain(|closing| {
            if R::has_peer_closed(&closing.socket) {
                return false;
            }
            let late = now >= closing.until;
            if let Some(why) = closing.why.filter(|_| late) {
                listeners[usize::from(closing.listener)].count_unanswered(why);
            }
            !late
        });
    }
}
