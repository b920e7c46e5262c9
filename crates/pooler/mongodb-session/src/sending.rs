//! A request on its way to a server: its bytes are relayed as they come, but for the ids of cursors that the server
//! knows by others.

use std::sync::Arc;

use seam::{ClientTag, Effect, Input, Outbox, Peer, ServerTag, Sessions, Standing};

use crate::{
    MongoDb,
    client::{Client, State},
    request::StartedTransaction,
    server::Server,
    wait::Wait,
};

impl MongoDb {
    /// The client has got a server for its request.
    pub(crate) fn on_granted(
        &self,
        me: ClientTag,
        client: &mut Client,
        tag: ServerTag,
        server: &mut Server,
        out: &mut Outbox,
    ) {
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
            // From now on requests of other clients may wait for it.
            self.transactions.begins((Arc::clone(client.access.user()), id.session), id.number, host);
        }
        server.serve(me, request.id(), request.allows_exhaust());
        if client.stream.is_some() {
            out.push(Effect::Pinned { server: tag, reason: Some("stream") });
        }
        note_sent(client, tag, server, left, out);
    }

    /// The request goes to the next host: the one that was asked does not know its cursor, or has answered what goes to
    /// all hosts.
    pub(crate) fn ask_next_host(&self, me: ClientTag, client: &mut Client, out: &mut Outbox) {
        client.destination.go_to_next_host();
        client.request.restart_reply();
        (client.state, client.stream) = (State::Idle, None);
        // A host has served it, so its wait begins anew.
        client.wait = Wait::default();
        if let Err(failure) = self.seek(me, client, out) {
            // The host is configured no longer. The others still hear of what goes to all.
            if self.note_broadcast_failure(me, client, &failure, out) {
                return;
            }
            let first = client.destination.take_error();
            client.tell_first(me, first, &failure, out);
            self.forget_request(client);
            out.push(Effect::Standing { client: me, standing: Standing::Idle });
            out.push(Effect::Wake { client: me });
        }
    }
}

/// Passes a request on to its server, as far as it is there.
pub fn pass_on(
    client: &mut Client,
    servers: &mut dyn Sessions<ServerTag, Server>,
    input: Input<'_>,
    out: &mut Outbox,
) -> usize {
    let State::Sending { server: tag, left } = client.state else { unreachable!("a request that is being sent") };
    let request = &client.request;
    let (at, taken) = (request.length() - left, left.min(input.bytes.len()));
    let cursors = client.destination.translated_cursors(request.body_at());
    request.relayed().span(out, Peer::Server(tag), at, taken, cursors);
    note_sent(client, tag, servers.get(tag).expect("a held server lives"), left - taken, out);
    taken
}

/// `left` bytes of the request are still to be sent.
fn note_sent(client: &mut Client, tag: ServerTag, server: &mut Server, left: usize, out: &mut Outbox) {
    if left > 0 {
        client.state = State::Sending { server: tag, left };
        return;
    }
    client.state = State::Awaiting(tag);
    if !client.request.wants_answer() {
        // The client's next request comes behind it, though it may go to another server.
        server.ask_for_sign(tag, out);
    }
}
