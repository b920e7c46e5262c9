//! Subscriptions, and what is published.

use super::{Connection, Done, Redis, Reply, glob::matches, pausing::wrong_subcommand};

/// What can be subscribed to: the places in the lists of subscriptions.
const CHANNEL: usize = 0;
const PATTERN: usize = 1;
const SHARD: usize = 2;

const BEGINS: [&str; 3] = ["subscribe", "psubscribe", "ssubscribe"];
const ENDS: [&str; 3] = ["unsubscribe", "punsubscribe", "sunsubscribe"];

impl Redis {
    pub(super) fn subscribe(&mut self, me: Connection, words: &[Vec<u8>], _: &mut Reply) -> Done {
        self.begin(me, CHANNEL, &words[1..])
    }

    pub(super) fn psubscribe(&mut self, me: Connection, words: &[Vec<u8>], _: &mut Reply) -> Done {
        self.begin(me, PATTERN, &words[1..])
    }

    pub(super) fn ssubscribe(&mut self, me: Connection, words: &[Vec<u8>], _: &mut Reply) -> Done {
        if self.session(me).executing.is_some() {
            return Err("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client".into());
        }
        self.begin(me, SHARD, &words[1..])
    }

    pub(super) fn unsubscribe(&mut self, me: Connection, words: &[Vec<u8>], _: &mut Reply) -> Done {
        self.end(me, CHANNEL, &words[1..])
    }

    pub(super) fn punsubscribe(&mut self, me: Connection, words: &[Vec<u8>], _: &mut Reply) -> Done {
        self.end(me, PATTERN, &words[1..])
    }

    pub(super) fn sunsubscribe(&mut self, me: Connection, words: &[Vec<u8>], _: &mut Reply) -> Done {
        self.end(me, SHARD, &words[1..])
    }

    fn begin(&mut self, me: Connection, topic: usize, names: &[Vec<u8>]) -> Done {
        for name in names {
            if self.session(me).subscriptions[topic].insert(name.clone()) {
                self.listeners[topic].entry(name.clone()).or_default().push(me);
            }
            self.confirm(me, topic, BEGINS[topic], Some(name));
        }
        Ok(())
    }

    /// Without names all subscriptions of a kind are meant.
    fn end(&mut self, me: Connection, topic: usize, names: &[Vec<u8>]) -> Done {
        let all: Vec<Vec<u8>> = self.session(me).subscriptions[topic].iter().cloned().collect();
        let names = if names.is_empty() { &all } else { names };
        for name in names {
            self.leave_topic(me, topic, name);
            self.confirm(me, topic, ENDS[topic], Some(name));
        }
        if names.is_empty() {
            self.confirm(me, topic, ENDS[topic], None);
        }
        Ok(())
    }

    fn leave_topic(&mut self, me: Connection, topic: usize, name: &[u8]) {
        if self.session(me).subscriptions[topic].remove(name)
            && let Some(listeners) = self.listeners[topic].get_mut(name)
        {
            listeners.retain(|other| *other != me);
            if listeners.is_empty() {
                self.listeners[topic].remove(name);
            }
        }
    }

    /// A connection has no subscriptions any more, and is not told.
    pub(super) fn unsubscribe_silently(&mut self, me: Connection) {
        for topic in [CHANNEL, PATTERN, SHARD] {
            for name in std::mem::take(&mut self.session(me).subscriptions[topic]) {
                self.session(me).subscriptions[topic].insert(name.clone());
                self.leave_topic(me, topic, &name);
            }
        }
    }

    fn confirm(&mut self, me: Connection, topic: usize, what: &str, name: Option<&Vec<u8>>) {
        let session = self.session(me);
        let mut reply = Reply::new(session.version);
        reply.push(3);
        reply.text(what);
        reply.maybe(name);
        reply.count(if topic == SHARD { session.subscriptions[SHARD].len() } else { session.subscribed() });
        self.push(me, reply.bytes);
    }

    pub(super) fn publish(&mut self, _: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let (name, message) = (&words[1], &words[2]);
        let mut told = self.tell(CHANNEL, name, &[b"message", name, message]);
        let patterns: Vec<_> =
            self.listeners[PATTERN].keys().filter(|pattern| matches(pattern, name)).cloned().collect();
        for pattern in patterns {
            told += self.tell(PATTERN, &pattern, &[b"pmessage", &pattern, name, message]);
        }
        reply.count(told);
        Ok(())
    }

    pub(super) fn spublish(&mut self, _: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        reply.count(self.tell(SHARD, &words[1], &[b"smessage", &words[1], &words[2]]));
        Ok(())
    }

    /// Tells all who have subscribed to this. Returns how many those are.
    fn tell(&mut self, topic: usize, name: &[u8], parts: &[&[u8]]) -> usize {
        let listeners = self.listeners[topic].get(name).cloned().unwrap_or_default();
        for listener in &listeners {
            let mut message = Reply::new(self.session(*listener).version);
            message.push(parts.len());
            parts.iter().for_each(|part| message.text(part));
            self.push(*listener, message.bytes);
        }
        listeners.len()
    }

    pub(super) fn pubsub_channels(&mut self, _: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        self.names(CHANNEL, words, reply)
    }

    pub(super) fn pubsub_shardchannels(&mut self, _: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        self.names(SHARD, words, reply)
    }

    fn names(&self, topic: usize, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let pattern = match &words[2..] {
            [] => &b"*"[..],
            [pattern] => pattern,
            _ => return Err(wrong_subcommand("PUBSUB", &words[1])),
        };
        let names: Vec<_> = self.listeners[topic].keys().filter(|name| matches(pattern, name)).collect();
        reply.texts(names.into_iter());
        Ok(())
    }

    pub(super) fn pubsub_numsub(&mut self, _: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        self.audience(CHANNEL, &words[2..], reply);
        Ok(())
    }

    pub(super) fn pubsub_shardnumsub(&mut self, _: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        self.audience(SHARD, &words[2..], reply);
        Ok(())
    }

    fn audience(&self, topic: usize, names: &[Vec<u8>], reply: &mut Reply) {
        reply.array(2 * names.len());
        for name in names {
            reply.text(name);
            reply.count(self.listeners[topic].get(name).map_or(0, Vec::len));
        }
    }

    pub(super) fn pubsub_numpat(&mut self, _: Connection, _: &[Vec<u8>], reply: &mut Reply) -> Done {
        reply.count(self.listeners[PATTERN].len());
        Ok(())
    }
}
