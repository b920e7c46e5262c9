//! What becomes of a session that panics: it ends together with what it holds, and no other session does.
//!
//! Every call that touches a session is made by [`call`]. A panic there leaves the state of the worker as it was before
//! the call, because the effects of the session are in its outbox, which is then dropped. In doubt are the session
//! itself and the sessions that it was shown. So a client goes with the server that it holds or shares, and a server
//! with its holder, or with the one client of many that its session looked at last. The other clients that share such a
//! server hear that it was lost, and go on with another. A panic of the driver itself ends all workers.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use seam::{Blame, CloseReason, Effect, Outbox, Protocol, ServerTag, Sessions};

use super::{
    ClientWork, Worker,
    calls::{Source, call},
    lease::Lease,
};
use crate::reactor::Reactor;

/// Why the connections end. The runtime writes the place of the panic to standard error.
const WHY: &str = "a session of Poolhouse panicked: this is a defect, please report it";

/// No sessions: what a session is shown that is not to touch any other.
struct NoSessions;

impl<S> Sessions<ServerTag, S> for NoSessions {
    fn get(&mut self, _: ServerTag) -> Option<&mut S> {
        None
    }
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// Takes back the outbox of a call that panicked. None of its effects is executed.
    #[cold]
    pub(super) fn discard(&mut self, out: Outbox) {
        self.outboxes.put(out);
        self.count_defect();
    }

    #[cold]
    pub(super) fn count_defect(&mut self) {
        self.process.panics.fetch_add(1, Relaxed);
        if let Some(withheld) = self.paces.panic.take_line(self.now) {
            tracing::error!(withheld, "{WHY}");
        }
    }

    /// A call into the session of a client panicked.
    #[cold]
    pub(super) fn on_client_defect(&mut self, slot: usize, out: Outbox) {
        self.discard(out);
        self.end_broken_client(slot);
    }

    /// A call into the session of a server panicked. `shown` is the client that it looked at last.
    #[cold]
    pub(super) fn on_server_defect(&mut self, slot: usize, shown: Option<usize>, out: Outbox) {
        self.discard(out);
        let holder = self.servers[slot].usage.holder();
        // First the server, so that its clients are told that it is gone.
        self.end_server(slot, CloseReason::Error(Blame::Ours, WHY.to_owned()));
        if let Some(client) = holder.or(shown) {
            self.end_broken_client(client);
        }
    }

    /// Removes a client whose session is in doubt, and the server that it has.
    pub(super) fn end_broken_client(&mut self, slot: usize) {
        let Some(client) = self.clients.get_mut(slot) else { return };
        if !client.life.mark_broken() {
            return;
        }
        let lease = client.lease;
        let why = || CloseReason::Error(Blame::Ours, WHY.to_owned());
        if let Lease::Held { server } | Lease::Shared { server, .. } = lease
            && !self.servers[server as usize].link.is_ending()
        {
            self.end_server(server as usize, why());
        }
        self.push_client_work(slot, ClientWork::Close(why()));
    }

    /// Ends a session that is in doubt: the client loses what it has, and the session may drop what it has in the
    /// protocol's own state. Of its effects only posts are executed, because they can harm no other connection.
    #[cold]
    pub(super) fn end_broken_session(&mut self, slot: usize, told: bool) {
        if let Lease::Held { server } | Lease::Shared { server, .. } = self.clients[slot].lease {
            self.remove_server(server as usize, CloseReason::Error(Blame::Ours, WHY.to_owned()));
        }
        if told {
            return;
        }
        let mut out = self.take_outbox();
        let tag = self.client_tag(slot);
        let protocol = Arc::clone(&self.shared.protocol);
        let session = &mut self.clients[slot].session;
        if call(|| protocol.client_gone(tag, session, &mut NoSessions, &mut out)).is_none() {
            out.clear();
        }
        out.effects.retain(|effect| matches!(effect, Effect::Post { .. }));
        self.execute(out, Source::NONE);
    }
}
