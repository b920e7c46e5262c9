//! Asking for servers that clients keep for long, if a pool has become too small for all clients that keep one. The
//! pool decides which server that is.

use std::sync::Arc;

use pool::ServerId;
use seam::Protocol;

use super::{
    Worker,
    calls::{Source, call},
};
use crate::{reactor::Reactor, shared_pool::SharedPool};

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// Asks the client that keeps a server for long to give it back, or the session that retains it.
    pub(super) fn request_return(&mut self, pool: &Arc<SharedPool>, server: ServerId) {
        // Otherwise it has just moved, or ended.
        let Some(slot) = self.server_here(pool.id, server) else { return };
        if self.servers[slot].usage.is_retained() {
            return self.request_release(slot);
        }
        let Some(holder) = self.servers[slot].usage.holder() else { return };
        if self.clients[holder].life.is_closing() {
            return;
        }
        let mut out = self.take_outbox();
        let (client_tag, server_tag) = (self.client_tag(holder), self.server_tag(slot));
        let protocol = Arc::clone(&self.shared.protocol);
        let session = &mut self.clients[holder].session;
        match call(|| protocol.request_return(client_tag, session, server_tag, pool.id, &mut out)) {
            Some(gives) => {
                if gives {
                    self.log_return_request(slot, holder);
                }
                self.execute(out, Source::NONE);
            }
            None => self.on_client_defect(holder, out),
        }
    }

    fn log_return_request(&mut self, slot: usize, holder: usize) {
        if let Some(withheld) = self.paces.return_requested.take_line(self.now) {
            let spec = self.servers[slot].pool.spec();
            tracing::warn!(
                withheld,
                client = %self.client_address(holder), database = %spec.database, user = %spec.user,
                server = self.backend(slot), held_ms = (self.now - self.servers[slot].since).as_millis() as u64,
                "there are fewer servers than before, and clients that keep theirs have them all: \
                 this one is to give its server back"
            );
        }
    }
}
