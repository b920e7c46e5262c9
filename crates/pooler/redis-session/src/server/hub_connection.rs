//! The connection of a hub: a server that holds the subscriptions of all clients of its pool. Push messages and replies
//! come here, and go to the hub.

use seam::{Effect, Input, Outbox, PoolId, ServerTag, Verdict};

use super::Server;
use crate::{
    Redis,
    command::Topic,
    resp::{PubSubReply, ReplyScanner, read_pubsub},
    rest::messages::PostedEvents,
};

/// Longest message that is forwarded, in bytes. By default, Redis keeps no more for a subscriber.
const MAX_MESSAGE: usize = 32 << 20;

pub(super) struct HubConnection {
    pool: PoolId,
    /// The key of the hub's posts. A post with another key was for an earlier use of the server.
    key: u64,
    /// The beginning of a message or a reply that has not come whole.
    gathered: Vec<u8>,
    scanner: ReplyScanner,
}

/// Successive messages for the same subscribers.
struct MessageRun<'a> {
    topic: Topic,
    name: &'a [u8],
    messages: &'a [u8],
}

impl Redis {
    /// The server holds the subscriptions of its pool from now on.
    pub(crate) fn begin_hub(&self, me: ServerTag, server: &mut Server, pool: PoolId, key: u64, out: &mut Outbox) {
        let (gathered, scanner) = (Vec::new(), ReplyScanner::default());
        server.holder = None;
        server.hub = Some(Box::new(HubConnection { pool, key, gathered, scanner }));
        out.push(Effect::Retain { server: me, briefly: false });
        out.push(Effect::Pinned { server: me, reason: Some("subscribe") });
        self.send_changes(me, server, out);
    }

    pub(crate) fn on_hub_notified(&self, me: ServerTag, server: &mut Server, key: u64, out: &mut Outbox) {
        if server.hub.as_ref().is_some_and(|connection| connection.key == key) {
            self.send_changes(me, server, out);
        }
    }

    /// Sends the changes that clients have requested, and gives the server back when no client has a subscription.
    fn send_changes(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        let Some(connection) = &server.hub else { return };
        let mut clean = connection.scanner.is_between();
        let goes_on = self.hubs.with_hub(connection.pool, connection.key, |hub| {
            let goes_on = hub.send_changes(me, out);
            clean &= !hub.has_refused_unsubscribe();
            goes_on
        });
        if !goes_on {
            server.hub = None;
            out.push(Effect::Pinned { server: me, reason: None });
            let verdict = if clean { Verdict::Clean } else { Verdict::Discard };
            out.push(Effect::Release { server: me, verdict });
        }
    }

    /// The server's pool replaces its servers: another one will hold the subscriptions, as if this one had been lost.
    pub(crate) fn hub_outdated(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        if server.hub.is_none() {
            return;
        }
        out.push(Effect::Pinned { server: me, reason: None });
        out.push(Effect::Release { server: me, verdict: Verdict::Discard });
        self.hub_lost(server, out);
    }

    /// The server is lost. Returns false if it held no subscriptions.
    pub(crate) fn hub_lost(&self, server: &mut Server, out: &mut Outbox) -> bool {
        let Some(connection) = server.hub.take() else { return false };
        self.hubs.with_hub(connection.pool, connection.key, |hub| hub.on_server_lost(out));
        true
    }

    /// Reads what such a server sends. Returns the number of bytes that were consumed.
    pub(crate) fn read_hub_input(
        &self,
        me: ServerTag,
        server: &mut Server,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        let connection = server.hub.as_deref_mut().expect("seen by the caller");
        let mut answers = false;
        let end = match self.read_all(me, connection, input.bytes, &mut answers, out) {
            Ok(0) if input.full => Err("a line of the server's has no end".to_owned()),
            end => end,
        };
        match end {
            Ok(taken) => {
                if answers {
                    self.send_changes(me, server, out);
                }
                taken
            }
            Err(message) => {
                Server::fail(me, message, out);
                input.bytes.len()
            }
        }
    }

    fn read_all(
        &self,
        me: ServerTag,
        connection: &mut HubConnection,
        bytes: &[u8],
        answers: &mut bool,
        out: &mut Outbox,
    ) -> Result<usize, String> {
        let mut run: Option<MessageRun<'_>> = None;
        let mut at = 0;
        while at < bytes.len() {
            let (begins, begin) = (connection.scanner.is_between(), at);
            let mut scanner = connection.scanner;
            let end = scanner.advance(&bytes[at..]).map_err(|error| error.to_string())?;
            if end.taken == 0 {
                break;
            }
            connection.scanner = scanner;
            at += end.taken;
            let taken = &bytes[begin..at];
            if !(begins && end.over) {
                if connection.gathered.len() <= MAX_MESSAGE {
                    connection.gathered.extend_from_slice(taken);
                }
                if end.over {
                    self.publish(connection, run.take(), out);
                    *answers |= self.read_gathered(me, connection, out)?;
                }
                continue;
            }
            match (read_pubsub(taken), &mut run) {
                (Some(PubSubReply::Message(topic, name)), Some(run)) if run.topic == topic && run.name == name => {
                    run.messages = &bytes[begin - run.messages.len()..at];
                }
                (Some(PubSubReply::Message(topic, name)), _) => {
                    self.publish(connection, run.replace(MessageRun { topic, name, messages: taken }), out);
                }
                (answer, _) => {
                    self.publish(connection, run.take(), out);
                    self.answered(me, connection, answer, taken, out)?;
                    *answers = true;
                }
            }
        }
        self.publish(connection, run, out);
        Ok(at)
    }

    /// A message or a reply that came in pieces is whole. Returns whether it is a reply.
    fn read_gathered(&self, me: ServerTag, connection: &mut HubConnection, out: &mut Outbox) -> Result<bool, String> {
        let gathered = std::mem::take(&mut connection.gathered);
        let Some(PubSubReply::Message(topic, name)) = read_pubsub(&gathered) else {
            self.answered(me, connection, read_pubsub(&gathered), &gathered, out)?;
            return Ok(true);
        };
        if gathered.len() > MAX_MESSAGE {
            let why = format!("a message of more than {MAX_MESSAGE} bytes came, and longer ones are not passed on");
            self.hubs.with_hub(connection.pool, connection.key, |hub| {
                hub.post_lost(topic, name, &why, out);
                true
            });
        } else {
            self.publish(connection, Some(MessageRun { topic, name, messages: &gathered }), out);
        }
        Ok(false)
    }

    fn answered(
        &self,
        me: ServerTag,
        connection: &HubConnection,
        answer: Option<PubSubReply<'_>>,
        bytes: &[u8],
        out: &mut Outbox,
    ) -> Result<(), String> {
        let mut expected = false;
        if let Some(answer) = answer {
            self.hubs.with_hub(connection.pool, connection.key, |hub| {
                expected = hub.answered(me, answer, out);
                true
            });
        }
        let unasked = || format!("a server that holds subscriptions said something unasked: {}", super::shown(bytes));
        if expected { Ok(()) } else { Err(unasked()) }
    }

    fn publish(&self, connection: &HubConnection, run: Option<MessageRun<'_>>, out: &mut Outbox) {
        let Some(MessageRun { topic, name, messages }) = run else { return };
        let mut has_events = false;
        self.hubs.with_hub(connection.pool, connection.key, |hub| {
            has_events = hub.fan_out(topic, name, messages, out);
            true
        });
        if has_events {
            // The hubs are not locked meanwhile: a message of a million lines takes long to become an event.
            let start = out.inserted.len();
            PostedEvents::write(topic, name, messages, &mut out.inserted);
            let events = start..out.inserted.len();
            self.hubs.with_hub(connection.pool, connection.key, |hub| {
                hub.fan_out_events(topic, name, events, out);
                true
            });
        }
    }
}
