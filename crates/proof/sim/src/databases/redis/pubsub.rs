//! Channels: subscriptions, and messages.

use super::{Connection, Done, Redis, Reply};

impl Redis {
    pub(super) fn subscribe(&mut self, client: Connection, words: &[Vec<u8>], _: &mut Reply) -> Done {
        for channel in &words[1..] {
            if self.session(client).channels.insert(channel.clone()) {
                self.subscribers.entry(channel.clone()).or_default().push(client);
            }
            self.confirm(client, "subscribe", Some(channel));
        }
        Ok(())
    }

    /// UNSUBSCRIBE. Without names it ends all subscriptions.
    pub(super) fn unsubscribe(&mut self, client: Connection, words: &[Vec<u8>], _: &mut Reply) -> Done {
        let all: Vec<Vec<u8>> = self.session(client).channels.iter().cloned().collect();
        let channels = if words.len() == 1 { &all } else { &words[1..] };
        for channel in channels {
            self.end_subscription(client, channel);
            self.confirm(client, "unsubscribe", Some(channel));
        }
        if channels.is_empty() {
            self.confirm(client, "unsubscribe", None);
        }
        Ok(())
    }

    fn end_subscription(&mut self, client: Connection, channel: &[u8]) {
        if self.session(client).channels.remove(channel)
            && let Some(subscribers) = self.subscribers.get_mut(channel)
        {
            subscribers.retain(|other| *other != client);
        }
    }

    /// Ends all subscriptions of a connection that is closed.
    pub(super) fn end_subscriptions(&mut self, client: Connection) {
        for channel in self.session(client).channels.clone() {
            self.end_subscription(client, &channel);
        }
    }

    fn confirm(&mut self, client: Connection, kind: &str, channel: Option<&Vec<u8>>) {
        let session = self.session(client);
        let mut reply = Reply::new(session.version);
        reply.push(3);
        reply.text(kind);
        reply.maybe(channel);
        reply.count(session.channels.len());
        self.send(client, reply.bytes);
    }

    pub(super) fn publish(&mut self, _: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let subscribers = self.subscribers.get(&words[1]).cloned().unwrap_or_default();
        for subscriber in &subscribers {
            let mut message = Reply::new(self.session(*subscriber).version);
            message.push(3);
            message.text("message");
            message.text(&words[1]);
            message.text(&words[2]);
            self.send(*subscriber, message.bytes);
        }
        reply.count(subscribers.len());
        Ok(())
    }
}
