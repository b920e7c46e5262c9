//! What the session of the server that holds the subscriptions does: it asks Redis for what clients wish, and passes on
//! what comes.

use std::{ops::Range, sync::Arc};

use seam::{ClientTag, Effect, Outbox, Peer, ServerTag};

use super::{Home, Hub, Listener, Name, Wish, post, post_with_reason, word};
use crate::{
    command::{Subscription, Topic},
    resp::{self, Said},
};

/// Names that Redis is asked to subscribe to, or not to, in one command of Poolhouse's own.
const MAX_NAMES: usize = 512;

/// What the server has been asked.
pub(super) struct Asked {
    what: Subscription,
    names: Arc<[Name]>,
    /// How many of the names have not been dealt with.
    due: usize,
    whose: Whose,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Whose {
    /// A client wishes it; its key.
    Client(u64),
    /// The client with this key wants it no more. The server has been asked for a sign only that all has come by then.
    Leaver(u64),
    /// Somebody had it on a server that was lost.
    Restored,
    /// Nobody wants it any more.
    Nobody,
}

impl Hub {
    /// Has the server do what clients wish. False if nobody wants anything any more, and nothing will be said of it.
    pub(crate) fn look_after(&mut self, server: ServerTag, out: &mut Outbox) -> bool {
        self.notified = false;
        if std::mem::take(&mut self.restores) {
            self.restore(server, out);
        }
        self.forget_left(server, out);
        while let Some(wish) = self.wishes.pop_front() {
            let Some(&tag) = self.clients.get(&wish.key) else { continue };
            if wish.what.begins {
                self.begin(server, tag, wish, out);
            } else {
                self.end(server, wish, out);
            }
        }
        self.forget_left(server, out);
        !(self.clients.is_empty() && self.asked.is_empty())
    }

    fn begin(&mut self, server: ServerTag, tag: ClientTag, wish: Wish, out: &mut Outbox) {
        let names = &mut self.names[wish.what.topic as usize];
        let unheard = |name: &&Name| !names.get(*name).is_some_and(|listeners| listeners.heard);
        let wanted: Vec<&[u8]> = wish.names.iter().filter(unheard).map(|name| &**name).collect();
        if wanted.is_empty() {
            for name in wish.names.iter() {
                names.get_mut(name).expect("what is heard is known").add(wish.key, tag);
            }
            return post(tag, wish.key, &[word::DONE], out);
        }
        let due = wanted.len();
        command(server, wish.what, &wanted, out);
        // Those that are heard must not be given up before the others are.
        for name in wish.names.iter() {
            names.entry(Arc::clone(name)).or_default().asked += 1;
        }
        let Wish { key, what, names } = wish;
        self.asked.push_back(Asked { what, names, due, whose: Whose::Client(key) });
    }

    /// What has been published before a client unsubscribes is for it still, and may be under way. So it unsubscribes
    /// once the server has answered a PING.
    fn end(&mut self, server: ServerTag, wish: Wish, out: &mut Outbox) {
        out.insert(Peer::Server(server), |to| resp::command(to, &[b"PING"]));
        let Wish { key, what, names } = wish;
        self.asked.push_back(Asked { what, names, due: 1, whose: Whose::Leaver(key) });
    }

    /// All has come that was published before a client unsubscribed.
    fn ended(&mut self, key: u64, asked: &Asked, out: &mut Outbox) {
        let Some(&tag) = self.clients.get(&key) else { return };
        for name in asked.names.iter() {
            if let Some(listeners) = self.names[asked.what.topic as usize].get_mut(name) {
                listeners.remove(key);
                if listeners.is_unwanted() {
                    self.left.push((asked.what.topic, Arc::clone(name)));
                }
            }
        }
        post(tag, key, &[word::DONE], out);
    }

    /// Unsubscribes from what nobody wants any more.
    fn forget_left(&mut self, server: ServerTag, out: &mut Outbox) {
        let mut unwanted: [Vec<Name>; 3] = Default::default();
        for (topic, name) in std::mem::take(&mut self.left) {
            let names = &mut self.names[topic as usize];
            if names.get(&name).is_some_and(|listeners| listeners.is_unwanted())
                && names.remove(&name).is_some_and(|listeners| listeners.heard)
            {
                unwanted[topic as usize].push(name);
            }
        }
        for (topic, names) in Topic::ALL.into_iter().zip(unwanted) {
            self.ask(server, Subscription { begins: false, topic }, &names, Whose::Nobody, out);
        }
    }

    /// Subscribes to all that clients had on a server that was lost.
    fn restore(&mut self, server: ServerTag, out: &mut Outbox) {
        for topic in Topic::ALL {
            let mut lost = Vec::new();
            for (name, listeners) in self.names[topic as usize].iter_mut().filter(|(_, l)| !l.is_unwanted()) {
                listeners.asked += 1;
                lost.push(Arc::clone(name));
            }
            self.restoring += lost.len().div_ceil(MAX_NAMES);
            self.ask(server, Subscription { begins: true, topic }, &lost, Whose::Restored, out);
        }
    }

    fn ask(&mut self, server: ServerTag, what: Subscription, names: &[Name], whose: Whose, out: &mut Outbox) {
        for names in names.chunks(MAX_NAMES) {
            command(server, what, &names.iter().map(|name| &**name).collect::<Vec<_>>(), out);
            self.asked.push_back(Asked { what, names: names.into(), due: names.len(), whose });
        }
    }

    /// The server has answered. False if that was no answer to anything.
    pub(crate) fn answered(&mut self, server: ServerTag, said: Said<'_>, out: &mut Outbox) -> bool {
        let Some(asked) = self.asked.front_mut() else { return false };
        match (said, asked.whose) {
            // Also where Redis does not let its user say PING, all has come that was to come before.
            (Said::Pong | Said::Refused(_), Whose::Leaver(key)) => {
                let asked = self.asked.pop_front().expect("seen above");
                self.ended(key, &asked, out);
            }
            (_, Whose::Leaver(_)) => return false,
            (Said::Done(what), _) if what == asked.what => {
                asked.due -= 1;
                if asked.due == 0 {
                    let asked = self.asked.pop_front().expect("seen above");
                    self.done(&asked, out);
                }
            }
            (Said::Refused(why), _) => {
                let asked = self.asked.pop_front().expect("seen above");
                self.refused(server, &asked, why, out);
            }
            _ => return false,
        }
        true
    }

    fn done(&mut self, asked: &Asked, out: &mut Outbox) {
        if asked.whose == Whose::Nobody {
            return;
        }
        let client = match asked.whose {
            Whose::Client(key) => self.clients.get(&key).map(|tag| (key, *tag)),
            _ => None,
        };
        for name in asked.names.iter() {
            let listeners = self.asked_no_more(asked.what.topic, name);
            listeners.heard = true;
            if let Some((key, tag)) = client {
                listeners.add(key, tag);
            } else if listeners.is_unwanted() {
                self.left.push((asked.what.topic, Arc::clone(name)));
            }
        }
        match (asked.whose, client) {
            (_, Some((key, tag))) => post(tag, key, &[word::DONE], out),
            (Whose::Restored, _) => self.restored(),
            _ => {}
        }
    }

    fn refused(&mut self, server: ServerTag, asked: &Asked, why: &[u8], out: &mut Outbox) {
        if asked.whose == Whose::Restored && asked.names.len() > 1 {
            // Only for one of them perhaps.
            self.restoring += asked.names.len();
            for name in asked.names.iter() {
                self.ask(server, asked.what, std::slice::from_ref(name), Whose::Restored, out);
            }
            return self.restored();
        }
        if asked.whose == Whose::Nobody {
            self.stained = true;
            return;
        }
        for name in asked.names.iter() {
            let listeners = self.asked_no_more(asked.what.topic, name);
            let mut lost = Vec::new();
            if asked.whose == Whose::Restored {
                lost = std::mem::take(&mut listeners.clients);
            }
            if listeners.is_unwanted() {
                self.left.push((asked.what.topic, Arc::clone(name)));
            }
            for (key, tag) in lost {
                post_with_reason(tag, key, word::LOST, why, out);
            }
        }
        match asked.whose {
            Whose::Client(key) => {
                if let Some(tag) = self.clients.get(&key) {
                    post_with_reason(*tag, key, word::REFUSED, why, out);
                }
            }
            _ => self.restored(),
        }
    }

    fn asked_no_more(&mut self, topic: Topic, name: &Name) -> &mut super::Listeners {
        let listeners = self.names[topic as usize].get_mut(name).expect("what is asked for is known");
        listeners.asked -= 1;
        listeners
    }

    fn restored(&mut self) {
        self.restoring -= 1;
        if self.restoring == 0 {
            let (clients, subscriptions) = (self.clients.len(), self.wanted());
            tracing::warn!(
                clients,
                subscriptions,
                "subscriptions are restored on another connection; what was published meanwhile is lost"
            );
        }
    }

    /// Names that somebody has subscribed to.
    fn wanted(&self) -> usize {
        self.names.iter().flat_map(|names| names.values()).filter(|listeners| !listeners.clients.is_empty()).count()
    }

    /// Posts messages to all who have subscribed to this, and hear them in Redis's own words. True if others hear
    /// events.
    pub(crate) fn fan_out(&self, topic: Topic, name: &[u8], messages: &[u8], out: &mut Outbox) -> bool {
        let Some(listeners) = self.names[topic as usize].get(name) else { return false };
        let (plain, of_events) = listeners.apart();
        if !plain.is_empty() {
            let start = out.inserted.len();
            out.inserted.extend_from_slice(messages);
            post_all(plain, start..out.inserted.len(), out);
        }
        !of_events.is_empty()
    }

    /// Posts what was made of the same messages to those that hear events.
    pub(crate) fn fan_out_made(&self, topic: Topic, name: &[u8], made: Range<usize>, out: &mut Outbox) {
        let Some(listeners) = self.names[topic as usize].get(name) else { return };
        post_all(listeners.apart().1, made, out);
    }

    /// Everybody who has subscribed to this is told that it is over, and why.
    pub(crate) fn disappoint(&self, topic: Topic, name: &[u8], why: &str, out: &mut Outbox) {
        let Some(listeners) = self.names[topic as usize].get(name) else { return };
        let start = out.inserted.len();
        out.inserted.push(word::LOST);
        out.inserted.extend_from_slice(why.as_bytes());
        post_all(&listeners.clients, start..out.inserted.len(), out);
    }

    /// The server is lost: another is sought. False if nobody needs one.
    pub(crate) fn lost(&mut self, out: &mut Outbox) -> bool {
        for asked in std::mem::take(&mut self.asked).into_iter().rev() {
            if let Asked { what, names, whose: Whose::Client(key) | Whose::Leaver(key), .. } = asked {
                self.wishes.push_front(Wish { key, what, names });
            }
        }
        for names in &mut self.names {
            names.retain(|_, listeners| {
                (listeners.heard, listeners.asked) = (false, 0);
                !listeners.clients.is_empty()
            });
        }
        self.left.clear();
        self.stained = false;
        self.restores = self.names.iter().any(|names| !names.is_empty());
        self.restoring = 0;
        debug_assert!(matches!(self.home, Home::Server(_)), "a server is lost that there was");
        self.seek(out)
    }
}

/// Posts the same to many.
fn post_all(to: &[Listener], bytes: Range<usize>, out: &mut Outbox) {
    let post = |(key, tag): &Listener| Effect::Post { to: Peer::Client(*tag), key: *key, bytes: bytes.clone() };
    out.effects.extend(to.iter().map(post));
}

fn command(server: ServerTag, what: Subscription, names: &[&[u8]], out: &mut Outbox) {
    let upper = what.name().to_ascii_uppercase();
    out.insert(Peer::Server(server), |to| resp::command(to, &[&[upper.as_bytes()], names].concat()));
}
