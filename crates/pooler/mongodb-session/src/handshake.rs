//! Logins at servers: their replies, and SCRAM keys that are derived in parts.

use std::time::Duration;

use seam::{CloseReason, Effect, Outbox, Peer, ServerTag};

use crate::{
    MongoDb, Server, bson::Document, login::HandshakeStep, monitor::Monitor, server::Role, topology::HelloReceived,
};

impl MongoDb {
    pub(crate) fn on_handshake_reply(
        &self,
        me: ServerTag,
        server: &mut Server,
        (answer, now): (Document<'_>, Duration),
        out: &mut Outbox,
    ) {
        let host = server.host();
        let Role::Starting(start) = &mut server.role else { unreachable!("a login is under way") };
        let (mut request, mut learnt) = (Vec::new(), None);
        let next = start.on_reply(answer, &self.keys, &mut request, |description| learnt = Some(description));
        out.insert(Peer::Server(me), |to| to.extend(&request));
        if let Some(description) = learnt {
            // The round trip would include the login.
            self.learn(host, description, HelloReceived { at: now, round_trip: None }, out);
        }
        self.advance_handshake(me, server, next, out);
    }

    pub(crate) fn advance_handshake(&self, me: ServerTag, server: &mut Server, next: HandshakeStep, out: &mut Outbox) {
        let Role::Starting(start) = &mut server.role else { return };
        match next {
            HandshakeStep::Wait => {}
            HandshakeStep::Later => match start.key {
                Some(key) => self.derivations.put_back((me, key)),
                None => {
                    let key = self.topology().new_key();
                    start.key = Some(key);
                    self.derivations.add((me, key));
                }
            },
            HandshakeStep::Failed { message, permanent } => {
                let reason = CloseReason::StartFailed { permanent, message };
                out.push(Effect::Close { peer: Peer::Server(me), reason });
            }
            HandshakeStep::Done if start.login.monitors => {
                let key = self.topology().new_key();
                server.role = Role::Monitor(Monitor::new(key));
                self.topology().monitor_started(server.host(), me, key);
                out.push(Effect::Retain { server: me, briefly: false });
            }
            HandshakeStep::Done => {
                server.set_usable(self.cleanup_tasks.mark_used(server.pool()));
                out.push(Effect::Authenticated { server: me });
                out.push(Effect::Ready { server: me });
            }
        }
    }

    /// Wakes the server whose turn it is to derive a part of its keys.
    pub(crate) fn derive_next(&self, now: Duration, out: &mut Outbox) {
        if let Some((server, key)) = self.derivations.next(now) {
            let end = out.inserted.len();
            out.push(Effect::Post { to: Peer::Server(server), key, bytes: end..end });
        }
    }

    /// Derives the next part of a server's keys, if it waits for that.
    pub(crate) fn continue_derivation(&self, me: ServerTag, server: &mut Server, key: u64, out: &mut Outbox) {
        let Role::Starting(start) = &mut server.role else { return };
        if start.key != Some(key) || !start.is_deriving() {
            return;
        }
        let mut request = Vec::new();
        let next = start.derive_more(&self.keys, &mut request);
        if !request.is_empty() {
            out.insert(Peer::Server(me), |to| to.extend(&request));
        }
        self.advance_handshake(me, server, next, out);
    }
}
