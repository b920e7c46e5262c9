//! What becomes of a whole command: Poolhouse answers it, or it goes to a server.

use std::ops::Range;

use seam::{Effect, LeaseKind, Outbox, Peer, ServerTag, Standing};

use super::{
    Client, Outcome, connection_commands,
    lease::{Held, Lease, LeaseRequest, Purpose},
    pinned,
};
use crate::{
    Redis, Server, Servers,
    blocking_waits::block_timeout,
    command::{Kind, kind},
    resp,
    server::ReplyKind,
};

/// Pending replies of a server beyond which a client that holds it is not read from, counted as runs of the same kind.
const MAX_RUNS: usize = 100_000;

pub(super) enum CommandBytes {
    Span(Range<usize>),
    /// Nowhere: it was an inline command, and has to be written as an array.
    Inline,
}

impl Redis {
    /// Executes a whole command, of which the first arguments are given. `exclusive`: it must not go through a shared
    /// server.
    pub(super) fn execute(
        &self,
        client: &mut Client,
        servers: &mut Servers<'_>,
        arguments: &[&[u8]],
        bytes: &CommandBytes,
        exclusive: bool,
        out: &mut Outbox,
    ) -> Outcome {
        let mut kind = kind(arguments[0], &arguments[1..]);
        let exclusive = exclusive || (kind.can_share() && self.takes_unshared_command());
        let is_wrong_reset = kind == Kind::Reset && arguments.len() > 1;
        if is_wrong_reset && !client.needs_its_server() {
            return if client.hold_input_for_replies() { Outcome::Waits } else { client.wrong_arity("reset", out) };
        }
        // In a transaction, Redis queues most of these commands, and has its own errors for the others.
        let refused = pinned::why_withheld(kind, arguments).filter(|_| client.needs_its_server());
        if refused.is_some() {
            kind = Kind::Ordinary;
        } else if client.needs_its_server()
            && (is_wrong_reset
                || matches!(kind, Kind::Select | Kind::Auth | Kind::Hello | Kind::AboutSelf(_) | Kind::Subscription(_)))
        {
            kind = Kind::Pinning;
        }
        if let Some(outcome) = self.answer_subscription_command(client, kind, arguments, out) {
            return outcome;
        }
        if kind == Kind::Reset && client.replies.is_empty() {
            client.abandon_transaction(servers, out);
        }
        if let Some(outcome) = self.answer_connection_command(client, kind, arguments, out) {
            return outcome;
        }
        let Some((tag, server)) = self.server_for(client, servers, kind, exclusive, out) else {
            if kind == Kind::Blocking {
                self.begin_waiting(client, arguments);
            }
            if connection_commands::is_client_reply(arguments) {
                client.close_without_server(out);
            }
            return client.answer_without_server(kind, out);
        };
        let reply = self.reply_kind(client, kind, arguments);
        client.note_sent(tag, server, kind, reply, out);
        match (refused, bytes) {
            (Some(why), _) => out.insert(Peer::Server(tag), |to| resp::command(to, &[why.as_bytes()])),
            (None, CommandBytes::Span(span)) => out.span(Peer::Server(tag), span.clone()),
            (None, CommandBytes::Inline) => out.insert(Peer::Server(tag), |to| resp::command(to, arguments)),
        }
        Outcome::Consumed
    }

    /// The server that a command goes to. `None`: the command has to wait for it, or `lease_error` says why there is
    /// none.
    pub(super) fn server_for<'s>(
        &self,
        client: &mut Client,
        servers: &'s mut Servers<'_>,
        kind: Kind,
        exclusive: bool,
        out: &mut Outbox,
    ) -> Option<(ServerTag, &'s mut Server)> {
        if client.lease_error.is_some() {
            return None;
        }
        let exclusive = exclusive || !kind.can_share();
        let replies = &client.replies;
        let (tag, waits) = match &client.lease {
            Lease::Requested(_) => unreachable!("input came before the server that it waits for"),
            Lease::None => {
                if !client.is_to_seek() {
                    self.request_server(client, kind, exclusive, out);
                }
                return None;
            }
            // The replies to earlier commands come first, so that the client reads what it wrote.
            Lease::Shared { server, .. } if exclusive => (*server, !replies.is_empty()),
            Lease::Shared { server, .. } => (*server, replies.is_full_for_shared_server()),
            Lease::Held(held) => {
                let waits = replies.is_full() || (!replies.is_empty() && needs_another(held, kind));
                (held.server(), waits)
            }
        };
        let server = servers.get(tag).expect("the server of a lease lives");
        if waits || (client.lease.held().is_some() && server.reply_runs() >= MAX_RUNS) {
            client.replies.hold_input();
            return None;
        }
        if server.select_error().is_some() {
            server.select_again(tag, (client.tag, client.id), out);
            return None;
        }
        Some((tag, server))
    }

    /// Requests a server for the next command of a client that has none.
    fn request_server(&self, client: &mut Client, kind: Kind, exclusive: bool, out: &mut Outbox) {
        // While Redis runs a script for long, SELECT fails. The first database needs none.
        let database = if kind == Kind::Control { 0 } else { client.settings.database() };
        let pool = match self.route(client, database) {
            Ok(pool) => pool,
            Err(why) => {
                client.lease_error = Some(format!("ERR Poolhouse: {why}").into());
                return;
            }
        };
        let lease = match kind {
            _ if !exclusive => LeaseKind::Shared,
            kind if kind.needs_long_term_lease() => LeaseKind::LongTerm,
            _ => LeaseKind::Exclusive,
        };
        let blocks = kind == Kind::Blocking;
        let in_other_database = database != client.settings.database();
        client.request_lease(pool, LeaseRequest::new(lease, Purpose::Command { blocks }, in_other_database), out);
        if blocks {
            out.push(Effect::Standing { client: client.tag, standing: Standing::Blocked });
        }
    }

    /// What the reply to a command means, as far as its arguments say so. [`Client::note_sent`] has the rest.
    pub(super) fn reply_kind(&self, client: &Client, kind: Kind, arguments: &[&[u8]]) -> ReplyKind {
        match (kind, arguments) {
            (Kind::Publish(topic), [_, name, ..]) if !client.needs_its_server() => {
                match self.hubs.uncounted_receivers(topic, name).unwrap_or(0) {
                    0 => ReplyKind::Plain,
                    more => ReplyKind::MoreSubscribers(more),
                }
            }
            (Kind::Blocking | Kind::Wait, _)
                if !client.lease.transaction().is_open() && block_timeout(arguments).is_none() =>
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
    let lasts = kind.needs_long_term_lease() && !held.is_long_term() && !held.is_in_transaction();
    held.is_in_other_database() || lasts || matches!(kind, Kind::Pinning | Kind::Wait)
}

impl Client {
    /// Records that a command goes to the client's server. Its bytes are to be sent right behind. `reply`: see
    /// [`Redis::reply_kind`].
    pub(super) fn note_sent(
        &mut self,
        tag: ServerTag,
        server: &mut Server,
        kind: Kind,
        reply: ReplyKind,
        out: &mut Outbox,
    ) {
        if !self.needs_its_server() && matches!(kind, Kind::Pinning | Kind::Multi | Kind::Watch) {
            server.set_name(tag, self.settings.name(), out);
        }
        let in_transaction = self.lease.transaction().is_open();
        let recipient = Some((self.tag, self.id));
        match kind {
            Kind::Pinning => {
                self.lease.held_mut().expect("a command that pins its server holds it").pin();
                server.pin();
                out.push(Effect::Pinned { server: tag, reason: Some("connection") });
                return;
            }
            // The writes that WAIT is about may have gone through other servers. Redis notes for each connection how
            // far the replication stream was after its last command. So PING makes WAIT wait for all writes before it.
            Kind::Wait if !in_transaction => {
                out.insert(Peer::Server(tag), |to| resp::command(to, &[b"PING"]));
                server.expect(None, ReplyKind::Plain);
                server.expect(recipient, reply);
            }
            Kind::EndTransaction => server.expect(recipient, ReplyKind::EndTransaction),
            Kind::Script => server.expect(recipient, ReplyKind::Script),
            Kind::Multi => server.expect(recipient, ReplyKind::Multi),
            Kind::Watch => server.expect(recipient, ReplyKind::Watch),
            Kind::SubscriberCount(topic) if !in_transaction => {
                server.expect(recipient, ReplyKind::SubscriberCount(topic));
            }
            _ => server.expect(recipient, reply),
        }
        let blocks = kind == Kind::Blocking && !in_transaction;
        if (blocks || (kind == Kind::Wait && !in_transaction))
            && let Some(held) = self.lease.held_mut()
        {
            held.block_on(server.hello().id);
        }
        // Without a transaction, the client is active since it asked for a server.
        if self.replies.is_empty() && (blocks || self.needs_its_server()) {
            let standing = if blocks { Standing::Blocked } else { Standing::Active };
            out.push(Effect::Standing { client: self.tag, standing });
        }
        self.replies.add();
    }

    /// Answers the next command with the error that its lease ended with. Without an error, the command waits.
    pub(super) fn answer_without_server(&mut self, kind: Kind, out: &mut Outbox) -> Outcome {
        let Some(error) = self.lease_error.take() else { return Outcome::Waits };
        if error.is_empty() {
            out.insert(Peer::Client(self.tag), |to| resp::null_array(to, self.settings.version()));
        } else if matches!(kind, Kind::Multi | Kind::Watch) {
            // What follows would be executed outside of the transaction that was to begin.
            self.fail(&error, out);
        } else {
            out.insert(Peer::Client(self.tag), |to| resp::error(to, &error));
        }
        Outcome::Consumed
    }
}
