//! How connections that speak HTTP end, and how requests do that cannot be carried out.

use protocol::{Blame, ClientTag, CloseReason, Outbox, Peer, Refusal};

use super::{Client, Stage};
use crate::{
    refusal,
    rest::{
        Denied,
        answer::{Answer, Manner},
    },
    server::LOST,
};

impl Client {
    /// Ends a connection of HTTP/2 that is not wanted any more, as soon as nothing is under way.
    pub(super) fn leave_if_answered(&mut self, me: ClientTag, out: &mut Outbox) {
        let rest = self.http();
        if !rest.leaving || !rest.works.is_empty() {
            return;
        }
        if let Stage::Two(two) = &mut rest.stage {
            two.say_goodbye(me, out);
        }
        self.close(me, CloseReason::Done, out);
    }

    /// [`fail`](Client::fail) in HTTP. False if the client does not speak it.
    pub(crate) fn fail_http(&mut self, me: ClientTag, error: &str, out: &mut Outbox) -> bool {
        let Some(rest) = &self.rest else { return false };
        let denied = Denied::new(400, error);
        if let Stage::Two(_) = rest.stage {
            self.leave_http(me, &denied, out);
        } else {
            self.deny(me, &Manner::default(), &denied, out);
        }
        true
    }

    /// The server is gone that replies were due from. False if the client does not speak HTTP.
    pub(crate) fn lose_http(&mut self, me: ClientTag, out: &mut Outbox) -> bool {
        let Some(rest) = &mut self.rest else { return false };
        if let Stage::Listening(_) = rest.stage {
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
                rest.refusal = Some(Box::new(denied));
                return true;
            }
            Refusal::Throttled { retry_after } => {
                denied.status = 429;
                denied.retry_after = Some(retry_after.as_secs_f64().ceil() as u64);
                rest.refusal = Some(Box::new(denied));
                return true;
            }
            Refusal::QueryTimeout => denied.status = 504,
            _ => {}
        }
        self.leave_http(me, &denied, out);
        true
    }

    /// Ends the connection. Between requests its end says it all: clients of HTTP connect again.
    fn leave_http(&mut self, me: ClientTag, denied: &Denied, out: &mut Outbox) {
        let rest = self.http();
        let works = std::mem::take(&mut rest.works);
        for work in works {
            let answer = Answer::denied(&Manner { keep_alive: false, ..work.manner }, denied);
            match (work.respond, &mut rest.stage) {
                (Some(respond), Stage::Two(two)) => two.answer(respond, answer),
                _ => out.insert(Peer::Client(me), |to| answer.write(to)),
            }
        }
        if let Stage::Two(two) = &mut rest.stage {
            two.say_goodbye(me, out);
        }
        self.close(me, CloseReason::Done, out);
    }
}
