//! Input of servers: replies to clients, which are relayed as they arrive, and replies to Poolhouse's own requests.

use std::{sync::Arc, time::Duration};

use seam::{ClientTag, Effect, Input, Outbox, Peer, ServerTag, Verdict};

use crate::{
    Clients, MongoDb,
    bson::{Document, Malformed},
    client::{Client, State},
    command::Transaction,
    errors::Failure,
    reply_summary::{ReplySummary, is_ok, rewrite_labelled},
    request::StartedTransaction,
    server::{Role, Server},
    wire::{self, Answers, Body, HEADER, Header, Number, Op, Relayed},
};

/// Maximum size of a reply to Poolhouse itself, in bytes.
const MAX_OWN_REPLY: usize = 48 * 1024;

/// Maximum size of a reply that is read as a whole, in bytes. Errors are shorter. A longer reply is scanned while it is
/// relayed.
const MAX_WHOLE_REPLY: usize = 16 * 1024;

/// What `choose_action` decided about a complete message.
enum ReplyAction {
    /// It goes to the client, with this number replaced.
    Relay(Option<(usize, Number)>),
    /// This message goes to the client in its place.
    Replace(Vec<u8>),
    /// It is one host's reply to a broadcast: an error, or `None`.
    Broadcast(Option<Vec<u8>>),
    /// The host does not know the cursor, and another host may.
    AskNextHost,
    Fail(&'static str),
}

impl MongoDb {
    pub(crate) fn on_server_input(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut Clients<'_>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        if let Role::Serving(reply) = &server.role
            && reply.is_amid_message()
        {
            return self.relay(me, server, clients, input, out);
        }
        let header = match Header::read(input.bytes) {
            None => {
                out.need = HEADER;
                return 0;
            }
            Some(Ok(header)) => header,
            Some(Err(error)) => {
                Server::fail(me, error.0, out);
                return input.bytes.len();
            }
        };
        if let Role::Serving(_) = server.role {
            return self.begin_message(me, server, clients, (input, header), out);
        }
        if header.length > MAX_OWN_REPLY {
            Server::fail(me, "an answer that is too long", out);
            return input.bytes.len();
        }
        if input.bytes.len() < header.length {
            out.need = header.length;
            return 0;
        }
        self.on_own_reply(me, server, (&input.bytes[..header.length], &header, input.now), out);
        header.length
    }

    fn begin_message(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut Clients<'_>,
        (input, header): (Input<'_>, Header),
        out: &mut Outbox,
    ) -> usize {
        let Role::Serving(reply) = &mut server.role else { unreachable!("a client is served") };
        let Some(flags) = wire::flags(input.bytes) else {
            out.need = HEADER + 4;
            return 0;
        };
        if !reply.accepts(&header) {
            Server::fail(me, "an answer to what was not asked", out);
            return input.bytes.len();
        }
        let is_whole = reply.is_relayed() && header.length <= MAX_WHOLE_REPLY;
        if is_whole && input.bytes.len() < header.length {
            out.need = header.length;
            return 0;
        }
        let message = Relayed { length: header.length, flags: if header.op == Op::Msg { flags } else { 0 } };
        if message.end().is_none() {
            Server::fail(me, "an answer without a body", out);
            return input.bytes.len();
        }
        let is_first = !reply.is_begun();
        reply.begin(&header, message, is_whole);
        if reply.is_begun()
            && let Some(client) = clients.get(reply.client())
        {
            client.request.begin_reply();
        }
        if !is_whole {
            return self.relay(me, server, clients, input, out);
        }
        self.handle_message(me, server, clients, (&input.bytes[..header.length], &header, is_first), out);
        header.length
    }

    fn handle_message(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut Clients<'_>,
        (message, header, is_first): (&[u8], &Header, bool),
        out: &mut Outbox,
    ) {
        let host = server.host();
        let Role::Serving(reply) = &mut server.role else { unreachable!("an answer is on its way") };
        let tag = reply.client();
        let client = clients.get(tag).expect("who is served is here");
        let action = self.choose_action(client, host, (message, header, is_first), out);
        // The rest of the reply would reach the server's next client.
        let ends = client.request.has_failed() || !matches!(action, ReplyAction::Relay(_));
        match action {
            _ if ends && reply.has_more_to_come() => {
                Server::fail(me, "more follows an answer that ends its request", out);
            }
            ReplyAction::Fail(why) => Server::fail(me, why, out),
            ReplyAction::AskNextHost => {
                server.role = Role::Idle;
                out.push(Effect::Release { server: me, verdict: Verdict::Clean });
                self.ask_next_host(client, out);
            }
            ReplyAction::Broadcast(error) => {
                self.handle_broadcast_reply(me, server, clients, error, message.len(), out)
            }
            ReplyAction::Replace(mut bytes) => {
                out.insert(Peer::Client(tag), |to| to.append(&mut bytes));
                reply.replace();
                self.end_if_over(me, server, clients, out);
            }
            ReplyAction::Relay(number) => {
                reply.relay(message.len(), number.into_iter(), out);
                self.end_if_over(me, server, clients, out);
            }
        }
    }

    /// Decides what to do with a complete message, and notes what it tells about its request.
    fn choose_action(
        &self,
        client: &mut Client,
        host: usize,
        (message, header, is_first): (&[u8], &Header, bool),
        out: &mut Outbox,
    ) -> ReplyAction {
        let body = match wire::body(message, header) {
            Ok(Body::At(range)) => range,
            _ => 0..0,
        };
        let read = |document| Ok::<_, Malformed>((document, ReplySummary::read(document)?));
        let document = Document::read(&message[body.clone()]);
        let read = document.and_then(read);
        if let Ok(document) = document {
            client.request.note_reply(document, read.as_ref().ok().map(|(_, summary)| summary));
        }
        let is_broadcast = client.destination.is_broadcast();
        match read {
            Ok((_, summary)) if summary.no_such_cursor && is_first && client.destination.has_next_host() => {
                ReplyAction::AskNextHost
            }
            Ok((document, summary)) if summary.state_changed => {
                self.topology().mark_unknown(host, out);
                let (mut written, mut bytes) = (Ok(()), Vec::new());
                let label = client.request.error_label();
                wire::answer(&mut bytes, Answers { id: header.answers, old: false }, |writer| {
                    written = rewrite_labelled(document, label, writer);
                });
                match written {
                    Err(error) => ReplyAction::Fail(error.0),
                    Ok(()) if is_broadcast => ReplyAction::Broadcast(Some(bytes)),
                    Ok(()) => ReplyAction::Replace(bytes),
                }
            }
            Ok((document, _)) if is_broadcast => ReplyAction::Broadcast((!is_ok(document)).then(|| message.to_vec())),
            Ok((_, summary)) if summary.no_such_cursor => {
                self.lose_cursor(client);
                ReplyAction::Relay(None)
            }
            Ok((_, ReplySummary { cursor: Some((id, at)), .. })) => {
                let client_id = self.note_cursor(client, host, id);
                ReplyAction::Relay((client_id != id).then_some((body.start + at, Number::Int64(client_id))))
            }
            _ => ReplyAction::Relay(None),
        }
    }

    /// A host has answered a broadcast: the next host is asked, or the client gets the result.
    fn handle_broadcast_reply(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut Clients<'_>,
        error: Option<Vec<u8>>,
        length: usize,
        out: &mut Outbox,
    ) {
        let Role::Serving(reply) = &mut server.role else { unreachable!("an answer is on its way") };
        let tag = reply.client();
        let client = clients.get(tag).expect("who is served is here");
        if client.destination.has_next_host() {
            return self.continue_broadcast(me, server, client, error, out);
        }
        match client.destination.take_error().or(error) {
            Some(mut error) => out.insert(Peer::Client(tag), |to| to.append(&mut error)),
            None => reply.relay(length, None.into_iter(), out),
        }
        self.end(me, server, tag, clients, out);
    }

    /// A host has answered a broadcast: the next host is asked.
    fn continue_broadcast(
        &self,
        me: ServerTag,
        server: &mut Server,
        client: &mut Client,
        error: Option<Vec<u8>>,
        out: &mut Outbox,
    ) {
        server.role = Role::Idle;
        out.push(Effect::Release { server: me, verdict: Verdict::Clean });
        self.advance_broadcast(client, error, out);
    }

    fn relay(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut Clients<'_>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        let host = server.host();
        let Role::Serving(reply) = &mut server.role else { unreachable!("an answer is on its way") };
        let mut piece = reply.next_piece(input.bytes);
        if !piece.numbers.is_empty() {
            self.topology().mark_unknown(host, out);
        }
        if let Some((id, offset)) = piece.cursor {
            let client = clients.get(reply.client()).expect("who is served is here");
            let client_id = self.note_cursor(client, host, id);
            piece.numbers.extend((client_id != id).then_some((offset, Number::Int64(client_id))));
        }
        reply.relay(piece.length, piece.numbers.into_iter(), out);
        if piece.length < input.bytes.len() && reply.is_amid_message() {
            out.need = input.bytes.len() - piece.length + 1;
        }
        self.end_if_over(me, server, clients, out);
        piece.length
    }

    fn end_if_over(&self, me: ServerTag, server: &mut Server, clients: &mut Clients<'_>, out: &mut Outbox) {
        let Role::Serving(reply) = &server.role else { unreachable!("an answer is on its way") };
        if !reply.is_over() {
            return;
        }
        let (tag, is_relayed) = (reply.client(), reply.is_relayed());
        let client = clients.get(tag).expect("who is served is here");
        if !is_relayed && client.destination.is_broadcast() && client.destination.has_next_host() {
            self.continue_broadcast(me, server, client, None, out);
        } else {
            self.end(me, server, tag, clients, out);
        }
    }

    fn on_own_reply(
        &self,
        me: ServerTag,
        server: &mut Server,
        (message, header, now): (&[u8], &Header, Duration),
        out: &mut Outbox,
    ) {
        let answer = match wire::reply_document(message, header) {
            Ok(answer) => answer,
            Err(error) => return Server::fail(me, error.0, out),
        };
        match &server.role {
            Role::Starting(start) if start.last_id() == header.answers => {
                self.on_handshake_reply(me, server, (answer, now), out);
            }
            Role::Starting(_) => Server::fail(me, "an answer to what was not asked", out),
            Role::OwesReply(owed) if owed.ignores(header.answers) => {}
            Role::OwesReply(owed) if owed.awaits(header.answers) => self.on_owed_reply(me, server, answer, out),
            Role::Monitor(monitor) if monitor.awaits(header.answers) => {
                self.on_monitor_reply(me, server, (answer, now), out);
            }
            _ => Server::fail(me, "a message that was not asked for", out),
        }
    }

    pub(crate) fn on_server_gone(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut Clients<'_>,
        out: &mut Outbox,
    ) {
        match &server.role {
            Role::Serving(reply) => {
                // A client whose request took too long no longer waits for this server.
                let waits = |client: &Client| match client.state {
                    State::AwaitingReply(tag) | State::Sending { server: tag, .. } => tag == me,
                    _ => false,
                };
                let (tag, is_begun) = (reply.client(), reply.is_begun());
                if let Some(client) = clients.get(tag).filter(|client| waits(client)) {
                    // The server may have started the transaction: its further commands and its abort go to the same
                    // host.
                    self.note_transaction(client, server.host());
                    if is_begun || !self.advance_broadcast_after_failure(client, &Failure::server_lost(), out) {
                        let first = client.destination.take_error();
                        self.forget_request(client);
                        client.on_server_lost(is_begun, first, out);
                    }
                }
                self.topology().request_checks(out);
            }
            Role::Monitor(monitor) => self.topology().monitor_lost(server.host(), monitor.key(), out),
            Role::Starting(_) | Role::Idle | Role::OwesReply(_) => {}
        }
    }

    /// A server that no client holds is closed.
    pub(crate) fn server_retired(&self, server: &Server, out: &mut Outbox) {
        if let Role::Monitor(monitor) = &server.role {
            self.topology().monitor_lost(server.host(), monitor.key(), out);
        }
    }

    fn end(&self, me: ServerTag, server: &mut Server, tag: ClientTag, clients: &mut Clients<'_>, out: &mut Outbox) {
        server.role = Role::Idle;
        let client = clients.get(tag).expect("who is served is here");
        if client.stream.is_some() {
            out.push(Effect::Pinned { server: me, reason: None });
        }
        self.note_transaction(client, server.host());
        self.forget_request(client);
        let mut verdict = client.on_answered(out);
        if verdict == Verdict::Clean
            && let Some(task) = self.cleanup_tasks.take(server.pool())
        {
            server.assign(me, task, out);
            verdict = Verdict::Reset;
        }
        out.push(Effect::Release { server: me, verdict });
    }

    /// Notes what a reply tells about a transaction: its further commands go to the same host.
    fn note_transaction(&self, client: &mut Client, host: usize) {
        let request = &client.request;
        let Some(id) = request.transaction_id() else { return };
        let part = request.transaction();
        // After a failed or unanswered commit or abort the driver may retry or not: the transaction stays in the table
        // until it is ended, or until the server must have aborted it.
        let is_over = request.has_ended_transaction();
        if let Some(resources) = &mut client.resources {
            // The outcome of a failed commit may be unknown: only the driver may abort then.
            let is_refused = part == Transaction::Starts && request.has_failed();
            let is_open = !is_over && !is_refused && part != Transaction::Commits;
            resources.set_transaction(is_open.then_some(StartedTransaction { id, host }));
        }
        let session = (Arc::clone(client.access.user()), id.session);
        match part {
            Transaction::Starts if request.has_failed() => self.transactions.note_refused(&session, id.number),
            Transaction::Starts => self.transactions.note_accepted(host),
            _ if is_over => self.transactions.end(&session, id.number),
            _ => {}
        }
    }
}
