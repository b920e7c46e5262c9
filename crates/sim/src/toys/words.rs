//! What all three toys say in the same way. It holds no state and decides nothing.

use protocol::{ClientTag, CloseReason, Effect, Outbox, Peer, ServerTag};

use super::wire;

/// Tells a client that a request failed.
pub fn fail(client: ClientTag, nonce: u32, out: &mut Outbox) {
    out.insert(Peer::Client(client), |b| wire::frame(b, wire::ERROR, nonce, 0, 0));
}

/// Says one word to a server.
pub fn say(server: ServerTag, kind: u8, out: &mut Outbox) {
    out.insert(Peer::Server(server), |b| wire::frame(b, kind, 0, 0, 0));
}

/// Says one word to a client.
pub fn turn_away(client: ClientTag, out: &mut Outbox) {
    out.insert(Peer::Client(client), |b| wire::frame(b, wire::TURNED_AWAY, 0, 0, 0));
}

/// A server refused to start, for the reason that its frame tells.
pub fn refused(server: ServerTag, head: wire::Header, out: &mut Outbox) {
    let permanent = head.flags & wire::PERMANENT != 0;
    let reason = CloseReason::StartFailed { permanent, message: "refused".into() };
    out.push(Effect::Close { peer: Peer::Server(server), reason });
}

/// Ends a client's connection.
pub fn hang_up(client: ClientTag, closing: &mut bool, reason: CloseReason, out: &mut Outbox) {
    *closing = true;
    out.push(Effect::Close { peer: Peer::Client(client), reason });
}
