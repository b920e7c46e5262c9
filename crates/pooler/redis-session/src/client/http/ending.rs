//! The ends of connections that speak HTTP, and of requests that cannot be executed.

use http_sansio::{Denied, End};
use seam::{Blame, CloseReason, Effect, Outbox, Peer, Refusal};

use super::Client;
use crate::{refusal, server::LOST};

/// Bytes that are sent to a client before it has taken all that was sent before. The rest of an answer waits here. The
/// driver limits what waits for a client that shares a server, and this is below that limit.
const MAX_UNTAKEN: usize = 128 * 1024;

impl Client {
    /// Sends as much as the client takes, forgets streams that have ended, and closes the connection if it has ended.
    pub(super) fn flush(&mut self, out: &mut Outbox) {
        self.flush_up_to(MAX_UNTAKEN, out);
    }

    /// The client has taken all that was sent.
    pub(crate) fn on_flushed(&mut self, out: &mut Outbox) {
        let http = self.http_mut();
        (http.output.awaits_flush, http.output.untaken) = (false, 0);
        self.flush(out);
    }

    fn flush_up_to(&mut self, most: usize, out: &mut Outbox) {
        let me = self.tag;
        let http = self.http_mut();
        let most = most.saturating_sub(http.output.untaken);
        let before = out.inserted.len();
        out.insert(Peer::Client(me), |to| http.connection.flush(to, most));
        http.output.untaken = http.output.untaken.saturating_add(out.inserted.len() - before);
        if http.connection.has_more() && !std::mem::replace(&mut http.output.awaits_flush, true) {
            out.push(Effect::NotifyFlushed { client: me });
        }
        let held = http.held_bytes();
        http.connection.count(held);
        let ended = http.connection.ended();
        http.messages.streams.forget(&ended);
        let reason = match http.connection.end() {
            None => return self.after_flush(!ended.is_empty(), out),
            Some(End::Done) => CloseReason::Done,
            Some(End::Fault(why)) => CloseReason::Error(Blame::Client, why),
        };
        self.close(reason, out);
    }

    /// Follows up a flush. `freed`: streams have ended, and their subscriptions may be unwanted.
    fn after_flush(&mut self, freed: bool, out: &mut Outbox) {
        let me = self.tag;
        let http = self.http_mut();
        let blocked = http.output.is_behind;
        http.output.is_behind &= http.connection.is_behind();
        if freed || blocked && !http.output.is_behind {
            out.push(Effect::Wake { client: me });
        }
        let unread = http.connection.unflushed();
        let reads = unread < std::mem::replace(&mut http.output.unread, unread);
        if reads && http.requests.queue.is_empty() && self.lease.is_none() {
            out.push(Effect::Standing { client: self.tag, standing: self.standing() });
        }
    }

    /// [`fail`](Client::fail) in HTTP. Returns false if the client does not speak it.
    pub(crate) fn fail_http(&mut self, error: &str, out: &mut Outbox) -> bool {
        let Some(http) = &mut self.http else { return false };
        http.requests.queue.clear();
        http.connection.fail(&Denied::new(400, error));
        self.flush(out);
        true
    }

    /// A server is lost with pending replies or an open transaction. Returns false if the client does not speak HTTP.
    pub(crate) fn lose_http(&mut self, out: &mut Outbox) -> bool {
        let Some(http) = &mut self.http else { return false };
        if http.messages.endless_answer.is_some() {
            self.close(CloseReason::Error(Blame::Server, LOST.to_owned()), out);
            return true;
        }
        http.lose_server();
        self.answer(out);
        true
    }

    /// The client has to go. Returns false if it does not speak HTTP.
    pub(crate) fn refuse_http(&mut self, why: &Refusal, out: &mut Outbox) -> bool {
        let Some(http) = &mut self.http else { return false };
        let mut denied = Denied::new(503, refusal::of_refusal(why));
        match why {
            // Its first request is answered with the error.
            Refusal::TooManyClients { .. } => {
                denied.retry_after = Some(1);
                http.connection.refuse(denied);
                return true;
            }
            Refusal::Throttled { retry_after } => {
                denied.status = 429;
                denied.retry_after = Some(retry_after.as_secs_f64().ceil() as u64);
                http.connection.refuse(denied);
                return true;
            }
            Refusal::Full { .. } => denied.retry_after = Some(1),
            Refusal::QueryTimeout => denied.status = 504,
            _ => {}
        }
        if matches!(why, Refusal::ShuttingDown | Refusal::Drained { .. } | Refusal::Disabled { .. }) {
            // It is not known whether these requests were executed.
            http.lose_server();
            self.answer(out);
        }
        let Some(http) = &mut self.http else { return true };
        http.requests.queue.clear();
        http.connection.close(&denied);
        // All of it is sent at once.
        self.flush_up_to(usize::MAX, out);
        true
    }
}
