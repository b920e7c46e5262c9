//! The names that the clients of a hub have subscribed to, and which clients these are.

use std::{collections::HashMap, sync::Arc};

use seam::ClientTag;

use super::OF_EVENTS;
use crate::{
    command::Topic,
    glob::{MAX_PATTERN, Pattern},
};

/// A channel or a pattern. It is kept once for all clients that have subscribed to it.
pub(crate) type Name = Arc<[u8]>;

/// The key of a client, and its tag.
pub(super) type Subscriber = (u64, ClientTag);

/// Patterns of a hub beyond which a published channel is not compared with them.
const MAX_PATTERNS: usize = 1000;

#[derive(Default)]
pub(super) struct Names {
    /// By [`Topic`].
    by_topic: [HashMap<Name, Subscribers>; 3],
    /// Names that have lost their last subscriber.
    unwanted: Vec<(Topic, Name)>,
}

#[derive(Default)]
struct Subscribers {
    confirmed: bool,
    /// SUBSCRIBE commands for the name that Redis has not answered. Until then the name is kept.
    pending: u32,
    /// In the order of their keys.
    clients: Vec<Subscriber>,
    /// The parsed pattern, once it was needed.
    pattern: Option<Box<Pattern>>,
}

impl Subscribers {
    fn add(&mut self, (key, tag): Subscriber) {
        if let Err(at) = self.clients.binary_search_by_key(&key, |client| client.0) {
            self.clients.insert(at, (key, tag));
        }
    }

    fn remove(&mut self, key: u64) {
        if let Ok(at) = self.clients.binary_search_by_key(&key, |client| client.0) {
            self.clients.remove(at);
        }
    }

    /// Whether this pattern matches the name; `None` if `steps` do not suffice to find out.
    fn matches(&mut self, pattern: &[u8], name: &[u8], steps: &mut usize) -> Option<bool> {
        if self.pattern.is_none() {
            *steps = steps.checked_sub(pattern.len().min(MAX_PATTERN))?;
            self.pattern = Some(Box::new(Pattern::read(pattern)?));
        }
        self.pattern.as_ref().expect("just read").matches(name, steps)
    }

    /// Subscribers that Redis does not count: to Redis, all of them are one connection.
    fn uncounted(&self) -> i32 {
        if self.confirmed { self.clients.len() as i32 - 1 } else { 0 }
    }

    fn is_unwanted(&self) -> bool {
        self.clients.is_empty() && self.pending == 0
    }
}

impl Names {
    pub(super) fn is_empty(&self) -> bool {
        self.by_topic.iter().all(HashMap::is_empty)
    }

    /// The number of names to which a client is subscribed, or wants to be.
    pub(super) fn count_with_clients(&self) -> usize {
        let all = self.by_topic.iter().flat_map(HashMap::values);
        all.filter(|subscribers| !subscribers.clients.is_empty()).count()
    }

    pub(super) fn has_unwanted(&self) -> bool {
        !self.unwanted.is_empty()
    }

    /// Receivers of a message with this name that Redis does not count. `None`: there are too many patterns to compare
    /// with, or they are too long.
    pub(super) fn uncounted_receivers(&mut self, topic: Topic, name: &[u8], steps: &mut usize) -> Option<i32> {
        let mut more = self.uncounted_subscribers(topic, name);
        let patterns = &mut self.by_topic[Topic::Pattern as usize];
        if topic != Topic::Channel || patterns.is_empty() {
            return Some(more);
        }
        if patterns.len() > MAX_PATTERNS {
            return None;
        }
        for (pattern, subscribers) in patterns {
            if subscribers.uncounted() > 0 && subscribers.matches(pattern, name, steps)? {
                more += subscribers.uncounted();
            }
        }
        Some(more)
    }

    /// Subscribers of this name that Redis does not count.
    pub(super) fn uncounted_subscribers(&self, topic: Topic, name: &[u8]) -> i32 {
        self.by_topic[topic as usize].get(name).map_or(0, Subscribers::uncounted)
    }

    /// The subscribers of this name to which messages are posted as they are, and those to which they are posted as
    /// events.
    pub(super) fn subscribers(&self, topic: Topic, name: &[u8]) -> (&[Subscriber], &[Subscriber]) {
        let Some(Subscribers { clients, .. }) = self.by_topic[topic as usize].get(name) else { return (&[], &[]) };
        clients.split_at(clients.partition_point(|(key, _)| key & OF_EVENTS == 0))
    }

    pub(super) fn is_confirmed(&self, topic: Topic, name: &[u8]) -> bool {
        self.by_topic[topic as usize].get(name).is_some_and(|subscribers| subscribers.confirmed)
    }

    /// Adds a subscriber to a name that Redis has confirmed.
    pub(super) fn add(&mut self, topic: Topic, name: &Name, subscriber: Subscriber) {
        self.by_topic[topic as usize].get_mut(name).expect("a confirmed name is known").add(subscriber);
    }

    /// Redis is asked to subscribe to this name.
    pub(super) fn note_requested(&mut self, topic: Topic, name: &Name) {
        self.by_topic[topic as usize].entry(Arc::clone(name)).or_default().pending += 1;
    }

    /// Redis is asked to subscribe to all names of this topic that are wanted. Returns them.
    pub(super) fn request_all(&mut self, topic: Topic) -> Vec<Name> {
        let wanted = self.by_topic[topic as usize].iter_mut().filter(|(_, subscribers)| !subscribers.is_unwanted());
        let request = |(name, subscribers): (&Name, &mut Subscribers)| {
            subscribers.pending += 1;
            Arc::clone(name)
        };
        wanted.map(request).collect()
    }

    /// Redis has subscribed to this name. The client that requested it may have gone.
    pub(super) fn confirm(&mut self, topic: Topic, name: &Name, subscriber: Option<Subscriber>) {
        let subscribers = self.settle(topic, name);
        subscribers.confirmed = true;
        if let Some(subscriber) = subscriber {
            subscribers.add(subscriber);
        } else if subscribers.is_unwanted() {
            self.unwanted.push((topic, Arc::clone(name)));
        }
    }

    pub(super) fn refuse(&mut self, topic: Topic, name: &Name) {
        if self.settle(topic, name).is_unwanted() {
            self.unwanted.push((topic, Arc::clone(name)));
        }
    }

    /// Redis has refused to subscribe to this name again. Returns its subscribers of before.
    pub(super) fn refuse_again(&mut self, topic: Topic, name: &Name) -> Vec<Subscriber> {
        let subscribers = self.settle(topic, name);
        let lost = std::mem::take(&mut subscribers.clients);
        if subscribers.is_unwanted() {
            self.unwanted.push((topic, Arc::clone(name)));
        }
        lost
    }

    fn settle(&mut self, topic: Topic, name: &Name) -> &mut Subscribers {
        let subscribers = self.by_topic[topic as usize].get_mut(name).expect("a requested name is known");
        subscribers.pending -= 1;
        subscribers
    }

    pub(super) fn remove(&mut self, topic: Topic, name: &Name, key: u64) {
        let Some(subscribers) = self.by_topic[topic as usize].get_mut(name) else { return };
        subscribers.remove(key);
        if subscribers.is_unwanted() {
            self.unwanted.push((topic, Arc::clone(name)));
        }
    }

    /// Forgets names without subscribers. Returns those to which Redis is subscribed, by topic.
    pub(super) fn take_unwanted(&mut self) -> [Vec<Name>; 3] {
        let mut confirmed: [Vec<Name>; 3] = Default::default();
        for (topic, name) in std::mem::take(&mut self.unwanted) {
            let names = &mut self.by_topic[topic as usize];
            if names.get(&name).is_some_and(|subscribers| subscribers.is_unwanted())
                && names.remove(&name).is_some_and(|subscribers| subscribers.confirmed)
            {
                confirmed[topic as usize].push(name);
            }
        }
        confirmed
    }

    /// The server is lost, and with it all subscriptions of Redis. Names with subscribers stay.
    pub(super) fn on_server_lost(&mut self) {
        for names in &mut self.by_topic {
            names.retain(|_, subscribers| {
                (subscribers.confirmed, subscribers.pending) = (false, 0);
                !subscribers.clients.is_empty()
            });
        }
        self.unwanted.clear();
    }
}
