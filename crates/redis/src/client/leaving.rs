//! How a client's connection ends, and what it is told when its server has gone.

use protocol::{Blame, ClientTag, CloseReason, Effect, Outbox, Peer, Refusal, ServerTag, Sessions, Verdict};

use super::{Client, Lease, Purpose};
use crate::{Server, refusal, resp, server::LOST};

/// Errors that are written for lost replies; a client that waits for more is disconnected instead.
const MAX_TOLD: u32 = 4096;

impl Client {
    /// Its server has gone. `torn`: in the middle of a reply; `beginning`: a transaction was to begin, or keys to be watched.
    pub(crate) fn on_server_gone(&mut self, me: ClientTag, torn: bool, beginning: bool, out: &mut Outbox) {
        let (lost, bound) = (self.due, self.is_bound() || beginning);
        self.lease = Lease::None;
        (self.due, self.multi, self.watching, self.blocked) = (0, false, false, None);
        if self.closing {
            return;
        }
        if self.selects.take().is_some() {
            return self.fail(me, "ERR Poolhouse: the connection to Redis was lost", out);
        }
        if self.lose_http(me, out) {
            if !self.closing {
                self.go_on(me, out);
            }
            return;
        }
        if torn || std::mem::take(&mut self.keeping) || lost > MAX_TOLD {
            let reason = CloseReason::Error(Blame::Server, LOST.to_owned());
            return self.close(me, reason, out);
        }
        for _ in 0..lost {
            out.insert(Peer::Client(me), |to| {
                resp::error(
                    to,
                    "ERR Poolhouse: the connection to Redis was lost; whether the command was executed is not known",
                );
            });
        }
        if bound {
            // What follows would be taken for commands outside of the transaction.
            let reason =
                CloseReason::Error(Blame::Server, "the connection to Redis was lost in a transaction".to_owned());
            return self.close(me, reason, out);
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
        let tag = match std::mem::replace(&mut self.lease, Lease::None) {
            Lease::Held(tag) => tag,
            Lease::Shared(server) => {
                // What is still due is dropped by the server's session.
                let entering = servers.get(server).is_some_and(|server| server.is_entering());
                let verdict = if self.due == 0 && !entering { Verdict::Clean } else { Verdict::Reset };
                return out.push(Effect::Leave { client: me, server, verdict });
            }
            Lease::None | Lease::Asked(..) => return,
        };
        let server = servers.get(tag).expect("a held server lives");
        let clean = self.due == 0 && !self.is_bound() && !self.keeping && self.passing.is_none();
        let verdict = server.take_back(if clean { Verdict::Clean } else { Verdict::Discard });
        out.push(Effect::Release { server: tag, verdict });
    }

    pub(crate) fn on_refused(&mut self, me: ClientTag, why: &Refusal, out: &mut Outbox) {
        if self.refuse_http(me, why, out) {
            return;
        }
        let is_told = match why {
            // Redis, too, answers a client that it has no room for before the client has asked anything.
            Refusal::TooManyClients { .. } | Refusal::Throttled { .. } => true,
            Refusal::QueryTimeout => self.awaits_first_answer(),
            // A client that goes for no fault of its request connects again when its connection is closed, and fails for good when it
            // is told an error.
            _ => false,
        };
        if is_told {
            out.insert(Peer::Client(me), |to| resp::error(to, &refusal::of_refusal(why)));
        }
        self.close(me, CloseReason::Done, out);
    }

    /// Whether an error would be taken for the answer that the client waits for. A client that has asked nothing takes any error for
    /// the answer to its next command, or ends its process: Redis closes such connections in silence. An error in the middle of replies
    /// would be taken for one of them.
    pub(crate) fn awaits_first_answer(&self) -> bool {
        let has_asked = match &self.lease {
            Lease::Asked(_, purpose) => *purpose != Purpose::Subscriptions,
            // Its command waits until the server is in its database.
            Lease::Shared(_) => true,
            Lease::Held(_) => !self.is_bound() && self.passing.is_none(),
            Lease::None => false,
        };
        self.due == 0 && !self.keeping && (has_asked || self.roll.is_some() || self.has_wish())
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
