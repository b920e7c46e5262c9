//! How a client's connection ends, and what it is told when its server has gone.

use seam::{Blame, CloseReason, Effect, Outbox, Peer, Refusal, Verdict};

use super::{
    Client,
    lease::{Lease, Purpose},
    long_commands::PartialCommand,
};
use crate::{Servers, refusal, resp, server::LOST};

impl Client {
    /// The client's server is lost. Whether pending commands were executed is not known, so the client's connection is
    /// closed, as Redis would close it, and the client library does what it does then. Workers that wait for jobs would
    /// take an error for a mistake in their command, and end for good. What follows in a transaction would be executed
    /// outside of it.
    pub(crate) fn on_server_gone(&mut self, out: &mut Outbox) {
        let lease = self.lease.take();
        let is_concerned = !self.replies.is_empty()
            || lease.selecting().is_some()
            || lease.transaction().needs_its_server()
            || lease.is_pinned();
        self.replies.forget();
        if self.closing {
            return;
        }
        if self.lose_http(out) {
            if !self.closing {
                self.go_on(out);
            }
            return;
        }
        if is_concerned {
            return self.close(CloseReason::Error(Blame::Server, LOST.to_owned()), out);
        }
        if let Some(PartialCommand::Streamed(command)) = &mut self.partial {
            command.discard();
        }
        self.go_on(out);
    }

    /// The client has no server, and may request another.
    fn go_on(&mut self, out: &mut Outbox) {
        out.push(Effect::Standing { client: self.tag, standing: self.standing() });
        self.remind(out);
        self.replies.release_input();
        out.push(Effect::Wake { client: self.tag });
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    pub(crate) fn on_gone(&mut self, servers: &mut Servers<'_>, out: &mut Outbox) {
        self.closing = true;
        let held = match self.lease.take() {
            Lease::Held(held) => held,
            Lease::Shared { server, .. } => {
                // The server's session drops pending replies.
                let selecting = servers.get(server).is_some_and(|server| server.is_selecting());
                let verdict = if self.replies.is_empty() && !selecting { Verdict::Clean } else { Verdict::Reset };
                return out.push(Effect::Leave { client: self.tag, server, verdict });
            }
            Lease::None | Lease::Requested(_) => return,
        };
        let tag = held.server();
        let server = servers.get(tag).expect("a held server lives");
        let clean = self.replies.is_empty() && held.is_without_state() && self.partial.is_none();
        let verdict = server.take_back(if clean { Verdict::Clean } else { Verdict::Discard });
        out.push(Effect::Release { server: tag, verdict });
    }

    pub(crate) fn on_refused(&mut self, why: &Refusal, out: &mut Outbox) {
        if self.refuse_http(why, out) {
            return;
        }
        let is_told = match why {
            // Redis, too, sends such an error before the first command.
            Refusal::TooManyClients { .. }
            | Refusal::Full { .. }
            | Refusal::Throttled { .. }
            | Refusal::Drained { at_login: true }
            | Refusal::Disabled { at_login: true } => true,
            Refusal::QueryTimeout => self.awaits_first_answer(),
            // The reason is not a command. Most clients connect again when their connection is closed, and fail for
            // good after an error.
            _ => false,
        };
        if is_told {
            out.insert(Peer::Client(self.tag), |to| resp::error(to, &refusal::of_refusal(why)));
        }
        self.close(CloseReason::Done, out);
    }

    /// Whether the client would take an error for the reply that it waits for. A client that has sent no command takes
    /// any error for the reply to its next command, or ends its process: Redis closes such connections without one. An
    /// error between pending replies would be taken for one of them.
    pub(crate) fn awaits_first_answer(&self) -> bool {
        let has_asked = match &self.lease {
            Lease::Requested(request) => *request.purpose() != Purpose::Subscriptions,
            // Its command waits until the server has selected its database.
            Lease::Shared { .. } => true,
            Lease::Held(_) => !self.needs_its_server() && self.partial.is_none(),
            Lease::None => false,
        };
        self.replies.is_empty()
            && !self.lease.is_pinned()
            && (has_asked || self.survey.is_asking() || self.awaits_change())
    }

    /// CLIENT REPLY got no server. The client expects fewer replies than it sends commands, so it would take an error
    /// for the reply to another command.
    pub(super) fn close_without_server(&mut self, out: &mut Outbox) {
        if let Some(error) = self.lease_error.take() {
            self.close(CloseReason::Error(Blame::Exhausted, error.into()), out);
        }
    }

    pub(crate) fn fail(&mut self, error: &str, out: &mut Outbox) {
        if self.fail_http(error, out) {
            return;
        }
        out.insert(Peer::Client(self.tag), |to| resp::error(to, error));
        self.close(CloseReason::Error(Blame::Client, error.to_owned()), out);
    }

    pub(crate) fn close(&mut self, reason: CloseReason, out: &mut Outbox) {
        self.closing = true;
        out.push(Effect::Close { peer: Peer::Client(self.tag), reason });
    }
}
