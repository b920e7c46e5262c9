//! What the session of the hub's server does: it sends Redis the changes that clients request, and posts messages to
//! them.

use std::{ops::Range, sync::Arc};

use seam::{ClientTag, Effect, Outbox, Peer, ServerTag};

use super::{Home, Hub, Name, SubscriptionChange, names::Subscriber, notice, post, post_with_reason};
use crate::{
    command::{SubscriptionCommand, Topic},
    resp::{self, PubSubReply},
};

/// Names in one command that Poolhouse sends for itself.
const MAX_NAMES_PER_COMMAND: usize = 512;

pub(super) struct SentCommand {
    what: SubscriptionCommand,
    names: Arc<[Name]>,
    due: usize,
    reason: Reason,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reason {
    /// The client with this key subscribes.
    Subscribe(u64),
    /// The client with this key unsubscribes. The command is a PING, behind whose reply no earlier message comes.
    Unsubscribe(u64),
    /// Clients had subscribed on a server that was lost.
    Restore,
    /// No client wants the names any more.
    Cleanup,
}

/// How far the subscriptions of a server that was lost are restored on the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Restoration {
    None,
    /// It begins when there is a server.
    Due,
    /// The number of commands that are not answered.
    Running(usize),
}

impl Hub {
    /// Sends the changes that clients request. Returns false if no client has a subscription or requests one, and no
    /// reply is pending.
    pub(crate) fn send_changes(&mut self, server: ServerTag, out: &mut Outbox) -> bool {
        if let Home::Held { notified, .. } = &mut self.home {
            *notified = false;
        }
        if self.restoration == Restoration::Due {
            self.restore(server, out);
        }
        self.unsubscribe_unwanted(server, out);
        while let Some(change) = self.changes.pop_front() {
            let Some(&tag) = self.clients.get(&change.key) else { continue };
            if change.what.begins {
                self.subscribe(server, tag, change, out);
            } else {
                self.unsubscribe(server, change, out);
            }
        }
        self.unsubscribe_unwanted(server, out);
        !(self.clients.is_empty() && self.sent.is_empty())
    }

    /// Whether no other client can use the server's connection.
    pub(crate) fn has_refused_unsubscribe(&self) -> bool {
        matches!(self.home, Home::Held { unsubscribe_refused: true, .. })
    }

    fn subscribe(&mut self, server: ServerTag, tag: ClientTag, change: SubscriptionChange, out: &mut Outbox) {
        let SubscriptionChange { key, what, names } = change;
        let unconfirmed = names.iter().filter(|name| !self.names.is_confirmed(what.topic, name));
        let wanted: Vec<&[u8]> = unconfirmed.map(|name| &**name).collect();
        if wanted.is_empty() {
            for name in names.iter() {
                self.names.add(what.topic, name, (key, tag));
            }
            return post(tag, key, &[notice::CHANGED], out);
        }
        let due = wanted.len();
        send(server, what, &wanted, out);
        // Names that are confirmed already are kept, too, until Redis has confirmed the others.
        for name in names.iter() {
            self.names.note_requested(what.topic, name);
        }
        self.sent.push_back(SentCommand { what, names, due, reason: Reason::Subscribe(key) });
    }

    /// Messages that were published before a client unsubscribes are for it, and may be on their way. So its
    /// subscriptions end when the server has answered a PING.
    fn unsubscribe(&mut self, server: ServerTag, change: SubscriptionChange, out: &mut Outbox) {
        out.insert(Peer::Server(server), |to| resp::command(to, &[b"PING"]));
        let SubscriptionChange { key, what, names } = change;
        self.sent.push_back(SentCommand { what, names, due: 1, reason: Reason::Unsubscribe(key) });
    }

    /// All messages have come that were published before a client unsubscribed.
    fn unsubscribed(&mut self, key: u64, command: &SentCommand, out: &mut Outbox) {
        let Some(&tag) = self.clients.get(&key) else { return };
        for name in command.names.iter() {
            self.names.remove(command.what.topic, name, key);
        }
        post(tag, key, &[notice::CHANGED], out);
    }

    /// Unsubscribes from names that no client wants any more.
    fn unsubscribe_unwanted(&mut self, server: ServerTag, out: &mut Outbox) {
        for (topic, names) in Topic::ALL.into_iter().zip(self.names.take_unwanted()) {
            self.send_in_parts(server, SubscriptionCommand { begins: false, topic }, &names, Reason::Cleanup, out);
        }
    }

    /// Subscribes to all names that clients had on a server that was lost.
    fn restore(&mut self, server: ServerTag, out: &mut Outbox) {
        let mut commands = 0;
        for topic in Topic::ALL {
            let lost = self.names.request_all(topic);
            commands += lost.len().div_ceil(MAX_NAMES_PER_COMMAND);
            self.send_in_parts(server, SubscriptionCommand { begins: true, topic }, &lost, Reason::Restore, out);
        }
        self.restoration = if commands > 0 { Restoration::Running(commands) } else { Restoration::None };
    }

    fn send_in_parts(
        &mut self,
        server: ServerTag,
        what: SubscriptionCommand,
        names: &[Name],
        reason: Reason,
        out: &mut Outbox,
    ) {
        for names in names.chunks(MAX_NAMES_PER_COMMAND) {
            send(server, what, &names.iter().map(|name| &**name).collect::<Vec<_>>(), out);
            self.sent.push_back(SentCommand { what, names: names.into(), due: names.len(), reason });
        }
    }

    /// Redis has answered. Returns false if that was no answer to any command.
    pub(crate) fn answered(&mut self, server: ServerTag, reply: PubSubReply<'_>, out: &mut Outbox) -> bool {
        let Some(command) = self.sent.front_mut() else { return false };
        match (reply, command.reason) {
            // A refused PING is a reply, too, behind which no earlier message comes.
            (PubSubReply::Pong | PubSubReply::Refused(_), Reason::Unsubscribe(key)) => {
                let command = self.sent.pop_front().expect("seen above");
                self.unsubscribed(key, &command, out);
            }
            (_, Reason::Unsubscribe(_)) => return false,
            (PubSubReply::Confirmed(what), _) if what == command.what => {
                command.due -= 1;
                if command.due == 0 {
                    let command = self.sent.pop_front().expect("seen above");
                    self.confirmed(&command, out);
                }
            }
            (PubSubReply::Refused(why), _) => {
                let command = self.sent.pop_front().expect("seen above");
                self.refused(server, &command, why, out);
            }
            _ => return false,
        }
        true
    }

    fn confirmed(&mut self, command: &SentCommand, out: &mut Outbox) {
        let subscriber: Option<Subscriber> = match command.reason {
            Reason::Cleanup => return,
            Reason::Subscribe(key) => self.clients.get(&key).map(|tag| (key, *tag)),
            Reason::Unsubscribe(_) | Reason::Restore => None,
        };
        for name in command.names.iter() {
            self.names.confirm(command.what.topic, name, subscriber);
        }
        if let Some((key, tag)) = subscriber {
            post(tag, key, &[notice::CHANGED], out);
        } else if command.reason == Reason::Restore {
            self.restored();
        }
    }

    fn refused(&mut self, server: ServerTag, command: &SentCommand, why: &[u8], out: &mut Outbox) {
        let topic = command.what.topic;
        match command.reason {
            Reason::Cleanup => {
                if let Home::Held { unsubscribe_refused, .. } = &mut self.home {
                    *unsubscribe_refused = true;
                }
            }
            Reason::Subscribe(key) | Reason::Unsubscribe(key) => {
                command.names.iter().for_each(|name| self.names.refuse(topic, name));
                if let Some(tag) = self.clients.get(&key) {
                    post_with_reason(*tag, key, notice::REFUSED, why, out);
                }
            }
            // The reason may be one of the names.
            Reason::Restore if command.names.len() > 1 => {
                if let Restoration::Running(commands) = &mut self.restoration {
                    *commands += command.names.len();
                }
                for name in command.names.iter() {
                    self.send_in_parts(server, command.what, std::slice::from_ref(name), Reason::Restore, out);
                }
                self.restored();
            }
            Reason::Restore => {
                for name in command.names.iter() {
                    for (key, tag) in self.names.refuse_again(topic, name) {
                        post_with_reason(tag, key, notice::LOST, why, out);
                    }
                }
                self.restored();
            }
        }
    }

    /// A command that restores subscriptions is answered.
    fn restored(&mut self) {
        let Restoration::Running(commands) = &mut self.restoration else { return };
        *commands -= 1;
        if *commands == 0 {
            self.restoration = Restoration::None;
            tracing::warn!(
                clients = self.clients.len(),
                subscriptions = self.names.count_with_clients(),
                "subscriptions are restored on another connection; what was published meanwhile is lost"
            );
        }
    }

    /// Posts messages to the subscribers of this name that get them as they are. Returns whether others get them as
    /// events.
    pub(crate) fn fan_out(&self, topic: Topic, name: &[u8], messages: &[u8], out: &mut Outbox) -> bool {
        let (plain, of_events) = self.names.subscribers(topic, name);
        if !plain.is_empty() {
            let start = out.inserted.len();
            out.inserted.extend_from_slice(messages);
            post_all(plain, start..out.inserted.len(), out);
        }
        !of_events.is_empty()
    }

    /// Posts the events that were made of the same messages.
    pub(crate) fn fan_out_events(&self, topic: Topic, name: &[u8], events: Range<usize>, out: &mut Outbox) {
        post_all(self.names.subscribers(topic, name).1, events, out);
    }

    /// Tells all subscribers of this name that their subscriptions are lost, and why.
    pub(crate) fn post_lost(&self, topic: Topic, name: &[u8], why: &str, out: &mut Outbox) {
        let start = out.inserted.len();
        out.inserted.push(notice::LOST);
        out.inserted.extend_from_slice(why.as_bytes());
        let (plain, of_events) = self.names.subscribers(topic, name);
        for subscribers in [plain, of_events] {
            post_all(subscribers, start..out.inserted.len(), out);
        }
    }

    /// The server is lost, and one of the clients requests another one. Returns false if there are no clients.
    pub(crate) fn on_server_lost(&mut self, out: &mut Outbox) -> bool {
        for command in std::mem::take(&mut self.sent).into_iter().rev() {
            if let SentCommand { what, names, reason: Reason::Subscribe(key) | Reason::Unsubscribe(key), .. } = command
            {
                self.changes.push_front(SubscriptionChange { key, what, names });
            }
        }
        self.names.on_server_lost();
        self.restoration = if self.names.is_empty() { Restoration::None } else { Restoration::Due };
        debug_assert!(matches!(self.home, Home::Held { .. }), "a server is lost that the hub did not have");
        self.seek(0, out)
    }
}

fn post_all(to: &[Subscriber], bytes: Range<usize>, out: &mut Outbox) {
    let post = |(key, tag): &Subscriber| Effect::Post { to: Peer::Client(*tag), key: *key, bytes: bytes.clone() };
    out.effects.extend(to.iter().map(post));
}

fn send(server: ServerTag, what: SubscriptionCommand, names: &[&[u8]], out: &mut Outbox) {
    let upper = what.name().to_ascii_uppercase();
    out.insert(Peer::Server(server), |to| resp::command(to, &[&[upper.as_bytes()], names].concat()));
}
