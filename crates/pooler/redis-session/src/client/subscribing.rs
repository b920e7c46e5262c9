//! A client's subscriptions. They are held by a server for all clients of its pool (see [`crate::hub`]); here is what
//! the client is told.

use std::{collections::HashSet, sync::Arc};

use seam::{Blame, ClientTag, CloseReason, Effect, LeaseKind, Outbox, Peer, PoolId, ServerTag, Standing, Verdict};

use super::{
    Client,
    commands::Outcome,
    lease::{Lease, LeaseRequest, Purpose},
};
use crate::{
    Redis, Server, Version,
    command::{AboutSelf, Kind, Subscription, Topic},
    hub::{Name, Wish, word},
    resp::{self, ReplyScanner},
    rest::messages::Made,
};

/// Most subscriptions of one client.
const MAX_SUBSCRIPTIONS: usize = 1 << 16;

/// Bytes of their names.
const MAX_NAMES: usize = 16 << 20;

/// Bytes of messages that may wait for the end of a reply.
const MAX_PENDING: usize = 32 << 20;

/// What a client has subscribed to, or is about to.
pub(crate) struct Subscriptions {
    /// The pool whose server holds them, also if the client goes to another database meanwhile.
    pool: PoolId,
    /// In which version messages come from there.
    version: Version,
    key: u64,
    /// By [`Topic`].
    names: [HashSet<Name>; 3],
    /// Bytes of these.
    bytes: usize,
    /// The command that it has asked and waits for.
    wish: Option<Wish>,
    /// The client is not told what becomes of that: it is part of RESET.
    quiet: bool,
    /// It is to seek a server for all as soon as it has none itself.
    seeks: bool,
    /// Messages that came in the middle of a reply.
    pending: Vec<u8>,
}

impl Subscriptions {
    fn is_empty(&self) -> bool {
        self.names.iter().all(HashSet::is_empty)
    }

    /// What confirmations count.
    fn count(&self, topic: Topic) -> usize {
        let [channels, patterns, shards] = &self.names;
        if topic == Topic::Shard { shards.len() } else { channels.len() + patterns.len() }
    }
}

impl Redis {
    /// Answers a command that begins or ends subscriptions, or that subscriptions rule out; `None` if it is none of
    /// these.
    pub(super) fn answer_subscription_command(
        &self,
        me: ClientTag,
        client: &mut Client,
        kind: Kind,
        arguments: &[&[u8]],
        out: &mut Outbox,
    ) -> Option<Outcome> {
        let refused = client.has_subscriptions() && kind == Kind::Pinning;
        let restricted = client.is_restricted()
            && !matches!(kind, Kind::Quit | Kind::Reset | Kind::Http | Kind::Client(AboutSelf::Unknown));
        if !client.identity.is_authenticated() || !(refused || restricted || matches!(kind, Kind::Subscription(_))) {
            return None;
        }
        if client.waits_for_replies() {
            return Some(Outcome::Waits);
        }
        Some(match kind {
            Kind::Subscription(what) => match &arguments[1..] {
                [] if what.begins => client.wrong_arity(me, what.name(), out),
                names => match self.change_subscriptions(me, client, what, names, out) {
                    Ok(()) => Outcome::Taken,
                    Err(why) => client.write_error(me, &why, out),
                },
            },
            _ if restricted => client.answer_restricted(me, arguments, out),
            _ if client.needs_its_server() => {
                client.fail(
                    me,
                    "ERR Poolhouse: subscriptions were made before the transaction, and cannot change in it",
                    out,
                );
                Outcome::Taken
            }
            _ => {
                let error = "ERR Poolhouse: this cannot be had together with subscriptions: use another connection for it, \
                             or do it before you subscribe";
                client.write_error(me, error, out)
            }
        })
    }

    /// Begins or ends subscriptions. No names: ends all of the kind. The client takes nothing more until it has been
    /// told how that went.
    ///
    /// # Errors
    /// It cannot be tried, for this reason.
    pub(crate) fn change_subscriptions(
        &self,
        me: ClientTag,
        client: &mut Client,
        what: Subscription,
        names: &[&[u8]],
        out: &mut Outbox,
    ) -> Result<(), String> {
        let own = client.subscriptions.as_ref().map(|own| &own.names[what.topic as usize]);
        let names: Arc<[Name]> = match own {
            Some(own) if names.is_empty() => own.iter().cloned().collect(),
            // What it has already is not kept twice.
            _ => {
                names.iter().map(|name| own.and_then(|own| own.get(*name).cloned()).unwrap_or((*name).into())).collect()
            }
        };
        let concerned = || own.is_some_and(|own| names.iter().any(|name| own.contains(name)));
        if !what.begins && !concerned() {
            client.confirm(me, what, &names, out);
            return Ok(());
        }
        let (before, after) = (client.subscriptions.as_ref(), names.len());
        if what.begins && before.map_or(0, |own| own.names.iter().map(HashSet::len).sum()) + after > MAX_SUBSCRIPTIONS {
            return Err(format!("ERR Poolhouse: a client can have {MAX_SUBSCRIPTIONS} subscriptions at most"));
        }
        if what.begins
            && before.map_or(0, |own| own.bytes) + names.iter().map(|name| name.len()).sum::<usize>() > MAX_NAMES
        {
            return Err(format!(
                "ERR Poolhouse: the names of a client's subscriptions can have {MAX_NAMES} bytes at most"
            ));
        }
        if client.subscriptions.is_none() {
            let pool = self.current_pool(client);
            let pool = pool.map_err(|why| format!("ERR Poolhouse: {why}"))?;
            client.subscriptions = Some(Box::new(Subscriptions {
                pool,
                version: client.settings.version(),
                key: if client.rest.is_some() { self.hubs.key_of_events() } else { self.hubs.key() },
                names: Default::default(),
                bytes: 0,
                wish: None,
                quiet: false,
                seeks: false,
                pending: Vec::new(),
            }));
        }
        let own = client.subscriptions.as_mut().expect("just made");
        let wish = Wish { key: own.key, what, names };
        own.wish = Some(wish.clone());
        let pool = own.pool;
        out.push(Effect::Standing { client: me, standing: Standing::Active });
        if self.hubs.wish(pool, me, wish, out) {
            client.seek(me, out);
        }
        Ok(())
    }

    /// Ends the subscriptions of one kind without a word, as RESET does. False if the client has none at all.
    pub(super) fn unsubscribe_quietly(&self, me: ClientTag, client: &mut Client, out: &mut Outbox) -> bool {
        let has = |topic: &Topic| client.subscribed_to(*topic).next().is_some();
        let Some(topic) = Topic::ALL.into_iter().find(has) else { return false };
        if let Some(own) = &mut client.subscriptions {
            own.quiet = true;
        }
        // What is subscribed to can be ended.
        let _ = self.change_subscriptions(me, client, Subscription { begins: false, topic }, &[], out);
        true
    }

    /// The server that a client sought for all is there.
    pub(super) fn found(
        &self,
        me: ClientTag,
        client: &mut Client,
        tag: ServerTag,
        server: &mut Server,
        out: &mut Outbox,
    ) {
        let own = client.subscriptions.as_ref().expect("who seeks a server has subscriptions, or is about to");
        match self.hubs.arrive(own.pool, own.key, tag) {
            Some(key) => {
                client.lease.take();
                self.hold(tag, server, own.pool, key, out);
            }
            None => client.give_back(me, tag, server, Verdict::Clean, out),
        }
    }

    /// There is none. False if that is not what the client waited for.
    pub(crate) fn not_found(&self, client: &mut Client, why: &str, out: &mut Outbox) -> bool {
        if !client.lease.is_requested_for_subscriptions() {
            return false;
        }
        client.lease.take();
        if let Some(own) = &client.subscriptions {
            self.hubs.sought_in_vain(own.pool, own.key, why, out);
        }
        true
    }

    /// Something was posted to a client that may be another by now.
    pub(crate) fn hear_post(&self, me: ClientTag, client: &mut Client, key: u64, bytes: &[u8], out: &mut Outbox) {
        if client.is_closing() {
            return;
        }
        if client.rest.as_ref().is_some_and(|rest| rest.is_told_as(key)) {
            return self.end_revoked(me, client, out);
        }
        let Some(own) = client.subscriptions.as_mut().filter(|own| own.key == key) else { return };
        match bytes[0] {
            b'*' | b'>' => return client.pass_messages(me, bytes, out),
            word::EVENTS => return client.hear_made(me, &Made::read(bytes), out),
            // Who is busy, perhaps for long, leaves it to others.
            word::SEEK if !client.lease.is_none() && self.hubs.pass_on(own.pool, key, out) => return,
            word::SEEK => return client.seek(me, out),
            word::LOST if !own.is_empty() => {
                client.lose_subscriptions(me, &bytes[1..], out);
                if client.is_closing() {
                    return;
                }
                self.leave_subscriptions(client, out);
            }
            word::DONE => {
                if let Some(Wish { what, names, .. }) = own.wish.take() {
                    client.confirm(me, what, &names, out);
                }
            }
            _ if own.wish.take().is_some() => {
                let mut told = Vec::new();
                resp::error(&mut told, &String::from_utf8_lossy(&bytes[1..]));
                client.deliver(me, &told, out);
            }
            _ => {}
        }
        self.tidy(me, client, out);
        if !client.has_subscriptions() {
            self.leave_subscriptions(client, out);
        }
        out.push(Effect::Standing { client: me, standing: client.standing() });
        out.push(Effect::Wake { client: me });
    }

    /// The client goes, or begins anew.
    pub(crate) fn leave_subscriptions(&self, client: &mut Client, out: &mut Outbox) {
        let Some(own) = client.subscriptions.take() else { return };
        let names = Topic::ALL.into_iter().zip(&own.names);
        let names = names.flat_map(|(topic, names)| names.iter().map(move |name| (topic, name)));
        // A wish may be done there although the client has not heard of it.
        let wished = own.wish.iter().flat_map(|wish| wish.names.iter().map(|name| (wish.what.topic, name)));
        self.hubs.leave(own.pool, own.key, names.chain(wished), out);
    }
}

impl Client {
    /// Whether it has subscriptions that other clients' servers hold, too.
    pub(crate) fn has_subscriptions(&self) -> bool {
        self.subscriptions.as_ref().is_some_and(|own| !own.is_empty())
    }

    /// How many of each [`Topic`] it has.
    pub(super) fn subscribed(&self) -> [usize; 3] {
        self.subscriptions.as_ref().map_or([0; 3], |own| own.names.each_ref().map(HashSet::len))
    }

    /// What it has subscribed to.
    pub(super) fn subscribed_to(&self, topic: Topic) -> impl Iterator<Item = &Name> {
        self.subscriptions.iter().flat_map(move |own| &own.names[topic as usize])
    }

    /// The pool that its messages come from.
    pub(super) fn subscribed_in(&self) -> Option<PoolId> {
        self.subscriptions.as_ref().map(|own| own.pool)
    }

    /// Whether it waits for what it has asked of its subscriptions.
    pub(crate) fn has_wish(&self) -> bool {
        self.subscriptions.as_ref().is_some_and(|own| own.wish.is_some())
    }

    /// In RESP2, whatever comes to a subscriber is taken for a message: most commands are not to be had.
    pub(super) fn is_restricted(&self) -> bool {
        self.settings.version() == Version::Resp2 && self.has_subscriptions()
    }

    /// Where it stands while nothing is in progress.
    pub(crate) fn standing(&self) -> Standing {
        match &self.rest {
            _ if self.identity.is_logging_in() => Standing::Login,
            _ if self.has_subscriptions() => Standing::Subscribed,
            Some(rest) if rest.is_being_read() => Standing::Reading,
            _ => Standing::Idle,
        }
    }

    fn answer_restricted(&mut self, me: ClientTag, arguments: &[&[u8]], out: &mut Outbox) -> Outcome {
        let name = arguments[0].to_ascii_lowercase();
        if name == b"ping" {
            if arguments.len() > 2 {
                return self.wrong_arity(me, "ping", out);
            }
            let word = arguments.get(1).copied().unwrap_or_default();
            out.insert(Peer::Client(me), |to| resp::command(to, &[b"pong", word]));
            return Outcome::Taken;
        }
        let mut name = name.escape_ascii().to_string();
        if let (true, Some(second)) = (CONTAINERS.contains(&name.as_str()), arguments.get(1)) {
            name = format!("{name}|{}", second.to_ascii_lowercase().escape_ascii());
        }
        let error = format!(
            "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
        );
        self.write_error(me, &error, out)
    }

    /// Tells that a command on subscriptions has been done, and keeps the books.
    fn confirm(&mut self, me: ClientTag, what: Subscription, names: &[Name], out: &mut Outbox) {
        let version = self.settings.version();
        let mark = if version == Version::Resp3 { '>' } else { '*' };
        let mut own = self.subscriptions.as_deref_mut();
        let quiet = own.as_mut().is_some_and(|own| std::mem::take(&mut own.quiet));
        let mut told = Vec::new();
        {
            let to = &mut told;
            let mut tell = |name: Option<&Name>, count: usize| {
                to.extend_from_slice(format!("{mark}3\r\n${}\r\n{}\r\n", what.name().len(), what.name()).as_bytes());
                match name {
                    Some(name) => resp::text(to, name),
                    None => resp::null(to, version),
                }
                to.extend_from_slice(format!(":{count}\r\n").as_bytes());
            };
            for name in names {
                let mut count = 0;
                if let Some(own) = &mut own {
                    let known = &mut own.names[what.topic as usize];
                    if !what.begins {
                        own.bytes -= if known.remove(name) { name.len() } else { 0 };
                    } else if known.insert(Arc::clone(name)) {
                        own.bytes += name.len();
                    }
                    count = own.count(what.topic);
                }
                tell(Some(name), count);
            }
            if names.is_empty() {
                tell(None, own.map_or(0, |own| own.count(what.topic)));
            }
        }
        if !quiet {
            self.deliver(me, &told, out);
        }
    }

    /// Tells something of subscriptions that is no message.
    fn deliver(&mut self, me: ClientTag, bytes: &[u8], out: &mut Outbox) {
        if !self.hear_events(me, bytes, out) {
            out.insert(Peer::Client(me), |to| to.extend_from_slice(bytes));
        }
    }

    /// Asks for a server that is to hold the subscriptions of all, now or when it has none of its own.
    fn seek(&mut self, me: ClientTag, out: &mut Outbox) {
        let Some(own) = &mut self.subscriptions else { return };
        own.seeks = !self.lease.is_none();
        if !own.seeks {
            self.lease = Lease::Requested(LeaseRequest::new(LeaseKind::Lasting, Purpose::Subscriptions, false));
            out.push(Effect::Lease { client: me, pool: own.pool, kind: LeaseKind::Lasting });
        }
    }

    /// Whether it asks for nothing else before it has sought a server for all.
    pub(super) fn is_to_seek(&self) -> bool {
        self.subscriptions.as_ref().is_some_and(|own| own.seeks)
    }

    /// It has no server any more: it is reminded, once all that comes with that is done, to seek one for all.
    pub(super) fn remind(&self, me: ClientTag, out: &mut Outbox) {
        if let Some(own) = self.subscriptions.as_ref().filter(|own| own.seeks) {
            let start = out.inserted.len();
            out.inserted.push(word::SEEK);
            out.push(Effect::Post { to: Peer::Client(me), key: own.key, bytes: start..out.inserted.len() });
        }
    }

    fn pass_messages(&mut self, me: ClientTag, bytes: &[u8], out: &mut Outbox) {
        let Some(own) = &mut self.subscriptions else { return };
        if own.version != self.settings.version() {
            let bytes = in_resp2(bytes);
            if self.replies.is_mid_reply() {
                own.pending.extend_from_slice(&bytes);
            } else {
                out.insert(Peer::Client(me), |to| to.extend_from_slice(&bytes));
            }
        } else if self.replies.is_mid_reply() {
            own.pending.extend_from_slice(bytes);
        } else {
            out.span(Peer::Client(me), 0..bytes.len());
        }
        if own.pending.len() > MAX_PENDING {
            let message = "too many messages came during one reply, and no more are kept".to_owned();
            self.close(me, CloseReason::Error(Blame::Client, message), out);
        }
    }

    /// A part of a reply has been passed on. Messages come behind its end.
    pub(crate) fn on_reply_part(&mut self, me: ClientTag, over: bool, out: &mut Outbox) {
        self.replies.set_mid_reply(!over);
        if let Some(own) = self.subscriptions.as_mut().filter(|own| over && !own.pending.is_empty()) {
            let pending = std::mem::take(&mut own.pending);
            out.insert(Peer::Client(me), |to| to.extend_from_slice(&pending));
        }
    }

    /// Ends the connection, unless it has more than messages on it. The log has the reason: a subscriber takes an error
    /// for the answer to what it asks next.
    fn lose_subscriptions(&mut self, me: ClientTag, why: &[u8], out: &mut Outbox) {
        let why = why.strip_prefix(b"LOADING Poolhouse: ").unwrap_or(why);
        let message = format!("its subscriptions are lost: {}", String::from_utf8_lossy(why));
        if self.lose_streams(me, &message, out) {
            return;
        }
        if self.rest.is_none() && self.awaits_first_answer() {
            out.insert(Peer::Client(me), |to| resp::error(to, &format!("ERR Poolhouse: {message}")));
        }
        self.close(me, CloseReason::Error(Blame::Server, message), out);
    }
}

/// Commands that have subcommands: their whole names have both.
const CONTAINERS: [&str; 16] = [
    "acl", "client", "cluster", "command", "config", "function", "latency", "memory", "module", "object", "pubsub",
    "script", "slowlog", "xgroup", "xinfo", "sentinel",
];

/// Messages of RESP3 as RESP2 has them: there they are arrays.
fn in_resp2(messages: &[u8]) -> Vec<u8> {
    let (mut told, mut at) = (messages.to_vec(), 0);
    while at < messages.len() {
        told[at] = b'*';
        match ReplyScanner::default().advance(&messages[at..]) {
            Ok(end) if end.over => at += end.taken,
            _ => break,
        }
    }
    told
}
