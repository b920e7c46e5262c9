//! Relays a request to its server as the bytes arrive, with the host's cursor ids in place of the ids that the client
//! knows.

use std::sync::Arc;

use seam::{Effect, Input, Outbox, Peer, ServerTag, Standing};

use crate::{
    MongoDb, Servers,
    client::{Client, State},
    request::StartedTransaction,
    server::Server,
    wait::Wait,
};

impl MongoDb {
    pub(crate) fn on_granted(&self, client: &mut Client, tag: ServerTag, server: &mut Server, out: &mut Outbox) {
        let (request, held) = (client.request, client.held.bytes());
        let left = request.length() - held.len();
        if !held.is_empty() {
            let cursors = client.destination.translated_cursors(request.body_at());
            out.insert(Peer::Server(tag), |to| request.relayed().append(to, held, cursors));
        }
        if !client.destination.has_next_host() {
            self.release_held(client);
        }
        client.request.set_host(server.host());
        if let Some(StartedTransaction { id, host }) = client.request.started_transaction() {
            // Requests of other clients may wait for this transaction from now on.
            self.transactions.begin((Arc::clone(client.access.user()), id.session), id.number, host);
        }
        server.serve(client.tag, request.id(), request.allows_exhaust());
        if client.stream.is_some() {
            out.push(Effect::Pinned { server: tag, reason: Some("stream") });
        }
        note_sent(client, tag, server, left, out);
    }

    /// Sends the request to the next host: this one does not know its cursor, or has answered a broadcast.
    pub(crate) fn ask_next_host(&self, client: &mut Client, out: &mut Outbox) {
        client.destination.go_to_next_host();
        client.request.restart_reply();
        (client.state, client.stream) = (State::Idle, None);
        // The next host gets the full wait time.
        client.wait = Wait::default();
        if let Err(failure) = self.select_server(client, out) {
            // The host is no longer configured. A broadcast continues with the remaining hosts.
            if self.advance_broadcast_after_failure(client, &failure, out) {
                return;
            }
            let first = client.destination.take_error();
            client.send_first_error(first, &failure, out);
            self.forget_request(client);
            out.push(Effect::Standing { client: client.tag, standing: Standing::Idle });
            out.push(Effect::Wake { client: client.tag });
        }
    }
}

pub fn relay_request(client: &mut Client, servers: &mut Servers<'_>, input: Input<'_>, out: &mut Outbox) -> usize {
    let State::Sending { server: tag, left } = client.state else { unreachable!("a request that is being sent") };
    let request = &client.request;
    let (at, taken) = (request.length() - left, left.min(input.bytes.len()));
    let cursors = client.destination.translated_cursors(request.body_at());
    request.relayed().span(out, Peer::Server(tag), at, taken, cursors);
    note_sent(client, tag, servers.get(tag).expect("a held server lives"), left - taken, out);
    taken
}

/// `left` bytes of the request remain to be sent.
fn note_sent(client: &mut Client, tag: ServerTag, server: &mut Server, left: usize, out: &mut Outbox) {
    if left > 0 {
        client.state = State::Sending { server: tag, left };
        return;
    }
    client.state = State::AwaitingReply(tag);
    if !client.request.wants_answer() {
        // The reply to a ping behind an unacknowledged write tells when the write is done: the client's next request,
        // which may go to another server, must not overtake it.
        server.ping_behind_request(tag, out);
    }
}
