//! Streams of messages over HTTP/2, beside other requests of the same connection.
//!
//! The subscriptions of all streams are those of one client, which gets all messages. Here the messages are distributed
//! to the streams.

use std::{collections::HashSet, sync::Arc};

use http_sansio::{Connection, Denied, Stream};
use seam::Outbox;

use super::{Client, revoking::REVOKED};
use crate::{
    Redis,
    command::{SubscriptionCommand, Topic},
    hub::Name,
    resp::{self, PubSubReply},
    rest::{
        denied_by,
        messages::{Messages, PostedEvents},
        rules::Access,
    },
};

type Http = Connection<Arc<Access>>;

#[derive(Default)]
pub(super) struct EventStreams {
    list: Vec<EventStream>,
    /// Streams have ended, and their subscriptions may be unwanted.
    has_unused_subscriptions: bool,
}

/// A request for messages.
struct EventStream {
    stream: Stream,
    access: Arc<Access>,
    /// Its answer has begun. Otherwise it waits for its subscription, as one stream at a time does.
    open: bool,
    what: SubscriptionCommand,
    names: HashSet<Box<[u8]>>,
}

impl Redis {
    /// Subscribes for a request, unless another stream waits for its subscription. Returns whether the request has
    /// failed: then the next one has its index.
    pub(super) fn open_stream(
        &self,
        client: &mut Client,
        index: usize,
        what: SubscriptionCommand,
        out: &mut Outbox,
    ) -> bool {
        if client.awaits_change() {
            return false;
        }
        let access = Arc::clone(&client.http_mut().requests.queue[index].access);
        let request = client.http_mut().requests.queue.remove(index).expect("seen by the caller");
        let words = resp::parts(&request.call.wire);
        let names = words[1..].iter().map(|name| Box::from(*name)).collect();
        let pool = self.current_pool(client);
        client.http_mut().messages.streams.list.push(EventStream {
            stream: request.stream,
            access,
            open: false,
            what,
            names,
        });
        let denied = match (pool, client.subscription_pool()) {
            (Ok(pool), Some(other)) if pool != other => {
                let why =
                    "ERR messages for a token with another database come over this connection already: use another one";
                Some(Denied::new(409, why))
            }
            _ => self.change_subscriptions(client, what, &words[1..], out).err().map(|why| Denied::new(503, why)),
        };
        if let Some(denied) = &denied {
            let http = client.http_mut();
            http.messages.streams.refuse_awaiting(denied, &mut http.connection);
        }
        denied.is_some()
    }

    /// Ends subscriptions of streams that have ended.
    pub(crate) fn end_unused_subscriptions(&self, client: &mut Client, out: &mut Outbox) {
        if client.awaits_change()
            || !client.http.as_ref().is_some_and(|http| http.messages.streams.has_unused_subscriptions)
        {
            return;
        }
        for topic in [Topic::Channel, Topic::Pattern] {
            let mut names: Vec<Name> = client.subscribed_names(topic).cloned().collect();
            names
                .retain(|name| !client.http_mut().messages.streams.list.iter().any(|stream| stream.hears(topic, name)));
            if !names.is_empty() {
                let names: Vec<&[u8]> = names.iter().map(|name| &**name).collect();
                let what = SubscriptionCommand { begins: false, topic };
                // Subscriptions that exist can be ended.
                let _ = self.change_subscriptions(client, what, &names, out);
                return;
            }
        }
        client.http_mut().messages.streams.has_unused_subscriptions = false;
    }
}

impl EventStream {
    fn hears(&self, topic: Topic, name: &[u8]) -> bool {
        self.what.topic == topic && self.names.contains(name)
    }
}

impl EventStreams {
    /// Writes events to the streams that have subscribed to their name.
    pub(super) fn forward_events(&self, posted: &PostedEvents<'_>, connection: &mut Http) {
        let hear = self.list.iter().filter(|stream| stream.open && stream.hears(posted.topic, posted.name));
        connection.send_events(hear.map(|stream| stream.stream), posted.events);
    }

    /// Takes the outcome of a change of subscriptions.
    pub(super) fn on_subscription_reply(&mut self, bytes: &[u8], connection: &mut Http) {
        match resp::read_pubsub(bytes) {
            Some(PubSubReply::Confirmed(SubscriptionCommand { begins: true, .. })) => {
                let Some(at) = self.awaiting_subscription() else { return };
                let (stream, mut events) = (&mut self.list[at], Vec::new());
                stream.open = connection.open_events(stream.stream);
                if !stream.open {
                    // The client has cancelled the request.
                    self.list.swap_remove(at);
                    self.has_unused_subscriptions = true;
                } else if Messages::default().take(bytes, &mut events).is_ok() {
                    connection.send_events([stream.stream], &events);
                }
            }
            Some(PubSubReply::Refused(why)) => self.refuse_awaiting(&denied_by(why), connection),
            _ => {}
        }
    }

    /// Whether the streams are of another user than this token.
    pub(super) fn are_of_another_user(&self, access: &Access) -> bool {
        self.list.iter().any(|stream| stream.access.user != access.user)
    }

    pub(super) fn forget(&mut self, ended: &[Stream]) {
        self.list.retain(|stream| !(stream.open && ended.contains(&stream.stream)));
        self.has_unused_subscriptions |= !ended.is_empty();
    }

    /// Ends the streams whose token may no longer use their command. `lets` tells that.
    pub(super) fn revoke(&mut self, lets: impl Fn(&Access, &'static str) -> bool, connection: &mut Http) {
        let ends = |stream: &EventStream| !lets(&stream.access, stream.what.name());
        if self.awaiting_subscription().is_some_and(|at| ends(&self.list[at])) {
            self.refuse_awaiting(&Denied::new(401, REVOKED), connection);
            self.has_unused_subscriptions = true;
        }
        for stream in self.list.extract_if(.., |stream| ends(stream)) {
            connection.end_events(stream.stream);
            self.has_unused_subscriptions = true;
        }
    }

    /// All subscriptions are lost.
    fn lose(&mut self, why: &str, connection: &mut Http) {
        self.refuse_awaiting(&Denied::new(503, format!("ERR Poolhouse: {why}")), connection);
        for stream in std::mem::take(&mut self.list) {
            connection.end_events(stream.stream);
        }
    }

    /// Refuses the stream that waits for its subscription.
    fn refuse_awaiting(&mut self, denied: &Denied, connection: &mut Http) {
        let Some(at) = self.awaiting_subscription() else { return };
        let stream = self.list.swap_remove(at);
        connection.deny(stream.stream, denied);
    }

    fn awaiting_subscription(&self) -> Option<usize> {
        self.list.iter().position(|stream| !stream.open)
    }
}

impl Client {
    /// The subscriptions of all streams are lost. Returns false if the client does not speak HTTP/2, and has to be
    /// closed.
    pub(crate) fn lose_streams(&mut self, why: &str, out: &mut Outbox) -> bool {
        if !self.has_streams() {
            return false;
        }
        let http = self.http_mut();
        http.messages.streams.lose(why, &mut http.connection);
        self.flush(out);
        true
    }
}
