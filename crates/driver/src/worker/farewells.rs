//! Clients that were sent away: do they close their side, too? A function that its platform has frozen, or a host that has
//! vanished, does not; whoever reuses such a connection later meets its end.

use std::{os::fd::OwnedFd, time::Duration};

use pool::Time;
use protocol::Protocol;

use super::{Worker, clients::ClientConn};
use crate::{listener::Sent, socket};

/// How long a client may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Sockets that are kept for this at a time; of further ones nothing is known.
const MAX_FAREWELLS: usize = 256;

/// The socket of a client that has been told to go.
pub(super) struct Farewell {
    socket: OwnedFd,
    listener: u16,
    why: Sent,
    until: Time,
}

impl<P: Protocol> Worker<P> {
    /// Lets go of the socket of a client that is removed.
    pub(super) fn let_go(&mut self, client: &ClientConn<P::Client>) {
        let listener = &self.shared.listeners[usize::from(client.listener)];
        let Some(why) = client.sent_away.filter(|_| listener.tcp) else { return self.reactor.close(client.conn) };
        if self.reactor.is_sending(client.conn) {
            // It has not even read what it was told.
            listener.count_unacknowledged(why);
            return self.reactor.close(client.conn);
        }
        if self.farewells.len() >= MAX_FAREWELLS {
            return self.reactor.close(client.conn);
        }
        match self.reactor.detach(client.conn) {
            Ok(moved) => {
                let (socket, until) = (moved.into_socket(), self.now + PATIENCE);
                self.farewells.push_back(Farewell { socket, listener: client.listener, why, until });
            }
            Err(error) => tracing::error!(%error, "cannot let go of a client"),
        }
    }

    /// Closes the sockets whose time is over.
    pub(super) fn end_farewells(&mut self) {
        while self.farewells.front().is_some_and(|farewell| farewell.until <= self.now) {
            let farewell = self.farewells.pop_front().expect("just seen");
            if !socket::has_ended(&farewell.socket) {
                self.shared.listeners[usize::from(farewell.listener)].count_unacknowledged(farewell.why);
            }
        }
    }
}
