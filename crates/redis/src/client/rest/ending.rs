//! How connections that speak HTTP end, and how requests do that cannot be carried out.

use http_server::{Denied, End};
use protocol::{Blame, ClientTag, CloseReason, Outbox, Peer, Refusal};

use super::Client;
use crate::{refusal, server::LOST};

impl Client {
    /// Sends what there is to send, forgets streams that have ended, and ends the connection if it is over.
    pub(super) fn flush(&mut self, me: ClientTag, out: &mut Outbox) {
        let rest = self.http();
        out.insert(Peer::Client(me), |to| rest.connection.flush(to));
        rest.feeds.forget(&rest.connection.ended());
        let reason = match rest.connection.end() {
            None => return,
            Some(End::Done) => CloseReason::Done,
            Some(End::Fault(why)) => CloseReason::Error(Blame::Client, why),
        };
        self.close(me, reason, out);
    }

    /// [`fail`](Client::fail) in HTTP. False if the client does not speak it.
    pub(crate) fn fail_http(&mut self, me: ClientTag, error: &str, out: &mut Outbox) -> bool {
        let Some(rest) = &mut self.rest else { return false };
        rest.works.clear();
        rest.connection.fail(&Denied::new(400, error));
        self.flush(me, out);
        true
    }

    /// The server is gone that replies were due from. False if the client does not speak HTTP.
    pub(crate) fn lose_http(&mut self, me: ClientTag, out: &mut Outbox) -> bool {
        let Some(rest) = &mut self.rest else { return false };
        if rest.listening.is_some() {
            self.close(me, CloseReason::Error(Blame::Server, LOST.to_owned()), out);
            return true;
        }
        for work in &mut rest.works {
            if work.is_waiting() {
                work.lose();
            }
        }
        self.answer(me, out);
        true
    }

    /// The client has to go. False if it does not speak HTTP.
    pub(crate) fn refuse_http(&mut self, me: ClientTag, why: &Refusal, out: &mut Outbox) -> bool {
        let Some(rest) = &mut self.rest else { return false };
        let mut denied = Denied::new(503, refusal::of_refusal(why));
        match why {
            // It is told in the answer to what it asks first.
            Refusal::TooManyClients { .. } => {
                denied.retry_after = Some(1);
                rest.connection.refuse(denied);
                return true;
            }
            Refusal::Throttled { retry_after } => {
                denied.status = 429;
                denied.retry_after = Some(retry_after.as_secs_f64().ceil() as u64);
                rest.connection.refuse(denied);
                return true;
            }
            Refusal::QueryTimeout => denied.status = 504,
            _ => {}
        }
        rest.works.clear();
        rest.connection.close(&denied);
        self.flush(me, out);
        true
    }
}
