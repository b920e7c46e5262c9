//! What becomes of a login to a server: it goes on, is over, or waits until its keys are derived. Knows not what is
//! said there.

use std::time::Duration;

use seam::{CloseReason, Effect, Outbox, Peer, ServerTag};

use crate::{MongoDb, Server, bson::Document, login::Next, monitor::Monitor, server::Role, topology::Heard};

impl MongoDb {
    /// A server that is being logged in to has answered.
    pub(crate) fn hear_login(
        &self,
        me: ServerTag,
        server: &mut Server,
        (answer, now): (Document<'_>, Duration),
        out: &mut Outbox,
    ) {
        let host = server.host();
        let Role::Starting(start) = &mut server.role else { unreachable!("a login is under way") };
        let (mut said, mut learnt) = (Vec::new(), None);
        let next = start.answered(answer, &self.keys, &mut said, |facts| learnt = Some(facts));
        out.insert(Peer::Server(me), |to| to.extend(&said));
        if let Some(facts) = learnt {
            // How long this took includes the login.
            self.learn(host, facts, Heard { at: now, took: None }, out);
        }
        self.started(me, server, next, out);
    }

    /// A server that is being logged in to has answered, or some of its keys are derived.
    pub(crate) fn started(&self, me: ServerTag, server: &mut Server, next: Next, out: &mut Outbox) {
        let Role::Starting(start) = &mut server.role else { return };
        match next {
            Next::Wait => {}
            Next::Later => match start.key {
                Some(key) => self.derivations.again((me, key)),
                None => {
                    let key = self.topology().new_key();
                    start.key = Some(key);
                    self.derivations.add((me, key));
                }
            },
            Next::Failed { message, permanent } => {
                let reason = CloseReason::StartFailed { permanent, message };
                out.push(Effect::Close { peer: Peer::Server(me), reason });
            }
            Next::Done if start.login.monitors => {
                let key = self.topology().new_key();
                server.role = Role::Monitor(Monitor::new(key));
                self.topology().watch(server.host(), me, key);
                out.push(Effect::Keep { server: me, briefly: false });
            }
            Next::Done => {
                server.set_usable(self.chores.note_used(server.pool()));
                out.push(Effect::Authenticated { server: me });
                out.push(Effect::Ready { server: me });
            }
        }
    }

    /// Has the server go on whose turn it is to derive a part of its keys.
    pub(crate) fn derive_next(&self, now: Duration, out: &mut Outbox) {
        if let Some((server, key)) = self.derivations.next(now) {
            let end = out.inserted.len();
            out.push(Effect::Post { to: Peer::Server(server), key, bytes: end..end });
        }
    }

    /// Derives one more part, if that was posted to a server that waits for it.
    pub(crate) fn go_on_deriving(&self, me: ServerTag, server: &mut Server, key: u64, out: &mut Outbox) {
        let Role::Starting(start) = &mut server.role else { return };
        if start.key != Some(key) || !start.is_deriving() {
            return;
        }
        let mut said = Vec::new();
        let next = start.go_on(&self.keys, &mut said);
        if !said.is_empty() {
            out.insert(Peer::Server(me), |to| to.extend(&said));
        }
        self.started(me, server, next, out);
    }
}
