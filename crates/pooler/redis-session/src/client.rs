//! A client's session: its state, and how its input is read.
//!
//! Poolhouse answers some commands itself, and then waits until all replies before have come, so that replies are in
//! order. A command that changes the connection itself pins the server: from then on bytes pass unchanged, and the
//! server is closed with the client.
//!
//! Each part of the state is in a file of its own, and only that file sees its fields: [`identity`], [`settings`],
//! [`lease`] with [`transaction`], [`pending_replies`], [`long_commands`], [`client_list`], [`subscribing`], [`http`].
//! A command goes from here to [`commands`], which finds a server for it; [`leasing`] has what follows from the
//! server's answers.

mod client_list;
mod commands;
mod connection_commands;
mod giving_way;
mod http;
mod identity;
mod lease;
mod leasing;
mod leaving;
mod long_commands;
mod long_subscribe;
mod pending_replies;
mod pinned;
mod route;
mod settings;
mod subscribing;
mod transaction;
mod waiting;

use std::sync::Arc;

use seam::{ClientTag, Effect, Encryption, Input, Origin, Outbox, Peer};

use crate::{
    Redis, Servers, Welcome,
    resp::{self, Limits, Request},
};
use client_list::Survey;
use commands::CommandBytes;
use http::HttpSession;
pub(crate) use http::StreamClients;
use identity::Identity;
use lease::Lease;
use long_commands::{MIN_STREAMED_LENGTH, PartialCommand};
use pending_replies::PendingReplies;
use route::Route;
use settings::Settings;
use subscribing::Subscriptions;

/// The first byte of a connection in TLS: a record of the type `handshake` (RFC 8446, section 5.1). No command begins
/// with it.
const TLS_HANDSHAKE: u8 = 22;

/// Bytes that may be inserted into the output before it is sent. After that no more input is read in the same turn.
const MAX_INSERTED: usize = 32 * 1024;

pub struct Client {
    pub(crate) tag: ClientTag,
    /// The reply of CLIENT ID. No other client of the process has it.
    pub(crate) id: u64,
    /// Whether the first byte may or must begin TLS; off as soon as it has come.
    encryption: Encryption,
    identity: Identity,
    settings: Settings,
    route: Option<Route>,
    lease: Lease,
    /// The error that the next command gets instead of a server. Empty: the command has waited for as long as it would
    /// have blocked, and gets the reply of its time-out.
    lease_error: Option<Box<str>>,
    replies: PendingReplies,
    partial: Option<PartialCommand>,
    survey: Survey,
    subscriptions: Option<Box<Subscriptions>>,
    http: Option<Box<HttpSession>>,
    closing: bool,
}

/// Most clients are idle, and there are many. So what only a few need is in a box.
const MAX_CLIENT_SIZE: usize = 256;
const _: () = assert!(size_of::<Client>() <= MAX_CLIENT_SIZE);

enum Outcome {
    Consumed,
    /// It stays in the input until the client is woken (`Effect::Wake`) or gets its server.
    Waits,
}

impl Redis {
    pub(crate) fn welcome(&self, me: ClientTag, origin: Origin, out: &mut Outbox) -> Client {
        let speaks_http = self.directory.http(origin.listener).is_some();
        let mut client = Client {
            tag: me,
            id: self.new_id(),
            encryption: self.directory.encryption(origin.listener),
            identity: Identity::unauthenticated(speaks_http),
            settings: Settings::default(),
            route: None,
            lease: Lease::None,
            lease_error: None,
            replies: PendingReplies::default(),
            partial: None,
            survey: Survey::None,
            subscriptions: None,
            http: speaks_http.then(|| Box::new(HttpSession::new(origin.listener, self.memory_budget(origin.listener)))),
            closing: false,
        };
        match self.directory.welcome(origin) {
            // The tokens of its requests say who it is.
            _ if speaks_http => {}
            Welcome::Password => {}
            Welcome::Open => {
                client.identity.waive_login();
                self.log_in(&mut client, Arc::from(""), out);
            }
            Welcome::Forbidden(why) => client.fail(&format!("DENIED Poolhouse: {why}"), out),
        }
        client
    }

    /// The client is this user from now on. Returns false if no pool serves the user: then the client was told so.
    fn log_in(&self, client: &mut Client, user: Arc<str>, out: &mut Outbox) -> bool {
        let pool = self.directory.route(&user, client.settings.database(), client.settings.version());
        match &pool {
            Ok(pool) => client.log_in(user, *pool, out),
            Err(why) => client.fail(&format!("ERR Poolhouse: {why}"), out),
        }
        pool.is_ok()
    }

    /// Reads a client's input. Returns the number of bytes that were consumed.
    pub(crate) fn read_input(
        &self,
        client: &mut Client,
        servers: &mut Servers<'_>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        if let Some(used) = client.read_first_byte(input, out) {
            return used;
        }
        if client.http.is_some() {
            return self.http_requests(client, servers, input, out);
        }
        let mut at = 0;
        while at < input.bytes.len() && !client.closing && !client.awaits_change() && !client.survey.is_asking() {
            if client.lease.is_pinned() {
                return self.forward_pinned(client, at, input, out);
            }
            if let Some(used) = self.read_partial(client, servers, at, input, out) {
                at += used;
                if used == 0 {
                    break;
                }
                continue;
            }
            match self.read_command(client, servers, at, input, out) {
                Some(used) => at += used,
                None => break,
            }
            if client.lease.is_requested() || out.inserted.len() > MAX_INSERTED {
                break;
            }
        }
        if client.closing { input.bytes.len() } else { at }
    }

    /// Reads the command at `at`. Returns the number of bytes that were consumed; `None` if the command has to wait.
    fn read_command(
        &self,
        client: &mut Client,
        servers: &mut Servers<'_>,
        at: usize,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> Option<usize> {
        let bytes = &input.bytes[at..];
        let limits = if client.identity.is_authenticated() { &Limits::AUTHENTICATED } else { &Limits::UNAUTHENTICATED };
        // A client that does not read its replies would delay those of clients that share its server.
        let exclusive = |length: usize| input.unread || length as u64 >= MIN_STREAMED_LENGTH;
        let (length, outcome) = match resp::read(bytes, limits) {
            Ok(Request::Nothing(length)) => (length, Outcome::Consumed),
            Ok(Request::Command(length, arguments)) => {
                let arguments = connection_commands::needed_arguments(arguments);
                let command = CommandBytes::Span(at..at + length);
                (length, self.execute(client, servers, &arguments, &command, exclusive(length), out))
            }
            Ok(Request::Inline(length, words)) => {
                let arguments: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
                (length, self.execute(client, servers, &arguments, &CommandBytes::Inline, exclusive(length), out))
            }
            Ok(Request::Incomplete(needed)) => {
                let full = input.full && at == 0;
                // The bytes of a command that may begin are consumed by `read_partial`.
                (0, self.begin_partial(client, servers, bytes, needed, full, out))
            }
            Err(_) if client.hold_input_for_replies() => (0, Outcome::Waits),
            Err(error) => {
                client.fail(&format!("ERR {error}"), out);
                (bytes.len(), Outcome::Consumed)
            }
        };
        match outcome {
            Outcome::Consumed => Some(length),
            Outcome::Waits => None,
        }
    }
}

impl Client {
    /// The client is this user from now on, whom this pool serves.
    fn log_in(&mut self, user: Arc<str>, pool: seam::PoolId, out: &mut Outbox) {
        self.identity.log_in(self.tag, user, pool, out);
        out.push(Effect::Standing { client: self.tag, standing: self.standing() });
    }

    /// Reads the first byte of the connection. Returns the number of bytes that it consumes; `None` if commands are to
    /// be read.
    fn read_first_byte(&mut self, input: Input<'_>, out: &mut Outbox) -> Option<usize> {
        match (std::mem::take(&mut self.encryption), input.bytes[0]) {
            (Encryption::Off, _) => None,
            (_, TLS_HANDSHAKE) => {
                out.push(Effect::StartTls { peer: Peer::Client(self.tag) });
                Some(0)
            }
            (Encryption::Allow, _) => None,
            (Encryption::Require, _) => {
                self.fail("ERR Poolhouse: clients have to use TLS here", out);
                Some(input.bytes.len())
            }
        }
    }

    /// Holds the input while replies are pending, which have to come before the client may be told anything else.
    /// Returns whether any is pending.
    pub(crate) fn hold_input_for_replies(&mut self) -> bool {
        self.replies.hold_input_if_any()
    }

    /// Whether the client is in a transaction, or watches keys for one: it needs the same server for what follows.
    pub(crate) fn needs_its_server(&self) -> bool {
        self.lease.transaction().needs_its_server()
    }
}
