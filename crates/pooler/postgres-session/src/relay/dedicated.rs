//! A client with a dedicated server: the client is told what the server has reported at its start, and the server is
//! closed when the client leaves. In between, messages pass unchanged. Only their headers are read, so that an error of
//! Poolhouse stands between two messages, and that it is known what the client is doing.

use seam::{Blame, ClientTag, CloseReason, Effect, Input, Outbox, Peer, ServerTag, Sessions, Standing, Verdict};

use crate::{
    session::{Client, Link, Occasion, PartialMessage, Phase, Postgres, Server, ServerSide, Stage, cancel},
    wire::{HEADER, Header, back, front},
};

/// Longest message: its length is a signed number.
const MAX_LENGTH: u32 = i32::MAX as u32;

/// Bytes of a ReadyForQuery.
const READY_LENGTH: usize = HEADER + 1;

impl Postgres {
    /// A client has got the server that was made for it: it is told what the server has reported, and begins.
    #[cold]
    pub(crate) fn dedicated_granted(&self, link: &mut Link<'_>) {
        let Stage::Dedicated(dedicated) = &link.server.stage else { unreachable!("the server is a dedicated one") };
        let Phase::Login(_) = link.client.phase else {
            // It was sent away while the grant was on its way.
            return release_dedicated(link);
        };
        self.write_welcome(link.client_tag, link.client, dedicated.parameters().iter(), link.out);
        link.client.phase = Phase::Dedicated;
        link.stand(Standing::Idle);
        // What the client has sent meanwhile was not consumed.
        link.wake();
    }

    /// Forwards the input of a client that has a dedicated server.
    pub(crate) fn relay_dedicated_client(
        &self,
        me: ClientTag,
        client: &mut Client,
        servers: &mut dyn Sessions<ServerTag, Server>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        let Some(tag) = client.lease else { return 0 };
        let server = servers.get(tag).expect("a leased server has a session");
        let Stage::Dedicated(dedicated) = &mut server.stage else { return 0 };
        let max_length =
            self.rules.of(client.entrance.listener()).map_or(MAX_LENGTH, |rules| rules.max_length.min(MAX_LENGTH));
        let mut at = 0;
        loop {
            let part = client.partial.rest().min(input.bytes.len() - at);
            client.partial.take(part);
            at += part;
            let Some(header) = Header::read(&input.bytes[at..]).filter(|_| client.partial.is_complete()) else { break };
            if header.kind == front::TERMINATE {
                client.close(me, CloseReason::Goodbye, out);
                return input.bytes.len();
            }
            if !(4..=max_length).contains(&header.length) {
                let occasion = Occasion::BadHeader(&input.bytes[at..]);
                client.close_for_violation(me, occasion, "a message of an impossible length", out);
                return input.bytes.len();
            }
            if let Some(standing) = dedicated.note_sent(header.kind) {
                client.stand(me, standing, out);
            }
            let here = (at + header.total()).min(input.bytes.len());
            client.partial = PartialMessage::new(at + header.total() - here, true);
            at = here;
        }
        out.span(Peer::Server(tag), 0..at);
        at
    }

    /// Forwards the input of a dedicated server.
    pub(crate) fn relay_dedicated_server(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        input: Input<'_>,
        at: usize,
        out: &mut Outbox,
    ) -> usize {
        if at == input.bytes.len() {
            return at;
        }
        let Some(holder) = server.holder() else {
            // The client for which it was made would miss this.
            server.stage = Stage::Closed;
            let reason = CloseReason::Error(Blame::Server, "a message of a server that no client has yet".to_owned());
            out.push(Effect::Close { peer: Peer::Server(me), reason });
            return input.bytes.len();
        };
        let client = clients.get(holder).expect("the holder of a server has a session");
        match relay_to_client(server, (holder, &mut *client), input, at, out) {
            Ok(end) => {
                client.mid_message = server.owes_client();
                end
            }
            Err(what) => {
                self.protocol_broken(&mut ServerSide { server_tag: me, server, clients, out }, what);
                input.bytes.len()
            }
        }
    }

    /// The client of a dedicated server has gone: the server goes, too. What it does meanwhile is cancelled.
    #[cold]
    pub(crate) fn dedicated_client_lost(&self, link: &mut Link<'_>) {
        let Stage::Dedicated(dedicated) = &link.server.stage else { unreachable!("the server is a dedicated one") };
        if dedicated.is_busy() && !dedicated.streams() {
            cancel(link.server_tag, link.server, link.out);
        }
        release_dedicated(link);
    }
}

/// Sends what has come from a server to the client that holds it, up to a message that must be whole and is not.
/// Returns where that is, or what is wrong with the server.
fn relay_to_client(
    server: &mut Server,
    (tag, client): (ClientTag, &mut Client),
    input: Input<'_>,
    from: usize,
    out: &mut Outbox,
) -> Result<usize, &'static str> {
    let Stage::Dedicated(dedicated) = &mut server.stage else { unreachable!("the server is a dedicated one") };
    let (bytes, mut at, mut fatal) = (input.bytes, from, None);
    loop {
        let part = server.partial.rest().min(bytes.len() - at);
        server.partial.take(part);
        at += part;
        let Some(header) = Header::read(&bytes[at..]).filter(|_| server.partial.is_complete()) else { break };
        if !(4..=MAX_LENGTH).contains(&header.length) {
            out.span(Peer::Client(tag), from..at);
            return Err("a message of an impossible length");
        }
        let end = at + header.total();
        let here = end.min(bytes.len());
        let standing = match header.kind {
            back::READY_FOR_QUERY if header.total() != READY_LENGTH => {
                out.span(Peer::Client(tag), from..at);
                return Err("a ReadyForQuery of another length than 5");
            }
            // A full buffer holds more than a ReadyForQuery.
            back::READY_FOR_QUERY if here < end => {
                out.need = READY_LENGTH;
                break;
            }
            back::ERROR_RESPONSE if here < end && !(input.full && at == from) => {
                out.need = header.total();
                break;
            }
            back::READY_FOR_QUERY => dedicated.note_ready(bytes[at + HEADER]),
            back::ERROR_RESPONSE => {
                fatal = bytes.get(at + HEADER..end);
                None
            }
            kind => dedicated.note_received(kind),
        };
        if let Some(standing) = standing {
            client.stand(tag, standing, out);
        } else if header.kind == back::READY_FOR_QUERY {
            out.push(Effect::Progress { client: tag, in_transaction: false });
        }
        server.partial = PartialMessage::new(end - here, true);
        at = here;
    }
    out.span(Peer::Client(tag), from..at);
    if let Some(body) = fatal {
        server.note_fatal(body);
    }
    Ok(at)
}

/// Gives the server up for good.
fn release_dedicated(link: &mut Link<'_>) {
    if link.client.owes_server() {
        // A Terminate would be taken for a part of the message that is under way.
        link.server.stage = Stage::Closed;
    }
    link.client.lease = None;
    link.server.lease = None;
    link.out.push(Effect::Release { server: link.server_tag, verdict: Verdict::Discard });
}
