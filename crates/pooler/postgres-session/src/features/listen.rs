//! LISTEN in transaction mode: all clients of a pool that listen share one server, which hears the notifications and
//! has them posted to whom they are for. It knows no SQL but LISTEN and UNLISTEN.
//!
//! A client's LISTEN runs like any other statement, on the server of its transaction. What that server then listens to
//! (see `survey`) becomes the client's. The first such server stays out of its pool from then on: it *is* what listens,
//! until no client wants it any more. Of later clients the server stops listening and goes back, and the shared one
//! listens in its place; only when it does is such a client told that its LISTEN is done. So nothing is missed after
//! that, and nothing comes twice. What was committed before a client is told that its transaction is over comes before
//! that, as without a pooler (`session::listen::barrier`). A client that began to listen while it was pinned stays
//! pinned for that: there is no moment at which it could change servers without a loss.
//!
//! If the shared server is lost, its clients are told to go, as they would be if they had been connected to it
//! themselves: notifications may have been missed.

use std::{collections::BTreeMap, num::NonZeroU8};

use seam::{Blame, ClientTag, CloseReason, Effect, Outbox, Peer, PoolId, ServerTag, Standing, Verdict};

use crate::{
    directory::{OnState, PoolMode},
    features::cleaning,
    session::{
        Client, Duty, Link, Phase, Pin, Postgres, Purpose, Server, ServerSide, Soil,
        listen::{
            HEARD, Hub, LOST, Listening, MAX_CHANNELS, MAX_PENDING_BYTES, NotificationBarrier, OUTDATED, Subscriber,
            count_with, post, post_lost, resume_all,
        },
    },
    sql::{ALL_CHANNELS, parameters::write_quoted_name},
    wire::{Failure, IDLE, Report, Severity, back, code, take_text, take_u32},
};

impl Postgres {
    /// Whether a shared server can listen for a client in place of this server. Payloads are sent in one encoding.
    pub(crate) fn shares_listening(server: &Server) -> bool {
        let utf8 = server.settings.reported(b"client_encoding") == Some(&b"UTF8"[..]);
        server.policy.share_listener && server.policy.on_state == OnState::Replay && utf8
    }

    /// Whether notifications that arrive during a query of Poolhouse are for the server's holder, which listens on this
    /// server and goes on doing so.
    pub(crate) fn notifies_holder(client: &Client, server: &Server) -> bool {
        let keeps = client.pin.is_some() || client.mode == PoolMode::Session;
        match server.work.as_ref().map(|work| &work.purpose) {
            Some(Purpose::Survey(_)) => keeps || !Self::shares_listening(server),
            Some(Purpose::Correct(_) | Purpose::Discard | Purpose::Unlisten(_) | Purpose::Defaults(_)) => keeps,
            _ => false,
        }
    }

    /// Whether a client goes on listening on the server that it keeps, though a hub could listen: it was told that it
    /// listens, and while it moved a notification would be lost or come twice.
    pub(crate) fn stays_to_listen(client: &Client, channels: &[Box<[u8]>]) -> bool {
        client.pin.is_some() && channels.iter().any(|channel| !client.listens_to(channel))
    }

    /// The server of a client listens to these channels. A hub listens to them from now on, this server if the pool has
    /// none, and the client goes on without the server.
    pub(crate) fn listen(&self, link: &mut Link<'_>, channels: Vec<Box<[u8]>>) {
        // The server tells no channel twice.
        if channels.len() > MAX_CHANNELS || count_with(link.client.listening.as_deref(), &channels) > MAX_CHANNELS {
            let message = format!("a client can listen to {MAX_CHANNELS} channels at most");
            let hint = "Use fewer channels, and tell what it is about in the payload.";
            let code = code::PROGRAM_LIMIT_EXCEEDED;
            link.fail(&Report { severity: Severity::Fatal, code, message: &message, hint }, Blame::Client);
            link.server.soil.insert(Soil::ALL);
            return link.release(Verdict::Reset);
        }
        let mut hubs = self.hubs.lock();
        if hubs.contains_key(&link.client.pool) {
            link.server.begin_queries(link.server_tag, Purpose::Unlisten(channels), &[b"UNLISTEN *"], link.out);
        } else {
            // The time-outs and settings of one client must not act on the server that all share.
            let clean = link.server.soil.is_clean() && link.server.settings.is_at_defaults();
            self.become_hub(&mut hubs, link, &channels, clean);
            if !clean {
                self.clean_listener(link.server_tag, link.server, link.out);
            }
        }
    }

    /// Cleans the server that is to listen for all clients.
    fn clean_listener(&self, tag: ServerTag, server: &mut Server, out: &mut Outbox) {
        if server.hub_key().is_some() {
            let mut sql = Vec::new();
            cleaning::write_in_transaction(&mut sql, true, server.settings.defaults());
            server.begin_queries(tag, Purpose::CleanListener, &[&sql], out);
        }
    }

    /// The server that is to listen for all clients was cleaned.
    pub(crate) fn listener_cleaned(&self, side: &mut ServerSide<'_>, failure: Option<Failure>) {
        if let Some(failure) = failure {
            let reason = CloseReason::Error(Blame::Server, failure.text());
            side.out.push(Effect::Close { peer: Peer::Server(side.server_tag), reason });
            return;
        }
        side.server.statements.drop_ours();
        self.note_cleaned(side.server);
        self.drive_hub(side.server_tag, side.server, side.out);
    }

    /// The server of a client has stopped listening, so that the hub listens for the client. If the pool has no hub any
    /// more, this server becomes the hub.
    pub(crate) fn unlisten_answered(&self, link: &mut Link<'_>, channels: &[Box<[u8]>]) {
        let mut hubs = self.hubs.lock();
        let Some(hub) = hubs.get_mut(&link.client.pool) else {
            self.become_hub(&mut hubs, link, channels, false);
            drop(hubs);
            return if link.server.soil.is_clean() && link.server.settings.is_at_defaults() {
                self.drive_hub(link.server_tag, link.server, link.out)
            } else {
                self.clean_listener(link.server_tag, link.server, link.out)
            };
        };
        let heard = self.subscribe(hub, link.client_tag, link.client, channels, false);
        hub.wake_server(link.out);
        drop(hubs);
        if heard {
            self.resume_after_notifications(link.client_tag, link.client, link.out);
        } else {
            link.client.await_channels();
        }
        link.release(Verdict::Clean);
        link.client.stand_by_phase(link.client_tag, link.out);
    }

    /// The server stays out of its pool and listens for all clients.
    fn become_hub(&self, hubs: &mut BTreeMap<PoolId, Hub>, link: &mut Link<'_>, channels: &[Box<[u8]>], heard: bool) {
        if !self.add_pin(link, Pin::Listen) {
            return;
        }
        let key = self.hubs.new_post_key();
        let barrier = NotificationBarrier::default();
        let mut hub =
            Hub { key, server: link.server_tag, channels: BTreeMap::new(), clients: BTreeMap::new(), barrier };
        self.subscribe(&mut hub, link.client_tag, link.client, channels, heard);
        hubs.insert(link.client.pool, hub);
        if heard {
            link.client.resume(link.client_tag, link.out);
        } else {
            link.client.await_channels();
        }
        link.end_lease();
        link.server.duty = Duty::Hub(key);
        link.out.push(Effect::Retain { server: link.server_tag, briefly: false });
        link.client.stand_by_phase(link.client_tag, link.out);
    }

    /// Adds channels to those of the client. True if the hub listens to all of them.
    fn subscribe(
        &self,
        hub: &mut Hub,
        me: ClientTag,
        client: &mut Client,
        channels: &[Box<[u8]>],
        heard: bool,
    ) -> bool {
        let listening = client.listening.get_or_insert_with(|| {
            let key = self.hubs.new_post_key();
            Box::new(Listening { key, channels: Vec::new(), pending: Vec::new(), outdated: false })
        });
        for name in channels {
            if !listening.channels.contains(name) {
                listening.channels.push(name.clone());
            }
        }
        hub.subscribe(listening.key, me, channels, heard)
    }

    pub(crate) fn unlisten(&self, client: &mut Client, names: &[Box<[u8]>], out: &mut Outbox) {
        let Some(listening) = &mut client.listening else { return };
        let all = names.iter().any(|name| **name == *ALL_CHANNELS);
        let mut hubs = self.hubs.lock();
        let mut hub = hubs.get_mut(&client.pool).filter(|hub| hub.clients.contains_key(&listening.key));
        listening.channels.retain(|channel| {
            let gone = all || names.contains(channel);
            if let Some(hub) = &mut hub
                && gone
            {
                hub.unsubscribe(listening.key, channel);
            }
            !gone
        });
        let none_left = listening.channels.is_empty();
        if let Some(hub) = hub {
            if none_left {
                hub.clients.remove(&listening.key);
            }
            hub.wake_server(out);
        }
        drop(hubs);
        if none_left {
            client.listening = None;
        }
    }

    /// The client leaves, or has discarded everything.
    #[cold]
    pub(crate) fn unlisten_all(&self, client: &mut Client, out: &mut Outbox) {
        self.unlisten(client, &[Box::from(*ALL_CHANNELS)], out);
        client.listening = None;
    }

    pub(crate) fn drive_hub(&self, tag: ServerTag, server: &mut Server, out: &mut Outbox) {
        let Some(key) = server.hub_key() else { return };
        if !server.is_at_rest() {
            return;
        }
        let mut hubs = self.hubs.lock();
        let hub = hubs.get_mut(&server.pool).filter(|hub| hub.key == key).expect("a server listens for its pool");
        if hub.clients.is_empty() {
            // It stays known until it listens no more: if a client wants to listen before that, it goes on.
            hub.channels.clear();
            return server.begin_queries(tag, Purpose::Retire, &[b"UNLISTEN *"], out);
        }
        let (wanted, unwanted) = hub.take_changes();
        // Whatever it is asked tells what was committed before.
        let awaited = hub.barrier.begin_question();
        drop(hubs);
        let mut sql = Vec::new();
        for (word, names) in [("LISTEN ", &wanted), ("UNLISTEN ", &unwanted)] {
            for name in names {
                sql.extend_from_slice(word.as_bytes());
                write_quoted_name(&mut sql, name);
                sql.push(b';');
            }
        }
        if awaited || !sql.is_empty() {
            server.begin_queries(tag, Purpose::Listen(wanted), &[&sql], out);
        }
    }

    /// The hub listens to these channels now, or has failed to; what was committed before it was asked has been posted.
    pub(crate) fn hub_listened(&self, side: &mut ServerSide<'_>, channels: &[Box<[u8]>], failure: Option<&Failure>) {
        let mut hubs = self.hubs.lock();
        let hub = hubs.get_mut(&side.server.pool).filter(|hub| side.server.hub_key() == Some(hub.key));
        let hub = hub.expect("a server listens for its pool");
        for name in channels {
            let Some(channel) = hub.channels.get_mut(name) else { continue };
            match failure {
                None => {
                    channel.heard = true;
                    for key in &channel.clients {
                        let subscriber = hub.clients.get_mut(key).expect("who wants a channel is known");
                        subscriber.awaited -= 1;
                        if subscriber.awaited == 0 {
                            post(subscriber.tag, *key, &[HEARD], side.out);
                        }
                    }
                }
                Some(failure) => {
                    for key in std::mem::take(&mut channel.clients) {
                        if let Some(subscriber) = hub.clients.remove(&key) {
                            post_lost(subscriber.tag, key, &failure.text(), side.out);
                        }
                    }
                }
            }
        }
        resume_all(hub.barrier.end_question(), side.out);
        if failure.is_some() {
            let Hub { channels, clients, .. } = hub;
            channels.values_mut().for_each(|channel| channel.clients.retain(|key| clients.contains_key(key)));
        }
        drop(hubs);
        self.drive_hub(side.server_tag, side.server, side.out);
    }

    /// The hub listens to nothing any more: it returns to its pool, unless a client wants it again.
    pub(crate) fn hub_retired(&self, side: &mut ServerSide<'_>, failure: Option<&Failure>) {
        let mut hubs = self.hubs.lock();
        let hub = hubs.get(&side.server.pool).filter(|hub| side.server.hub_key() == Some(hub.key));
        let wanted = !hub.expect("a server listens for its pool").clients.is_empty();
        if wanted && failure.is_none() {
            drop(hubs);
            return self.drive_hub(side.server_tag, side.server, side.out);
        }
        let hub = hubs.remove(&side.server.pool);
        drop(hubs);
        if let (Some(hub), Some(failure)) = (hub, failure) {
            for (key, subscriber) in hub.clients {
                post_lost(subscriber.tag, key, &failure.text(), side.out);
            }
        }
        side.server.duty = Duty::Pooled;
        self.pins.remove(side.server.pool);
        side.out.push(Effect::Pinned { server: side.server_tag, reason: None });
        let verdict = if failure.is_some() { Verdict::Discard } else { Verdict::Clean };
        side.out.push(Effect::Release { server: side.server_tag, verdict });
    }

    /// The hub's pool replaces its servers: notifications of another database, or of another machine, would not reach
    /// the hub.
    pub(crate) fn hub_outdated(&self, tag: ServerTag, server: &mut Server, out: &mut Outbox) {
        if server.hub_key().is_none() || !server.is_at_rest() {
            return;
        }
        for (key, subscriber) in self.end_hub(server) {
            post(subscriber.tag, key, &[OUTDATED], out);
        }
        out.push(Effect::Pinned { server: tag, reason: None });
        out.push(Effect::Release { server: tag, verdict: Verdict::Discard });
    }

    /// The hub is lost: clients that listened may have missed notifications.
    pub(crate) fn hub_lost(&self, server: &mut Server, why: &str, out: &mut Outbox) {
        for (key, subscriber) in self.end_hub(server) {
            post_lost(subscriber.tag, key, why, out);
        }
    }

    /// The server is a hub no longer. Returns the clients that it listened for.
    fn end_hub(&self, server: &mut Server) -> BTreeMap<u64, Subscriber> {
        let Some(key) = server.hub_key() else { return BTreeMap::new() };
        server.duty = Duty::Pooled;
        self.pins.remove(server.pool);
        let mut hubs = self.hubs.lock();
        hubs.remove(&server.pool).filter(|hub| hub.key == key).expect("a server listens for its pool").clients
    }

    /// Forwards a NotificationResponse of the hub to the clients that listen to its channel.
    pub(crate) fn fan_out(&self, server: &Server, message: &[u8], out: &mut Outbox) {
        let mut body = &message[crate::wire::message::HEADER..];
        let (Some(_), Some(name)) = (take_u32(&mut body), take_text(&mut body)) else { return };
        let hubs = self.hubs.lock();
        let hub = hubs.get(&server.pool).filter(|hub| server.hub_key() == Some(hub.key));
        let Some((hub, channel)) = hub.and_then(|hub| Some((hub, hub.channels.get(name)?))) else { return };
        let start = out.inserted.len();
        out.inserted.extend_from_slice(message);
        let bytes = start..out.inserted.len();
        for key in &channel.clients {
            let tag = hub.clients[key].tag;
            out.push(Effect::Post { to: Peer::Client(tag), key: *key, bytes: bytes.clone() });
        }
    }

    /// A post has arrived, perhaps for an earlier client with the same tag.
    pub(crate) fn take_post(&self, me: ClientTag, client: &mut Client, key: u64, bytes: &[u8], out: &mut Outbox) {
        if matches!(client.phase, Phase::Closed) {
            return;
        }
        let Some(listening) = client.listening.as_mut().filter(|listening| listening.key == key) else { return };
        let between = client.standing == Standing::Idle || matches!(client.phase, Phase::Subscribing);
        match bytes.split_first() {
            Some((&back::NOTIFICATION_RESPONSE, _)) => {
                if between && !client.mid_message {
                    out.insert(Peer::Client(me), |to| to.extend_from_slice(bytes));
                } else if listening.pending.len() + bytes.len() <= MAX_PENDING_BYTES {
                    listening.pending.extend_from_slice(bytes);
                } else {
                    let message = "too many notifications came during a transaction";
                    let hint = "Listen on a connection of its own, or make transactions shorter.";
                    let code = code::PROGRAM_LIMIT_EXCEEDED;
                    client.fail(me, &Report { severity: Severity::Fatal, code, message, hint }, Blame::Exhausted, out);
                }
            }
            Some((&HEARD, _)) if matches!(client.phase, Phase::Subscribing) => {
                client.tell_ready(me, out);
                client.phase = Phase::Ready;
                client.stand(me, Standing::Idle, out);
                out.push(Effect::Wake { client: me });
            }
            Some((&LOST, why)) => {
                let message =
                    format!("the server that listens for this client was lost: {}", String::from_utf8_lossy(why));
                client.end_listening(me, &message, out);
            }
            Some((&OUTDATED, _)) if between && !client.mid_message => {
                client.end_listening(
                    me,
                    "the servers of this database have been replaced, and the one that listens, too",
                    out,
                );
            }
            Some((&OUTDATED, _)) => listening.outdated = true,
            _ => {}
        }
    }
}

impl Client {
    /// The client cannot go on listening, and is told so.
    fn end_listening(&mut self, me: ClientTag, message: &str, out: &mut Outbox) {
        let hint = "Notifications may have been missed. Connect again and LISTEN again.";
        let report = Report { severity: Severity::Fatal, code: code::CONNECTION_FAILURE, message, hint };
        self.fail(me, &report, Blame::Server, out);
    }
}

impl Postgres {
    /// A client goes on: at once or, if it listens and no transaction is open, after the notifications that were
    /// committed before.
    pub(crate) fn resume_after_notifications(&self, me: ClientTag, client: &mut Client, out: &mut Outbox) {
        if client.withheld_ready.map(NonZeroU8::get) != Some(IDLE) || !self.await_notifications(me, client, out) {
            return client.resume(me, out);
        }
        client.await_channels();
        client.stand(me, Standing::Active, out);
    }

    /// Has the hub asked for notifications of this client. False if the client need not wait for them.
    fn await_notifications(&self, me: ClientTag, client: &Client, out: &mut Outbox) -> bool {
        let Some(listening) = &client.listening else { return false };
        let mut hubs = self.hubs.lock();
        let hub = hubs.get_mut(&client.pool).filter(|hub| hub.clients.contains_key(&listening.key));
        let Some(hub) = hub else { return false };
        self.hubs.wait(hub, listening.key, me, out)
    }
}

impl Client {
    /// The client goes on when the hub says so.
    fn await_channels(&mut self) {
        self.phase = Phase::Subscribing;
    }

    /// The client goes on now.
    fn resume(&mut self, me: ClientTag, out: &mut Outbox) {
        self.tell_ready(me, out);
        self.phase = Phase::Ready;
        out.push(Effect::Wake { client: me });
    }

    /// Idle, unless the client waits for the hub.
    fn stand_by_phase(&mut self, me: ClientTag, out: &mut Outbox) {
        let waits = matches!(self.phase, Phase::Subscribing);
        self.stand(me, if waits { Standing::Active } else { Standing::Idle }, out);
    }
}
