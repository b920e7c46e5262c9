//! How a client's connection ends, and what it is told when its server has gone.

use seam::{Blame, ClientTag, CloseReason, Effect, Outbox, Peer, Refusal, ServerTag, Sessions, Verdict};

use super::{
    Client,
    lease::{Lease, Purpose},
};
use crate::{Server, refusal, resp, server::LOST};

impl Client {
    /// Its server has gone. What became of the commands that were under way is not known: the client sees its
    /// connection closed, as Redis would close it, and its library does what it does then. An error is taken for a
    /// mistake in the command, for which workers that wait for jobs end for good. What follows in a transaction would
    /// be executed outside of it.
    pub(crate) fn on_server_gone(&mut self, me: ClientTag, out: &mut Outbox) {
        let lease = self.lease.take();
        let is_concerned =
            self.due > 0 || lease.selecting().is_some() || lease.transaction().needs_its_server() || lease.is_pinned();
        self.due = 0;
        if self.closing {
            return;
        }
        if self.lose_http(me, out) {
            if !self.closing {
                self.go_on(me, out);
            }
            return;
        }
        if is_concerned {
            return self.close(me, CloseReason::Error(Blame::Server, LOST.to_owned()), out);
        }
        if let Some(passing) = &mut self.passing {
            passing.dropped = true;
        }
        self.go_on(me, out);
    }

    /// It has no server any more, and may ask for another.
    fn go_on(&mut self, me: ClientTag, out: &mut Outbox) {
        out.push(Effect::Standing { client: me, standing: self.standing() });
        self.remind(me, out);
        self.held_back = false;
        out.push(Effect::Wake { client: me });
    }

    /// Whether it has been told, or asked, to go.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    pub(crate) fn on_gone(&mut self, me: ClientTag, servers: &mut dyn Sessions<ServerTag, Server>, out: &mut Outbox) {
        self.closing = true;
        let held = match self.lease.take() {
            Lease::Held(held) => held,
            Lease::Shared { server, .. } => {
                // What is still due is dropped by the server's session.
                let entering = servers.get(server).is_some_and(|server| server.is_entering());
                let verdict = if self.due == 0 && !entering { Verdict::Clean } else { Verdict::Reset };
                return out.push(Effect::Leave { client: me, server, verdict });
            }
            Lease::None | Lease::Requested(_) => return,
        };
        let tag = held.server();
        let server = servers.get(tag).expect("a held server lives");
        let clean = self.due == 0 && held.is_without_state() && self.passing.is_none();
        let verdict = server.take_back(if clean { Verdict::Clean } else { Verdict::Discard });
        out.push(Effect::Release { server: tag, verdict });
    }

    pub(crate) fn on_refused(&mut self, me: ClientTag, why: &Refusal, out: &mut Outbox) {
        if self.refuse_http(me, why, out) {
            return;
        }
        let is_told = match why {
            // Redis, too, answers a client that it has no room for before the client has asked anything.
            Refusal::TooManyClients { .. }
            | Refusal::Full { .. }
            | Refusal::Throttled { .. }
            | Refusal::Drained { at_login: true } => true,
            Refusal::QueryTimeout => self.awaits_first_answer(),
            // A client that goes for no fault of its request connects again when its connection is closed, and fails
            // for good when it is told an error.
            _ => false,
        };
        if is_told {
            out.insert(Peer::Client(me), |to| resp::error(to, &refusal::of_refusal(why)));
        }
        self.close(me, CloseReason::Done, out);
    }

    /// Whether an error would be taken for the answer that the client waits for. A client that has asked nothing takes
    /// any error for the answer to its next command, or ends its process: Redis closes such connections in silence. An
    /// error in the middle of replies would be taken for one of them.
    pub(crate) fn awaits_first_answer(&self) -> bool {
        let has_asked = match &self.lease {
            Lease::Requested(request) => *request.purpose() != Purpose::Subscriptions,
            // Its command waits until the server is in its database.
            Lease::Shared { .. } => true,
            Lease::Held(_) => !self.is_bound() && self.passing.is_none(),
            Lease::None => false,
        };
        self.due == 0 && !self.lease.is_pinned() && (has_asked || self.query.is_asking() || self.has_wish())
    }

    /// The client asks for fewer answers than there are commands, and no server was found to give them: any error would
    /// be taken for the answer to another command.
    pub(super) fn fail_in_silence(&mut self, me: ClientTag, out: &mut Outbox) {
        if let Some(error) = self.failing.take() {
            self.close(me, CloseReason::Error(Blame::Exhausted, error.into()), out);
        }
    }

    /// An error that ends the connection.
    pub(crate) fn fail(&mut self, me: ClientTag, error: &str, out: &mut Outbox) {
        if self.fail_http(me, error, out) {
            return;
        }
        out.insert(Peer::Client(me), |to| resp::error(to, error));
        self.close(me, CloseReason::Error(Blame::Client, error.to_owned()), out);
    }

    pub(crate) fn close(&mut self, me: ClientTag, reason: CloseReason, out: &mut Outbox) {
        self.closing = true;
        out.push(Effect::Close { peer: Peer::Client(me), reason });
    }
}
