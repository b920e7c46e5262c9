//! The client's side: its state, and what becomes of each command.
//!
//! What is answered here waits until all replies before it have come, so that replies are in order. What changes the
//! connection itself ends the sharing: from then on bytes pass as they are, and the server is closed with the client.

mod giving_way;
mod granting;
mod home;
mod kept;
mod lease;
mod leaving;
mod listing;
mod own;
mod passing;
mod rest;
mod roster;
mod subscribing;
mod transaction;
mod waiting;
mod work;

use std::sync::Arc;

use seam::{
    ClientTag, Effect, Encryption, Input, LeaseKind, Origin, Outbox, Peer, PoolId, ServerTag, Sessions, Standing,
    Verdict,
};

use crate::{
    Redis, Server, Version, Welcome,
    command::{Kind, kind},
    patience::own_time,
    refusal::NO_SERVER,
    resp::{self, Limits, Request},
    server::ReplyKind,
};
pub(crate) use lease::Lease;
use lease::{Held, LeaseRequest, Purpose};
use listing::Listing;
use passing::{Passing, STREAM_FROM};
use rest::Rest;
pub(crate) use rest::Streams;
use roster::Query;
use subscribing::Subscriptions;

/// Replies that a client may have to wait for; more of its commands are not read until some have come. Many, because
/// clients send whole pipelines before they read.
const MAX_DUE: u32 = 100_000_000;

/// The same for a client that shares a server: then it waits until half of them have come.
const MAX_SHARED_DUE: u32 = 1024;

/// Changes between kinds of replies that it may have to wait for: what is remembered of them.
const MAX_RUNS: usize = 100_000;

/// The first byte of a connection in TLS: a record of the type `handshake` (RFC 8446, section 5.1). No command begins
/// with it.
const TLS_HANDSHAKE: u8 = 22;

/// Bytes of own answers after which they leave before more is read.
const MAX_SAID: usize = 32 * 1024;

pub struct Client {
    pub(crate) id: u64,
    /// Whether what comes first may or must be TLS; off as soon as something has come.
    encryption: Encryption,
    /// It has to log in before it may do anything else.
    pub(crate) stranger: bool,
    /// Logging in is asked of everybody.
    pub(crate) guarded: bool,
    /// It stands among those who log in, and has its turn to show a password.
    logs_in: bool,
    /// The pool to which it counts, once it has logged in.
    counted: Option<PoolId>,
    /// Who it is; empty if nobody had to ask.
    pub(crate) user: Arc<str>,
    pub(crate) database: u32,
    pub(crate) version: Version,
    /// The pool that serves it, as far as it has been asked for.
    home: Option<home::Home>,
    /// What CLIENT SETNAME said.
    pub(crate) name: Option<Box<[u8]>>,
    /// What CLIENT SETINFO said.
    lib: Option<Box<Library>>,
    pub(crate) lease: Lease,
    /// Commands sent whose replies have not come.
    pub(crate) due: u32,
    /// A command that passes in pieces.
    passing: Option<Passing>,
    pub(crate) rest: Option<Box<Rest>>,
    subscriptions: Option<Box<Subscriptions>>,
    /// Names to subscribe to that are too many to be read at once.
    listing: Option<Listing>,
    query: Query,
    /// A part of a reply has been passed on, and its end has not come.
    mid_reply: bool,
    /// The error that the command at hand gets instead of a server. Empty: it has waited for as long as it would have
    /// blocked.
    failing: Option<Box<str>>,
    /// It has input that was not taken, because replies must come first.
    held_back: bool,
    closing: bool,
}

/// The client library by which somebody speaks, in its own words.
#[derive(Default)]
struct Library {
    name: Box<[u8]>,
    version: Box<[u8]>,
}

/// Clients are many, and most are idle: what few of them need is in a box.
const _: () = assert!(size_of::<Client>() <= 256);

/// What became of a command.
enum Taken {
    Yes,
    /// It stays where it is until something has happened.
    No,
}

impl Redis {
    pub(crate) fn welcome(&self, me: ClientTag, origin: Origin, out: &mut Outbox) -> Client {
        let mut client = Client {
            id: self.next_id(),
            encryption: self.directory.encryption(origin.listener),
            stranger: true,
            guarded: true,
            logs_in: self.directory.http(origin.listener).is_none(),
            counted: None,
            user: Arc::from(""),
            database: 0,
            version: Version::Resp2,
            home: None,
            name: None,
            lib: None,
            lease: Lease::None,
            due: 0,
            passing: None,
            rest: self
                .directory
                .http(origin.listener)
                .map(|_| Box::new(Rest::new(origin.listener, self.room(origin.listener)))),
            subscriptions: None,
            listing: None,
            query: Query::None,
            mid_reply: false,
            failing: None,
            held_back: false,
            closing: false,
        };
        match self.directory.welcome(origin) {
            // What its requests show tells who it is.
            _ if client.rest.is_some() => {}
            Welcome::Password => {}
            Welcome::Open => {
                client.guarded = false;
                self.enter(me, &mut client, Arc::from(""), out);
            }
            Welcome::Forbidden(why) => client.fail(me, &format!("DENIED Poolhouse: {why}"), out),
        }
        client
    }

    /// The client is this user from now on. False if there is no pool for it: then it was told so.
    pub(crate) fn enter(&self, me: ClientTag, client: &mut Client, user: Arc<str>, out: &mut Outbox) -> bool {
        let pool = self.directory.route(&user, client.database, client.version);
        match &pool {
            Ok(pool) => client.enter(me, user, *pool, out),
            Err(why) => client.fail(me, &format!("ERR Poolhouse: {why}"), out),
        }
        pool.is_ok()
    }

    /// Reads what the client asks.
    pub(crate) fn requests(
        &self,
        me: ClientTag,
        client: &mut Client,
        servers: &mut dyn Sessions<ServerTag, Server>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        let mut at = 0;
        if let Some(used) = client.first_byte(me, input, out) {
            return used;
        }
        if client.rest.is_some() {
            return self.http_requests(me, client, servers, input, out);
        }
        while at < input.bytes.len() && !client.closing && !client.has_wish() && !client.query.is_asking() {
            let bytes = &input.bytes[at..];
            if client.lease.is_pinned() {
                return self.pass_kept(me, client, at, input, out);
            }
            if let Some(used) = self.piece(me, client, servers, at, input, out) {
                at += used;
                if used == 0 {
                    break;
                }
                continue;
            }
            let limits = if client.stranger { &Limits::STRANGER } else { &Limits::OPEN };
            let (length, taken) = match resp::read(bytes, limits) {
                Ok(Request::Nothing(length)) => (length, Taken::Yes),
                Ok(Request::Command(length, arguments)) => {
                    let arguments = own::to_be_read(arguments);
                    let form = Form::Span(at..at + length);
                    // Who does not read its replies would have others wait for theirs.
                    let alone = input.unread || length as u64 >= STREAM_FROM;
                    (length, self.command(me, client, servers, &arguments, &form, alone, out))
                }
                Ok(Request::Inline(length, words)) => {
                    let arguments: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
                    let alone = input.unread || length as u64 >= STREAM_FROM;
                    (length, self.command(me, client, servers, &arguments, &Form::Words, alone, out))
                }
                Ok(Request::Incomplete(needed)) => {
                    let whole = input.full && at == 0;
                    match self.incomplete(me, client, servers, bytes, needed, whole, out) {
                        // Its bytes are taken in the next turn.
                        Taken::Yes => continue,
                        Taken::No => break,
                    }
                }
                Err(_) if client.waits() => (0, Taken::No),
                Err(error) => {
                    client.fail(me, &format!("ERR {error}"), out);
                    return input.bytes.len();
                }
            };
            match taken {
                Taken::Yes => at += length,
                Taken::No => break,
            }
            if client.lease.is_requested() || out.inserted.len() > MAX_SAID {
                break;
            }
        }
        if client.closing { input.bytes.len() } else { at }
    }

    /// Deals with a whole command. Of its arguments the first ones are given. `alone`: it is not to go through a shared
    /// server.
    #[allow(clippy::too_many_arguments)]
    fn command(
        &self,
        me: ClientTag,
        client: &mut Client,
        servers: &mut dyn Sessions<ServerTag, Server>,
        arguments: &[&[u8]],
        form: &Form,
        alone: bool,
        out: &mut Outbox,
    ) -> Taken {
        let mut kind = kind(arguments[0], &arguments[1..]);
        let alone = alone || (kind.can_share() && self.keeps_apart());
        let is_wrong_reset = kind == Kind::Reset && arguments.len() > 1;
        if is_wrong_reset && !client.is_bound() {
            return if client.waits() { Taken::No } else { client.wrong_arity(me, "reset", out) };
        }
        // A transaction is the server's business: it queues most of these, and has words for the others.
        let ruled_out = kept::ruled_out_in_redis(kind, arguments).filter(|_| client.is_bound());
        if ruled_out.is_some() {
            kind = Kind::Ordinary;
        } else if client.is_bound()
            && (is_wrong_reset
                || matches!(kind, Kind::Select | Kind::Auth | Kind::Hello | Kind::Client(_) | Kind::Subscription(_)))
        {
            kind = Kind::Pinning;
        }
        if let Some(taken) = self.about_subscriptions(me, client, kind, arguments, out) {
            return taken;
        }
        if kind == Kind::Reset && client.due == 0 {
            client.abandon(me, servers, out);
        }
        if let Some(taken) = self.own(me, client, kind, arguments, out) {
            return taken;
        }
        let Some((tag, server)) = self.server_for(me, client, servers, kind, alone, out) else {
            if kind == Kind::Blocking {
                self.begin_waiting(client, arguments);
            }
            if own::sets_replies(arguments) {
                client.fail_in_silence(me, out);
            }
            return client.answered_without_server(me, kind, out);
        };
        let due = self.reply_kind(client, kind, arguments);
        client.note(me, tag, server, kind, due, out);
        match (ruled_out, form) {
            (Some(why), _) => out.insert(Peer::Server(tag), |to| resp::command(to, &[why.as_bytes()])),
            (None, Form::Span(span)) => out.span(Peer::Server(tag), span.clone()),
            (None, Form::Words) => out.insert(Peer::Server(tag), |to| resp::command(to, arguments)),
        }
        Taken::Yes
    }

    /// The server that a command goes to; `None` if it has to wait for one, or fails.
    fn server_for<'s>(
        &self,
        me: ClientTag,
        client: &mut Client,
        servers: &'s mut dyn Sessions<ServerTag, Server>,
        kind: Kind,
        alone: bool,
        out: &mut Outbox,
    ) -> Option<(ServerTag, &'s mut Server)> {
        if client.failing.is_some() {
            return None;
        }
        let alone = alone || !kind.can_share();
        match &client.lease {
            Lease::Requested(_) => unreachable!("input came before the lease that it waits for"),
            Lease::None if client.is_to_seek() => None,
            Lease::None => {
                // While Redis is busy with a script, it lets nobody into another database than the first.
                let database = if kind == Kind::Control { 0 } else { client.database };
                match self.pool_of(client, database) {
                    Ok(pool) => {
                        let lease = match kind {
                            _ if !alone => LeaseKind::Shared,
                            kind if kind.lasts() => LeaseKind::Lasting,
                            _ => LeaseKind::Exclusive,
                        };
                        let blocks = kind == Kind::Blocking;
                        let elsewhere = database != client.database;
                        let request = LeaseRequest::new(lease, Purpose::Command { blocks }, elsewhere);
                        client.request_lease(me, pool, request, out);
                        if blocks {
                            out.push(Effect::Standing { client: me, standing: Standing::Blocked });
                        }
                    }
                    Err(why) => client.failing = Some(format!("ERR Poolhouse: {why}").into()),
                }
                None
            }
            &Lease::Shared { server: tag, .. } => {
                let server = servers.get(tag).expect("a shared server lives");
                // The replies to what it asked before come first, so that it reads what it wrote.
                let waits = if alone { client.due > 0 } else { client.due >= MAX_SHARED_DUE };
                if waits {
                    client.held_back = true;
                    return None;
                }
                if server.outside().is_some() {
                    server.enter(tag, (me, client.id), out);
                    return None;
                }
                Some((tag, server))
            }
            Lease::Held(held) if client.due >= MAX_DUE || (client.due > 0 && needs_another(held, kind)) => {
                client.held_back = true;
                None
            }
            Lease::Held(held) => {
                let tag = held.server();
                let server = servers.get(tag).expect("a held server lives");
                if server.runs() >= MAX_RUNS {
                    client.held_back = true;
                    return None;
                }
                if server.outside().is_some() {
                    server.enter(tag, (me, client.id), out);
                    return None;
                }
                Some((tag, server))
            }
        }
    }

    /// What comes with the reply to a command, where its arguments say more of that than its kind.
    fn reply_kind(&self, client: &Client, kind: Kind, arguments: &[&[u8]]) -> ReplyKind {
        match (kind, arguments) {
            // More subscribers than Redis knows of are told of what is published, where that can be known.
            (Kind::Publish(topic), [_, name, ..]) if !client.is_bound() => {
                match self.hubs.more_told(topic, name).unwrap_or(0) {
                    0 => ReplyKind::Plain,
                    more => ReplyKind::MoreSubscribers(more),
                }
            }
            (Kind::Blocking | Kind::Wait, _)
                if !client.lease.transaction().is_open() && own_time(arguments).is_none() =>
            {
                ReplyKind::WithoutTimeout
            }
            (Kind::Control, [name, what, ..]) if name.eq_ignore_ascii_case(b"CLIENT") => {
                ReplyKind::Pause(what.eq_ignore_ascii_case(b"PAUSE"))
            }
            _ => ReplyKind::Plain,
        }
    }
}

/// Whether a command of this kind needs another server than this one, once no reply of it is pending.
fn needs_another(held: &Held, kind: Kind) -> bool {
    let lasts = kind.lasts() && !held.is_lasting() && !held.is_in_transaction();
    held.is_elsewhere() || lasts || matches!(kind, Kind::Pinning | Kind::Wait)
}

/// Where a command's bytes are.
enum Form {
    Span(std::ops::Range<usize>),
    /// Nowhere: it was typed as a line.
    Words,
}

impl Client {
    /// It is this user from now on, whom this pool serves.
    fn enter(&mut self, me: ClientTag, user: Arc<str>, pool: PoolId, out: &mut Outbox) {
        let is_same = self.counted.is_some() && self.user == user;
        (self.user, self.stranger, self.logs_in) = (user, false, false);
        let before = self.counted.replace(pool);
        if !is_same {
            out.push(Effect::LoggedIn { client: me, pool, user: Arc::clone(&self.user) });
        } else if before != Some(pool) {
            out.push(Effect::UsesPool { client: me, pool });
        }
        out.push(Effect::Standing { client: me, standing: self.standing() });
    }

    /// TLS shows in the first byte: how much of the input is dealt with by that alone, if it is.
    fn first_byte(&mut self, me: ClientTag, input: Input<'_>, out: &mut Outbox) -> Option<usize> {
        match (std::mem::take(&mut self.encryption), input.bytes[0]) {
            (Encryption::Off, _) => None,
            (_, TLS_HANDSHAKE) => {
                out.push(Effect::StartTls { peer: Peer::Client(me) });
                Some(0)
            }
            (Encryption::Allow, _) => None,
            (Encryption::Require, _) => {
                self.fail(me, "ERR Poolhouse: clients have to use TLS here", out);
                Some(input.bytes.len())
            }
        }
    }

    /// Whether replies must come before anything else can be said to the client.
    pub(crate) fn waits(&mut self) -> bool {
        self.held_back |= self.due > 0;
        self.due > 0
    }

    /// Whether it needs this very server for what is to come.
    pub(crate) fn is_bound(&self) -> bool {
        self.lease.transaction().needs_its_server()
    }

    pub(super) fn request_lease(&mut self, me: ClientTag, pool: PoolId, request: LeaseRequest, out: &mut Outbox) {
        let kind = request.kind();
        self.lease = Lease::Requested(request);
        out.push(Effect::Standing { client: me, standing: Standing::Active });
        out.push(Effect::Lease { client: me, pool, kind });
    }

    /// Keeps the books of a command that goes to its server. `due`: see [`Redis::reply_kind`].
    fn note(
        &mut self,
        me: ClientTag,
        tag: ServerTag,
        server: &mut Server,
        kind: Kind,
        due: ReplyKind,
        out: &mut Outbox,
    ) {
        if !self.is_bound() && matches!(kind, Kind::Pinning | Kind::Multi | Kind::Watch) {
            server.introduce(tag, self.name.as_deref(), out);
        }
        let in_transaction = self.lease.transaction().is_open();
        match kind {
            Kind::Pinning => {
                self.lease.held_mut().expect("a command that pins its server holds it").pin();
                server.keep();
                out.push(Effect::Pinned { server: tag, reason: Some("connection") });
                return;
            }
            // The writes that WAIT is about may have gone through other servers. A command moves this one's place to
            // the end of the replication stream: Redis notes where that is after each command of a connection.
            Kind::Wait if !in_transaction => {
                out.insert(Peer::Server(tag), |to| resp::command(to, &[b"PING"]));
                server.expect(None, ReplyKind::Plain);
                server.expect(Some((me, self.id)), due);
            }
            Kind::EndTransaction => server.expect(Some((me, self.id)), ReplyKind::EndTransaction),
            Kind::Script => server.expect(Some((me, self.id)), ReplyKind::Script),
            Kind::Multi => server.expect(Some((me, self.id)), ReplyKind::Multi),
            Kind::Watch => server.expect(Some((me, self.id)), ReplyKind::Watch),
            Kind::SubscriberCount(topic) if !in_transaction => {
                server.expect(Some((me, self.id)), ReplyKind::SubscriberCount(topic))
            }
            _ => server.expect(Some((me, self.id)), due),
        }
        let blocks = kind == Kind::Blocking && !in_transaction;
        if (blocks || (kind == Kind::Wait && !in_transaction))
            && let Some(held) = self.lease.held_mut()
        {
            held.block_on(server.hello().id);
        }
        // Otherwise it has been active since it asked for a server.
        if self.due == 0 && (blocks || self.is_bound()) {
            let standing = if blocks { Standing::Blocked } else { Standing::Active };
            out.push(Effect::Standing { client: me, standing });
        }
        self.due += 1;
    }

    /// A reply has come whole, for which this was due. `refused`: nothing has changed by it. True if the server is no
    /// longer needed.
    pub(crate) fn on_reply(&mut self, me: ClientTag, due: ReplyKind, refused: bool, out: &mut Outbox) -> bool {
        self.due = self.due.checked_sub(1).expect("a reply that was due");
        if let Some(held) = self.lease.held_mut() {
            held.on_reply(self.due == 0);
            let transaction = held.transaction_mut();
            match due {
                _ if refused => {}
                ReplyKind::Multi => transaction.open(),
                ReplyKind::Watch => transaction.watch(),
                ReplyKind::EndTransaction => transaction.end(),
                ReplyKind::Plain
                | ReplyKind::Script
                | ReplyKind::Select
                | ReplyKind::MoreSubscribers(_)
                | ReplyKind::SubscriberCount(_) => {}
                ReplyKind::WithoutTimeout | ReplyKind::Pause(_) | ReplyKind::Unblock => {}
            }
        }
        if self.held_back && (self.due == 0 || self.due == MAX_SHARED_DUE / 2) {
            self.held_back = false;
            out.push(Effect::Wake { client: me });
        }
        if self.due > 0 || self.passing.is_some() || self.lease.is_pinned() {
            return false;
        }
        if self.is_bound() {
            let standing =
                if self.lease.transaction().is_open() { Standing::InTransaction } else { Standing::Preparing };
            out.push(Effect::Standing { client: me, standing });
        }
        !self.is_bound()
    }

    /// Gives up a transaction and what it watches, and its server with them.
    fn abandon(&mut self, me: ClientTag, servers: &mut dyn Sessions<ServerTag, Server>, out: &mut Outbox) {
        if let Some(held) = self.lease.held() {
            let tag = held.server();
            let server = servers.get(tag).expect("a held server lives");
            self.part(me, tag, server, Verdict::Discard, out);
        }
    }

    /// Whether this server is its own, or one that it shares.
    pub(crate) fn has(&self, server: ServerTag) -> bool {
        self.lease.server() == Some(server)
    }

    /// Its server is in its database by now, or is not let in, with this `error`.
    pub(crate) fn on_entered(
        &mut self,
        redis: &Redis,
        me: ClientTag,
        tag: ServerTag,
        server: &mut Server,
        error: Option<&str>,
        out: &mut Outbox,
    ) {
        match (self.lease.selecting(), error) {
            (None, error) => self.failing = error.map(Box::from),
            (Some(_), Some(error)) => out.insert(Peer::Client(me), |to| resp::error(to, error)),
            (Some(database), None) => {
                self.database = database;
                redis.count_anew(me, self, out);
                out.insert(Peer::Client(me), |to| to.extend_from_slice(b"+OK\r\n"));
            }
        }
        self.part(me, tag, server, Verdict::Clean, out);
    }

    /// Gives its server back, or its share of it.
    pub(crate) fn part(
        &mut self,
        me: ClientTag,
        tag: ServerTag,
        server: &mut Server,
        verdict: Verdict,
        out: &mut Outbox,
    ) {
        out.push(Effect::Standing { client: me, standing: self.standing() });
        match self.lease.take() {
            Lease::Shared { .. } => out.push(Effect::Leave { client: me, server: tag, verdict }),
            Lease::Held(held) if !held.is_clean() && verdict == Verdict::Clean => {
                out.push(Effect::Release { server: tag, verdict: server.take_back(Verdict::Discard) });
            }
            _ => out.push(Effect::Release { server: tag, verdict: server.take_back(verdict) }),
        }
        self.remind(me, out);
    }

    /// The command at hand gets the error that its lease ended with. `No`: it has none, and waits.
    fn answered_without_server(&mut self, me: ClientTag, kind: Kind, out: &mut Outbox) -> Taken {
        match self.failing.take() {
            None => Taken::No,
            Some(nothing) if nothing.is_empty() => {
                out.insert(Peer::Client(me), |to| resp::no_list(to, self.version));
                Taken::Yes
            }
            // What follows would be executed outside of the transaction that was to begin.
            Some(error) if matches!(kind, Kind::Multi | Kind::Watch) => {
                self.fail(me, &error, out);
                Taken::Yes
            }
            Some(error) => {
                out.insert(Peer::Client(me), |to| resp::error(to, &error));
                Taken::Yes
            }
        }
    }

    pub(crate) fn on_lease_failed(&mut self, me: ClientTag, error: &str, out: &mut Outbox) {
        match self.lease.take_request().into_purpose() {
            Purpose::Command { .. } => self.failing = Some(error.into()),
            Purpose::Subscriptions => unreachable!("that concerns all, who are told"),
            // Redis itself refuses a database that does not exist; for other reasons the client must not go on in the
            // old one.
            Purpose::Select(_) if error.starts_with(NO_SERVER) => return self.fail(me, error, out),
            Purpose::Select(_) | Purpose::Hello(..) | Purpose::Unblock { .. } => {
                out.insert(Peer::Client(me), |to| resp::error(to, error))
            }
        }
        out.push(Effect::Standing { client: me, standing: self.standing() });
        self.remind(me, out);
    }

    pub(crate) fn set_name(&mut self, name: Box<[u8]>) {
        self.name = Some(name).filter(|name| !name.is_empty());
    }
}
