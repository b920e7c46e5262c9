//! A client's subscriptions. One server holds those of all clients of a pool (see [`crate::hub`]). Here is what the
//! client is told.

use std::{collections::HashSet, sync::Arc};

use seam::{Blame, CloseReason, Effect, LeaseKind, Outbox, Peer, PoolId, ServerTag, Standing, Verdict};

use super::{
    Client, Outcome,
    lease::{Lease, LeaseRequest, Purpose},
};
use crate::{
    Redis, Server, Version,
    command::{AboutSelf, Kind, SubscriptionCommand, Topic},
    hub::{Name, SubscriptionChange, notice},
    resp::{self, ReplyScanner},
    rest::messages::PostedEvents,
};

const MAX_SUBSCRIPTIONS: usize = 1 << 16;

/// Bytes of the names of one client's subscriptions.
const MAX_NAME_BYTES: usize = 16 << 20;

/// Bytes of messages that are kept until a reply ends.
const MAX_HELD_MESSAGES: usize = 32 << 20;

/// The subscriptions of a client, or its first request for one.
pub(super) struct Subscriptions {
    /// The pool whose hub holds them, even if the client selects another database.
    pool: PoolId,
    /// The version of the protocol in which that pool's servers send messages.
    version: Version,
    key: u64,
    /// By [`Topic`].
    names: [HashSet<Name>; 3],
    name_bytes: usize,
    change: Option<PendingChange>,
    /// The client is to request a server for the hub as soon as it has no lease.
    seeks: bool,
    /// Messages that came in the middle of a reply.
    pending: Vec<u8>,
}

/// A change that was requested of the hub.
struct PendingChange {
    requested: SubscriptionChange,
    /// It is part of RESET, so the client gets no reply to it.
    quiet: bool,
}

impl Subscriptions {
    fn is_empty(&self) -> bool {
        self.names.iter().all(HashSet::is_empty)
    }

    /// The number of subscriptions in a confirmation.
    fn count(&self, topic: Topic) -> usize {
        let [channels, patterns, shards] = &self.names;
        if topic == Topic::Shard { shards.len() } else { channels.len() + patterns.len() }
    }
}

/// Whether a client with these subscriptions may have these, too.
fn check_limits(own: Option<&Subscriptions>, names: &[Name]) -> Result<(), String> {
    let (count, bytes) = own.map_or((0, 0), |own| (own.names.iter().map(HashSet::len).sum(), own.name_bytes));
    if count + names.len() > MAX_SUBSCRIPTIONS {
        return Err(format!("ERR Poolhouse: a client can have {MAX_SUBSCRIPTIONS} subscriptions at most"));
    }
    if bytes + names.iter().map(|name| name.len()).sum::<usize>() > MAX_NAME_BYTES {
        return Err(format!(
            "ERR Poolhouse: the names of a client's subscriptions can have {MAX_NAME_BYTES} bytes at most"
        ));
    }
    Ok(())
}

impl Redis {
    /// Answers a command that changes subscriptions, or that subscriptions forbid. `None`: the command is another one.
    pub(super) fn answer_subscription_command(
        &self,
        client: &mut Client,
        kind: Kind,
        arguments: &[&[u8]],
        out: &mut Outbox,
    ) -> Option<Outcome> {
        let refused = client.has_subscriptions() && kind == Kind::Pinning;
        let restricted = client.is_restricted()
            && !matches!(kind, Kind::Quit | Kind::Reset | Kind::Http | Kind::AboutSelf(AboutSelf::Unknown));
        if !client.identity.is_authenticated() || !(refused || restricted || matches!(kind, Kind::Subscription(_))) {
            return None;
        }
        if client.hold_input_for_replies() {
            return Some(Outcome::Waits);
        }
        Some(match kind {
            Kind::Subscription(what) => match &arguments[1..] {
                [] if what.begins => client.wrong_arity(what.name(), out),
                names => match self.change_subscriptions(client, what, names, out) {
                    Ok(()) => Outcome::Consumed,
                    Err(why) => client.write_error(&why, out),
                },
            },
            _ if restricted => client.answer_restricted(arguments, out),
            _ if client.needs_its_server() => {
                client.fail(
                    "ERR Poolhouse: subscriptions were made before the transaction, and cannot change in it",
                    out,
                );
                Outcome::Consumed
            }
            _ => {
                let error = "ERR Poolhouse: this cannot be had together with subscriptions: use another connection \
                    for it, \
                             or do it before you subscribe";
                client.write_error(error, out)
            }
        })
    }

    /// Begins or ends subscriptions. Without names, all of the topic end. No more of the client's input is read until
    /// it was told the outcome.
    pub(super) fn change_subscriptions(
        &self,
        client: &mut Client,
        what: SubscriptionCommand,
        names: &[&[u8]],
        out: &mut Outbox,
    ) -> Result<(), String> {
        let own = client.subscriptions.as_ref().map(|own| &own.names[what.topic as usize]);
        let names: Arc<[Name]> = match own {
            Some(own) if names.is_empty() => own.iter().cloned().collect(),
            // A name that the client has already is shared.
            _ => {
                names.iter().map(|name| own.and_then(|own| own.get(*name).cloned()).unwrap_or((*name).into())).collect()
            }
        };
        let concerned = || own.is_some_and(|own| names.iter().any(|name| own.contains(name)));
        if !what.begins && !concerned() {
            client.confirm(what, &names, false, out);
            return Ok(());
        }
        if what.begins {
            check_limits(client.subscriptions.as_deref(), &names)?;
        }
        if client.subscriptions.is_none() {
            let pool = self.current_pool(client);
            let pool = pool.map_err(|why| format!("ERR Poolhouse: {why}"))?;
            client.subscriptions = Some(Box::new(Subscriptions {
                pool,
                version: client.settings.version(),
                key: if client.http.is_some() { self.hubs.new_key_for_events() } else { self.hubs.new_key() },
                names: Default::default(),
                name_bytes: 0,
                change: None,
                seeks: false,
                pending: Vec::new(),
            }));
        }
        let own = client.subscriptions.as_mut().expect("just made");
        let requested = SubscriptionChange { key: own.key, what, names };
        own.change = Some(PendingChange { requested: requested.clone(), quiet: false });
        let pool = own.pool;
        out.push(Effect::Standing { client: client.tag, standing: Standing::Active });
        if self.hubs.request(pool, client.tag, requested, out) {
            client.seek(out);
        }
        Ok(())
    }

    /// Ends the subscriptions of one topic without a reply, as RESET does. Returns false if the client has none of any.
    pub(super) fn unsubscribe_quietly(&self, client: &mut Client, out: &mut Outbox) -> bool {
        let has = |topic: &Topic| client.subscribed_names(*topic).next().is_some();
        let Some(topic) = Topic::ALL.into_iter().find(has) else { return false };
        // Subscriptions that exist can be ended.
        let _ = self.change_subscriptions(client, SubscriptionCommand { begins: false, topic }, &[], out);
        if let Some(change) = client.subscriptions.as_mut().and_then(|own| own.change.as_mut()) {
            change.quiet = true;
        }
        true
    }

    /// The client has the server that it requested for the hub.
    pub(super) fn on_hub_server_found(
        &self,
        client: &mut Client,
        tag: ServerTag,
        server: &mut Server,
        out: &mut Outbox,
    ) {
        let own =
            client.subscriptions.as_ref().expect("only a client with subscriptions requests a server for its hub");
        match self.hubs.on_server_found(own.pool, own.key, tag) {
            Some(key) => {
                client.lease.take();
                self.begin_hub(tag, server, own.pool, key, out);
            }
            None => client.give_back(tag, server, Verdict::Clean, out),
        }
    }

    /// No server was found. Returns false if the client requested it for another purpose than the hub.
    pub(crate) fn on_no_hub_server(&self, client: &mut Client, why: &str, out: &mut Outbox) -> bool {
        if !client.lease.is_requested_for_subscriptions() {
            return false;
        }
        client.lease.take();
        if let Some(own) = &client.subscriptions {
            self.hubs.on_no_server(own.pool, own.key, why, out);
        }
        true
    }

    /// A post has come. It may be for another client that had the same tag before.
    pub(crate) fn on_post(&self, client: &mut Client, key: u64, bytes: &[u8], out: &mut Outbox) {
        if client.is_closing() {
            return;
        }
        if client.http.as_ref().is_some_and(|rest| rest.has_stream_key(key)) {
            return self.end_revoked(client, out);
        }
        let Some(own) = client.subscriptions.as_mut().filter(|own| own.key == key) else { return };
        match bytes[0] {
            b'*' | b'>' => return client.pass_messages(bytes, out),
            notice::EVENTS => return client.on_http_events(&PostedEvents::read(bytes), out),
            // The client may be busy for long, so another one is to do it.
            notice::SEEK if !client.lease.is_none() && self.hubs.decline(own.pool, key, out) => return,
            notice::SEEK => return client.seek(out),
            notice::LOST if !own.is_empty() => {
                client.lose_subscriptions(&bytes[1..], out);
                if client.is_closing() {
                    return;
                }
                self.leave_subscriptions(client, out);
            }
            notice::CHANGED => {
                if let Some(change) = own.change.take() {
                    client.confirm(change.requested.what, &change.requested.names, change.quiet, out);
                }
            }
            _ if own.change.take().is_some() => {
                let mut error = Vec::new();
                resp::error(&mut error, &String::from_utf8_lossy(&bytes[1..]));
                client.deliver(&error, out);
            }
            _ => {}
        }
        self.end_unused_subscriptions(client, out);
        if !client.has_subscriptions() {
            self.leave_subscriptions(client, out);
        }
        out.push(Effect::Standing { client: client.tag, standing: client.standing() });
        out.push(Effect::Wake { client: client.tag });
    }

    /// The client goes, or was reset.
    pub(crate) fn leave_subscriptions(&self, client: &mut Client, out: &mut Outbox) {
        let Some(own) = client.subscriptions.take() else { return };
        let names = Topic::ALL.into_iter().zip(&own.names);
        let names = names.flat_map(|(topic, names)| names.iter().map(move |name| (topic, name)));
        // The hub may have made a pending change, of which the client has not heard.
        let changed = own.change.iter().map(|change| &change.requested);
        let changed = changed.flat_map(|change| change.names.iter().map(|name| (change.what.topic, name)));
        self.hubs.leave(own.pool, own.key, names.chain(changed), out);
    }
}

impl Client {
    pub(crate) fn has_subscriptions(&self) -> bool {
        self.subscriptions.as_ref().is_some_and(|own| !own.is_empty())
    }

    /// The number of its subscriptions of each [`Topic`].
    pub(super) fn subscription_counts(&self) -> [usize; 3] {
        self.subscriptions.as_ref().map_or([0; 3], |own| own.names.each_ref().map(HashSet::len))
    }

    pub(super) fn subscribed_names(&self, topic: Topic) -> impl Iterator<Item = &Name> {
        self.subscriptions.iter().flat_map(move |own| &own.names[topic as usize])
    }

    pub(super) fn subscription_pool(&self) -> Option<PoolId> {
        self.subscriptions.as_ref().map(|own| own.pool)
    }

    pub(crate) fn awaits_change(&self) -> bool {
        self.subscriptions.as_ref().is_some_and(|own| own.change.is_some())
    }

    /// Whether most commands are forbidden: in RESP2, a subscriber takes any reply for a message.
    pub(super) fn is_restricted(&self) -> bool {
        self.settings.version() == Version::Resp2 && self.has_subscriptions()
    }

    /// Its standing while nothing is in progress.
    pub(crate) fn standing(&self) -> Standing {
        match &self.http {
            _ if self.identity.is_logging_in() => Standing::Login,
            _ if self.has_subscriptions() => Standing::Subscribed,
            Some(rest) if rest.is_being_read() => Standing::Reading,
            _ => Standing::Idle,
        }
    }

    fn answer_restricted(&mut self, arguments: &[&[u8]], out: &mut Outbox) -> Outcome {
        let name = arguments[0].to_ascii_lowercase();
        if name == b"ping" {
            if arguments.len() > 2 {
                return self.wrong_arity("ping", out);
            }
            let word = arguments.get(1).copied().unwrap_or_default();
            out.insert(Peer::Client(self.tag), |to| resp::command(to, &[b"pong", word]));
            return Outcome::Consumed;
        }
        let mut name = name.escape_ascii().to_string();
        if let (true, Some(second)) = (CONTAINERS.contains(&name.as_str()), arguments.get(1)) {
            name = format!("{name}|{}", second.to_ascii_lowercase().escape_ascii());
        }
        let error = format!(
            "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
            this context"
        );
        self.write_error(&error, out)
    }

    /// A change was made: the client has it from now on, and is told so unless `quiet`.
    fn confirm(&mut self, what: SubscriptionCommand, names: &[Name], quiet: bool, out: &mut Outbox) {
        let version = self.settings.version();
        let mark = if version == Version::Resp3 { '>' } else { '*' };
        let mut own = self.subscriptions.as_deref_mut();
        let mut confirmation = Vec::new();
        {
            let to = &mut confirmation;
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
                        own.name_bytes -= if known.remove(name) { name.len() } else { 0 };
                    } else if known.insert(Arc::clone(name)) {
                        own.name_bytes += name.len();
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
            self.deliver(&confirmation, out);
        }
    }

    fn deliver(&mut self, bytes: &[u8], out: &mut Outbox) {
        if !self.on_http_stream(bytes, out) {
            out.insert(Peer::Client(self.tag), |to| to.extend_from_slice(bytes));
        }
    }

    /// Requests a server for the hub, now or when the client has no lease.
    fn seek(&mut self, out: &mut Outbox) {
        let Some(own) = &mut self.subscriptions else { return };
        own.seeks = !self.lease.is_none();
        if !own.seeks {
            self.lease = Lease::Requested(LeaseRequest::new(LeaseKind::LongTerm, Purpose::Subscriptions, false));
            out.push(Effect::Lease { client: self.tag, pool: own.pool, kind: LeaseKind::LongTerm });
        }
    }

    /// Whether it has to request a server for the hub before any other one.
    pub(super) fn is_to_seek(&self) -> bool {
        self.subscriptions.as_ref().is_some_and(|own| own.seeks)
    }

    /// The lease has ended. If the client is to request a server for the hub, it is reminded by a post, which comes
    /// after what else follows from the end of the lease.
    pub(super) fn remind(&self, out: &mut Outbox) {
        if let Some(own) = self.subscriptions.as_ref().filter(|own| own.seeks) {
            let start = out.inserted.len();
            out.inserted.push(notice::SEEK);
            out.push(Effect::Post { to: Peer::Client(self.tag), key: own.key, bytes: start..out.inserted.len() });
        }
    }

    fn pass_messages(&mut self, bytes: &[u8], out: &mut Outbox) {
        let Some(own) = &mut self.subscriptions else { return };
        if own.version != self.settings.version() {
            let bytes = in_resp2(bytes);
            if self.replies.is_mid_reply() {
                own.pending.extend_from_slice(&bytes);
            } else {
                out.insert(Peer::Client(self.tag), |to| to.extend_from_slice(&bytes));
            }
        } else if self.replies.is_mid_reply() {
            own.pending.extend_from_slice(bytes);
        } else {
            out.span(Peer::Client(self.tag), 0..bytes.len());
        }
        if own.pending.len() > MAX_HELD_MESSAGES {
            let message = "too many messages came during one reply, and no more are kept".to_owned();
            self.close(CloseReason::Error(Blame::Client, message), out);
        }
    }

    /// A part of a reply was forwarded. Messages that came meanwhile follow its end.
    pub(crate) fn on_reply_part(&mut self, over: bool, out: &mut Outbox) {
        self.replies.set_mid_reply(!over);
        if let Some(own) = self.subscriptions.as_mut().filter(|own| over && !own.pending.is_empty()) {
            let pending = std::mem::take(&mut own.pending);
            out.insert(Peer::Client(self.tag), |to| to.extend_from_slice(&pending));
        }
    }

    /// The subscriptions are lost. The client is closed, unless other requests share its connection (HTTP/2). The log
    /// has the reason: a subscriber would take an error for the reply to its next command.
    fn lose_subscriptions(&mut self, why: &[u8], out: &mut Outbox) {
        let why = why.strip_prefix(b"LOADING Poolhouse: ").unwrap_or(why);
        let message = format!("its subscriptions are lost: {}", String::from_utf8_lossy(why));
        if self.lose_streams(&message, out) {
            return;
        }
        if self.http.is_none() && self.awaits_first_answer() {
            out.insert(Peer::Client(self.tag), |to| resp::error(to, &format!("ERR Poolhouse: {message}")));
        }
        self.close(CloseReason::Error(Blame::Server, message), out);
    }
}

/// Commands with subcommands. Redis names both in its errors.
const CONTAINERS: [&str; 16] = [
    "acl", "client", "cluster", "command", "config", "function", "latency", "memory", "module", "object", "pubsub",
    "script", "slowlog", "xgroup", "xinfo", "sentinel",
];

/// Turns the push messages of RESP3 into the arrays of RESP2.
fn in_resp2(messages: &[u8]) -> Vec<u8> {
    let (mut converted, mut at) = (messages.to_vec(), 0);
    while at < messages.len() {
        converted[at] = b'*';
        match ReplyScanner::default().advance(&messages[at..]) {
            Ok(end) if end.over => at += end.taken,
            _ => break,
        }
    }
    converted
}
