//! HTTP/2: many requests at a time on a connection, and streams of messages beside them.
//!
//! What all streams have subscribed to are the subscriptions of one client, to which messages come together. Here they are told apart again.

use std::{cell::Cell, collections::HashSet, sync::Arc};

use bytes::Bytes;
use protocol::{Blame, ClientTag, CloseReason, Effect, Outbox, Peer};

use super::{Client, Request, Stage, Work, has_token, manner};
use crate::{
    Redis,
    command::{Subscription, Topic},
    hub::Name,
    resp::{self, Said},
    rest::{
        Denied, MAX_ANSWER,
        answer::{Answer, Manner},
        call::{Shape, Target},
        events::Events,
        h2::{self, Arrived, H2, Respond},
        head::{Head, Method},
    },
};

/// Bytes of answers from which on the client has to read some before more of its requests are carried out.
const MAX_UNREAD: usize = 1024 * 1024;

/// Bytes that a connection may hold in all: bodies on their way, requests that wait, results that are gathered, and answers that the
/// client has not read. Or so many times the largest body, if that is more.
const MAX_HELD: usize = 2 * MAX_ANSWER;
const MAX_BODIES: usize = 4;

/// Requests that may wait to be carried out. A client that gives them up may begin others in their place, so its streams are no bound.
const MAX_WORKS: usize = 1000;

/// A connection.
pub(super) struct Two {
    h2: H2,
    streams: Vec<Stream>,
    /// Streams have ended: their subscriptions may be of use to nobody.
    untidy: bool,
    /// Bytes that it may hold.
    most: usize,
}

/// Messages for one request.
struct Stream {
    place: Place,
    manner: Manner,
    what: Subscription,
    names: HashSet<Box<[u8]>>,
}

enum Place {
    /// Nothing has been answered: it waits for its subscription. There is one such stream at a time.
    Asking(Option<Respond>),
    /// Events go to the stream with this key.
    Open(u64),
}

impl Redis {
    /// Reads HTTP/2. Returns what was consumed.
    pub(super) fn streams(
        &self,
        me: ClientTag,
        client: &mut Client,
        mut two: Box<Two>,
        bytes: &[u8],
        out: &mut Outbox,
    ) -> usize {
        let mut arrived = Vec::new();
        let rules = self.rules(client);
        let refusal = client.http().refusal.take();
        let guessed = Cell::new(client.http().leaving);
        // Who is refused, or has no token, sends no body either.
        let admit = |head: &Head| match (&refusal, &rules) {
            (Some(denied), _) => Err(Denied::clone(denied)),
            (None, Ok(_)) if guessed.get() => {
                Err(Denied::new(401, "Unauthorized: a wrong token came before this request"))
            }
            (None, Ok(rules)) if head.method != Method::Options => {
                let target = Target::read(&head.target);
                let access = self.access(head, &target, rules).map(|_| ());
                guessed.set(access.is_err() && has_token(head, &target, rules));
                access
            }
            _ => Ok(()),
        };
        let most = MAX_HELD.max(MAX_BODIES * rules.as_ref().map_or(0, |rules| rules.max_request));
        two.most = most;
        let room = most.saturating_sub(client.http().weight());
        let mut over = two.h2.take(bytes, room, &admit, &mut arrived).err();
        let refused = refusal.is_some() && !arrived.is_empty();
        client.http().refusal = refusal;
        if guessed.get() && !client.http().leaving {
            out.push(Effect::AuthFailed { client: me });
        }
        client.http().leaving |= refused || guessed.get();
        for Arrived { request, respond } in arrived {
            match request.and_then(|(head, body)| self.arrive(me, client, head, &body, out)) {
                Ok(Ok(work)) if two.h2.holds() + client.http().weight() + work.weight() > most => {
                    two.h2.answer(respond, Answer::denied(&work.manner, &h2::crowded()));
                }
                Ok(Ok(mut work)) => {
                    work.respond = Some(respond);
                    client.http().works.push_back(work);
                }
                Ok(Err(answer)) => two.h2.answer(respond, answer),
                Err(denied) => two.h2.answer(respond, Answer::denied(&Manner::default(), &denied)),
            }
        }
        if client.http().works.len() > MAX_WORKS {
            over.get_or_insert_with(|| "requests are given up faster than they can be carried out".to_owned());
        }
        two.send(me, out);
        client.set_stage(Stage::Two(two));
        match over {
            Some(why) => client.close(me, CloseReason::Error(Blame::Client, why), out),
            None => client.leave_if_answered(me, out),
        }
        bytes.len()
    }

    /// A request of HTTP/2 is there as a whole: what is to be done, or the answer at once.
    fn arrive(
        &self,
        me: ClientTag,
        client: &mut Client,
        head: Head,
        body: &[u8],
        out: &mut Outbox,
    ) -> Result<Result<Work, Answer>, Denied> {
        let rules = self.rules(client)?;
        let manner = manner(&head, &rules);
        if head.method == Method::Options {
            return Ok(Err(Answer::permission(&manner)));
        }
        let target = Target::read(&head.target);
        let prepare = |client: &mut Client, out: &mut Outbox| {
            let access = self.access(&head, &target, &rules)?;
            self.let_in(me, client, &access, out)?;
            let request = Request { method: head.method, target, form: head.form, manner: manner.clone(), access };
            let work = self.work(request, body)?;
            if work.call.shape == Shape::Events && work.call.subscription().is_none() {
                return Err(Denied::new(501, "ERR MONITOR comes over HTTP/1.1 only: it takes a whole connection"));
            }
            Ok(work)
        };
        Ok(prepare(client, out).map_err(|denied| Answer::denied(&manner, &denied)))
    }

    /// Subscribes to what a request wants to hear of, as soon as that can be done. True if the request is over with that: then the next
    /// one has its place.
    pub(super) fn open_stream(
        &self,
        me: ClientTag,
        client: &mut Client,
        number: usize,
        what: Subscription,
        out: &mut Outbox,
    ) -> bool {
        if client.has_wish() {
            return false;
        }
        let access = Arc::clone(&client.http().works[number].access);
        if !client.acts_as(&access) {
            return false;
        }
        let mut work = client.http().works.remove(number).expect("seen by the caller");
        let (manner, respond) = (work.manner.clone(), work.respond.take());
        let words = resp::parts(&work.call.wire);
        let names = words[1..].iter().map(|name| Box::from(*name)).collect();
        let pool = self.directory.route(&client.user, client.database, client.version);
        let two = client.two().expect("seen by the caller");
        two.streams.push(Stream { place: Place::Asking(respond), manner, what, names });
        let denied = match (pool, client.subscribed_in()) {
            (Ok(pool), Some(other)) if pool != other => {
                let why = "ERR messages for a token with another user or database come over this connection already: use another one";
                Some(Denied::new(409, why))
            }
            _ => self.change_subscriptions(me, client, what, &words[1..], out).err().map(|why| Denied::new(503, why)),
        };
        if let Some(denied) = &denied {
            client.two().expect("seen above").refuse_asking(denied);
        }
        denied.is_some()
    }

    /// Ends subscriptions of streams that have ended.
    pub(crate) fn tidy(&self, me: ClientTag, client: &mut Client, out: &mut Outbox) {
        if client.has_wish() || !client.two().is_some_and(|two| two.untidy) {
            return;
        }
        for topic in [Topic::Channel, Topic::Pattern] {
            let mut names: Vec<Name> = client.subscribed_to(topic).cloned().collect();
            let two = client.two().expect("seen above");
            names.retain(|name| !two.streams.iter().any(|stream| stream.hears(topic, name)));
            if !names.is_empty() {
                let names: Vec<&[u8]> = names.iter().map(|name| &**name).collect();
                let what = Subscription { begins: false, topic };
                // What is subscribed to can be ended.
                let _ = self.change_subscriptions(me, client, what, &names, out);
                return;
            }
        }
        client.two().expect("seen above").untidy = false;
    }
}

impl Stream {
    fn hears(&self, topic: Topic, name: &[u8]) -> bool {
        self.what.topic == topic && self.names.contains(name)
    }
}

impl Two {
    pub(super) fn new(h2: H2) -> Self {
        Self { h2, streams: Vec::new(), untidy: false, most: MAX_HELD }
    }

    pub(super) fn answer(&mut self, respond: Respond, answer: Answer) {
        self.h2.answer(respond, answer);
    }

    /// Whether with these bytes of its requests the connection holds more than it may.
    pub(super) fn is_full(&self, requests: usize) -> bool {
        self.h2.holds() + requests > self.most
    }

    /// Bytes of answers that the client has not read.
    pub(super) fn unread(&self) -> usize {
        self.h2.unread()
    }

    /// Whether the client has to read first.
    pub(super) fn is_behind(&self) -> bool {
        self.unread() > MAX_UNREAD
    }

    /// Sends what there is to send, and forgets streams that have ended.
    pub(super) fn send(&mut self, me: ClientTag, out: &mut Outbox) {
        self.h2.turn();
        out.insert(Peer::Client(me), |to| self.h2.drain(to));
        for ended in self.h2.ended() {
            self.streams.retain(|stream| !matches!(stream.place, Place::Open(key) if key == ended));
            self.untidy = true;
        }
    }

    pub(super) fn say_goodbye(&mut self, me: ClientTag, out: &mut Outbox) {
        self.h2.say_goodbye();
        out.insert(Peer::Client(me), |to| self.h2.drain(to));
    }

    /// Something is said of subscriptions: several messages for the same subscribers, or what became of a wish.
    pub(super) fn hear(&mut self, bytes: &[u8]) {
        let mut told = Vec::new();
        match resp::said(bytes) {
            Some(Said::Message(topic, name)) => {
                if Events::default().take(bytes, &mut told).is_err() {
                    return;
                }
                let told = Bytes::from(told);
                for stream in self.streams.iter().filter(|stream| stream.hears(topic, name)) {
                    if let Place::Open(key) = stream.place {
                        self.h2.say(key, told.clone());
                    }
                }
            }
            Some(Said::Done(Subscription { begins: true, .. })) => {
                let Some(at) = self.asking() else { return };
                let stream = &mut self.streams[at];
                let Place::Asking(respond) = &mut stream.place else { return };
                let key = respond.take().and_then(|respond| self.h2.open(respond, &Answer::events(&stream.manner)));
                match key {
                    Some(key) => {
                        stream.place = Place::Open(key);
                        if Events::default().take(bytes, &mut told).is_ok() {
                            self.h2.say(key, Bytes::from(told));
                        }
                    }
                    // The client has given the request up.
                    None => {
                        self.streams.swap_remove(at);
                        self.untidy = true;
                    }
                }
            }
            Some(Said::Refused(why)) => self.refuse_asking(&Denied::by(why)),
            _ => {}
        }
    }

    /// All subscriptions are lost.
    pub(super) fn lose(&mut self, why: &str) {
        self.refuse_asking(&Denied::new(503, format!("ERR Poolhouse: {why}")));
        for stream in std::mem::take(&mut self.streams) {
            if let Place::Open(key) = stream.place {
                self.h2.reset(key);
            }
        }
    }

    /// The stream that waits for its subscription does not get it.
    fn refuse_asking(&mut self, denied: &Denied) {
        let Some(at) = self.asking() else { return };
        let stream = self.streams.swap_remove(at);
        if let Place::Asking(Some(respond)) = stream.place {
            self.h2.answer(respond, Answer::denied(&stream.manner, denied));
        }
    }

    fn asking(&self) -> Option<usize> {
        self.streams.iter().position(|stream| matches!(stream.place, Place::Asking(_)))
    }
}

impl Client {
    /// The subscriptions of all streams are lost. False if the client does not speak HTTP/2: then its connection has to end.
    pub(crate) fn lose_streams(&mut self, me: ClientTag, why: &str, out: &mut Outbox) -> bool {
        let Some(two) = self.two() else { return false };
        two.lose(why);
        two.send(me, out);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_the_room_that_bodies_have() {
        let mut two = Two::new(H2::new(1));
        assert!(!two.is_full(MAX_HELD) && two.is_full(MAX_HELD + 1));
        two.most = 2 * MAX_HELD;
        assert!(!two.is_full(MAX_HELD + 1), "where bodies may be larger, all may hold more");
    }
}
